package segment_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage/segment"
)

// history is a script of appends to several streams, with what must be there after a crash at any
// moment of it. The first record of every batch begins with the id of the attempt.
type history struct {
	t      testing.TB
	o      segment.Options
	r      *rand.Rand
	acked  map[uint64][]rec  // by number: what was acknowledged and must be there
	tried  map[string][]rec  // by attempt: under way, or with a failed sync; it may be there
	pos    *segment.Position // of an index that was written
	failed bool              // an append or an open has failed
	count  int
	taken  int // batches that were taken back
	cuts   int // greatest count of segments off which they were cut at once
}

func newHistory(t testing.TB, o segment.Options, seed uint64) *history {
	return &history{t: t, o: o, r: rand.New(rand.NewPCG(seed, 7)), acked: map[uint64][]rec{}, tried: map[string][]rec{}}
}

// run opens the log steps times, and appends to streams in between. tolerate are the errors that
// end an append or an open without ending the test.
func (h *history) run(opens, appends int, tolerate error) {
	for range opens {
		l, _, err := segment.Open(context.Background(), h.o, h.pos, nil)
		if err != nil {
			if tolerate == nil || !errors.Is(err, tolerate) {
				h.t.Fatal(err)
			}
			h.failed = true
			return
		}
		h.session(l, appends, tolerate)
		if err := l.Close(); err != nil && (tolerate == nil || !errors.Is(err, tolerate)) {
			h.t.Fatal(err)
		}
		if h.failed {
			return
		}
	}
}

func (h *history) session(l *segment.Log, appends int, tolerate error) {
	streams := []*segment.Stream{l.Main(), l.NewStream(), l.NewStream()}
	mine := map[*segment.Stream][]segment.Appended{}
	for range appends {
		switch k := h.r.IntN(20); {
		case k == 0:
			streams[1].Release()
			streams[1] = l.NewStream()
		case k == 1:
			if p, err := l.PositionOf(l.Complete()); err == nil {
				h.pos = &p
			}
		case k < 6:
			n := 1 + k%2
			for range h.r.IntN(2) * 3 { // else what one stream has appended is seldom behind all that others know
				if a, ok := h.append(streams[n], tolerate); ok {
					mine[streams[n]] = append(mine[streams[n]], a)
				}
			}
			if !h.takeBack(l, streams[n], mine[streams[n]], tolerate) {
				return
			}
			mine[streams[n]] = nil
		default:
			s := streams[h.r.IntN(len(streams))]
			if a, ok := h.append(s, tolerate); ok {
				mine[s] = append(mine[s], a)
			}
		}
	}
}

// append appends a random batch. It returns false when the disk failed.
func (h *history) append(s *segment.Stream, tolerate error) (segment.Appended, bool) {
	recs := randomRecs(h.r, 3, []int{40, 400, 1800}[h.r.IntN(3)])
	h.count++
	attempt := fmt.Sprintf("%08d", h.count)
	recs[0].Payload = attempt + recs[0].Payload
	h.tried[attempt] = recs
	a, err := s.Append(batchOf(recs...))
	if err != nil {
		if tolerate == nil || !errors.Is(err, tolerate) && !errors.Is(err, base.ErrReadOnly) {
			h.t.Fatal(err)
		}
		h.failed = true
		if !errors.Is(err, base.ErrReadOnly) {
			delete(h.tried, attempt) // a failed write is gone
		}
		return a, false
	}
	h.acked[a.Number] = recs
	delete(h.tried, attempt)
	return a, true
}

// reflected returns where what the position reflects of a segment ends.
func (h *history) reflected(id uint32) uint64 {
	if h.pos != nil {
		for _, e := range h.pos.Ends {
			if e.Segment == id {
				return e.Offset
			}
		}
	}
	return 0
}

