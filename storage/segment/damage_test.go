package segment_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage/segment"
)

// smallLog is a closed log of five batches in one segment or in two, of which only the last is not
// named by another.
type smallLog struct {
	m     *vfstest.Mem
	recs  map[uint64][]rec
	last  segment.Appended
	pos   segment.Position
	files map[string][]byte
}

func newSmallLog(t *testing.T, segments int) smallLog {
	s := smallLog{m: vfstest.NewMem(), recs: map[uint64][]rec{}, files: map[string][]byte{}}
	l, _, _ := open(t, options(s.m), nil)
	bulk := l.NewStream()
	for i := range 5 {
		recs := []rec{{byte(i), fmt.Sprintf("payload of %d", i)}, {9, strings.Repeat("x", 20*i)}}
		s.last = appendTo(t, []*segment.Stream{l.Main(), bulk}[i%segments], recs...)
		s.recs[s.last.Number] = recs
	}
	s.pos = l.Position(5)
	must(t, l.Close())
	for _, e := range s.pos.Ends {
		name := "page/" + segment.FileName(e.Segment)
		b, err := vfs.ReadFile(s.m, name, 1<<20)
		must(t, err)
		s.files[name] = b
	}
	return s
}

// lastFile is the file with the last batch.
func (s *smallLog) lastFile() string { return "page/" + segment.FileName(s.last.Segment) }

// named returns the end that is named in a file.
func (s *smallLog) named(name string) int {
	if name == s.lastFile() {
		return int(s.last.Start)
	}
	return len(s.files[name])
}

// with returns the log with another content of one file, nil for no file.
func (s *smallLog) with(t *testing.T, name string, content []byte) *vfstest.Mem {
	t.Helper()
	c := s.m.CrashClone(vfstest.KeepAll)
	must(t, c.Remove(name))
	if content != nil {
		must(t, vfs.WriteFile(c, name, content))
	}
	return c
}

