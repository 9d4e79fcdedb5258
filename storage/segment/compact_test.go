package segment_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage/segment"
)

// keepLive is what the tests call live: records that do not begin with "dead".
func keepLive(_ segment.BatchInfo, recs []segment.Record, out *segment.Batch) error {
	for _, r := range recs {
		if !strings.HasPrefix(string(r.Payload), "dead") {
			out.Add(r.Kind, r.Payload)
		}
	}
	return nil
}

func liveOf(recs []rec) (out []rec) {
	for _, r := range recs {
		if !strings.HasPrefix(r.Payload, "dead") {
			out = append(out, r)
		}
	}
	return out
}

// finished returns the ids of the segments that are not appended to and have batches.
func finished(l *segment.Log) (ids []uint32) {
	for _, s := range l.Segments() {
		if !s.Open && s.SyncedEnd > 32 {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// finishAll makes all segments ones that are not appended to.
func finishAll(t testing.TB, l *segment.Log) {
	t.Helper()
	must(t, l.Main().Finish())
	l.FinishIdle()
}

func TestRewrite(t *testing.T) {
	m := vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	bulk := l.NewStream()
	first := appendTo(t, l.Main(), rec{1, "live 1"}, rec{2, "dead 1"})
	appendTo(t, bulk, rec{1, "dead 2"})
	appendTo(t, bulk, rec{1, "live 3"}, rec{1, "live 3b"})
	before := l.Position(3)
	appendTo(t, l.Main(), rec{1, "dead 4"})
	bulk.Release()
	if got := finished(l); len(got) != 0 {
		t.Fatalf("segments %v are finished", got)
	}
	_, err := l.Rewrite(t.Context(), []uint32{1}, 4, keepLive)
	wantIs(t, err, base.ErrInvalid)
	finishAll(t, l)
	old := l.Position(4)
	_, err = l.Rewrite(t.Context(), finished(l), 3, keepLive)
	wantIs(t, err, base.ErrInvalid)
	r, err := l.Rewrite(t.Context(), finished(l), 4, keepLive)
	must(t, err)
	_, err = l.Rewrite(t.Context(), finished(l), 4, keepLive)
	wantIs(t, err, base.ErrInvalid)
	must(t, r.Install())
	_, err = l.Rewrite(t.Context(), finished(l), 4, keepLive)
	wantIs(t, err, base.ErrInvalid)
	moved, err := l.Moved()
	must(t, err)
	if d := cmp.Diff([]uint32{r.Segment()}, moved); d != "" {
		t.Fatal(d)
	}
	readBack(t, l, first.Places[0], "live 1")
	both, err := l.MapPosition(old, true)
	must(t, err)
	mapped, err := l.MapPosition(old, false)
	must(t, err)
	_, err = l.MapPosition(before, false)
	wantIs(t, err, segment.ErrIndexMismatch)
	if d := cmp.Diff(l.Position(4), mapped); d != "" {
		t.Fatal(d)
	}
	appendTo(t, l.Main(), rec{1, "after"})
	must(t, l.Close())

	want := []string{"live 1", "live 3", "live 3b", "after"}
	for name, c := range map[string]struct {
		pos    *segment.Position
		moving bool
		moved  int
		want   []string
	}{
		"old":    {&old, false, 1, want[3:]},
		"both":   {&both, true, 1, want[3:]},
		"mapped": {&mapped, false, 0, want[3:]},
		"none":   {nil, false, 0, want},
	} {
		c0 := m.CrashClone(vfstest.KeepNone)
		o := options(c0)
		o.Moving = c.moving
		l, _, s := open(t, o, c.pos)
		if got := s.all(); !slices.Equal(got, c.want) {
			t.Fatalf("%s: replayed %q", name, got)
		}
		moved, err := l.Moved()
		must(t, err)
		if len(moved) != c.moved {
			t.Fatalf("%s: moved %v", name, moved)
		}
		if c.moved > 0 {
			readBack(t, l, first.Places[0], "live 1")
		}
		l.Retire()
		_, err = l.Read(first.Places[0], nil)
		if c.moved > 0 {
			wantIs(t, err, segment.ErrRetired)
		}
		if err == nil {
			t.Fatal("a replaced segment is read")
		}
		must(t, l.Verify(t.Context(), nil))
		must(t, l.Close())
		infos, err := c0.ReadDir("page")
		must(t, err)
		for _, i := range infos {
			if i.Name < segment.FileName(r.Segment()) {
				t.Fatalf("%s: left %v", name, infos)
			}
		}
		o.ReadOnly = true
		_, _, s = open(t, o, nil)
		if got := s.all(); !slices.Equal(got, want) {
			t.Fatalf("%s: replayed %q", name, got)
		}
	}
	o := options(m)
	o.ReadOnly = true
	_, _, err = segment.Open(t.Context(), o, &old, nil)
	wantIs(t, err, segment.ErrIndexMismatch) // a reader cannot make the index point elsewhere
	if errors.Is(err, base.ErrCorrupt) {
		t.Fatal(err)
	}
	_, _, s := open(t, o, nil)
	if got := s.all(); !slices.Equal(got, want) {
		t.Fatalf("replayed %q", got)
	}
}

func (s *seen) all() (out []string) {
	for _, n := range s.numbers {
		for _, r := range s.recs[n] {
			out = append(out, r.Payload)
		}
	}
	return out
}

func readBack(t testing.TB, l *segment.Log, p segment.Place, want string) {
	t.Helper()
	b, err := l.Read(p, nil)
	must(t, err)
	if string(b) != want {
		t.Fatalf("read %q, want %q", b, want)
	}
}

// TestRewriteAgain replaces replacements, until one empty batch is left that stands for all.
func TestRewriteAgain(t *testing.T) {
	m := vfstest.NewMem()
	o := options(m)
	l, _, _ := open(t, o, nil)
	for i := range 5 {
		appendTo(t, l.Main(), rec{1, fmt.Sprint("dead ", i)})
		finishAll(t, l)
		pos := l.Position(l.Complete())
		r, err := l.Rewrite(t.Context(), finished(l), l.Complete(), keepLive)
		must(t, err)
		must(t, r.Install())
		_, err = l.MapPosition(pos, false)
		must(t, err)
		l.Retire()
		d, err := l.Describe(r.Segment())
		must(t, err)
		if want := (segment.Description{Judged: uint64(i + 1), First: uint64(i + 1)}); d != want {
			t.Fatalf("description %v, want %v", d, want)
		}
		if n := len(l.Segments()); n != 1 {
			t.Fatalf("%d segments", n)
		}
	}
	must(t, l.Close())
	l, _, s := open(t, o, nil)
	if len(s.all()) > 0 || l.Complete() != 5 {
		t.Fatalf("replayed %v, complete %d", s.numbers, l.Complete())
	}
	if a := appendTo(t, l.Main(), rec{1, "x"}); a.Segment <= 10 || a.Number < 6 {
		t.Fatalf("appended %v", a) // no id and number twice
	}
	must(t, l.Close())
}

// TestRewriteDamage damages a replacement: it is never taken for a torn tail.
func TestRewriteDamage(t *testing.T) {
	m := vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	appendTo(t, l.Main(), rec{1, "live"}, rec{1, "dead"})
	appendTo(t, l.Main(), rec{1, "live too"})
	finishAll(t, l)
	r, err := l.Rewrite(t.Context(), finished(l), 2, keepLive)
	must(t, err)
	must(t, r.Install())
	l.Retire()
	must(t, l.Close())
	name := "page/00000002.seg"
	whole, err := vfs.ReadFile(m, name, 1<<20)
	must(t, err)
	for i := range whole {
		for _, cut := range []bool{false, true} {
			c := m.CrashClone(vfstest.KeepAll)
			f, err := c.Open(name)
			must(t, err)
			if cut && i > 0 {
				must(t, f.Truncate(int64(i)))
			} else {
				_, err = f.WriteAt([]byte{whole[i] ^ 0x40}, int64(i))
				must(t, err)
			}
			must(t, f.Close())
			_, _, err = segment.Open(t.Context(), options(c), nil, nil)
			if cut && i < 32 || !cut && i < 32 && err == nil {
				continue // the file is one that was never named
			}
			if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
				t.Fatalf("byte %d, cut %v: %v", i, cut, err)
			}
		}
	}
}

// TestCopyPins copies a log of which segments are replaced and retired meanwhile.
func TestCopyPins(t *testing.T) {
	m, backup := vfstest.NewMem(), vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	appendTo(t, l.Main(), rec{1, "live"}, rec{1, "dead"})
	finishAll(t, l)
	appendTo(t, l.Main(), rec{1, "later"})
	must(t, backup.MkdirAll("page"))
	replaced := false
	must(t, l.CopyTo(t.Context(), func(name string, size int64) (io.WriteCloser, error) {
		if !replaced {
			replaced = true
			r, err := l.Rewrite(t.Context(), []uint32{1}, 2, keepLive)
			must(t, err)
			must(t, r.Install())
			l.Retire()
			if _, err := m.Stat("page/00000001.seg"); err != nil {
				t.Fatal("a file that is copied was removed")
			}
		}
		f, err := backup.Create(filepath.Join("page", name))
		return &memWriter{f: f}, err
	}))
	if _, err := m.Stat("page/00000001.seg"); err == nil {
		t.Fatal("a replaced file stays")
	}
	_, _, s := open(t, options(backup), nil)
	if got := s.all(); !slices.Equal(got, []string{"live", "dead", "later"}) {
		t.Fatalf("backup has %q", got)
	}
}

// TestReadersOutliveRetire reads while segments are replaced: a reader gets the record, or is told
// to look again.
func TestReadersOutliveRetire(t *testing.T) {
	m := vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	place := appendTo(t, l.Main(), rec{1, "live"}).Places[0]
	places := make(chan segment.Place, 1)
	places <- place
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 3)
	for range cap(done) {
		go func() {
			for ctx.Err() == nil {
				p := <-places
				places <- p
				b, err := l.Read(p, nil)
				if err != nil && !errors.Is(err, segment.ErrRetired) || err == nil && string(b) != "live" {
					done <- fmt.Errorf("read %q: %w", b, err)
					return
				}
			}
			done <- nil
		}()
	}
	for range 200 {
		finishAll(t, l)
		r, err := l.Rewrite(t.Context(), finished(l), l.Complete(), keepLive)
		must(t, err)
		must(t, r.Install())
		must(t, l.Scan(t.Context(), r.Segment(), func(_ segment.BatchInfo, recs []segment.Record) error {
			<-places
			places <- recs[0].Place
			return nil
		}))
		l.Retire()
	}
	stop()
	for range cap(done) {
		must(t, <-done)
	}
}

// rewriter is a history of appends and rewrites with an index that is as careful as it must be.
type rewriter struct {
	t      testing.TB
	o      segment.Options
	r      *rand.Rand
	acked  map[uint64][]rec
	trying map[string][]rec  // by payload; it may be there
	pos    *segment.Position // what the index has durably
	moving bool
	fails  bool
	count  int
}

// step appends or rewrites. It reports false after an error.
func (h *rewriter) step(l *segment.Log, streams []*segment.Stream) bool {
	if h.r.IntN(4) > 0 {
		h.count++
		recs := []rec{{1, fmt.Sprintf("live %08d", h.count)}, {2, fmt.Sprintf("dead %08d", h.count)}, {3, strings.Repeat("x", h.r.IntN(300))}}
		h.r.Shuffle(len(recs), func(i, j int) { recs[i], recs[j] = recs[j], recs[i] })
		recs = recs[:1+h.r.IntN(3)]
		recs[0].Payload = fmt.Sprint([]string{"live", "dead"}[h.r.IntN(2)], " ", h.count)
		h.trying[recs[0].Payload] = recs
		a, err := streams[h.r.IntN(len(streams))].Append(batchOf(recs...))
		if err != nil {
			return false
		}
		h.acked[a.Number] = recs
		delete(h.trying, recs[0].Payload)
		return true
	}
	if h.r.IntN(2) == 0 {
		finishAll(h.t, l)
	}
	ids := finished(l)
	h.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	if len(ids) == 0 {
		return true
	}
	return h.rewrite(l, ids[:1+h.r.IntN(len(ids))])
}

func (h *rewriter) rewrite(l *segment.Log, ids []uint32) bool {
	p, err := l.PositionOf(l.Complete())
	if err != nil {
		return false
	}
	h.pos, h.moving = &p, false
	r, err := l.Rewrite(context.Background(), ids, p.Number, keepLive)
	if err != nil {
		return false
	}
	if h.r.IntN(8) == 0 {
		return r.Discard() == nil
	}
	return r.Install() == nil && h.finish(l)
}

// finish moves the index to replacements.
func (h *rewriter) finish(l *segment.Log) bool {
	moved, err := l.Moved()
	if err != nil || len(moved) == 0 {
		return err == nil
	}
	for _, both := range []bool{true, false} {
		p, err := l.MapPosition(*h.pos, both)
		if err != nil && h.fails {
			return false
		}
		if err != nil {
			h.t.Fatal(err)
		}
		h.pos, h.moving = &p, both
	}
	l.Retire()
	return true
}

// session opens the log and does some steps; it reports false after an error.
func (h *rewriter) session(steps int) bool {
	o := h.o
	o.Moving = h.moving
	l, _, err := segment.Open(context.Background(), o, h.pos, nil)
	if err != nil {
		if !h.fails {
			h.t.Fatal(err)
		}
		return false
	}
	ok := h.pos == nil || h.finish(l)
	streams := []*segment.Stream{l.Main(), l.NewStream()}
	for i := 0; ok && i < steps; i++ {
		ok = h.step(l, streams)
	}
	return l.Close() == nil && ok
}

// check opens what a crash has left: with the position, as a reader and from the beginning.
func (h *rewriter) check(m *vfstest.Mem, what string) {
	h.t.Helper()
	for again, c := range []struct {
		pos      *segment.Position
		readOnly bool
	}{{nil, true}, {h.pos, false}, {h.pos, false}, {nil, false}, {nil, true}} {
		o := h.o
		o.FS, o.ReadOnly, o.Moving = m, c.readOnly, h.moving && c.pos != nil
		s := newSeen(h.t)
		l, _, err := segment.Open(context.Background(), o, c.pos, s.replay)
		if err != nil {
			h.t.Fatalf("%s: open %d: %v\n%s", what, again, err, m)
		}
		if err := l.Verify(context.Background(), nil); err != nil {
			h.t.Fatalf("%s: verify %d: %v", what, again, err)
		}
		h.compare(s, c.pos, fmt.Sprintf("%s, open %d", what, again))
		if c.pos != nil && again == 2 {
			h.mapsAll(l, what)
		}
		if err := l.Close(); err != nil {
			h.t.Fatal(err)
		}
	}
}

// mapsAll checks that the position can be made to name replacements only.
func (h *rewriter) mapsAll(l *segment.Log, what string) {
	p, err := l.MapPosition(*h.pos, false)
	if err != nil {
		h.t.Fatalf("%s: %v", what, err)
	}
	l.Retire()
	here := l.Ends()
	for _, e := range p.Ends {
		if !slices.ContainsFunc(here, func(x segment.End) bool { return x.Segment == e.Segment && x.Offset >= e.Offset }) {
			h.t.Fatalf("%s: position names %v of %v", what, e, here)
		}
	}
}

// compare wants all live records of what was acknowledged, and of each batch nothing that was not
// in it.
func (h *rewriter) compare(s *seen, pos *segment.Position, what string) {
	h.t.Helper()
	from := uint64(0)
	if pos != nil {
		from = pos.Number
	}
	for n, want := range h.acked {
		if n <= from {
			continue
		}
		if got := s.recs[n]; !slices.Equal(got, want) && !slices.Equal(got, liveOf(want)) {
			h.t.Fatalf("%s: batch %d is %v, want %v", what, n, got, want)
		}
	}
	for n, got := range s.recs {
		tried := func(want []rec) bool { return slices.Equal(got, want) || slices.Equal(got, liveOf(want)) }
		if h.acked[n] == nil && !slices.ContainsFunc(slices.Collect(maps.Values(h.trying)), tried) {
			h.t.Fatalf("%s: batch %d is %v", what, n, got)
		}
	}
}

func newRewriter(t testing.TB, seed uint64) *rewriter {
	h := &rewriter{t: t, o: options(nil), r: rand.New(rand.NewPCG(seed, 11)), acked: map[uint64][]rec{}, trying: map[string][]rec{}}
	h.o.SegmentBytes = 600
	return h
}

// TestRewriteCrashEverywhere cuts the power after every operation of a history of appends and
// rewrites that changes something.
func TestRewriteCrashEverywhere(t *testing.T) {
	for seed := range uint64(4 * factor()) {
		m := vfstest.NewMem()
		must(t, m.Mkdir("page"))
		must(t, m.SyncDir("."))
		h := newRewriter(t, seed)
		h.o.FS = vfstest.NewHooked(m, func(op vfstest.Op) {
			for name, keep := range keeps(seed*1000 + uint64(op.N)) {
				h.check(m.CrashClone(keep), fmt.Sprintf("seed %d, %s, keep %s", seed, op, name))
			}
		})
		for range 3 {
			h.session(8)
		}
	}
}

// TestRewriteFaultEverywhere lets operation i fail, for every i.
func TestRewriteFaultEverywhere(t *testing.T) {
	for seed := range uint64(4 * factor()) {
		for i, reached := 0, true; reached; i++ {
			reached = false
			m := vfstest.NewMem()
			must(t, m.Mkdir("page"))
			must(t, m.SyncDir("."))
			h := newRewriter(t, seed)
			h.fails = true
			h.o.FS = vfstest.NewFaulty(m, func(op vfstest.Op) error {
				if op.N == i {
					reached = true
					return errInjected
				}
				return nil
			})
			for range 3 {
				h.session(8)
			}
			what := fmt.Sprintf("seed %d, fault at %d", seed, i)
			h.check(m.CrashClone(vfstest.KeepNone), what+", power cut")
			h.check(m, what)
		}
	}
}

// TestUnsyncedNameOfReplacement opens a log after the sync of the name of a replacement has failed,
// as the next process does, and has the index point to the replacement. A power cut takes nothing
// of that.
func TestUnsyncedNameOfReplacement(t *testing.T) {
	for name, known := range map[string]bool{"an index": true, "no index": false} {
		t.Run(name, func(t *testing.T) {
			m := vfstest.NewMem()
			inject := false
			o := options(vfstest.NewFaulty(m, func(op vfstest.Op) error {
				if inject && op.Kind == vfstest.OpSyncDir {
					return errInjected
				}
				return nil
			}))
			l, _, _ := open(t, o, nil)
			appendTo(t, l.Main(), rec{1, "live"}, rec{2, "dead"})
			finishAll(t, l)
			pos := l.Position(1)
			r, err := l.Rewrite(t.Context(), []uint32{1}, 1, keepLive)
			must(t, err)
			inject = true
			wantIs(t, r.Install(), errInjected)
			must(t, l.Close())
			var from *segment.Position
			if known {
				from = &pos
			}
			l, _, _ = open(t, options(m), from)
			if known {
				pos, err = l.MapPosition(pos, false)
				must(t, err)
			}
			l.Retire()
			must(t, l.Close())
			for _, keep := range keeps(1) {
				_, _, s := open(t, options(m.CrashClone(keep)), from)
				if got := s.all(); known == slices.Contains(got, "live") {
					t.Fatalf("replayed %q", got)
				}
			}
		})
	}
}

// TestRewriteGolden keeps the bytes of a replacement.
func TestRewriteGolden(t *testing.T) {
	m := vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	bulk := l.NewStream()
	appendTo(t, l.Main(), rec{1, "live"}, rec{2, "dead"})
	appendTo(t, bulk, rec{7, "live bulk"})
	appendTo(t, l.Main(), rec{1, "dead"})
	appendTo(t, l.Main(), rec{3, "live too"})
	must(t, l.Main().Finish())
	r, err := l.Rewrite(t.Context(), []uint32{1}, 4, keepLive)
	must(t, err)
	must(t, r.Install())
	got, err := vfs.ReadFile(m, "page/00000003.seg", 1<<20)
	must(t, err)
	golden(t, "v2.seg", got)
}

// TestEndsOfReplaced damages a segment behind an end that only a replaced segment has named.
func TestEndsOfReplaced(t *testing.T) {
	m := vfstest.NewMem()
	o := options(m)
	l, _, _ := open(t, o, nil)
	bulk := l.NewStream()
	b := appendTo(t, bulk, rec{1, "bulk"})
	bulk.Release()
	l.FinishIdle()
	appendTo(t, l.Main(), rec{1, "dead: names the end of the bulk segment"})
	appendTo(t, l.Main(), rec{1, "dead: does not"})
	must(t, l.Main().Finish())
	r, err := l.Rewrite(t.Context(), slices.DeleteFunc(finished(l), func(id uint32) bool { return id == b.Segment }), 3, keepLive)
	must(t, err)
	must(t, r.Install())
	l.Retire()
	must(t, l.Close())
	f, err := m.Open("page/" + segment.FileName(b.Segment))
	must(t, err)
	must(t, f.Truncate(int64(b.End)-1))
	must(t, f.Close())
	_, _, err = segment.Open(t.Context(), o, nil, nil)
	wantIs(t, err, base.ErrCorrupt)
}
