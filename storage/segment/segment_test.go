package segment_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage/segment"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var page = [16]byte{0: 1, 15: 2}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantIs(t testing.TB, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error %v, want one that is %v", err, target)
	}
}

// rec is a record without its place.
type rec struct {
	Kind    byte
	Payload string
}

// seen is what a replay has shown: numbers, and the records of each.
type seen struct {
	t       testing.TB
	numbers []uint64
	infos   map[uint64]segment.BatchInfo
	recs    map[uint64][]rec
	places  map[uint64][]segment.Place
}

func newSeen(t testing.TB) *seen {
	return &seen{t: t, infos: map[uint64]segment.BatchInfo{}, recs: map[uint64][]rec{}, places: map[uint64][]segment.Place{}}
}

func (s *seen) replay(b segment.BatchInfo, recs []segment.Record) error {
	if n := len(s.numbers); n > 0 && s.numbers[n-1] >= b.Number {
		s.t.Fatalf("batch %d replayed behind %d", b.Number, s.numbers[n-1])
	}
	s.numbers = append(s.numbers, b.Number)
	s.infos[b.Number] = b
	for _, r := range recs {
		s.recs[b.Number] = append(s.recs[b.Number], rec{r.Kind, string(r.Payload)})
		s.places[b.Number] = append(s.places[b.Number], r.Place)
	}
	return nil
}

func options(fsys vfs.FS) segment.Options {
	return segment.Options{FS: fsys, Dir: "page", Page: page, SegmentBytes: 4096}
}

func open(t testing.TB, o segment.Options, from *segment.Position) (*segment.Log, *segment.Recovery, *seen) {
	t.Helper()
	s := newSeen(t)
	l, r, err := segment.Open(context.Background(), o, from, s.replay)
	must(t, err)
	t.Cleanup(func() { must(t, l.Close()) })
	return l, r, s
}

// batchOf makes a batch with the given records.
func batchOf(recs ...rec) *segment.Batch {
	b := segment.NewBatch()
	for _, r := range recs {
		half := len(r.Payload) / 2
		b.Add(r.Kind, []byte(r.Payload[:half]), []byte(r.Payload[half:]))
	}
	return b
}

func randomRecs(r *rand.Rand, maxRecs, maxBytes int) []rec {
	recs := make([]rec, 1+r.IntN(maxRecs))
	for i := range recs {
		recs[i] = rec{byte(r.IntN(256)), string(randomBytes(r, r.IntN(maxBytes)))}
	}
	return recs
}