// takeBack takes some of the batches back that a stream has appended. They may be there after a
// crash, and none that is not among them goes. It returns false when the disk failed.
func (h *history) takeBack(l *segment.Log, s *segment.Stream, mine []segment.Appended, tolerate error) bool {
	if len(mine) == 0 {
		return true
	}
	var starts []segment.End
	for _, a := range mine[h.r.IntN(len(mine)):] {
		if n := len(starts); n == 0 || starts[n-1].Segment != a.Segment {
			starts = append(starts, segment.End{Segment: a.Segment, Offset: max(a.Start, h.reflected(a.Segment))})
		}
	}
	cut := s.Forget(starts)
	segments := map[uint32]bool{}
	for _, c := range cut {
		i := slices.IndexFunc(mine, func(a segment.Appended) bool { return a.Segment == c.Segment && a.Start == c.Offset })
		if i < 0 {
			h.t.Fatalf("a batch at %+v was taken back, of %+v", c, mine)
		}
		recs := h.acked[mine[i].Number]
		delete(h.acked, mine[i].Number)
		h.tried[recs[0].Payload[:8]] = recs
		segments[c.Segment] = true
	}
	h.taken += len(cut)
	h.cuts = max(h.cuts, len(segments))
	if err := l.Cut(cut); err != nil {
		if tolerate == nil || !errors.Is(err, tolerate) {
			h.t.Fatal(err)
		}
		h.failed = true
		return false
	}
	return true
}

// check opens what a crash has left, as often as asked, and compares it with the history. It
// returns the batches.
func (h *history) check(m *vfstest.Mem, o segment.Options, pos *segment.Position, what string) map[uint64][]rec {
	h.t.Helper()
	var first map[uint64][]rec
	for again := range 2 {
		o.FS = m
		s := newSeen(h.t)
		l, _, err := segment.Open(context.Background(), o, pos, s.replay)
		if err != nil {
			h.t.Fatalf("%s: open %d: %v\n%s", what, again, err, m)
		}
		if err := l.Verify(context.Background(), nil); err != nil {
			h.t.Fatalf("%s: verify %d: %v", what, again, err)
		}
		if err := l.Close(); err != nil {
			h.t.Fatal(err)
		}
		h.compare(s, pos, what)
		if again == 0 {
			first = s.recs
		} else if !maps.EqualFunc(first, s.recs, slices.Equal[[]rec]) {
			h.t.Fatalf("%s: second open: %s", what, cmp.Diff(first, s.recs))
		}
	}
	return first
}

func (h *history) compare(s *seen, pos *segment.Position, what string) {
	h.t.Helper()
	from := uint64(0)
	if pos != nil {
		from = pos.Number
	}
	for n, recs := range h.acked {
		if n > from && !slices.Equal(recs, s.recs[n]) {
			h.t.Fatalf("%s: acknowledged batch %d is %d records, want %d; replayed %v", what, n, len(s.recs[n]), len(recs), s.numbers)
		}
	}
	for n, recs := range s.recs {
		if _, ok := h.acked[n]; !ok && !slices.Equal(recs, h.tried[recs[0].Payload[:8]]) {
			h.t.Fatalf("%s: batch %d is not one that may be there: attempt %s", what, n, recs[0].Payload[:8])
		}
		if n <= from {
			h.t.Fatalf("%s: batch %d replayed from %d", what, n, from)
		}
	}
}

func keeps(seed uint64) map[string]func() float64 {
	return map[string]func() float64{
		"none": vfstest.KeepNone, "all": vfstest.KeepAll,
		fmt.Sprint("some ", seed): vfstest.KeepSome(seed), fmt.Sprint("some ", seed+1): vfstest.KeepSome(seed + 1),
	}
}

// factor says how many times as many histories there are as for each change.
func factor() int {
	if tier.Level() > 2 {
		return 500
	}
	return tier.Of(1, 1, 20)
}

// TestCrashEverywhere cuts the power after every operation of a history that changes something,
// four times, and again inside a tenth of the recoveries (design section 11, promise 1).
func TestCrashEverywhere(t *testing.T) {
	recoveries, taken, cuts := 0, 0, 0
	for seed := range uint64(3 * factor()) {
		m := vfstest.NewMem()
		o := options(nil)
		o.SegmentBytes = 1500
		h := newHistory(t, o, seed)
		h.o.FS = vfstest.NewHooked(m, func(op vfstest.Op) {
			for name, keep := range keeps(seed*1000 + uint64(op.N)) {
				what := fmt.Sprintf("seed %d, %s, keep %s", seed, op, name)
				c := m.CrashClone(keep)
				h.check(c, o, h.pos, what)
				recoveries++
				if recoveries%10 == 0 {
					h.crashRecovery(m.CrashClone(vfstest.KeepSome(uint64(recoveries))), o, what)
				}
			}
		})
		h.run(3, 14, nil)
		taken, cuts = taken+h.taken, max(cuts, h.cuts)
	}
	t.Logf("%d recoveries, %d batches taken back, from at most %d segments at once", recoveries, taken, cuts)
}

