package format_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
)

// fullCheckpoint has everything that a checkpoint can have, and its diffs.
func fullCheckpoint(t testing.TB) (*format.Checkpoint, [][]byte) {
	t.Helper()
	a := newCommit(t, 1)
	b, c := newCommit(t, 2, a), newCommit(t, 3, a)
	diffs := [][]byte{diffOf(t, inline("a", []byte("1")), inline("b", []byte("2"))), diffOf(t, format.Change{Key: []byte("a"), Removed: true})}
	return &format.Checkpoint{
		At:        format.Position{Bucket: id(0xb0), Number: 40, Hash: hash(40)},
		Commits:   []*commit.Commit{a, b, c},
		Heads:     []uint32{2, 1},
		DiffBytes: []uint64{uint64(len(diffs[0])), uint64(len(diffs[1]))},
		Tags:      []format.TagChange{{Name: "v1", Commit: a.ID}, {Name: "v2", Commit: b.ID}},
		Retention: format.Retention{Commits: 10, Age: time.Hour},
		Packs:     []format.PackRef{{ID: id(0x20), Bytes: 1000, Pieces: 3, Eager: true}, {ID: id(0x21), Bytes: 1, Pieces: 1}},
		Condemned: []format.Condemnation{{Packs: []format.ID{id(1), id(2)}, Checkpoints: []uint64{1, 39}}, {Below: 40}},
	}, diffs
}

