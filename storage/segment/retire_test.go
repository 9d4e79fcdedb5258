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

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage/segment"
)

// finished returns the ids of the segments that are not appended to and have batches.
func finished(l *segment.Log) (ids []uint32) {
	for _, s := range l.Segments() {
		if !s.Open && s.SyncedEnd > 32 {
			ids = append(ids, s.ID)
		}
	}
	return ids
}

// whole are segments that are retired from their beginnings on.
func whole(ids ...uint32) []segment.End {
	out := make([]segment.End, len(ids))
	for i, id := range ids {
		out[i].Segment = id
	}
	return out
}

// finishAll makes all segments ones that are not appended to.
func finishAll(t testing.TB, l *segment.Log) {
	t.Helper()
	must(t, l.Main().Finish())
	l.FinishIdle()
}

// copyLive appends the live records of segments to a stream, in one batch: those that do not begin
// with "dead".
func copyLive(ctx context.Context, l *segment.Log, s *segment.Stream, ids ...uint32) (segment.Appended, []rec, error) {
	var live []rec
	for _, id := range ids {
		err := l.Scan(ctx, id, 0, func(_ segment.BatchInfo, recs []segment.Record) error {
			for _, r := range recs {
				if !strings.HasPrefix(string(r.Payload), "dead") {
					live = append(live, rec{r.Kind, string(r.Payload)})
				}
			}
			return nil
		})
		if err != nil {
			return segment.Appended{}, nil, err
		}
	}
	a, err := s.Append(batchOf(live...))
	return a, live, err
}

// TestRetire copies what is live and retires segments: they are gone, for an index that has
// followed and for who replays all. An index that has not is refused.
func TestRetire(t *testing.T) {
	m := vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	bulk := l.NewStream()
	first := appendTo(t, l.Main(), rec{1, "live 1"}, rec{2, "dead 1"})
	appendTo(t, bulk, rec{1, "dead 2"})
	appendTo(t, bulk, rec{1, "live 3"}, rec{1, "live 3b"})
	appendTo(t, l.Main(), rec{1, "dead 4"})
	bulk.Release()
	_, err := l.Retire(whole(first.Segment), 4)
	wantIs(t, err, base.ErrInvalid)
	finishAll(t, l)
	old := finished(l)
	before := l.Position(4)
	c, _, err := copyLive(t.Context(), l, l.Main(), old...)
	must(t, err)
	after := l.Position(c.Number)
	info, err := l.Retire(whole(old...), c.Number)
	must(t, err)
	_, err = l.Retire(whole(old...), c.Number)
	wantIs(t, err, base.ErrInvalid)
	_, err = l.Read(first.Places[0], nil)
	wantIs(t, err, segment.ErrRetired)
	readBack(t, l, c.Places[0], "live 1")
	followed := after.Clone()
	followed.Add(info)
	appendTo(t, l.Main(), rec{1, "after"})
	must(t, l.Verify(t.Context(), nil))
	must(t, l.Close())
	decoded, err := segment.DecodePosition(followed.Encode())
	must(t, err)

	want := []string{"live 1", "live 3", "live 3b", "after"}
	for name, pos := range map[string]*segment.Position{"none": nil, "after": &after, "followed": &decoded, "before": &before} {
		for _, left := range []bool{true, false} { // files of what was retired
			for _, readOnly := range []bool{true, false} {
				c := m.CrashClone(vfstest.KeepAll)
				if left {
					must(t, vfs.WriteFile(c, "page/"+segment.FileName(old[0]), []byte("left")))
				}
				o := options(c)
				o.ReadOnly = readOnly
				s := newSeen(t)
				l, _, err := segment.Open(t.Context(), o, pos, s.replay)
				if name == "before" {
					wantIs(t, err, segment.ErrIndexMismatch)
					if errors.Is(err, base.ErrCorrupt) {
						t.Fatal(err)
					}
					continue
				}
				must(t, err)
				if n := len(want); pos == nil && !slices.Equal(s.all(), want) || pos != nil && !slices.Equal(s.all(), want[n-1:]) {
					t.Fatalf("%s: replayed %q", name, s.all())
				}
				_, err = l.Read(first.Places[0], nil)
				wantIs(t, err, segment.ErrRetired)
				must(t, l.Verify(t.Context(), nil))
				if _, err := c.Stat("page/" + segment.FileName(old[0])); (err == nil) != (left && readOnly) {
					t.Fatalf("%s: the file of a retired segment: %v", name, err)
				}
				if !readOnly {
					if a := appendTo(t, l.Main(), rec{1, "x"}); a.Number <= info.Number+1 || slices.Contains(old, a.Segment) {
						t.Fatalf("appended %v", a) // no id and number twice
					}
				}
				must(t, l.Close())
			}
		}
	}
}