// crashRecovery cuts the power after every operation of a recovery.
func (h *history) crashRecovery(m *vfstest.Mem, o segment.Options, what string) {
	h.t.Helper()
	o.FS = vfstest.NewHooked(m, func(op vfstest.Op) {
		for name, keep := range keeps(uint64(op.N)) {
			h.check(m.CrashClone(keep), o, h.pos, fmt.Sprintf("%s; again %s, keep %s", what, op, name))
		}
	})
	l, _, err := segment.Open(context.Background(), o, h.pos, nil)
	if err != nil {
		h.t.Fatalf("%s; again: %v", what, err)
	}
	must(h.t, l.Close())
}

// TestCrashAndGoOn crashes many times in a row and appends in between: no acknowledged batch is
// ever lost, and the segments do not grow with the number of crashes.
func TestCrashAndGoOn(t *testing.T) {
	for seed := range uint64(4 * factor()) {
		m := vfstest.NewMem()
		o := options(m)
		o.SegmentBytes = 1 << 20
		h := newHistory(t, o, seed)
		for i := range 40 {
			h.o.FS = m
			l, _, err := segment.Open(context.Background(), h.o, h.pos, nil)
			must(t, err)
			h.session(l, 1+h.r.IntN(3), nil)
			if n := len(l.Segments()); n > 8 {
				t.Fatalf("%d segments after %d crashes", n, i)
			}
			must(t, l.Close())
			keep := []func() float64{vfstest.KeepAll, vfstest.KeepNone, vfstest.KeepSome(seed + uint64(i))}[h.r.IntN(3)]
			m = m.CrashClone(keep)
			if i%5 == 0 {
				got := h.check(m.CrashClone(vfstest.KeepAll), o, nil, fmt.Sprintf("seed %d, crash %d", seed, i))
				if len(got) != len(h.acked) {
					t.Fatalf("%d batches, %d acknowledged", len(got), len(h.acked))
				}
			}
		}
	}
}

var errInjected = errors.New("injected")

// TestFaultEverywhere lets operation i fail, for every i, once or from then on.
func TestFaultEverywhere(t *testing.T) {
	for _, sticky := range []bool{false, true} {
		for seed := range uint64(2 * factor()) {
			for i := 0; ; i++ {
				if !faultAt(t, seed, i, sticky) {
					break
				}
				if i > 5000 {
					t.Fatal("no clean run")
				}
			}
		}
	}
}

// faultAt runs a history in which operation i fails, and reports whether it was reached.
func faultAt(t *testing.T, seed uint64, i int, sticky bool) bool {
	what := fmt.Sprintf("seed %d, fault at %d, sticky %v", seed, i, sticky)
	m := vfstest.NewMem()
	o := options(nil)
	o.SegmentBytes = 1500
	h := newHistory(t, o, seed)
	reached, syncFailed := false, false
	h.o.FS = vfstest.NewFaulty(m, func(op vfstest.Op) error {
		if op.N == i || sticky && op.N > i {
			reached = true
			syncFailed = syncFailed || op.Kind == vfstest.OpSync
			return errInjected
		}
		return nil
	})
	h.run(3, 10, errInjected)
	// The process dies: what is in memory is still seen, also what a failed sync has left there.
	h.check(m.CrashClone(vfstest.KeepNone), o, h.pos, what+", power cut")
	h.check(m, o, h.pos, what+", process gone")
	h.check(m.CrashClone(vfstest.KeepNone), o, h.pos, what+", power cut after the recovery")
	failedBefore := h.failed
	h.o.FS, h.failed = m, false
	h.run(1, 4, nil)
	h.check(m.CrashClone(vfstest.KeepNone), o, h.pos, what+", power cut after more appends")
	h.failed = failedBefore
	if syncFailed && !h.failed {
		t.Fatalf("%s: a sync failed and no append or open did", what)
	}
	return reached
}

