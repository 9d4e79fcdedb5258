package bucket

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledger/internal/base"
)

// probeRacers is how many concurrent puts of one name a probe makes.
const probeRacers = 16

// probeBytes is the length of the object whose ranges are read: more than buffers in transit hold.
const probeBytes = 300_001

// probeCleanup bounds the time for removing the probe's objects after the context of the caller has
// ended.
const probeCleanup = 30 * time.Second

// ProbePoint is one check of Probe.
type ProbePoint struct {
	// Name is what a bucket must do, such as "put refuses an existing name".
	Name string
	// Err is what it did instead, or nil.
	Err error
}

// UnfitError reports a bucket that does not do what Ledger needs. It matches base.ErrUnsupported,
// and nothing that its points match: these say how the bucket broke a promise, which is no trouble
// of the page or the network.
type UnfitError struct {
	// Points are those that the bucket failed, at least one.
	Points []ProbePoint
}

// Error names each failed point, on one line.
func (e *UnfitError) Error() string {
	texts := make([]string, len(e.Points))
	for i, p := range e.Points {
		texts[i] = fmt.Sprintf("%s: %v", p.Name, p.Err)
	}
	return "the bucket does not do what is needed: " + strings.Join(texts, "; ")
}

// Is reports whether target is base.ErrUnsupported.
func (e *UnfitError) Is(target error) bool { return target == base.ErrUnsupported }

// Probe proves with real requests, about 70 and 1 MiB, that b keeps the promises of Bucket. A put
// refuses an existing name, also with concurrent puts. A range has the right bytes. A list is
// ordered, complete, and starts where it should. An object exists right after its put, and not
// after its delete. Probe works with new names below prefix, which is empty or a legal name, and
// removes them at the end.
//
// Probe returns all points that it has checked, in order. The error is an *UnfitError for a bucket
// that has failed some of them, and else that of a request that could not be made.
func Probe(ctx context.Context, b Bucket, prefix string) (points []ProbePoint, err error) {
	var id [10]byte
	rand.Read(id[:])
	dir := "probe-" + hex.EncodeToString(id[:])
	if prefix != "" {
		dir = prefix + "/" + dir
	}
	if err := CheckName(dir + "/list/0123456789"); err != nil {
		return nil, fmt.Errorf("probe %s: %w", b, err)
	}
	p := &prober{b: b, dir: dir}
	p.ctx, p.stop = context.WithCancel(ctx)
	defer p.stop()
	defer func() {
		if cleanErr := p.clean(); cleanErr != nil && p.err == nil { // else it has the same cause
			err = errors.Join(err, fmt.Errorf("remove what probe of %s has stored: %w", b, cleanErr))
		}
	}()
	for _, look := range []func(){p.basics, p.race, p.ranges, p.lists, p.deletes} {
		if look(); p.err != nil {
			return p.points, fmt.Errorf("probe %s: %w", b, p.err)
		}
	}
	failed := slices.DeleteFunc(slices.Clone(p.points), func(p ProbePoint) bool { return p.Err == nil })
	if len(failed) > 0 {
		return p.points, &UnfitError{failed}
	}
	return p.points, nil
}

type prober struct {
	ctx    context.Context // of the requests; ends with the first one that could not be made
	stop   context.CancelFunc
	b      Bucket
	dir    string
	points []ProbePoint
	names  []string // of objects that may exist
	err    error    // of the first request that could not be made: then there are no further points
}

// name returns the full name, and records it for clean.
func (p *prober) name(s string) string {
	s = p.dir + "/" + s
	if !slices.Contains(p.names, s) {
		p.names = append(p.names, s)
	}
	return s
}

func (p *prober) clean() error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), probeCleanup) // leave no objects, even when canceled
	defer cancel()
	var errs []error
	for _, n := range p.names {
		errs = append(errs, p.b.Delete(ctx, n))
	}
	return errors.Join(errs...)
}

// unasked reports whether err only says that the bucket could not be asked. A put that does not
// find a name has not found the bucket.
func (p *prober) unasked(err error) bool {
	if e, ok := errors.AsType[*Error](err); ok && e.Op == OpPut && e.Class == ClassNotFound {
		return true
	}
	switch ClassOf(err) {
	case ClassBusy, ClassRetryable, ClassDenied, ClassQuota, ClassCanceled:
		return err != nil
	}
	return p.ctx.Err() != nil
}

func (p *prober) put(name string, content []byte) error {
	return p.b.PutIfAbsent(p.ctx, name, int64(len(content)), bytes.NewReader(content))
}