// TestRetireAgain retires what says what was retired before.
func TestRetireAgain(t *testing.T) {
	m := vfstest.NewMem()
	o := options(m)
	l, _, _ := open(t, o, nil)
	for i := range 5 {
		appendTo(t, l.Main(), rec{1, fmt.Sprint("dead ", i)})
		finishAll(t, l)
		_, err := l.Retire(whole(finished(l)...), l.Complete())
		must(t, err)
		if n := len(l.Segments()); n != 1 {
			t.Fatalf("%d segments", n)
		}
	}
	must(t, l.Close())
	l, _, s := open(t, o, nil)
	if len(s.all()) > 0 || l.Complete() != 10 {
		t.Fatalf("replayed %v, complete %d", s.numbers, l.Complete())
	}
	must(t, l.Close())
}

// TestMissingSegment removes a segment that was not retired.
func TestMissingSegment(t *testing.T) {
	m := vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	for range 3 {
		appendTo(t, l.Main(), rec{1, "live"})
		finishAll(t, l)
	}
	_, err := l.Retire(whole(1), l.Complete())
	must(t, err)
	pos := l.Position(l.Complete())
	must(t, l.Close())
	must(t, m.Remove("page/"+segment.FileName(2)))
	for _, from := range []*segment.Position{nil, &pos} {
		_, _, err = segment.Open(t.Context(), options(m), from, nil)
		wantIs(t, err, base.ErrCorrupt)
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
// TestCopyPins copies a log of which segments are retired meanwhile.
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
			_, _, err := copyLive(t.Context(), l, l.Main(), 1)
			must(t, err)
			_, err = l.Retire(whole(1), 3)
			must(t, err)
			if _, err := m.Stat("page/00000001.seg"); err != nil {
				t.Fatal("a file that is copied was removed")
			}
		}
		f, err := backup.Create(filepath.Join("page", name))
		return &memWriter{f: f}, err
	}))
	if _, err := m.Stat("page/00000001.seg"); err == nil {
		t.Fatal("a retired file stays")
	}
	_, _, s := open(t, options(backup), nil)
	if got := s.all(); !slices.Equal(got, []string{"live", "dead", "later"}) {
		t.Fatalf("backup has %q", got)
	}
}

// TestReadersOutliveRetire reads while segments are retired: a reader gets the record, or is told
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
		ids := finished(l)
		a, _, err := copyLive(t.Context(), l, l.Main(), ids...)
		must(t, err)
		<-places
		places <- a.Places[0]
		_, err = l.Retire(whole(ids...), a.Number)
		must(t, err)
	}
	stop()
	for range cap(done) {
		must(t, <-done)
	}
}

// retirer is a history of appends and retirements with an index that is as careful as it must be.
type retirer struct {
	t      testing.TB
	o      segment.Options
	r      *rand.Rand
	acked  map[uint64][]rec
	trying [][]rec           // they may be there
	pos    *segment.Position // what the index has durably
	has    map[string]bool   // payloads that it has
	fails  bool
	count  int
}

// append appends a batch. It reports false after an error.
func (h *retirer) append(s *segment.Stream, recs []rec) bool {
	h.trying = append(h.trying, recs)
	a, err := s.Append(batchOf(recs...))
	if err != nil {
		return false
	}
	h.acked[a.Number] = recs
	h.trying = h.trying[:len(h.trying)-1]
	return true
}

// step appends or retires. It reports false after an error.
func (h *retirer) step(l *segment.Log, streams []*segment.Stream) bool {
	if h.r.IntN(4) > 0 {
		h.count++
		recs := []rec{{1, fmt.Sprint([]string{"live", "dead"}[h.r.IntN(2)], " ", h.count)}, {2, fmt.Sprintf("dead %08d", h.count)}, {3, "dead" + strings.Repeat("x", h.r.IntN(300))}}
		return h.append(streams[h.r.IntN(len(streams))], recs[:1+h.r.IntN(3)])
	}
	if h.r.IntN(2) == 0 {
		finishAll(h.t, l)
	}
	ids := finished(l)
	h.r.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	if len(ids) == 0 {
		return true
	}
	ids = ids[:1+h.r.IntN(len(ids))]
	var live []rec
	from := whole(ids...)
	for i := range from {
		if h.r.IntN(2) == 0 {
			if from[i].Offset = h.anyBatch(l, ids[i]); from[i].Offset == 0 {
				return false
			}
		}
		err := l.Scan(context.Background(), ids[i], from[i].Offset, func(_ segment.BatchInfo, recs []segment.Record) error {
			for _, r := range recs {
				if strings.HasPrefix(string(r.Payload), "live") {
					live = append(live, rec{r.Kind, string(r.Payload)})
				}
			}
			return nil
		})
		if err != nil {
			return false
		}
	}
	if !h.append(streams[h.r.IntN(len(streams))], live) {
		return false
	}
	p, err := l.PositionOf(l.Complete())
	if err != nil {
		return false
	}
	h.pos, h.has = &p, map[string]bool{}
	for _, recs := range h.acked {
		for _, r := range recs {
			h.has[r.Payload] = true
		}
	}
	h.trying = append(h.trying, nil)
	info, err := l.Retire(from, p.Number)
	if err != nil {
		return false
	}
	h.acked[info.Number] = nil
	if h.r.IntN(2) == 0 {
		followed, err := l.PositionOf(l.Complete())
		if err != nil {
			return false
		}
		h.pos = &followed
	}
	return true
}