// TestFailedSyncPoisons is I6.
func TestFailedSyncPoisons(t *testing.T) {
	m := vfstest.NewMem()
	var fail vfstest.OpKind
	var ops []string
	inject := false
	o := options(vfstest.NewFaulty(m, func(op vfstest.Op) error {
		ops = append(ops, op.Kind.String())
		if inject && op.Kind == fail {
			return errInjected
		}
		return nil
	}))
	l, _, _ := open(t, o, nil)
	bulk := l.NewStream()
	appendTo(t, bulk, rec{1, "bulk"})
	appendTo(t, l.Main(), rec{1, "main"})
	inject, fail, ops = true, vfstest.OpWrite, nil
	_, err := l.Main().Append(batchOf(rec{1, "a failed write"}))
	wantIs(t, err, errInjected)
	if errors.Is(err, base.ErrReadOnly) {
		t.Fatal("a failed write has made the log read-only")
	}
	// Without the sync a power cut could bring the failed batch back, behind later ones.
	if d := cmp.Diff([]string{"write", "truncate", "sync"}, ops); d != "" {
		t.Fatal(d)
	}
	inject = false
	if got := l.Complete(); got != 3 {
		t.Fatalf("complete %d, want 3: the failed write counts", got)
	}
	if p := l.Position(3); p.Number != 2 {
		t.Fatalf("position of batch %d, want 2", p.Number)
	}
	a := appendTo(t, l.Main(), rec{1, "after"})
	if a.Number != 4 || l.Complete() != 4 {
		t.Fatalf("number %d, complete %d", a.Number, l.Complete())
	}
	inject, fail = true, vfstest.OpSync
	_, err = l.Main().Append(batchOf(rec{1, "a failed sync"}))
	wantIs(t, err, errInjected)
	wantIs(t, err, base.ErrReadOnly)
	inject = false
	_, err = bulk.Append(batchOf(rec{1, "later"}))
	wantIs(t, err, errInjected)
	wantIs(t, err, base.ErrReadOnly)
	if got := l.Complete(); got != 4 {
		t.Fatalf("complete %d, want 4", got)
	}
	got, err := l.Read(a.Places[0], nil)
	must(t, err)
	if string(got) != "after" {
		t.Fatalf("read %q", got)
	}
	must(t, l.Close())
	_, rc, s := open(t, options(m), nil)
	if s.recs[5] != nil && rc.Rewritten == 0 {
		t.Fatal("a batch whose sync failed was believed and not written again")
	}
}

// TestBelievedWhenWrittenAgain is I5 for the worst disk: a failed sync marks pages clean that are
// not durable, the process dies, the next one sees them. What it replays must survive a power cut.
func TestBelievedWhenWrittenAgain(t *testing.T) {
	for n := range 3 { // what a failed sync does depends on the number of the operation
		m := vfstest.NewMem()
		inject := false
		o := options(vfstest.NewFaulty(m, func(op vfstest.Op) error {
			if inject && op.Kind == vfstest.OpSync {
				return errInjected
			}
			return nil
		}))
		l, _, _ := open(t, o, nil)
		appendTo(t, l.Main(), rec{1, "first"})
		for range n {
			_, err := o.FS.Stat("page")
			must(t, err)
		}
		inject = true
		_, err := l.Main().Append(batchOf(rec{1, "second"}))
		wantIs(t, err, errInjected)
		must(t, l.Close())
		_, rc, s := open(t, options(m), nil)
		if len(s.numbers) != 2 || rc.Rewritten != 1 {
			t.Fatalf("replayed %v, written again %d", s.numbers, rc.Rewritten)
		}
		_, _, s = open(t, options(m.CrashClone(vfstest.KeepNone)), nil)
		if d := cmp.Diff(map[uint64][]rec{1: {{1, "first"}}, 2: {{1, "second"}}}, s.recs); d != "" {
			t.Fatalf("n %d: %s", n, d)
		}
	}
}