// read returns the bytes of a range. It reads at most one byte more than the object can have.
func (p *prober) read(name string, off, n int64) ([]byte, Object, error) {
	o, err := p.b.Get(p.ctx, name, off, n)
	if err != nil {
		return nil, o, err
	}
	got, err := io.ReadAll(io.LimitReader(o.Body, probeBytes+1))
	return got, o, errors.Join(err, o.Body.Close())
}

// holds returns an error unless the object has the content.
func (p *prober) holds(name string, content []byte) error {
	got, o, err := p.read(name, 0, -1)
	switch {
	case err != nil:
		return err
	case !bytes.Equal(got, content):
		return fmt.Errorf("%w: object of %d bytes has other content, of %d", base.ErrCorrupt, len(content), len(got))
	case o.Size != int64(len(content)):
		return fmt.Errorf("%w: object of %d bytes is said to have %d", base.ErrCorrupt, len(content), o.Size)
	}
	return nil
}

// list adds a point: a list of the objects of lists must have the names want.
func (p *prober) list(point, after, prefix string, limit int, want []string) {
	infos, err := p.b.List(p.ctx, after, p.dir+"/list/"+prefix, limit)
	if err == nil {
		err = p.sameList(infos, want)
	}
	p.ok(point, err)
}

// delete adds a point: a delete must succeed.
func (p *prober) delete(point, name string) {
	p.ok(point, p.b.Delete(p.ctx, name))
}

// is adds a point: err must match want.
func (p *prober) is(point string, err, want error) {
	switch {
	case errors.Is(err, want):
		err = nil
	case err == nil:
		err = fmt.Errorf("%w: no error instead of %w", base.ErrCorrupt, want)
	}
	p.ok(point, err)
}

// ok adds a point: err must be nil.
func (p *prober) ok(point string, err error) {
	switch {
	case p.err != nil:
	case err != nil && p.unasked(err):
		p.err = fmt.Errorf("%s: %w", point, err)
		p.stop()
	default:
		p.points = append(p.points, ProbePoint{point, err})
	}
}

func (p *prober) basics() {
	name, first, second := p.name("basics"), []byte("the first content"), []byte("the second one")
	_, _, err := p.read(name, 0, -1)
	p.is("get of an absent name says not found", err, base.ErrNotFound)
	p.ok("put stores under a new name", p.put(name, first))
	p.ok("get gives what was put", p.holds(name, first))
	p.is("put refuses an existing name", p.put(name, second), ErrExists)
	p.is("put refuses an existing name with the same content", p.put(name, first), ErrExists)
	p.ok("a refused put changes nothing", p.holds(name, first))
	_, o, err := p.read(name, 0, 0)
	created := o.Created
	if err == nil && created.IsZero() {
		err = fmt.Errorf("%w: object without creation time", base.ErrUnsupported)
	}
	p.ok("get tells when an object was created", err)
	_, o, err = p.read(name, 0, 0)
	if err == nil && !o.Created.Equal(created) {
		err = fmt.Errorf("%w: created %s, then %s", base.ErrCorrupt, created, o.Created)
	}
	p.ok("creation time stays the same", err)
	empty := p.name("empty")
	if err = p.put(empty, nil); err == nil {
		err = p.holds(empty, nil)
	}
	p.ok("an object may be empty", err)
}

// race makes concurrent puts of one name, twice.
func (p *prober) race() {
	for _, round := range []string{"race-1", "race-2"} {
		name := p.name(round)
		errs := make([]error, probeRacers)
		content := func(i int) []byte { return []byte(strings.Repeat(fmt.Sprintf("racer %02d.", i), 100)) }
		var wg sync.WaitGroup
		start := make(chan struct{})
		for i := range errs {
			wg.Go(func() {
				<-start
				errs[i] = p.put(name, content(i))
			})
		}
		close(start)
		wg.Wait()
		got, _, err := p.read(name, 0, -1)
		if err == nil {
			err = raceResult(errs, got, content)
		}
		p.ok("of many who put one name at once, one wins", err)
	}
}

// raceResult verifies that no racer got success for content that is not stored. A racer with an
// ambiguous error may have won.
func raceResult(errs []error, got []byte, content func(int) []byte) error {
	var won, maybe []int
	for i, err := range errs {
		switch {
		case err == nil:
			won = append(won, i)
		case Ambiguous(err):
			maybe = append(maybe, i)
		case !errors.Is(err, ErrExists):
			return err
		}
	}
	if len(won) > 1 {
		return fmt.Errorf("%w: %d of %d were told that they stored it", base.ErrCorrupt, len(won), len(errs))
	}
	if len(won) == 0 {
		won = maybe
	}
	if !slices.ContainsFunc(won, func(i int) bool { return bytes.Equal(got, content(i)) }) {
		return fmt.Errorf("%w: what is stored is not what the winner put", base.ErrCorrupt)
	}
	return nil
}

