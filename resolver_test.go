package ledger_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/rules"
)

// resolveBy are rules by which a function decides every conflict.
func resolveBy(f func(c *ledger.MergeConflict) (ledger.Resolution, error)) ledger.MergeRule {
	return ledger.MergeRule{Strategy: ledger.Automatic(ledger.Resolver(
		func(_ context.Context, c *ledger.MergeConflict) (ledger.Resolution, error) { return f(c) }))}
}

// diverged returns a page with two heads: left and right, and their base.
func diverged(t *testing.T, o ledger.Options, base, left, right func(*ledger.Tx) error) (p *ledger.Page, ids [3]ledger.CommitID) {
	t.Helper()
	o.ManualMerge = true
	p = memoryPage(t, o)
	ids[0] = update(t, p, base)
	for i, change := range []func(*ledger.Tx) error{left, right} {
		tx, err := p.Begin(t.Context(), &ledger.TxOptions{Base: ids[0]})
		must(t, err)
		must(t, change(tx))
		ids[i+1], err = tx.Commit(t.Context())
		must(t, err)
	}
	return p, ids
}

// pairs returns a change that puts pairs; "-" deletes.
func pairs(t *testing.T, kv ...string) func(*ledger.Tx) error {
	return func(tx *ledger.Tx) error {
		for i := 0; i < len(kv); i += 2 {
			err := tx.Put(t.Context(), []byte(kv[i]), []byte(kv[i+1]))
			if kv[i+1] == "-" {
				err = tx.Delete(t.Context(), []byte(kv[i]))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func TestResolutions(t *testing.T) {
	long := strings.Repeat("long ", 2000)
	p, ids := diverged(t, ledger.Options{},
		pairs(t, "a", "0", "b", "0", "c", "0", "d", "0", "e", "0", "f", "0", "g", "0", "same", "0", "one", "0"),
		pairs(t, "a", "1", "b", "1", "c", "1", "d", "1", "e", "1", "f", "1", "g", "-", "h", "1", "same", "1", "one", "1"),
		pairs(t, "a", "2", "b", "2", "c", "-", "d", "2", "e", "2", "f", "2", "g", "2", "h", "2", "same", "1"))
	var seen []string
	p.SetMergeRules(resolveBy(func(c *ledger.MergeConflict) (ledger.Resolution, error) {
		seen = append(seen, string(c.Key))
		if c.LeftCommit.ID != ids[1] || c.RightCommit.ID != ids[2] || len(c.BaseCommits) != 1 || c.BaseCommits[0].ID != ids[0] || c.BaseUnknown {
			t.Errorf("conflict %+v", c)
		}
		if base := valueOf(t, c.Base); base != "0" && (base != "absent" || string(c.Key) != "h") {
			t.Errorf("base of %s is %s", c.Key, base)
		}
		switch string(c.Key) {
		case "a":
			return ledger.Resolution{Take: ledger.TakeLeft}, nil
		case "b", "c", "g":
			return ledger.Resolution{Take: ledger.TakeRight}, nil
		case "d":
			return ledger.Resolution{Take: ledger.TakeNone, Rule: "away"}, nil
		case "e":
			return ledger.Resolution{Take: ledger.TakeNew, Value: []byte(valueOf(t, c.Left) + valueOf(t, c.Right))}, nil
		case "f":
			return ledger.Resolution{Take: ledger.TakeNew, Value: []byte(long), Priority: ledger.Lazy}, nil
		}
		return ledger.Resolution{Take: ledger.TakeNew, Reader: strings.NewReader("new"), Size: 3}, nil
	}))
	results, err := p.Merge(t.Context())
	must(t, err)
	if diff := cmp.Diff([]string{"a", "b", "c", "d", "e", "f", "g", "h"}, seen); diff != "" {
		t.Errorf("asked about (-want +got):\n%s", diff)
	}
	wantContent(t, p, map[string]string{"a": "1", "b": "2", "e": "12", "f": long, "g": "2", "h": "new", "same": "1", "one": "1"})
	must(t, p.View(t.Context(), func(s *ledger.Snapshot) error {
		e, err := s.Stat(t.Context(), []byte("f"))
		if e.Priority != ledger.Lazy {
			t.Errorf("priority %s", e.Priority)
		}
		return err
	}))
	var got []string
	for _, d := range decisions(t, p, results[0].Commit.ID) {
		got = append(got, string(d.Key)+" "+d.Outcome+" "+d.Rule)
	}
	want := []string{
		"a left resolver", "b right resolver", "c right resolver", "d deleted away", "e new resolver", "f new resolver",
		"g right resolver", "h new resolver",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decisions (-want +got):\n%s", diff)
	}
	checkClean(t, p.Repository())
}

// Defect 16 of the original: what is taken from a side comes with its priority.
func TestKeepTakesThePriorityOfTheSide(t *testing.T) {
	value := pseudo(1, 5000)
	with := func(pr ledger.Priority) func(*ledger.Tx) error {
		return func(tx *ledger.Tx) error { return tx.PutPriority(t.Context(), []byte("k"), value, pr) }
	}
	p, _ := diverged(t, ledger.Options{}, pairs(t, "k", "base"), with(ledger.Lazy), with(ledger.Eager))
	asked := 0
	p.SetMergeRules(resolveBy(func(c *ledger.MergeConflict) (ledger.Resolution, error) {
		asked++
		if c.Left.Priority != ledger.Lazy || c.Right.Priority != ledger.Eager {
			t.Errorf("priorities %s and %s", c.Left.Priority, c.Right.Priority)
		}
		return ledger.Resolution{Take: ledger.TakeLeft}, nil
	}))
	_, err := p.Merge(t.Context())
	must(t, err)
	if asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	must(t, p.View(t.Context(), func(s *ledger.Snapshot) error {
		e, err := s.Stat(t.Context(), []byte("k"))
		if e.Priority != ledger.Lazy {
			t.Errorf("priority %s", e.Priority)
		}
		return err
	}))
}

func TestCustomIsAskedAboutAllChanges(t *testing.T) {
	p, _ := diverged(t, ledger.Options{}, pairs(t, "both", "0", "left", "0", "none", "0", "right", "0", "same", "0"),
		pairs(t, "both", "1", "left", "1", "same", "1"), pairs(t, "both", "2", "right", "-", "same", "1"))
	var seen []string
	p.SetMergeRules(ledger.MergeRule{Strategy: ledger.Custom(ledger.Resolver(
		func(_ context.Context, c *ledger.MergeConflict) (ledger.Resolution, error) {
			seen = append(seen, string(c.Key)+" "+valueOf(t, c.Left)+" "+valueOf(t, c.Right))
			return ledger.Resolution{Take: ledger.TakeNew, Value: c.Key}, nil
		}))})
	_, err := p.Merge(t.Context())
	must(t, err)
	if diff := cmp.Diff([]string{"both 1 2", "left 1 0", "right 0 absent", "same 1 1"}, seen); diff != "" {
		t.Errorf("asked about (-want +got):\n%s", diff)
	}
	wantContent(t, p, map[string]string{"both": "both", "left": "left", "none": "0", "right": "right", "same": "same"})
}

func TestNamespacesChooseTheStrategy(t *testing.T) {
	p, _ := diverged(t, ledger.Options{}, pairs(t, "c/n", "10", "m/n", "10", "s/n", "a\nb\n", "x", "10"),
		pairs(t, "c/n", "15", "m/n", "30", "s/n", "a\nb\nc\n", "x", "1", "c/odd/n", "1"),
		pairs(t, "c/n", "7", "m/n", "20", "s/n", "b\nd\n", "x", "2", "c/odd/n", "2"))
	p.SetMergeRules(
		ledger.MergeRule{Prefix: []byte("c/"), Strategy: rules.LastOneWins()}, ledger.MergeRule{Prefix: []byte("c/"), Strategy: rules.Counter()},
		ledger.MergeRule{Prefix: []byte("m/"), Strategy: rules.Maximum()}, ledger.MergeRule{Prefix: []byte("s/"), Strategy: rules.SetUnion()},
		ledger.MergeRule{Prefix: []byte("c/odd/"), Strategy: rules.ByValue("first", func(_, left, right []byte) ([]byte, bool) {
			return bytes.Join([][]byte{left, right}, nil), true
		})})
	results, err := p.Merge(t.Context())
	must(t, err)
	wantContent(t, p, map[string]string{"c/n": "12", "m/n": "30", "s/n": "b\nc\nd\n", "x": "2", "c/odd/n": "12"})
	var rules []string
	for _, d := range decisions(t, p, results[0].Commit.ID) {
		rules = append(rules, d.Rule)
	}
	if diff := cmp.Diff([]string{"counter", "first", "maximum", "set union"}, rules[:4]); diff != "" || len(rules) != 5 {
		t.Errorf("rules %q:\n%s", rules, diff)
	}
}

// brokenReader panics.
type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { panic("reader's own words") }

// closingReader notes that it was closed.
type closingReader struct {
	io.Reader
	closed bool
}

func (c *closingReader) Close() error {
	c.closed = true
	return nil
}

func TestResolversThatFail(t *testing.T) {
	mine := errors.New("my own error")
	auto := func(f func(c *ledger.MergeConflict) (ledger.Resolution, error)) ledger.Strategy {
		return resolveBy(f).Strategy
	}
	give := func(r ledger.Resolution) ledger.Strategy {
		return auto(func(*ledger.MergeConflict) (ledger.Resolution, error) { return r, nil })
	}
	closing := &closingReader{Reader: strings.NewReader("x")}
	for name, c := range map[string]struct {
		s    ledger.Strategy
		want error
		text string
	}{
		"error": {auto(func(*ledger.MergeConflict) (ledger.Resolution, error) {
			return ledger.Resolution{Take: ledger.TakeLeft}, mine
		}), mine, ""},
		"panic":          {auto(func(*ledger.MergeConflict) (ledger.Resolution, error) { panic("the resolver's own words") }), nil, "the resolver's own words"},
		"none":           {give(ledger.Resolution{}), ledger.ErrInvalid, ""},
		"longer":         {give(ledger.Resolution{Take: ledger.TakeNew, Reader: strings.NewReader("xy"), Size: 1}), ledger.ErrInvalid, ""},
		"shorter":        {give(ledger.Resolution{Take: ledger.TakeNew, Reader: closing, Size: 2}), ledger.ErrInvalid, ""},
		"no reader":      {give(ledger.Resolution{Take: ledger.TakeNew, Reader: nil, Size: 1}), ledger.ErrInvalid, ""},
		"negative":       {give(ledger.Resolution{Take: ledger.TakeNew, Reader: strings.NewReader("x"), Size: -2}), ledger.ErrInvalid, ""},
		"reader":         {give(ledger.Resolution{Take: ledger.TakeNew, Reader: io.MultiReader(strings.NewReader("x"), failing{mine})}), mine, ""},
		"panic in Read":  {give(ledger.Resolution{Take: ledger.TakeNew, Reader: brokenReader{}}), nil, "reader's own words"},
		"priority":       {give(ledger.Resolution{Take: ledger.TakeNew, Value: []byte("x"), Priority: 9}), ledger.ErrInvalid, ""},
		"rule too long":  {give(ledger.Resolution{Take: ledger.TakeLeft, Rule: strings.Repeat("x", 129)}), ledger.ErrTooLarge, ""},
		"rule not UTF-8": {give(ledger.Resolution{Take: ledger.TakeLeft, Rule: "\xff"}), ledger.ErrInvalid, ""},
		"no resolver":    {ledger.Automatic(nil), ledger.ErrInvalid, ""},
		"no function":    {rules.ByValue("x", nil), ledger.ErrInvalid, ""},
		"no name":        {rules.ByValue("", func(_, _, _ []byte) ([]byte, bool) { return nil, true }), ledger.ErrInvalid, ""},
		"no group":       {rules.Grouped(nil), ledger.ErrInvalid, ""},
		"rule panics":    {rules.ByValue("p", func(_, _, _ []byte) ([]byte, bool) { panic("rule's own words") }), nil, "rule's own words"},
	} {
		t.Run(name, func(t *testing.T) {
			var events recorder
			p, ids := diverged(t, ledger.Options{Observe: events.Observe}, pairs(t, "k", "0"), pairs(t, "k", "1"), pairs(t, "k", "2"))
			p.SetMergeRules(ledger.MergeRule{Strategy: c.s})
			results, err := p.Merge(t.Context())
			var merr *ledger.MergeError
			if !errors.As(err, &merr) || merr.Left != ids[1] || merr.Right != ids[2] || results != nil {
				t.Fatalf("got %v, %v", results, err)
			}
			if c.want != nil {
				wantErr(t, err, c.want)
			}
			if !strings.Contains(err.Error(), c.text) {
				t.Errorf("error %v does not say %q", err, c.text)
			}
			if heads, err := p.Heads(t.Context()); err != nil || len(heads) != 2 || events.count(ledger.EventMergeFailed) != 1 {
				t.Errorf("heads %+v, %v", heads, err)
			}
			p.SetMergeRules()
			_, err = p.Merge(t.Context())
			must(t, err)
			wantContent(t, p, map[string]string{"k": "2"})
			checkClean(t, p.Repository())
		})
	}
	if !closing.closed {
		t.Error("the reader of a resolution was not closed")
	}
}

// failing fails to be read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestValuesOfAConflictEndWithIt(t *testing.T) {
	put := func(seed uint64) func(*ledger.Tx) error {
		return func(tx *ledger.Tx) error { return tx.Put(t.Context(), []byte("k"), pseudo(seed, 200_000)) }
	}
	p, _ := diverged(t, ledger.Options{}, put(1), put(2), put(3))
	var kept *ledger.Entry
	var open ledger.Value
	p.SetMergeRules(resolveBy(func(c *ledger.MergeConflict) (ledger.Resolution, error) {
		for i, e := range []*ledger.Entry{c.Base, c.Left, c.Right} {
			v, err := e.Value(t.Context())
			if err != nil || !bytes.Equal(v, pseudo(uint64(i+1), 200_000)) {
				t.Errorf("value %d: %d bytes, %v", i, len(v), err)
			}
		}
		kept = c.Left
		var err error
		open, err = c.Right.Open(t.Context())
		if err != nil {
			return ledger.Resolution{}, err
		}
		from, err := c.Left.Open(t.Context())
		return ledger.Resolution{Take: ledger.TakeNew, Reader: from, Size: from.Size()}, err // read after Resolve has returned
	}))
	_, err := p.Merge(t.Context())
	must(t, err)
	if got := pageContent(t, p)["k"]; got != string(pseudo(2, 200_000)) {
		t.Error("the new value is not what the reader gave")
	}
	_, err = kept.Value(t.Context())
	wantErr(t, err, ledger.ErrTxDone)
	_, err = open.ReadAt(make([]byte, 1), 0)
	wantErr(t, err, ledger.ErrTxDone)
}

func TestRulesReplacedWhileAResolverRuns(t *testing.T) {
	for _, manual := range []bool{true, false} {
		p := memoryPage(t, ledger.Options{ManualMerge: manual})
		base := put(t, p, "k", "0")
		asked := make(chan context.Context)
		p.SetMergeRules(ledger.MergeRule{Strategy: ledger.Automatic(ledger.Resolver(
			func(ctx context.Context, _ *ledger.MergeConflict) (ledger.Resolution, error) {
				asked <- ctx
				<-ctx.Done()
				return ledger.Resolution{Take: ledger.TakeNew, Value: []byte("old rules")}, nil // too late, whatever it says
			}))})
		a, b := sibling(t, p, base, "k", "1"), ledger.CommitID{}
		b = sibling(t, p, base, "k", "2")
		result := make(chan error)
		go func() {
			if manual {
				_, err := p.Merge(t.Context())
				result <- err
				return
			}
			result <- p.WaitForMerge(t.Context())
		}()
		ctx := <-asked
		if ctx.Err() != nil {
			t.Error("the context has ended already")
		}
		p.SetMergeRules(resolveBy(func(c *ledger.MergeConflict) (ledger.Resolution, error) {
			return ledger.Resolution{Take: ledger.TakeNew, Value: []byte("new rules")}, nil
		}))
		must(t, <-result)
		wantContent(t, p, map[string]string{"k": "new rules"})
		head := oneHead(t, p)
		if !slices.Contains(head.Parents, a) || !slices.Contains(head.Parents, b) {
			t.Errorf("head %+v", head)
		}
	}
}

// The resolver is asked about new conflicts only, when the page goes on while it thinks.
func TestHeadsThatMoveWhileAResolverRuns(t *testing.T) {
	p, _ := diverged(t, ledger.Options{}, pairs(t, "k", "0", "l", "0"), pairs(t, "k", "1", "l", "1"), pairs(t, "k", "2"))
	var asked []string
	p.SetMergeRules(resolveBy(func(c *ledger.MergeConflict) (ledger.Resolution, error) {
		asked = append(asked, string(c.Key))
		if len(asked) == 1 {
			put(t, p, "l", "2") // on the right
		}
		return ledger.Resolution{Take: ledger.TakeNew, Value: append([]byte("new "), c.Key...)}, nil
	}))
	results, err := p.Merge(t.Context())
	must(t, err)
	if len(results) != 2 || !slices.Contains(results[1].Commit.Parents, results[0].Commit.ID) {
		t.Errorf("results %+v", results)
	}
	oneHead(t, p)
	wantContent(t, p, map[string]string{"k": "new k", "l": "new l"})
	if diff := cmp.Diff([]string{"k", "l"}, asked); diff != "" {
		t.Errorf("asked about (-want +got):\n%s", diff)
	}
}

// Cancelled at any conflict, a merge leaves nothing behind, and the next one comes to the same as
// if nothing had been.
func TestMergeIsCancelledAnywhere(t *testing.T) {
	const n = 20
	many := func(v string) func(*ledger.Tx) error {
		return func(tx *ledger.Tx) error {
			for i := range n {
				if err := tx.Put(t.Context(), key(i), bytes.Repeat([]byte(v), 3000)); err != nil {
					return err
				}
			}
			return nil
		}
	}
	p, _ := diverged(t, ledger.Options{}, many("0"), many("1"), many("2"))
	for stop := range n {
		ctx, cancel := context.WithCancel(t.Context())
		var asked int
		p.SetMergeRules(resolveBy(func(c *ledger.MergeConflict) (ledger.Resolution, error) {
			if asked == stop {
				cancel()
			}
			asked++
			return ledger.Resolution{Take: ledger.TakeNew, Reader: bytes.NewReader(pseudo(uint64(asked), 50_000)), Priority: ledger.Lazy}, nil
		}))
		_, err := p.Merge(ctx)
		wantErr(t, err, context.Canceled)
		if asked != stop+1 {
			t.Errorf("asked %d times after cancelling at %d", asked, stop)
		}
		if heads, err := p.Heads(t.Context()); err != nil || len(heads) != 2 {
			t.Fatalf("%d heads, %v", len(heads), err)
		}
	}
	p.SetMergeRules()
	_, err := p.Merge(t.Context())
	must(t, err)
	oneHead(t, p)
	checkClean(t, p.Repository())
}

// Close waits for a resolver that runs, and nothing is merged.
func TestCloseInTheMiddleOfAMerge(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, nil)
	p := page(t, r, "app", "page")
	asked := make(chan struct{})
	var returned atomic.Bool
	p.SetMergeRules(ledger.MergeRule{Strategy: ledger.Automatic(ledger.Resolver(
		func(ctx context.Context, c *ledger.MergeConflict) (ledger.Resolution, error) {
			close(asked)
			<-ctx.Done()
			for range 1000 {
				runtime.Gosched()
			}
			_, err := c.Left.Value(context.Background())
			returned.Store(true)
			return ledger.Resolution{Take: ledger.TakeLeft}, err
		}))})
	base := put(t, p, "k", "0")
	sibling(t, p, base, "k", "1")
	sibling(t, p, base, "k", "2")
	<-asked
	closeIt(t, r)
	if !returned.Load() {
		t.Error("Close did not wait for the resolver")
	}
	r = open(t, dir, &ledger.Options{ManualMerge: true})
	if heads, err := page(t, r, "app", "page").Heads(t.Context()); err != nil || len(heads) != 2 {
		t.Errorf("%d heads, %v", len(heads), err)
	}
	checkClean(t, r)
}

// fillWords fills b with what stands at an offset of an endless text that does not repeat.
func fillWords(b []byte, at int64) {
	for len(b) > 0 {
		z := uint64(at) / 8 * 0x9e3779b97f4a7c15
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		var word [8]byte
		binary.LittleEndian.PutUint64(word[:], z^z>>27)
		n := copy(b, word[at%8:])
		b, at = b[n:], at+int64(n)
	}
}

// words reads size bytes of that text, and notes how much is live meanwhile.
type words struct {
	at, size int64
	live     uint64
}

// liveBytes returns how much is live: what waits for a collection depends on how busy the machine
// is.
func liveBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (w *words) Read(b []byte) (int, error) {
	if w.at == w.size {
		return 0, io.EOF
	}
	n := min(int64(len(b)), w.size-w.at)
	fillWords(b[:n], w.at)
	if w.at/(8<<20) != (w.at+n)/(8<<20) {
		w.live = max(w.live, liveBytes())
	}
	w.at += n
	return int(n), nil
}

// sameWords fails when something else is written.
type sameWords struct{ at int64 }

func (s *sameWords) Write(b []byte) (int, error) {
	want := make([]byte, len(b))
	fillWords(want, s.at)
	if !bytes.Equal(b, want) {
		return 0, errors.New("other words")
	}
	s.at += int64(len(b))
	return len(b), nil
}

func TestResolversWithLongValues(t *testing.T) {
	size, most := int64(64<<20), int64(48<<20)
	if tier.Nightly() {
		size, most = 1<<30, 64<<20
	}
	r := open(t, t.TempDir(), &ledger.Options{ManualMerge: true})
	p := page(t, r, "app", "page")
	base := put(t, p, "k", "0")
	sibling(t, p, base, "k", "1")
	sibling(t, p, base, "k", "2")
	w := &words{size: size}
	p.SetMergeRules(resolveBy(func(*ledger.MergeConflict) (ledger.Resolution, error) {
		return ledger.Resolution{Take: ledger.TakeNew, Reader: w, Size: size, Priority: ledger.Lazy}, nil
	}))
	before := liveBytes()
	_, err := p.Merge(t.Context())
	must(t, err)
	if grown := int64(w.live) - int64(before); w.live == 0 || grown > most {
		t.Errorf("%d MiB more were live", grown>>20)
	}
	must(t, p.View(t.Context(), func(s *ledger.Snapshot) error {
		v, err := s.Open(t.Context(), []byte("k"))
		must(t, err)
		n, err := v.WriteTo(&sameWords{})
		if n != size {
			t.Errorf("%d bytes", n)
		}
		return err
	}))
}