// anyBatch returns where some batch of a segment begins, 0 after an error.
func (h *retirer) anyBatch(l *segment.Log, id uint32) uint64 {
	var starts []uint64
	err := l.Scan(context.Background(), id, 0, func(b segment.BatchInfo, _ []segment.Record) error {
		starts = append(starts, b.Start)
		return nil
	})
	if err != nil {
		return 0
	}
	return starts[h.r.IntN(len(starts))]
}

// session opens the log and does some steps; it reports false after an error.
func (h *retirer) session(steps int) bool {
	l, _, err := segment.Open(context.Background(), h.o, h.pos, nil)
	if err != nil {
		if !h.fails {
			h.t.Fatal(err)
		}
		return false
	}
	ok := true
	streams := []*segment.Stream{l.Main(), l.NewStream()}
	for i := 0; ok && i < steps; i++ {
		ok = h.step(l, streams)
	}
	return l.Close() == nil && ok
}

// check opens what a crash has left: with the position, as a reader and from the beginning.
func (h *retirer) check(m *vfstest.Mem, what string) {
	h.t.Helper()
	for again, c := range []struct {
		pos      *segment.Position
		readOnly bool
	}{{nil, true}, {h.pos, true}, {h.pos, false}, {h.pos, false}, {nil, false}, {nil, true}} {
		o := h.o
		o.FS, o.ReadOnly = m, c.readOnly
		s := newSeen(h.t)
		l, _, err := segment.Open(context.Background(), o, c.pos, s.replay)
		if err != nil {
			h.t.Fatalf("%s: open %d: %v\n%s", what, again, err, m)
		}
		if err := l.Verify(context.Background(), nil); err != nil {
			h.t.Fatalf("%s: verify %d: %v", what, again, err)
		}
		h.compare(s, c.pos, fmt.Sprintf("%s, open %d", what, again))
		if err := l.Close(); err != nil {
			h.t.Fatal(err)
		}
	}
}

// compare wants all live records of what was acknowledged, and of each batch nothing that was not
// in it.
func (h *retirer) compare(s *seen, pos *segment.Position, what string) {
	h.t.Helper()
	there := map[string]bool{}
	if pos != nil {
		there = maps.Clone(h.has)
	}
	for n, got := range s.recs {
		for _, r := range got {
			there[r.Payload] = true
		}
		if want, acked := h.acked[n]; acked && !slices.Equal(got, want) ||
			!acked && !slices.ContainsFunc(h.trying, func(want []rec) bool { return slices.Equal(got, want) }) {
			h.t.Fatalf("%s: batch %d is %v", what, n, got)
		}
	}
	for n, want := range h.acked {
		for _, r := range want {
			if strings.HasPrefix(r.Payload, "live") && !there[r.Payload] {
				h.t.Fatalf("%s: %q of batch %d is gone", what, r.Payload, n)
			}
		}
	}
}

func newRetirer(t testing.TB, seed uint64) *retirer {
	h := &retirer{t: t, o: options(nil), r: rand.New(rand.NewPCG(seed, 11)), acked: map[uint64][]rec{}}
	h.o.SegmentBytes = 600
	return h
}