// openDamaged opens without a position and checks that there is an error, or everything but, when
// lost is set, the last batch.
func (s *smallLog) openDamaged(t *testing.T, m *vfstest.Mem, what string, wantErr, lost bool) {
	t.Helper()
	want := map[uint64][]rec{}
	for n, r := range s.recs {
		if !lost || n < s.last.Number {
			want[n] = r
		}
	}
	for _, readOnly := range []bool{true, false, false} {
		before := m.String()
		o := options(m)
		o.ReadOnly = readOnly
		got := newSeen(t)
		l, rc, err := segment.Open(context.Background(), o, nil, got.replay)
		if wantErr {
			var c *base.CorruptError
			if !errors.As(err, &c) || !strings.Contains(c.Where, ".seg") {
				t.Fatalf("%s: error %v, want a *CorruptError that names the segment", what, err)
			}
			if m.String() != before {
				t.Fatalf("%s: a damaged log was changed", what)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if d := cmp.Diff(want, got.recs); d != "" {
			t.Fatalf("%s: read-only %v: %s", what, readOnly, d)
		}
		checkSaved(t, m, rc, readOnly)
		must(t, l.Close())
	}
}

// checkSaved checks that what was cut off was set aside.
func checkSaved(t *testing.T, m *vfstest.Mem, rc *segment.Recovery, readOnly bool) {
	t.Helper()
	for _, torn := range rc.Torn {
		if readOnly != (torn.SavedAs == "") {
			t.Fatalf("torn %+v, read-only %v", torn, readOnly)
		}
		if !readOnly {
			info, err := m.Stat(torn.SavedAs)
			must(t, err)
			if uint64(info.Size) != torn.Bytes {
				t.Fatalf("saved %d bytes of %+v", info.Size, torn)
			}
		}
	}
}

// TestFlipEveryByte is I3: a flip before a named end is reported, one in the last batch loses that
// batch and no other.
func TestFlipEveryByte(t *testing.T) {
	for segments := 1; segments <= 2; segments++ {
		s := newSmallLog(t, segments)
		s.flipEveryByte(t)
	}
}

func (s *smallLog) flipEveryByte(t *testing.T) {
	t.Helper()
	for name, content := range s.files {
		for i := range content {
			for _, bit := range []byte{0x01, 0x80} {
				damaged := append([]byte(nil), content...)
				damaged[i] ^= bit
				what := fmt.Sprintf("%s, byte %d ^ %#x", name, i, bit)
				m := s.with(t, name, damaged)
				s.verifyDamaged(t, m.CrashClone(vfstest.KeepAll), what)
				s.openDamaged(t, m, what, i < s.named(name), true)
			}
		}
	}
}

// verifyDamaged opens with the position, which reads nothing but the last batch's frame, and
// expects that Verify finds what Open does not.
func (s *smallLog) verifyDamaged(t *testing.T, m *vfstest.Mem, what string) {
	t.Helper()
	l, _, err := segment.Open(context.Background(), options(m), &s.pos, nil)
	if err == nil {
		err = l.Verify(context.Background(), nil)
		must(t, l.Close())
	}
	if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, segment.ErrIndexMismatch) {
		t.Fatalf("%s: open and verify: %v", what, err)
	}
}

// TestTwoFlips damages a batch and the one behind it, whose frame still proves that the first was
// synced.
func TestTwoFlips(t *testing.T) {
	s := newSmallLog(t, 1)
	name := s.lastFile()
	damaged := append([]byte(nil), s.files[name]...)
	damaged[s.last.Start-1] ^= 1 // the batch before the last
	damaged[s.last.End-1] ^= 1
	s.openDamaged(t, s.with(t, name, damaged), "two flips", true, true)

	// The frame of a torn batch alone names the end of the one before, which need not be written
	// again.
	cut := s.with(t, name, s.files[name][:s.last.Start+30])
	_, rc, got := open(t, options(cut), nil)
	if len(got.numbers) != 4 || rc.Rewritten != 0 || len(rc.Torn) != 1 {
		t.Fatalf("batches %v, recovery %+v", got.numbers, rc)
	}
}

// TestFinishedIsNamed damages the last batch of segments that are no longer appended to: a batch of
// another stream has listed them (I3).
func TestFinishedIsNamed(t *testing.T) {
	m := vfstest.NewMem()
	o := options(m)
	o.SegmentBytes = 100
	l, _, _ := open(t, o, nil)
	bulk := l.NewStream()
	a := appendTo(t, bulk, rec{1, strings.Repeat("x", 200)})
	bulk.Release()
	appendTo(t, l.Main(), rec{1, "main"})
	must(t, l.Close())
	f, err := m.Open("page/" + segment.FileName(a.Segment))
	must(t, err)
	_, err = f.WriteAt([]byte("damage"), int64(a.Places[0].Offset))
	must(t, err)
	_, _, err = segment.Open(t.Context(), o, nil, nil)
	wantIs(t, err, base.ErrCorrupt)
}

func TestCutEverywhere(t *testing.T) {
	s := newSmallLog(t, 2)
	for name, content := range s.files {
		for size := range content {
			what := fmt.Sprintf("%s cut to %d", name, size)
			m := s.with(t, name, content[:size:size])
			_, _, err := segment.Open(t.Context(), options(m), &s.pos, nil)
			wantIs(t, err, segment.ErrIndexMismatch)
			s.openDamaged(t, m, what, size < s.named(name), true)
		}
		s.openDamaged(t, s.with(t, name, nil), name+" missing", true, true)
	}
}

// TestTails appends what a crash can leave behind a log.
func TestTails(t *testing.T) {
	s := newSmallLog(t, 2)
	name := s.lastFile()
	content := s.files[name]
	frame := content[s.last.Start:]
	tails := map[string][]byte{
		"garbage":             []byte("garbage"),
		"magic":               []byte("LBT\x01LBT\x01LBT\x01LBT\x01LBT\x01LBT\x01LBT\x01LBT\x01"),
		"the last batch":      frame, // a batch elsewhere than where it was written
		"an earlier batch":    content[32:s.last.Start],
		"a frame of the size": frame[:28],
	}
	for what, tail := range tails {
		m := s.with(t, name, append(content[:len(content):len(content)], tail...))
		s.openDamaged(t, m, what, false, false)
	}
	zeros := s.with(t, name, append(content[:len(content):len(content)], make([]byte, 1<<20)...))
	_, rc, got := open(t, options(zeros), nil)
	if len(got.numbers) != 5 || len(rc.Torn) != 1 || rc.Torn[0].SavedAs != "" || rc.Torn[0].Bytes != 1<<20 {
		t.Fatalf("batches %v, torn %v behind zeros", got.numbers, rc.Torn)
	}
	for what, b := range map[string][]byte{"empty": {}, "zero": make([]byte, 100), "short": []byte("LSEG")} {
		c := s.m.CrashClone(vfstest.KeepAll)
		must(t, vfs.WriteFile(c, "page/00000003.seg", b))
		l, _, got := open(t, options(c), &s.pos)
		if len(got.numbers) != 0 {
			t.Fatalf("%s: batches %v", what, got.numbers)
		}
		for range 3 {
			appendTo(t, l.NewStream(), rec{1, "x"})
		}
		must(t, l.Close())
		_, _, got = open(t, options(c), &s.pos)
		if len(got.numbers) != 3 {
			t.Fatalf("%s: batches %v", what, got.numbers)
		}
	}
}

// TestForeignSegments opens segments of another page, id and format.
func TestForeignSegments(t *testing.T) {
	s := newSmallLog(t, 2)
	o := options(s.m)
	o.Page[3]++
	_, _, err := segment.Open(t.Context(), o, nil, nil)
	wantIs(t, err, base.ErrCorrupt)

	swapped := s.m.CrashClone(vfstest.KeepAll)
	must(t, swapped.Rename("page/00000001.seg", "page/00000005.seg"))
	_, _, err = segment.Open(t.Context(), options(swapped), nil, nil)
	wantIs(t, err, base.ErrCorrupt)

	newer := s.with(t, "page/00000001.seg", segment.NewerHeader(page, 1))
	_, _, err = segment.Open(t.Context(), options(newer), nil, nil)
	wantIs(t, err, base.ErrUnsupported)

	other := s.m.CrashClone(vfstest.KeepAll)
	for _, name := range []string{"0000000A.seg", "1.seg", "00000000.seg", "ffffffff.seg", "00000001.seg.bak", "page.db"} {
		must(t, vfs.WriteFile(other, "page/"+name, []byte("no segment")))
	}
	must(t, other.MkdirAll("page/00000007.seg"))
	_, _, got := open(t, options(other), nil)
	if len(got.numbers) != 5 {
		t.Fatalf("batches %v", got.numbers)
	}
}

// TestRandomLogs appends random batches to random streams with random positions, and opens from any
// of them.
func TestRandomLogs(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := vfstest.NewMem()
		o := options(m)
		o.SegmentBytes = rapid.Int64Range(1, 3000).Draw(rt, "segmentBytes")
		l, _, err := segment.Open(context.Background(), o, nil, nil)
		must(t, err)
		streams := []*segment.Stream{l.Main(), l.NewStream(), l.NewStream()}
		want := map[uint64][]rec{}
		var pos *segment.Position
		for range rapid.IntRange(1, 15).Draw(rt, "appends") {
			recs := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) rec {
				return rec{rapid.Byte().Draw(rt, "kind"), rapid.StringN(0, 300, -1).Draw(rt, "payload")}
			}), 0, 5).Draw(rt, "recs")
			s := rapid.SampledFrom(streams).Draw(rt, "stream")
			a, err := s.Append(batchOf(recs...))
			must(t, err)
			want[a.Number] = recs
			if rapid.Bool().Draw(rt, "position") {
				p := l.Position(rapid.Uint64Range(0, a.Number).Draw(rt, "upTo"))
				pos = &p
			}
		}
		must(t, l.Close())
		from := uint64(0)
		if pos != nil {
			from = pos.Number
		}
		got := newSeen(t)
		l, _, err = segment.Open(context.Background(), o, pos, got.replay)
		must(t, err)
		defer func() { must(t, l.Close()) }()
		for n, recs := range want {
			if g := got.recs[n]; n > from && len(recs) > 0 && !cmp.Equal(g, recs) || n <= from && g != nil {
				rt.Fatalf("batch %d from %d: %v", n, from, g)
			}
		}
		if len(got.numbers) != len(want)-int(from) {
			rt.Fatalf("replayed %v of %d from %d", got.numbers, len(want), from)
		}
	})
}
