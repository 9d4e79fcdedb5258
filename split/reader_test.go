package split_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
)

func TestReaderConforms(t *testing.T) {
	for _, n := range []int{0, 1, 4096, 100_000, 900_000} {
		b := random(11, n)
		s := newStore()
		root := mustSplit(t, s, b)
		if err := iotest.TestReader(split.NewReader(t.Context(), s, root, uint64(n)), b); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

func TestReadAt(t *testing.T) {
	b := random(12, 3<<20)
	s := newStore()
	root := mustSplit(t, s, b)
	r := split.NewReader(t.Context(), s, root, uint64(len(b)))
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.IntRange(0, len(b)+10).Draw(t, "offset")
		n := rapid.OneOf(rapid.IntRange(0, 100), rapid.IntRange(0, 300_000)).Draw(t, "length")
		p := make([]byte, n)
		got, err := r.ReadAt(p, int64(at))
		want := b[min(at, len(b)):min(at+n, len(b))]
		if !bytes.Equal(p[:got], want) {
			t.Fatalf("ReadAt(%d bytes, %d) gives %d other bytes", n, at, got)
		}
		if wantErr := got < n; wantErr != (err == io.EOF) || !wantErr && err != nil {
			t.Fatalf("ReadAt(%d bytes, %d) = %d, %v", n, at, got, err)
		}
	})
}

// TestRange checks that a range touches only the pieces that it needs.
func TestRange(t *testing.T) {
	b := random(13, 16<<20)
	s := newStore()
	root := mustSplit(t, s, b)
	depth, index := shapeOf(t, s, root)
	if depth < 2 {
		t.Fatalf("%d levels of index pieces", depth)
	}
	count := func(f func()) int {
		s.reads = 0
		f()
		return s.reads
	}
	var r *split.Reader
	p := make([]byte, 100)
	if got := count(func() {
		r = split.NewReader(t.Context(), s, root, uint64(len(b)))
		_, _ = r.Seek(5, io.SeekStart)
	}); got != 0 {
		t.Errorf("%d pieces read by NewReader and Seek", got)
	}
	rng := rand.New(rand.NewPCG(13, 0))
	for range 20 {
		at := rng.IntN(len(b) - len(p))
		got := count(func() {
			if _, err := split.NewReader(t.Context(), s, root, uint64(len(b))).ReadAt(p, int64(at)); err != nil {
				t.Fatal(err)
			}
		})
		if got > 2*(depth+1) { // the range may lie across a cut
			t.Errorf("%d pieces read for 100 bytes at %d, below %d levels", got, at, depth)
		}
	}
	chunks := len(s.order) - index
	small := make([]byte, 1000)
	for name, f := range map[string]func() error{
		"WriteTo":    func() error { _, err := r.WriteTo(io.Discard); return err },
		"small Read": func() error { _, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{r}, small); return err },
	} {
		_, _ = r.Seek(0, io.SeekStart)
		got := count(func() {
			if err := f(); err != nil {
				t.Fatal(err)
			}
		})
		if most := chunks + index; got > most || got < chunks {
			t.Errorf("%s: %d pieces read of %d chunks and %d index pieces", name, got, chunks, index)
		}
	}
}

// shapeOf returns the levels of index pieces below root, itself included, and their number.
func shapeOf(t testing.TB, s *store, root object.Digest) (depth, index int) {
	t.Helper()
	children, err := split.Children(root, s.pieces[root])
	if err != nil {
		t.Fatal(err)
	}
	if children == nil {
		return 0, 0
	}
	index = 1
	for _, c := range children {
		d, n := shapeOf(t, s, c)
		depth, index = max(depth, d), index+n
	}
	return depth + 1, index
}

func TestReaderConcurrent(t *testing.T) {
	b := random(14, 2<<20)
	s := newStore()
	root := mustSplit(t, s, b)
	r := split.NewReader(t.Context(), yielding{s}, root, uint64(len(b)))
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 1))
			p := make([]byte, 50_000)
			for range 50 {
				at := rng.IntN(len(b) - len(p))
				if _, err := r.ReadAt(p, int64(at)); err != nil || !bytes.Equal(p, b[at:at+len(p)]) {
					t.Errorf("ReadAt %d: %v", at, err)
				}
			}
		})
	}
	var out bytes.Buffer
	if _, err := r.WriteTo(&out); err != nil || !bytes.Equal(out.Bytes(), b) {
		t.Errorf("WriteTo: %v", err)
	}
	wg.Wait()
}