func encodeCheckpoint(t testing.TB, c *format.Checkpoint) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := c.EncodeTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestCheckpointRoundTrip(t *testing.T) {
	c, diffs := fullCheckpoint(t)
	slices.Reverse(c.Tags)
	slices.Reverse(c.Packs)
	slices.Reverse(c.Condemned[0].Packs)
	slices.Reverse(c.Condemned[0].Checkpoints)
	b := encodeCheckpoint(t, c)
	r := iotest.OneByteReader(io.MultiReader(bytes.NewReader(b), bytes.NewReader(diffs[0]), bytes.NewReader(diffs[1])))
	got, err := format.ReadCheckpoint(r, int64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := fullCheckpoint(t)
	if diff := cmp.Diff(want, got, sameCommits); diff != "" {
		t.Error(diff)
	}
	for i, n := range got.DiffBytes {
		list, err := readChanges(format.NewChangeReader(r, int64(n)))
		if err != nil || !bytes.Equal(diffOf(t, list...), diffs[i]) {
			t.Errorf("diff %d: %v", i, err)
		}
	}
	if err := got.CheckAt(id(0xb0), 40); err != nil {
		t.Error(err)
	}
	mustRefuse(t, "other number", "checkpoint", got.CheckAt(id(0xb0), 41))
	mustRefuse(t, "other bucket", "checkpoint", got.CheckAt(id(0xb1), 40))
	empty := &format.Checkpoint{At: format.Position{Bucket: id(1), Number: 1, Hash: hash(1)}}
	if got, err := format.ReadCheckpoint(bytes.NewReader(encodeCheckpoint(t, empty)), 100); err != nil || cmp.Diff(empty, got, sameCommits) != "" {
		t.Errorf("empty checkpoint: %v", err)
	}
}

// TestManyCommitsStream: commits are neither written nor read in one piece.
func TestManyCommitsStream(t *testing.T) {
	c := &format.Checkpoint{At: format.Position{Bucket: id(1), Number: 1, Hash: hash(1)}}
	var last []*commit.Commit
	for i := range 3000 {
		k := newCommit(t, uint64(i), last...)
		c.Commits, last = append(c.Commits, k), []*commit.Commit{k}
	}
	c.Heads, c.DiffBytes = []uint32{2999}, []uint64{0}
	var sizes countingWriter
	if err := c.EncodeTo(&sizes); err != nil {
		t.Fatal(err)
	}
	if sizes.most > 128<<10 || sizes.total < 400_000 {
		t.Errorf("%d bytes are written, up to %d at once", sizes.total, sizes.most)
	}
	b := encodeCheckpoint(t, c)
	bounded(t, len(b), func() {
		got, err := format.ReadCheckpoint(bytes.NewReader(b), int64(len(b)))
		if err != nil || len(got.Commits) != 3000 {
			t.Error(err)
		}
	})
}

type countingWriter struct{ total, most int }

func (w *countingWriter) Write(p []byte) (int, error) {
	w.total, w.most = w.total+len(p), max(w.most, len(p))
	return len(p), nil
}

// TestCheckpointsThatNobodyWrites: I4.
func TestCheckpointsThatNobodyWrites(t *testing.T) {
	for name, spoil := range map[string]func(c *format.Checkpoint){
		"no bucket":               func(c *format.Checkpoint) { c.At.Bucket = format.ID{} },
		"no entry":                func(c *format.Checkpoint) { c.At.Number, c.At.Hash = 0, format.Hash{} },
		"no hash":                 func(c *format.Checkpoint) { c.At.Hash = format.Hash{} },
		"number":                  func(c *format.Checkpoint) { c.At.Number = format.MaxNumber + 1 },
		"first commit":            func(c *format.Checkpoint) { c.Commits[0] = commit.First() },
		"no commit":               func(c *format.Checkpoint) { c.Commits[0] = nil },
		"commit twice":            func(c *format.Checkpoint) { c.Commits[1] = c.Commits[2] },
		"child before parent":     func(c *format.Checkpoint) { c.Commits[0], c.Commits[1] = c.Commits[1], c.Commits[0] },
		"no heads":                func(c *format.Checkpoint) { c.Heads, c.DiffBytes = nil, nil },
		"no commits":              func(c *format.Checkpoint) { c.Commits = nil },
		"head without diff":       func(c *format.Checkpoint) { c.DiffBytes = c.DiffBytes[:1] },
		"head twice":              func(c *format.Checkpoint) { c.Heads[0] = c.Heads[1] },
		"head is a parent":        func(c *format.Checkpoint) { c.Heads[0] = 0 },
		"tree of a head":          func(c *format.Checkpoint) { c.Trees, c.TreeBytes = c.Heads[:1], []uint64{1} },
		"tree twice":              func(c *format.Checkpoint) { c.Trees, c.TreeBytes = []uint32{0, 0}, []uint64{1, 1} },
		"tree without diff":       func(c *format.Checkpoint) { c.Trees = []uint32{0} },
		"tree of no commit":       func(c *format.Checkpoint) { c.Trees, c.TreeBytes = []uint32{9}, []uint64{1} },
		"head is no commit":       func(c *format.Checkpoint) { c.Heads[0] = 3 },
		"diffs too long":          func(c *format.Checkpoint) { c.DiffBytes[1] = format.MaxDiffBytes },
		"removed tag":             func(c *format.Checkpoint) { c.Tags[0].Removed, c.Tags[0].Commit = true, commit.ID{} },
		"tag twice":               func(c *format.Checkpoint) { c.Tags[1].Name = c.Tags[0].Name },
		"tag not UTF-8":           func(c *format.Checkpoint) { c.Tags[0].Name = "\xff" },
		"negative age":            func(c *format.Checkpoint) { c.Retention.Age = -1 },
		"pack twice":              func(c *format.Checkpoint) { c.Packs[1] = c.Packs[0] },
		"pack condemned":          func(c *format.Checkpoint) { c.Condemned[0].Packs[0] = c.Packs[0].ID },
		"part of no pack":         func(c *format.Checkpoint) { c.Partial = partial(0x22, 0, 1) },
		"part of a lazy pack":     func(c *format.Checkpoint) { c.Partial = partial(0x21, 0, 1) },
		"part twice":              func(c *format.Checkpoint) { c.Partial = append(partial(0x20, 0, 1), partial(0x20, 0, 1)...) },
		"nothing of a pack":       func(c *format.Checkpoint) { c.Partial = partial(0x20) },
		"no frames":               func(c *format.Checkpoint) { c.Partial = partial(0x20, 1, 0) },
		"spans that are one":      func(c *format.Checkpoint) { c.Partial = partial(0x20, 0, 2, 2, 1) },
		"spans that overlap":      func(c *format.Checkpoint) { c.Partial = partial(0x20, 0, 2, 1, 1) },
		"spans of 2^32 frames":    func(c *format.Checkpoint) { c.Partial = partial(0x20, 2, 1<<32-1) },
		"a frame beyond any":      func(c *format.Checkpoint) { c.Partial = partial(0x20, format.MaxPackPieces, 1) },
		"nothing condemned":       func(c *format.Checkpoint) { c.Condemned[1].Below = 0 },
		"itself condemned":        func(c *format.Checkpoint) { c.Condemned[0].Checkpoints[1] = 40 },
		"later entries condemned": func(c *format.Checkpoint) { c.Condemned[1].Below = 41 },
		"too many condemnations":  func(c *format.Checkpoint) { c.Condemned = make([]format.Condemnation, format.MaxCondemnations+1) },
	} {
		c, _ := fullCheckpoint(t)
		spoil(c)
		var b bytes.Buffer
		if err := c.EncodeTo(&b); !errors.Is(err, base.ErrInvalid) && !errors.Is(err, base.ErrTooLarge) || b.Len() > 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// partial returns spans of a pack: first, count and so on.
func partial(pack byte, spans ...uint32) []format.PartialPack {
	p := format.PartialPack{ID: id(pack)}
	for i := 0; i < len(spans); i += 2 {
		p.Spans = append(p.Spans, format.BlockSpan{First: spans[i], Count: spans[i+1]})
	}
	return []format.PartialPack{p}
}

func TestPartialPackHas(t *testing.T) {
	p := &partial(1, 2, 3, 9, 1)[0]
	for frame := range uint32(12) {
		if want := frame >= 2 && frame < 5 || frame == 9; p.Has(frame) != want {
			t.Errorf("frame %d: %v", frame, !want)
		}
	}
}

func TestBadCheckpoints(t *testing.T) {
	c, _ := fullCheckpoint(t)
	bare := len(encodeCheckpoint(t, c)) // without what may be left out
	c.Trees, c.TreeBytes, c.Partial = []uint32{0}, []uint64{7}, partial(0x20, 1, 3, 7, 1)
	good := encodeCheckpoint(t, c)
	read := func(b []byte, limit int) error {
		_, err := format.ReadCheckpoint(bytes.NewReader(b), int64(limit))
		return err
	}
	for n := range good {
		mustRefuse(t, "cut", "checkpoint", read(good[:n], len(good)))
		if n == bare {
			continue
		}
		shorter := bytes.Clone(good[:n])
		if n >= 9 {
			binary.BigEndian.PutUint64(shorter[1:], uint64(n-9))
		}
		mustRefuse(t, "header cut", "checkpoint", read(shorter, len(good)))
	}
	mustRefuse(t, "limit", "checkpoint", read(good, len(good)-10))
	mustRefuse(t, "negative limit", "checkpoint", read(good, -1))
	longer := append(bytes.Clone(good), 0)
	binary.BigEndian.PutUint64(longer[1:], uint64(len(longer)-9))
	mustRefuse(t, "more", "checkpoint", read(longer, 1<<20))
	newer := append([]byte{2}, good[1:]...)
	if err := read(newer, len(good)); !isA[*base.FormatError](err) {
		t.Errorf("newer version: %v", err)
	}
	broken := errors.New("broken")
	for n := range good {
		_, err := format.ReadCheckpoint(io.MultiReader(bytes.NewReader(good[:n]), iotest.ErrReader(broken)), 1<<20)
		if !errors.Is(err, broken) || errors.Is(err, base.ErrCorrupt) {
			t.Fatalf("reader that breaks after %d bytes: %v", n, err)
		}
	}
	if err := c.EncodeTo(brokenWriter{broken}); !errors.Is(err, broken) {
		t.Errorf("broken writer: %v", err)
	}
	if err := c.EncodeTo(brokenWriter{}); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("short writer: %v", err)
	}
}

// sealCheckpoint returns a checkpoint as it stands in the bucket.
func sealCheckpoint(t testing.TB, s *seal.Sealer, c *format.Checkpoint, diffs [][]byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := s.NewWriter(&b, namesOf(s).CheckpointLabel(c.At.Number), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.EncodeTo(w); err != nil {
		t.Fatal(err)
	}
	for _, d := range diffs {
		if _, err := w.Write(d); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// openCheckpoint reads a checkpoint wholly.
func openCheckpoint(s *seal.Sealer, n format.PageNames, number uint64, stored []byte) error {
	r, err := s.NewStream(bytes.NewReader(stored), n.CheckpointLabel(number))
	if err != nil {
		return err
	}
	c, err := format.ReadCheckpoint(r, 1<<20)
	if err != nil {
		return err
	}
	for _, bytes := range c.DiffBytes {
		if _, err := readChanges(format.NewChangeReader(r, int64(bytes))); err != nil {
			return err
		}
	}
	if _, err := io.ReadFull(r, make([]byte, 1)); err != io.EOF {
		return err
	}
	return c.CheckAt(id(0xb0), number)
}

func FuzzDecodeCheckpoint(f *testing.F) {
	c, _ := fullCheckpoint(f)
	b := encodeCheckpoint(f, c)
	f.Add(b)
	f.Add(append([]byte{1, 0, 0, 0, 0, 0, 0x10, 0, 0}, b[9:]...))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c *format.Checkpoint
		var err error
		r := bytes.NewReader(b)
		bounded(t, len(b), func() { c, err = format.ReadCheckpoint(r, 1<<30) })
		if err != nil {
			if !isRefusal(err) {
				t.Error(err)
			}
			return
		}
		if again := encodeCheckpoint(t, c); !bytes.Equal(again, b[:len(b)-r.Len()]) {
			t.Errorf("accepted %x, encodes as %x", b, again)
		}
	})
}

// TestCheckpointThatLacksPieces is one byte longer, and no other byte stands there.
func TestCheckpointThatLacksPieces(t *testing.T) {
	c, _ := fullCheckpoint(t)
	whole := encodeCheckpoint(t, c)
	c.Lacks = true
	b := encodeCheckpoint(t, c)
	if len(b) != len(whole)+1 || b[len(b)-1] != 1 {
		t.Fatalf("%d bytes, %d without", len(b), len(whole))
	}
	for last, good := range map[byte]bool{0: false, 1: true, 2: false} {
		b[len(b)-1] = last
		got, err := format.ReadCheckpoint(bytes.NewReader(b), 1<<20)
		if good != (err == nil) || good && !got.Lacks {
			t.Errorf("last byte %d: %v", last, err)
		}
	}
}

// zeros is a stream of them without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// TestCheckpointWithoutMeasure has a checkpoint say that what stands behind its commits is longer
// than that can be: that is seen before it is read, however short it was compressed.
func TestCheckpointWithoutMeasure(t *testing.T) {
	at := format.Position{Bucket: id(0xb0), Number: 40, Hash: format.Hash{1}}
	head := append(at.Encode(), 0) // no commits
	for _, length := range []uint64{33 << 20, 1<<30 - 1} {
		b := append(binary.BigEndian.AppendUint64([]byte{1}, length), head...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := format.ReadCheckpoint(io.MultiReader(bytes.NewReader(b), zeros{}), 1<<30)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; !errors.Is(err, base.ErrCorrupt) || got > 1<<20 {
			t.Errorf("%d bytes: %d were allocated, %v", length, got, err)
		}
	}
	c := &format.Checkpoint{At: at}
	for i := range 33 << 20 / limits.MaxTagBytes {
		c.Tags = append(c.Tags, format.TagChange{Name: fmt.Sprintf("%0*d", limits.MaxTagBytes, i), Commit: commit.ID{1}})
	}
	if err := c.EncodeTo(io.Discard); !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("encode %d tags: %v", len(c.Tags), err)
	}
}