func randomBytes(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func appendTo(t testing.TB, s *segment.Stream, recs ...rec) segment.Appended {
	t.Helper()
	a, err := s.Append(batchOf(recs...))
	must(t, err)
	return a
}

func TestAppendReadReplay(t *testing.T) {
	m := vfstest.NewMem()
	l, rc, s := open(t, options(m), nil)
	if len(s.numbers) != 0 || rc.Rewritten != 0 || len(rc.Torn) != 0 {
		t.Fatalf("an empty log has %v, %v", s.numbers, rc)
	}
	r := rand.New(rand.NewPCG(1, 2))
	bulk := l.NewStream()
	want := map[uint64][]rec{}
	places := map[uint64][]segment.Place{}
	for i := range 60 {
		stream := l.Main()
		if i%3 == 0 {
			stream = bulk
		}
		recs := randomRecs(r, 4, 600)
		a := appendTo(t, stream, recs...)
		if a.Number != uint64(i+1) || l.Complete() != a.Number {
			t.Fatalf("number %d, complete %d, want %d", a.Number, l.Complete(), i+1)
		}
		want[a.Number], places[a.Number] = recs, a.Places
	}
	for n, recs := range want {
		for i, p := range places[n] {
			got, err := l.Read(p, []byte("before"))
			must(t, err)
			if string(got) != "before"+recs[i].Payload {
				t.Fatalf("batch %d record %d differs", n, i)
			}
		}
	}
	verified := newSeen(t)
	must(t, l.Verify(t.Context(), verified.replay))
	if d := cmp.Diff(want, verified.recs); d != "" {
		t.Fatal(d)
	}
	st := l.Stats()
	if st.Batches != 60 || st.Syncs < 60 || st.BytesWritten == 0 {
		t.Fatalf("stats %+v", st)
	}
	if len(l.Segments()) < 3 {
		t.Fatalf("segments %v: no stream has rolled", l.Segments())
	}
	must(t, l.Close())
	must(t, l.Close())
	_, err := l.Main().Append(batchOf())
	wantIs(t, err, base.ErrClosed)
	_, err = l.Read(places[1][0], nil)
	wantIs(t, err, base.ErrClosed)
	wantIs(t, l.Verify(t.Context(), nil), base.ErrClosed)

	for _, readOnly := range []bool{true, false, true} {
		o := options(m)
		o.ReadOnly = readOnly
		_, _, again := open(t, o, nil)
		if d := cmp.Diff(want, again.recs); d != "" {
			t.Fatalf("read-only %v: %s", readOnly, d)
		}
	}
}

func TestReadBounds(t *testing.T) {
	l, _, _ := open(t, options(vfstest.NewMem()), nil)
	a := appendTo(t, l.Main(), rec{1, "abc"})
	for _, p := range []segment.Place{
		{}, {Segment: 9, Offset: 60, Length: 1}, {Segment: 1, Offset: 59, Length: 1},
		{Segment: 1, Offset: a.End, Length: 1}, {Segment: 1, Offset: a.Start + 30, Length: 1 << 31},
		{Segment: 1, Offset: 1 << 63, Length: 1}, {Segment: 1, Offset: ^uint64(0), Length: ^uint32(0)},
	} {
		got, err := l.Read(p, []byte("x"))
		wantIs(t, err, base.ErrCorrupt)
		if string(got) != "x" {
			t.Fatalf("read %q at %v", got, p)
		}
	}
}

func TestPosition(t *testing.T) {
	m := vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	if p := l.Position(7); p.Number != 0 || len(p.Ends) != 0 {
		t.Fatalf("position %v of an empty log", p)
	}
	r := rand.New(rand.NewPCG(3, 4))
	bulk := l.NewStream()
	want := map[uint64][]rec{}
	var positions []segment.Position
	for i := range 50 {
		if r.IntN(10) == 0 {
			bulk.Release()
			bulk = l.NewStream()
		}
		stream := l.Main()
		if r.IntN(3) == 0 {
			stream = bulk
		}
		recs := randomRecs(r, 3, 700)
		want[appendTo(t, stream, recs...).Number] = recs
		if i%4 == 3 {
			positions = append(positions, l.Position(l.Complete()-2))
		}
	}
	last := l.Position(1000)
	if last.Number != 50 {
		t.Fatalf("position of batch %d, want 50", last.Number)
	}
	if d := cmp.Diff(l.Ends(), last.Ends); d != "" {
		t.Fatal(d)
	}
	must(t, l.Close())
	for _, p := range append(positions, last) {
		decoded, err := segment.DecodePosition(p.Encode())
		must(t, err)
		if d := cmp.Diff(p, decoded, cmp.Exporter(func(reflect.Type) bool { return true })); d != "" {
			t.Fatal(d)
		}
		c := m.CrashClone(vfstest.KeepAll)
		l, _, s := open(t, options(c), &p)
		for n := range want {
			if _, ok := s.recs[n]; ok != (n > p.Number) {
				t.Fatalf("position %d, batch %d replayed: %v", p.Number, n, ok)
			}
		}
		if got := l.Position(50); got.Number != 50 {
			t.Fatalf("position %d after opening", got.Number)
		}
		if a := appendTo(t, l.Main(), rec{1, "x"}); a.Number != 51 {
			t.Fatalf("number %d after opening", a.Number)
		}
	}
}

// TestPositionByAdd follows a replay with Position.Add and opens from there.
func TestPositionByAdd(t *testing.T) {
	m := vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	bulk := l.NewStream()
	for i := range 20 {
		appendTo(t, []*segment.Stream{l.Main(), bulk}[i%2], rec{1, fmt.Sprint(i)})
	}
	must(t, l.Close())
	var p segment.Position
	var all []segment.Position
	l, _, err := segment.Open(t.Context(), options(m), nil, func(b segment.BatchInfo, _ []segment.Record) error {
		p.Add(b)
		all = append(all, p.Clone())
		return nil
	})
	must(t, err)
	must(t, l.Close())
	for i := range all {
		_, _, s := open(t, options(m.CrashClone(vfstest.KeepAll)), &all[i])
		if len(s.numbers) != 19-i {
			t.Fatalf("from position %d: %v", i+1, s.numbers)
		}
	}
}

func TestIndexMismatch(t *testing.T) {
	m := vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	bulk := l.NewStream()
	appendTo(t, bulk, rec{1, "bulk"})
	appendTo(t, l.Main(), rec{1, "one"})
	p1 := l.Position(2)
	appendTo(t, l.Main(), rec{1, "two"})
	p := l.Position(3)
	must(t, l.Close())

	edit := func(fn func(*segment.Position)) *segment.Position {
		q := p.Clone()
		fn(&q)
		return &q
	}
	otherMem := vfstest.NewMem()
	other, _, _ := open(t, options(otherMem), nil)
	appendTo(t, other.Main(), rec{1, "other"})
	otherPos := other.Position(1)
	for name, q := range map[string]*segment.Position{
		"number":       edit(func(p *segment.Position) { p.Number++ }),
		"crc":          edit(func(p *segment.Position) { p.CRC++ }),
		"start":        edit(func(p *segment.Position) { p.Start-- }),
		"no ends":      edit(func(p *segment.Position) { p.Ends = nil }),
		"older number": edit(func(p *segment.Position) { *p = p1.Clone(); p.Number-- }),
		"other log":    &otherPos,
		"lower end": edit(func(p *segment.Position) { // batch 1 seems to lie behind
			p.Ends = p.Ends[1:]
		}),
		"missing": edit(func(p *segment.Position) { p.Ends = append(p.Ends, segment.End{Segment: 9, Offset: 32}) }),
		"shorter": edit(func(p *segment.Position) { p.Ends[0].Offset++ }),
	} {
		t.Run(name, func(t *testing.T) {
			before := m.String()
			_, _, err := segment.Open(t.Context(), options(m), q, nil)
			wantIs(t, err, segment.ErrIndexMismatch)
			if m.String() != before {
				t.Fatal("something was written")
			}
		})
	}
	// The last batch is the log's, but a segment is not there: the index is right, and the log is
	// damaged.
	c := m.CrashClone(vfstest.KeepAll)
	must(t, c.Remove("page/"+segment.FileName(p.Ends[0].Segment)))
	_, _, err := segment.Open(t.Context(), options(c), &p, nil)
	wantIs(t, err, segment.ErrIndexMismatch)
	wantIs(t, err, base.ErrCorrupt)
	_, _, err = segment.Open(t.Context(), options(c), nil, nil)
	wantIs(t, err, base.ErrCorrupt)
}

func TestFailedReplay(t *testing.T) {
	m := vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	appendTo(t, l.Main(), rec{1, "x"})
	must(t, l.Close())
	boom := errors.New("boom")
	_, _, err := segment.Open(t.Context(), options(m), nil, func(segment.BatchInfo, []segment.Record) error { return boom })
	wantIs(t, err, boom)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = segment.Open(ctx, options(m), nil, nil)
	wantIs(t, err, context.Canceled)
}

func TestReadOnly(t *testing.T) {
	m := vfstest.NewMem()
	o := options(m)
	o.ReadOnly = true
	_, _, err := segment.Open(t.Context(), o, nil, nil)
	wantIs(t, err, fs.ErrNotExist)
	l, _, _ := open(t, options(m), nil)
	a := appendTo(t, l.Main(), rec{1, "x"}, rec{2, "yy"})
	must(t, l.Close())
	f, err := m.Open("page/00000001.seg")
	must(t, err)
	_, err = f.WriteAt([]byte("torn"), int64(a.End))
	must(t, err)
	must(t, vfs.WriteFile(m, "page/00000002.seg", []byte("LSEG")))
	before := m.String()
	ro, rc, s := open(t, o, nil)
	if d := cmp.Diff([]segment.Torn{{Segment: 1, Offset: a.End, Bytes: 4}, {Segment: 2, Bytes: 4}}, rc.Torn); d != "" {
		t.Fatal(d)
	}
	if len(s.numbers) != 1 {
		t.Fatalf("batches %v", s.numbers)
	}
	got, err := ro.Read(s.places[1][1], nil)
	must(t, err)
	if string(got) != "yy" {
		t.Fatalf("read %q", got)
	}
	_, err = ro.Main().Append(batchOf())
	wantIs(t, err, base.ErrReadOnly)
	if m.String() != before {
		t.Fatalf("something was written: %s", m)
	}
}

func TestLimits(t *testing.T) {
	l, _, _ := open(t, options(vfstest.NewMem()), nil)
	b := segment.NewBatch()
	for range segment.MaxBatchRecords + 1 {
		b.Add(1)
	}
	_, err := l.Main().Append(b)
	wantIs(t, err, base.ErrTooLarge)
	b.Reset()
	if b.Len() != 0 || b.Bytes() != 0 {
		t.Fatalf("%d records, %d bytes after Reset", b.Len(), b.Bytes())
	}
	a, err := l.Main().Append(b)
	must(t, err)
	if a.Number != 1 || len(a.Places) != 0 {
		t.Fatalf("appended %+v", a)
	}
	s := l.NewStream()
	s.Release()
	_, err = s.Append(b)
	wantIs(t, err, base.ErrInvalid)
}

// TestReuse checks that a released segment is used by the next stream, and one in use by none.
func TestReuse(t *testing.T) {
	l, _, _ := open(t, options(vfstest.NewMem()), nil)
	a := l.NewStream()
	one := appendTo(t, a, rec{1, "x"}).Segment
	b := l.NewStream()
	if two := appendTo(t, b, rec{1, "x"}).Segment; two == one {
		t.Fatal("two streams in one segment")
	}
	a.Release()
	c := l.NewStream()
	if got := appendTo(t, c, rec{1, string(make([]byte, 5000))}).Segment; got != one {
		t.Fatalf("segment %d, want %d again", got, one)
	}
	c.Release()
	if got := appendTo(t, l.NewStream(), rec{1, "x"}).Segment; got == one {
		t.Fatal("a full segment was used again")
	}
}

// memWriter collects what CopyTo writes into a Mem.
type memWriter struct {
	f   vfs.File
	off int64
}

func (w *memWriter) Write(b []byte) (int, error) {
	n, err := w.f.WriteAt(b, w.off)
	w.off += int64(n)
	return n, err
}
func (w *memWriter) Close() error { return w.f.Close() }

func TestCopyTo(t *testing.T) {
	m, backup := vfstest.NewMem(), vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	bulk := l.NewStream()
	for i := range 10 {
		appendTo(t, []*segment.Stream{l.Main(), bulk}[i%2], rec{1, string(make([]byte, 900))})
	}
	must(t, backup.MkdirAll("page"))
	must(t, l.CopyTo(t.Context(), func(name string, size int64) (io.WriteCloser, error) {
		appendTo(t, bulk, rec{1, "later"})
		f, err := backup.Create(filepath.Join("page", name))
		return &memWriter{f: f}, err
	}))
	_, _, s := open(t, options(backup), nil)
	if len(s.numbers) != 10 {
		t.Fatalf("backup has batches %v", s.numbers)
	}
	wantIs(t, l.CopyTo(t.Context(), func(string, int64) (io.WriteCloser, error) { return nil, errInjected }), errInjected)
}

// TestGolden keeps the bytes of a segment file and of a position.
func TestGolden(t *testing.T) {
	m := vfstest.NewMem()
	l, _, _ := open(t, options(m), nil)
	bulk := l.NewStream()
	appendTo(t, l.Main(), rec{1, "first"}, rec{2, ""})
	appendTo(t, bulk, rec{7, "bulk"})
	appendTo(t, l.Main(), rec{3, string(bytes.Repeat([]byte{'x'}, 200))})
	got, err := vfs.ReadFile(m, "page/00000001.seg", 1<<20)
	must(t, err)
	golden(t, "v1.seg", got)
	golden(t, "v1.position", l.Position(3).Encode())
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		must(t, os.MkdirAll("testdata", 0o755))
		must(t, os.WriteFile(path, got, 0o644))
	}
	want, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(got, want) {
		t.Fatalf("%s differs from the golden file: %x", name, got)
	}
}

// TestManySegments opens more segments than there are read handles.
func TestManySegments(t *testing.T) {
	o := options(vfstest.NewMem())
	o.SegmentBytes = 100
	l, _, _ := open(t, o, nil)
	var places []segment.Place
	for i := range 200 {
		places = append(places, appendTo(t, l.Main(), rec{1, fmt.Sprintf("%0100d", i)}).Places...)
	}
	if n := len(l.Segments()); n != 200 {
		t.Fatalf("%d segments", n)
	}
	for range 2 {
		for i, p := range places {
			got, err := l.Read(p, nil)
			must(t, err)
			if string(got) != fmt.Sprintf("%0100d", i) {
				t.Fatalf("read %q", got)
			}
		}
	}
	p := l.Position(200)
	must(t, l.Close())
	_, _, s := open(t, o, &p)
	if len(s.numbers) != 0 {
		t.Fatalf("%d batches", len(s.numbers))
	}
	_, _, s = open(t, o, nil)
	if len(s.numbers) != 200 {
		t.Fatalf("%d batches", len(s.numbers))
	}
}