// yielding lets other goroutines run while a piece is read.
type yielding struct{ *store }

func (y yielding) Piece(ctx context.Context, d object.Digest) ([]byte, error) {
	runtime.Gosched()
	return y.store.Piece(ctx, d)
}

func TestReaderUse(t *testing.T) {
	b := random(15, 200_000)
	s := newStore()
	root := mustSplit(t, s, b)
	r := split.NewReader(t.Context(), s, root, uint64(len(b)))
	if r.Size() != int64(len(b)) {
		t.Errorf("Size = %d", r.Size())
	}
	if _, err := r.ReadAt(make([]byte, 1), -1); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("ReadAt -1: %v", err)
	}
	for _, c := range []struct {
		offset int64
		whence int
		want   int64
		err    error
	}{
		{10, io.SeekStart, 10, nil}, {5, io.SeekCurrent, 15, nil}, {-20, io.SeekCurrent, 0, base.ErrInvalid}, {0, io.SeekCurrent, 15, nil},
		{-1, io.SeekEnd, 199_999, nil}, {1, io.SeekEnd, 200_001, nil}, {0, 7, 0, base.ErrInvalid}, {math.MaxInt64, io.SeekEnd, 0, base.ErrInvalid},
		{-1, io.SeekStart, 0, base.ErrInvalid}, {math.MinInt64, io.SeekEnd, 0, base.ErrInvalid}, {150_000, io.SeekStart, 150_000, nil},
	} {
		if got, err := r.Seek(c.offset, c.whence); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("Seek(%d, %d) = %d, %v", c.offset, c.whence, got, err)
		}
	}
	boom := errors.New("boom")
	if n, err := r.WriteTo(&failing{room: 10, err: boom}); n != 10 || !errors.Is(err, boom) {
		t.Errorf("WriteTo a full disk = %d, %v", n, err)
	}
	if n, err := r.WriteTo(&failing{room: 10}); n != 10 || !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("WriteTo a short writer = %d, %v", n, err)
	}
	if rest, err := io.ReadAll(r); err != nil || !bytes.Equal(rest, b[150_020:]) {
		t.Errorf("rest: %d bytes, %v", len(rest), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r = split.NewReader(ctx, s, root, uint64(len(b)))
	cancel()
	if _, err := r.Read(make([]byte, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if err := split.Walk(ctx, s, root, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Walk canceled: %v", err)
	}
}

type failing struct {
	room int
	err  error
}

func (f *failing) Write(b []byte) (int, error) {
	n := min(f.room, len(b))
	f.room -= n
	return n, f.err
}

type child = flatbuffers.IndexChild

func named(d object.Digest, size uint64) child { return child{Digest: d, Size: size} }

// index stores an index piece with the given children and returns it as a child.
func (s *store) index(t *testing.T, children ...child) child {
	t.Helper()
	b, err := flatbuffers.EncodeIndex(children)
	if err != nil {
		t.Fatal(err)
	}
	var size uint64
	for _, c := range children {
		size += c.Size
	}
	return child{Digest: s.put(object.Index, b), Size: size}
}

func (s *store) chunk(n int) child {
	return child{Digest: s.put(object.Chunk, random(byte(n), n)), Size: uint64(n)}
}

// deep returns a tree with the given number of levels of index pieces, each of which lists a chunk
// and the next one.
func (s *store) deep(t *testing.T, levels int) child {
	c := s.chunk(100)
	for range levels {
		c = s.index(t, s.chunk(4096), c)
	}
	return c
}

// TestHostile checks that no tree of pieces passes that Split would not make, as far as sizes,
// kinds and depth go.
func TestHostile(t *testing.T) {
	s := newStore()
	a, b := s.chunk(5000), s.chunk(6000)
	node := named(s.put(object.Node, random(1, 5000)), 5000)
	nodes, _ := flatbuffers.EncodeIndex([]child{a, a})
	listing := named(s.put(object.Index, bytes.ReplaceAll(nodes, a.Digest[:], node.Digest[:])), 10_000)
	sized := func(c child, size uint64) child { return named(c.Digest, size) }
	garbage := named(s.put(object.Index, []byte("garbage")), 7)
	future, _ := flatbuffers.EncodeIndex([]child{a, b})
	future[7] = '9' // the version in the file identifier
	unread := named(object.Digest{byte(object.Index), 1}, 50_000)
	s.pieces[unread.Digest] = s.pieces[s.index(t, a, unread).Digest] // lists itself
	corrupt := base.ErrCorrupt
	cases := map[string]struct {
		root child
		want error
	}{
		"good":                    {s.index(t, a, s.index(t, a, b)), nil},
		"good, 16 levels":         {s.deep(t, 16), nil},
		"17 levels":               {s.deep(t, 17), corrupt},
		"root chunk too long":     {sized(a, 4999), corrupt},
		"root chunk too short":    {sized(a, 5001), corrupt},
		"root too small":          {sized(s.index(t, a, b), 10_999), corrupt},
		"root too large":          {sized(s.index(t, a, b), 11_001), corrupt},
		"root beyond int64":       {sized(a, math.MaxInt64+1), corrupt},
		"empty root of 1 byte":    {sized(s.chunk(0), 1), corrupt},
		"index for nothing":       {sized(s.index(t, a, b), 0), corrupt},
		"child chunk too long":    {s.index(t, sized(a, 4999), b), corrupt},
		"child chunk too short":   {s.index(t, sized(a, 5001), b), corrupt},
		"child index too small":   {s.index(t, a, sized(s.index(t, a, b), 12_000)), corrupt},
		"child index too large":   {s.index(t, a, sized(s.index(t, a, b), 10_000)), corrupt},
		"first chunk short":       {s.index(t, s.chunk(4095), b), corrupt},
		"last of inner short":     {s.index(t, s.index(t, a, s.chunk(4095)), b), corrupt},
		"chunk beyond 64 KiB":     {s.index(t, a, s.chunk(65537)), corrupt},
		"root beyond 64 KiB":      {s.chunk(65537), corrupt},
		"node":                    {node, corrupt},
		"index of nodes":          {listing, corrupt},
		"inner index of nodes":    {s.index(t, a, listing), corrupt},
		"garbage":                 {garbage, corrupt},
		"garbage below":           {s.index(t, a, garbage), corrupt},
		"index that lists itself": {s.index(t, a, unread), corrupt},
		"reserved bit":            {named(object.Digest{4, 1}, 10), corrupt},
		"format to come":          {named(s.put(object.Index, future), 11_000), base.ErrUnsupported},
		"missing root":            {named(object.Digest{0, 1}, 10), base.ErrNotFound},
		"missing chunk":           {s.index(t, a, named(object.Digest{0, 1}, 10)), base.ErrNotFound},
	}
	for name, c := range cases {
		r := split.NewReader(t.Context(), s, c.root.Digest, c.root.Size)
		_, err := r.WriteTo(io.Discard)
		checkHostile(t, name+": WriteTo", err, c.want)
		if c.root.Size > 0 && c.root.Size <= math.MaxInt64 {
			err = nil
			for at := int64(c.root.Size) - 1; at >= 0 && err == nil; at -= 1000 {
				_, err = r.ReadAt(make([]byte, 1), at)
			}
			checkHostile(t, name+": ReadAt from the end", err, c.want)
		}
	}
	for _, name := range []string{"17 levels", "child index too small", "child index too large", "first chunk short", "last of inner short",
		"chunk beyond 64 KiB", "root beyond 64 KiB", "node", "index of nodes", "inner index of nodes", "garbage", "garbage below",
		"index that lists itself", "reserved bit", "format to come", "missing root", "good", "good, 16 levels"} {
		c := cases[name]
		err := split.Walk(t.Context(), s, c.root.Digest, func(object.Digest, uint64) error { return nil })
		checkHostile(t, name+": Walk", err, c.want)
	}
	for _, name := range []string{"node", "index of nodes", "chunk beyond 64 KiB", "garbage", "reserved bit", "format to come"} {
		c := cases[name]
		_, err := split.Children(c.root.Digest, s.pieces[c.root.Digest])
		checkHostile(t, name+": Children", err, c.want)
	}
}

func checkHostile(t *testing.T, name string, err, want error) {
	t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", name, err, want)
	}
	c := new(base.CorruptError)
	if want == base.ErrCorrupt && errors.As(err, &c) && (c.Where != "piece" || len(c.Key) != 66) {
		t.Errorf("%s: %v names no piece", name, err)
	}
	if want == base.ErrUnsupported && errors.Is(err, base.ErrCorrupt) {
		t.Errorf("%s: %v is called corrupt", name, err)
	}
}

func TestWalkEnds(t *testing.T) {
	s := newStore()
	root := mustSplit(t, s, random(16, 1<<20))
	boom := errors.New("boom")
	for stop := range 5 {
		n := 0
		err := split.Walk(t.Context(), s, root, func(d object.Digest, _ uint64) error {
			if n == 0 && d != root {
				t.Errorf("first piece %s, root %s", d, root)
			}
			if n++; n > stop {
				return boom
			}
			return nil
		})
		if err != boom || n != stop+1 {
			t.Errorf("Walk ended after %d pieces with %v", n, err)
		}
	}
}

// TestRecovers checks that an error of the source leaves the reader as it was.
func TestRecovers(t *testing.T) {
	b := random(17, 2<<20)
	s := newStore()
	root := mustSplit(t, s, b)
	f := &flaky{store: s}
	r := split.NewReader(t.Context(), f, root, uint64(len(b)))
	var got bytes.Buffer
	failures := 0
	for {
		_, err := r.WriteTo(&got)
		if err == nil {
			break
		}
		if !errors.Is(err, errFlaky) {
			t.Fatal(err)
		}
		failures++
	}
	if failures < 10 || !bytes.Equal(got.Bytes(), b) {
		t.Errorf("%d failures, %d bytes", failures, got.Len())
	}
}

var errFlaky = fmt.Errorf("no network: %w", io.EOF)

type flaky struct {
	*store
	n int
}

func (f *flaky) Piece(ctx context.Context, d object.Digest) ([]byte, error) {
	if f.n++; f.n%3 == 0 {
		return nil, errFlaky
	}
	return f.store.Piece(ctx, d)
}

// FuzzIndex feeds any bytes as the index piece at the root to all that parses it.
func FuzzIndex(f *testing.F) {
	s := newStore()
	a, b := s.chunk(5000), s.chunk(6000)
	good, err := flatbuffers.EncodeIndex([]child{a, b})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good, uint64(11_000))
	f.Add(good[:len(good)-1], uint64(11_000))
	f.Add([]byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, content []byte, size uint64) {
		s := &store{pieces: map[object.Digest][]byte{a.Digest: s.pieces[a.Digest], b.Digest: s.pieces[b.Digest]}}
		root := s.put(object.Index, content)
		_, err1 := split.Children(root, content)
		err2 := split.Walk(t.Context(), s, root, func(object.Digest, uint64) error { return nil })
		n, err3 := split.NewReader(t.Context(), s, root, size).WriteTo(io.Discard)
		if err3 == nil && (err1 != nil || err2 != nil || uint64(n) != size) {
			t.Errorf("read %d of %d bytes; Children: %v, Walk: %v", n, size, err1, err2)
		}
	})
}