// TestRetireCrashEverywhere cuts the power after every operation of a history of appends and
// retirements that changes something.
func TestRetireCrashEverywhere(t *testing.T) {
	for seed := range uint64(4 * factor()) {
		m := vfstest.NewMem()
		must(t, m.MkdirAll("page"))
		must(t, m.SyncDir("."))
		h := newRetirer(t, seed)
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

// TestRetireFaultEverywhere lets operation i fail, for every i.
func TestRetireFaultEverywhere(t *testing.T) {
	for seed := range uint64(4 * factor()) {
		for i, reached := 0, true; reached; i++ {
			reached = false
			m := vfstest.NewMem()
			must(t, m.MkdirAll("page"))
			must(t, m.SyncDir("."))
			h := newRetirer(t, seed)
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

// TestRetireGolden keeps the bytes of a retirement.
func TestRetireGolden(t *testing.T) {
	m := vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	bulk := l.NewStream()
	appendTo(t, l.Main(), rec{1, "live"}, rec{2, "dead"})
	appendTo(t, bulk, rec{7, "live bulk"})
	must(t, l.Main().Finish())
	_, _, err := copyLive(t.Context(), l, l.Main(), 1)
	must(t, err)
	_, err = l.Retire(whole(1), 3)
	must(t, err)
	got, err := vfs.ReadFile(m, "page/00000003.seg", 1<<20)
	must(t, err)
	golden(t, "retired.seg", got)
}

// cutLog makes a log in which a part of a segment was retired, and returns its files as they were
// before that part was cut off, and after.
func cutLog(t *testing.T) (longer, m *vfstest.Mem) {
	t.Helper()
	m = vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	appendTo(t, l.Main(), rec{1, "live 1"})
	cut := appendTo(t, l.Main(), rec{1, "live 2"}, rec{2, "dead"})
	appendTo(t, l.Main(), rec{1, "live 3"})
	finishAll(t, l)
	appendTo(t, l.Main(), rec{1, "live 2"}, rec{1, "live 3"})
	longer = m.CrashClone(vfstest.KeepAll)
	_, err := l.Retire([]segment.End{{Segment: cut.Segment, Offset: cut.Start}}, l.Complete())
	must(t, err)
	must(t, l.Close())
	name := "page/" + segment.FileName(cut.Segment)
	old, err := vfs.ReadFile(longer, name, 1<<20)
	must(t, err)
	longer = m.CrashClone(vfstest.KeepAll)
	must(t, longer.Remove(name))
	must(t, vfs.WriteFile(longer, name, old))
	return longer, m
}

// TestRetireGoldenPart keeps the bytes of a retirement of a part.
func TestRetireGoldenPart(t *testing.T) {
	_, m := cutLog(t)
	got, err := vfs.ReadFile(m, "page/00000002.seg", 1<<20)
	must(t, err)
	golden(t, "retiredpart.seg", got)
}

// TestSalvageCut damages every byte of a log in which a part of a segment was retired, also while
// its file still has that part: what was retired does not come back.
func TestSalvageCut(t *testing.T) {
	longer, m := cutLog(t)
	for what, m := range map[string]*vfstest.Mem{"longer": longer, "cut": m} {
		if damage := salvage(t, m.CrashClone(vfstest.KeepAll), nil); len(damage) > 0 {
			t.Fatalf("%s: damage %v", what, damage)
		}
		for id := range uint32(2) {
			name := "page/" + segment.FileName(id+1)
			content, err := vfs.ReadFile(m, name, 1<<20)
			must(t, err)
			for off := range content {
				c := m.CrashClone(vfstest.KeepAll)
				bad := slices.Clone(content)
				bad[off] ^= 0x40
				must(t, c.Remove(name))
				must(t, vfs.WriteFile(c, name, bad))
				salvage(t, c, nil)
				l, _, s := open(t, options(c), nil)
				must(t, l.Verify(t.Context(), nil))
				must(t, l.Close())
				lost := 0
				for _, want := range []string{"live 1", "live 2", "live 3"} {
					if !slices.Contains(s.all(), want) {
						lost++
					}
				}
				if id == 0 && lost > 1 || lost > 2 || id == 0 && slices.Contains(s.all(), "dead") {
					t.Fatalf("%s, %s, flip at %d: left is %q", what, name, off, s.all())
				}
				if again := salvage(t, c, nil); len(again) > 0 {
					t.Fatalf("%s, %s, flip at %d: damage after repair: %v", what, name, off, again)
				}
			}
		}
	}
}

// TestEndsOfRetired damages a segment behind an end that only a retired segment has named.
func TestEndsOfRetired(t *testing.T) {
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
	_, err := l.Retire(whole(slices.DeleteFunc(finished(l), func(id uint32) bool { return id == b.Segment })...), 3)
	must(t, err)
	must(t, l.Close())
	f, err := m.Open("page/" + segment.FileName(b.Segment))
	must(t, err)
	must(t, f.Truncate(int64(b.End)-1))
	must(t, f.Close())
	_, _, err = segment.Open(t.Context(), o, nil, nil)
	wantIs(t, err, base.ErrCorrupt)
}