func (p *prober) ranges() {
	name, content := p.name("ranges"), make([]byte, probeBytes)
	rand.Read(content)
	if err := p.put(name, content); err != nil {
		p.ok("put stores some hundred KiB", err)
		return
	}
	p.ok("get gives some hundred KiB", p.holds(name, content))
	for _, r := range []struct {
		what       string
		off, n     int64
		start, end int
	}{
		{"at the start", 0, 7, 0, 7}, {"in the middle", 70_000, 100_000, 70_000, 170_000}, {"of one byte", 5, 1, 5, 6},
		{"at the end", probeBytes - 9, 9, probeBytes - 9, probeBytes}, {"beyond the end", probeBytes - 9, 100, probeBytes - 9, probeBytes},
		{"from the middle to the end", 200_000, -1, 200_000, probeBytes}, {"of the last byte", probeBytes - 1, -1, probeBytes - 1, probeBytes},
	} {
		got, o, err := p.read(name, r.off, r.n)
		switch want := content[r.start:r.end]; {
		case err != nil:
		case !bytes.Equal(got, want):
			err = fmt.Errorf("%w: %d bytes from %d on are not those asked for", base.ErrCorrupt, len(got), r.off)
		case o.Size != probeBytes:
			err = fmt.Errorf("%w: an object of %d bytes is said to have %d", base.ErrCorrupt, probeBytes, o.Size)
		}
		p.ok("a range "+r.what+" is that range", err)
	}
	_, _, err := p.read(name, probeBytes, -1)
	p.is("a range that starts at the end is refused", err, ErrRange)
}

func (p *prober) lists() {
	// No name is a prefix of another one with a slash: Ledger needs none, and a store of files has
	// none.
	all := []string{"a-", "a-b", "a.b", "a/b", "a0", "a_", "aa", "b-", "b/c/d", "c0000000001", "c0000000002", "c0000000010"}
	for _, i := range []int{7, 3, 11, 0, 5, 9, 1, 8, 10, 2, 6, 4} {
		if err := p.put(p.name("list/"+all[i]), []byte(all[i])); err != nil {
			p.ok("put stores names of all kinds", err)
			return
		}
	}
	for _, l := range []struct {
		point, after, prefix string
		limit                int
		want                 []string
	}{
		{"a list is complete and ordered by bytes", "", "", MaxList, all},
		{"a list starts after the given name", "a0", "", MaxList, all[5:]},
		{"a list starts after a name that does not exist", "a1", "", MaxList, all[5:]},
		{"a list ends at its limit", "", "", 4, all[:4]},
		{"a list goes on after its limit", "a/b", "", 4, all[4:8]},
		{"a list is as long as its limit allows", "", "", len(all), all},
		{"a list keeps to its prefix", "", "a", MaxList, all[:7]},
		{"a prefix may end within a segment", "", "c00000000", MaxList, all[9:]},
		{"a list after a name keeps to its prefix", "a.b", "a", 2, all[3:5]},
		{"a list after the last name is empty", "c0000000010", "", MaxList, nil},
	} {
		after := l.after
		if after != "" {
			after = p.dir + "/list/" + after
		}
		p.list(l.point, after, l.prefix, l.limit, l.want)
	}
}

func (p *prober) sameList(infos []Info, want []string) error {
	var got []string
	for _, i := range infos {
		name := strings.TrimPrefix(i.Name, p.dir+"/list/")
		if got = append(got, name); i.Size != int64(len(name)) || i.Created.IsZero() {
			return fmt.Errorf("%w: listed %q with %d bytes, created %s", base.ErrCorrupt, name, i.Size, i.Created)
		}
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%w: listed %.200q, want %q", base.ErrCorrupt, got, want)
	}
	return nil
}

func (p *prober) deletes() {
	name, again := p.name("list/b-"), []byte("stored again")
	p.delete("delete deletes", name)
	p.delete("delete of the start of a name does nothing", p.dir+"/list/b")
	_, _, err := p.read(name, 0, -1)
	p.is("what was deleted is not found", err, base.ErrNotFound)
	p.list("what was deleted is not listed, and what lies below is", p.dir+"/list/aa", "", 1, []string{"b/c/d"})
	p.delete("delete of an absent name does nothing", name)
	p.ok("a deleted name can be put", p.put(name, again))
	p.ok("and holds what was put", p.holds(name, again))
}