// farStore is a Source of which some pieces must be brought. It counts how often that was asked
// for.
type farStore struct {
	*store
	here     map[object.Digest]bool
	asked    int // calls of Bring that brought something
	singly   int // pieces that were brought by Piece
	brought  []object.Digest
	unwilled bool // Bring brings nothing
}

func (f *farStore) Near(ctx context.Context, d object.Digest) ([]byte, error) {
	if !f.here[d] {
		return nil, fmt.Errorf("piece %s: %w", d.Short(), base.ErrNeedsFetch)
	}
	return f.store.Piece(ctx, d)
}

func (f *farStore) Piece(ctx context.Context, d object.Digest) ([]byte, error) {
	if !f.here[d] {
		f.singly, f.here[d] = f.singly+1, true
	}
	return f.store.Piece(ctx, d)
}

func (f *farStore) Bring(_ context.Context, ds []object.Digest) error {
	lacking := 0
	for _, d := range ds {
		if !f.here[d] && !f.unwilled {
			lacking, f.here[d] = lacking+1, true
			f.brought = append(f.brought, d)
		}
	}
	if lacking > 0 {
		f.asked++
	}
	return nil
}

// TestReadFar reads ranges of an object of which some is far away. A read of 256 KiB or more asks
// once for each level of pieces, and for nothing that it does not need; a shorter one leaves it to
// Piece.
func TestReadFar(t *testing.T) {
	b := random(21, 6<<20)
	s := newStore()
	root := mustSplit(t, s, b)
	levels := 1
	for d := root; d.Kind().IsIndex(); levels++ {
		children, err := split.Children(d, s.pieces[d])
		if err != nil {
			t.Fatal(err)
		}
		d = children[0]
	}
	must := func(t *rapid.T, err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		f := &farStore{store: s, here: make(map[object.Digest]bool), unwilled: rapid.Bool().Draw(t, "unwilled")}
		share := rapid.Uint64Range(0, 3).Draw(t, "share")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), share))
		for _, d := range s.order {
			f.here[d] = rng.Uint64N(3) < share
		}
		before := maps.Clone(f.here)
		at := rapid.IntRange(0, len(b)).Draw(t, "at")
		got := make([]byte, rapid.IntRange(0, len(b)-at).Draw(t, "bytes"))
		r := split.NewReader(t.Context(), f, root, uint64(len(b)))
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			_, err := r.ReadAt(got, int64(at))
			must(t, err)
		case 1:
			_, err := r.Seek(int64(at), io.SeekStart)
			must(t, err)
			_, err = io.ReadFull(r, got)
			must(t, err)
		case 2:
			_, err := r.Seek(int64(at), io.SeekStart)
			must(t, err)
			var out bytes.Buffer
			_, err = r.WriteTo(&out)
			must(t, err)
			got = out.Bytes()
		}
		if !bytes.Equal(got, b[at:at+len(got)]) {
			t.Fatal("other bytes")
		}
		if f.unwilled {
			return
		}
		if len(got) >= 256<<10 && (f.singly > 0 || f.asked > levels) {
			t.Fatalf("%d bytes at %d asked %d times of %d levels, and for %d pieces alone", len(got), at, f.asked, levels, f.singly)
		}
		if len(got) < 256<<10 && f.asked > 0 {
			t.Fatalf("%d bytes at %d asked %d times", len(got), at, f.asked)
		}
		needed := make(map[object.Digest]bool)
		start := 0
		must(t, split.Walk(t.Context(), s, root, func(d object.Digest, size uint64) error {
			if start < at+len(got) && start+int(size) > at {
				needed[d] = true
			}
			if !d.Kind().IsIndex() {
				start += int(size)
			}
			return nil
		}))
		for _, d := range f.brought {
			if before[d] || !needed[d] {
				t.Fatalf("piece %s was brought in vain", d.Short())
			}
		}
	})
}

// TestReadOnFar reads a far object from front to end in small steps: after a while many pieces come
// at once.
func TestReadOnFar(t *testing.T) {
	b := random(22, 8<<20)
	s := newStore()
	root := mustSplit(t, s, b)
	f := &farStore{store: s, here: make(map[object.Digest]bool)}
	r := split.NewReader(t.Context(), f, root, uint64(len(b)))
	var got bytes.Buffer
	if _, err := io.CopyBuffer(&got, struct{ io.Reader }{r}, make([]byte, 32<<10)); err != nil || !bytes.Equal(got.Bytes(), b) {
		t.Fatalf("%d bytes, %v", got.Len(), err)
	}
	if pieces := len(s.pieces); f.singly > pieces/8 || f.asked > 40 {
		t.Errorf("of %d pieces %d were brought alone, others at %d times", pieces, f.singly, f.asked)
	}
}
