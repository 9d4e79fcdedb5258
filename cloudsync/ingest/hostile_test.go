package ingest_test

import (
	"bytes"
	"context"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// hostile has what a member needs who makes bad entries: a page with two commits that all have, and
// makes bodies by hand.
type hostile struct {
	*device
	base, second *commit.Commit
}

// parse returns the commit of fields that commit.New would refuse, or as near as the encoding lets
// them be.
func (h *hostile) parse(c fb.Commit) *commit.Commit {
	h.t.Helper()
	b, err := fb.EncodeCommit(&c)
	if err != nil {
		h.t.Fatal(err)
	}
	p, err := commit.Parse(b)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// on returns a commit on the second one, with a change of its fields.
func (h *hostile) on(root object.Digest, change func(c *fb.Commit)) *commit.Commit {
	h.t.Helper()
	c := fb.Commit{Timestamp: h.second.Timestamp + 1, Generation: h.second.Generation + 1, Root: root, Parents: [][32]byte{h.second.ID}}
	if change != nil {
		change(&c)
	}
	return h.parse(c)
}

// body returns a body with one commit and the diff from the second one.
func (h *hostile) body(c *commit.Commit, diff ...[]byte) *format.Body {
	return &format.Body{Device: h.id, Commits: []format.CommitChange{{Commit: c, Base: format.Base{Commit: h.second.ID}, Diff: format.Diff{Inline: bytes.Join(diff, nil)}}}}
}

// put returns the change of a key.
func (h *hostile) put(c format.Change) []byte {
	h.t.Helper()
	b, err := format.AppendChange(nil, &c)
	if err != nil {
		h.t.Fatal(err)
	}
	return b
}

func (h *hostile) inline(k, v string) []byte {
	return h.put(format.Change{Key: []byte(k), Inline: []byte(v)})
}

// entries returns the root that the tree of the second commit has with entries that a tree can
// hold.
func (h *hostile) root(es ...fb.Entry) object.Digest {
	h.t.Helper()
	j := h.s.NewJournal()
	defer j.Rollback()
	root, err := btree.Tree{Page: testPage, Source: j, Root: h.second.Root}.Apply(h.t.Context(), j, func(yield func(btree.Change, error) bool) {
		for _, e := range es {
			if !yield(btree.Change{Entry: e}, nil) {
				return
			}
		}
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return root
}

func inlineEntry(k, v string) fb.Entry {
	return fb.Entry{Key: []byte(k), Value: []byte(v), Inline: true, Size: uint64(len(v))}
}

// value returns a body whose commit puts an object of the given digest and size, with pieces.
func (h *hostile) value(root object.Digest, size uint64, p object.Priority, pieces ...format.InlinePiece) *format.Body {
	h.t.Helper()
	b := h.body(h.on(h.root(fb.Entry{Key: []byte("x"), Digest: root, Size: size, Priority: p}), nil),
		h.put(format.Change{Key: []byte("x"), Object: root, Size: size, Priority: p}))
	b.Pieces = pieces
	return b
}

func chunk(content []byte) format.InlinePiece {
	return format.InlinePiece{Digest: object.Sum(object.Chunk, content), Content: content}
}

func indexOf(t testing.TB, sizes []uint64, ps ...format.InlinePiece) format.InlinePiece {
	t.Helper()
	var cs []fb.IndexChild
	for i, p := range ps {
		cs = append(cs, fb.IndexChild{Digest: p.Digest, Size: sizes[i]})
	}
	b, err := fb.EncodeIndex(cs)
	if err != nil {
		t.Fatal(err)
	}
	return format.InlinePiece{Digest: object.Sum(object.IndexBit, b), Content: b}
}

// hostileCase makes a body that no sound member makes; want is a part of the error.
type hostileCase struct {
	name string
	want string
	make func(h *hostile) *format.Body
}

var hostileCommits = []hostileCase{
	{"generation too great", "generation", func(h *hostile) *format.Body {
		return h.body(h.on(h.root(inlineEntry("a", "b")), func(c *fb.Commit) { c.Generation = math.MaxUint64 }), h.inline("a", "b"))
	}},
	{"generation of its parent", "generation", func(h *hostile) *format.Body {
		return h.body(h.on(h.root(inlineEntry("a", "b")), func(c *fb.Commit) { c.Generation = h.second.Generation }), h.inline("a", "b"))
	}},
	{"generation below its parent", "generation", func(h *hostile) *format.Body {
		return h.body(h.on(h.root(inlineEntry("a", "b")), func(c *fb.Commit) { c.Generation = 1 }), h.inline("a", "b"))
	}},
	{"timestamp in the year 9999", "", func(h *hostile) *format.Body { // no int64 reaches so far: the greatest is in 2262
		c := *h.on(h.root(inlineEntry("a", "b")), nil)
		c.Timestamp, c.ID[0] = math.MaxInt64, c.ID[0]+1
		return h.body(&c, h.inline("a", "b"))
	}},
	{"missing parent", "is not here", func(h *hostile) *format.Body {
		return h.body(h.on(h.root(inlineEntry("a", "b")), func(c *fb.Commit) { c.Parents = [][32]byte{{7}} }), h.inline("a", "b"))
	}},
	{"self parent", "", func(h *hostile) *format.Body { // no content hashes to what it holds: it claims an id that is not its own
		c := *h.on(h.root(inlineEntry("a", "b")), nil)
		c.ID = h.second.ID
		c.ID[5]++
		c.Parents = []commit.ID{c.ID}
		return h.body(&c, h.inline("a", "b"))
	}},
	{"no parents", "", func(h *hostile) *format.Body {
		return h.body(&commit.Commit{ID: commit.ID{1}, Timestamp: 1, Generation: 1, Root: h.second.Root}, nil)
	}},
	{"three parents", "", func(h *hostile) *format.Body {
		return h.body(&commit.Commit{ID: commit.ID{1}, Timestamp: math.MaxInt64, Generation: 9, Root: h.second.Root, Parents: []commit.ID{{1}, {2}, {3}}}, nil)
	}},
	{"the first commit", "implied", func(h *hostile) *format.Body { return h.body(commit.First(), nil) }},
	{"wrong root", "leads to the tree", func(h *hostile) *format.Body {
		return h.body(h.on(h.root(inlineEntry("a", "b")), nil), h.inline("a", "c"))
	}},
	{"diff of another base", "leads to the tree", func(h *hostile) *format.Body {
		b := h.body(h.on(h.root(inlineEntry("a", "b")), nil), h.inline("a", "b"))
		b.Commits[0].Base = format.Base{Empty: true}
		return b
	}},
	{"missing base", "base of the diff", func(h *hostile) *format.Body {
		b := h.body(h.on(h.root(inlineEntry("a", "b")), nil), h.inline("a", "b"))
		b.Commits[0].Base.Commit[3]++
		return b
	}},
	{"base in the same body behind it", "base of the diff", func(h *hostile) *format.Body {
		first := h.on(h.root(inlineEntry("a", "b")), nil)
		b := h.body(first, h.inline("a", "b"))
		later := h.body(h.on(h.root(inlineEntry("a", "c")), nil), h.inline("a", "c"))
		b.Commits[0].Base.Commit = later.Commits[0].Commit.ID
		b.Commits = append(b.Commits, later.Commits...)
		return b
	}},
	{"another page", "leads to the tree", func(h *hostile) *format.Body {
		root, err := btree.Build(h.t.Context(), [16]byte{9, 9}, discard{}, func(yield func(fb.Entry, error) bool) {
			for c := 'a'; c <= 'z'; c++ {
				if !yield(inlineEntry(string(c), "v"), nil) {
					return
				}
			}
		})
		if err != nil {
			h.t.Fatal(err)
		}
		var diff []byte
		for c := 'a'; c <= 'z'; c++ {
			diff = append(diff, h.inline(string(c), "v")...)
		}
		b := h.body(h.on(root, nil), diff)
		b.Commits[0].Base = format.Base{Empty: true}
		return b
	}},
}

var hostileDiffs = []hostileCase{
	{"unsorted keys", "ascend", func(h *hostile) *format.Body {
		return h.body(h.on(h.root(inlineEntry("a", "b"), inlineEntry("b", "b")), nil), h.inline("b", "b"), h.inline("a", "b"))
	}},
	{"duplicate keys", "ascend", func(h *hostile) *format.Body {
		return h.body(h.on(h.root(inlineEntry("a", "b")), nil), h.inline("a", "b"), h.inline("a", "b"))
	}},
	{"truncated", "", func(h *hostile) *format.Body {
		d := h.inline("a", "b")
		return h.body(h.on(h.root(inlineEntry("a", "b")), nil), d[:len(d)-1])
	}},
	{"inline value too long", "257 bytes", func(h *hostile) *format.Body {
		return h.body(h.on(h.second.Root, nil), h.inline("a", strings.Repeat("x", btree.InlineLimit+1)))
	}},
	{"object too short", "object of 256 bytes", func(h *hostile) *format.Body {
		p := chunk(noise(1, btree.InlineLimit))
		b := h.body(h.on(h.second.Root, nil), h.put(format.Change{Key: []byte("a"), Object: p.Digest, Size: btree.InlineLimit}))
		b.Pieces = []format.InlinePiece{p}
		return b
	}},
	{"tree node as value", "", func(h *hostile) *format.Body {
		d := h.inline("a", "b")
		good := h.put(format.Change{Key: []byte("a"), Object: object.Sum(object.Chunk, nil), Size: 300})
		i := bytes.Index(good, []byte{0, object.Sum(object.Chunk, nil)[1]})
		good[i] = byte(object.NodeBit)
		return h.body(h.on(h.second.Root, nil), good, d[:0])
	}},
	{"unknown priority", "", func(h *hostile) *format.Body {
		d := h.put(format.Change{Key: []byte("a"), Removed: true})
		d[0] |= 3
		return h.body(h.on(h.second.Root, nil), d)
	}},
	{"key too long", "", func(h *hostile) *format.Body {
		d := h.put(format.Change{Key: bytes.Repeat([]byte("k"), limits.MaxKeyBytes), Removed: true})
		d[1]++
		return h.body(h.on(h.second.Root, nil), d)
	}},
}

var hostileValues = []hostileCase{
	{"dangling eager value", "nobody has piece", func(h *hostile) *format.Body {
		return h.value(chunk(noise(1, 1000)).Digest, 1000, object.Eager)
	}},
	{"dangling lazy value", "nobody has piece", func(h *hostile) *format.Body {
		return h.value(chunk(noise(1, 1000)).Digest, 1000, object.Lazy)
	}},
	{"dangling part of an eager value", "nobody has piece", func(h *hostile) *format.Body {
		one, two := chunk(noise(1, 5000)), chunk(noise(2, 5000))
		x := indexOf(h.t, []uint64{5000, 5000}, one, two)
		return h.value(x.Digest, 10000, object.Eager, one, x)
	}},
	{"eager value of another size", "has 1000 bytes, not 999", func(h *hostile) *format.Body {
		p := chunk(noise(1, 1000))
		return h.value(p.Digest, 999, object.Eager, p)
	}},
	{"lazy value of another size", "another length", func(h *hostile) *format.Body {
		p := chunk(noise(1, 1000))
		return h.value(p.Digest, 999, object.Lazy, p)
	}},
	{"index whose sizes do not sum", "lists 10000 bytes, not 10001", func(h *hostile) *format.Body {
		one, two := chunk(noise(1, 5000)), chunk(noise(2, 5000))
		x := indexOf(h.t, []uint64{5000, 5000}, one, two)
		return h.value(x.Digest, 10001, object.Eager, one, two, x)
	}},
	{"index that is wrong about a piece", "has 5000 bytes, not 5001", func(h *hostile) *format.Body {
		one, two := chunk(noise(1, 5000)), chunk(noise(2, 5000))
		x := indexOf(h.t, []uint64{5001, 4999}, one, two)
		return h.value(x.Digest, 10000, object.Eager, one, two, x)
	}},
	{"index of an index that is wrong", "lists 10000 bytes, not 9999", func(h *hostile) *format.Body {
		one, two, three := chunk(noise(1, 5000)), chunk(noise(2, 5000)), chunk(noise(3, 5000))
		x := indexOf(h.t, []uint64{5000, 5000}, one, two)
		y := indexOf(h.t, []uint64{9999, 5001}, x, three)
		return h.value(y.Digest, 15000, object.Eager, one, two, three, x, y)
	}},
	{"short piece in the middle", "is not the last", func(h *hostile) *format.Body {
		one, two := chunk(noise(1, 500)), chunk(noise(2, 5000))
		x := indexOf(h.t, []uint64{500, 5000}, one, two)
		return h.value(x.Digest, 5500, object.Eager, one, two, x)
	}},
	{"too many levels", "levels", func(h *hostile) *format.Body {
		one := chunk(noise(1, split.MinChunkBytes))
		ps, top, size := []format.InlinePiece{one}, one, uint64(split.MinChunkBytes)
		for range 17 {
			top = indexOf(h.t, []uint64{size, split.MinChunkBytes}, top, one)
			size += split.MinChunkBytes
			ps = append(ps, top)
		}
		return h.value(top.Digest, size, object.Eager, ps...)
	}},
	{"piece of a tree node", "none of a value", func(h *hostile) *format.Body {
		content := fb.EmptyNode()
		return &format.Body{Device: h.id, Pieces: []format.InlinePiece{{Digest: object.Sum(object.NodeBit, content), Content: content}}}
	}},
	{"index piece that is none", "index piece", func(h *hostile) *format.Body {
		return &format.Body{Device: h.id, Pieces: []format.InlinePiece{{Digest: object.Sum(object.IndexBit, []byte("x")), Content: []byte("x")}}}
	}},
	{"piece too long", "bytes", func(h *hostile) *format.Body {
		return &format.Body{Device: h.id, Pieces: []format.InlinePiece{chunk(noise(1, limits.MaxPieceBytes+1))}}
	}},
}

var hostileRest = []hostileCase{
	{"tag of a missing commit", "is not here", func(h *hostile) *format.Body {
		return &format.Body{Device: h.id, Tags: []format.TagChange{{Name: "t", Commit: commit.ID{1}}}}
	}},
	{"tag without a name", "name of 0 bytes", func(h *hostile) *format.Body {
		return &format.Body{Device: h.id, Tags: []format.TagChange{{Commit: h.base.ID}}}
	}},
	{"condemns later entries", "condemns entries", func(h *hostile) *format.Body {
		return &format.Body{Device: h.id, Condemned: &format.Condemnation{Below: 1000}}
	}},
	{"condemns later checkpoints", "condemns checkpoint", func(h *hostile) *format.Body {
		return &format.Body{Device: h.id, Condemned: &format.Condemnation{Checkpoints: []uint64{1000}}}
	}},
	{"condemns what it announces", "which it announces", func(h *hostile) *format.Body {
		c := h.commit(edit{"big": noise(1, 20_000)}, h.second)
		b := h.upload(c)
		b.Condemned = &format.Condemnation{Packs: []format.ID{b.Packs[0].ID}}
		return b
	}},
	{"explanation of another commit", "no merge", func(h *hostile) *format.Body {
		b := h.body(h.on(h.root(inlineEntry("a", "b")), nil), h.inline("a", "b"))
		b.Explanations = []format.Explanation{{Merge: h.second.ID, Root: h.second.Root, Diff: format.Diff{Inline: h.inline("a", "b")}}}
		return b
	}},
	{"explanation with a wrong root", "leads to the tree", func(h *hostile) *format.Body {
		b := h.mergeBody()
		b.Explanations = []format.Explanation{{Merge: b.Commits[0].Commit.ID, Root: h.second.Root, Diff: format.Diff{Inline: h.inline("a", "zzz")}}}
		return b
	}},
	{"empty explanation", "empty", func(h *hostile) *format.Body {
		b := h.mergeBody()
		b.Explanations = []format.Explanation{{Merge: b.Commits[0].Commit.ID, Root: btree.EmptyRoot}}
		return b
	}},
	{"pack that is not there", "", func(h *hostile) *format.Body {
		return &format.Body{Device: h.id, Packs: []format.PackRef{{ID: h.newID(), Bytes: 1000, Pieces: 1, Eager: true}}}
	}},
	{"pack of another length", "", func(h *hostile) *format.Body {
		b := h.upload(h.commit(edit{"big": noise(1, 20_000)}, h.second))
		b.Packs[0].Bytes--
		return b
	}},
	{"pack that is a diff", "", func(h *hostile) *format.Body {
		id, n := h.diffObject(h.inline("a", "b"))
		return &format.Body{Device: h.id, Packs: []format.PackRef{{ID: id, Bytes: n, Pieces: 1, Eager: true}}}
	}},
	{"diff longer than it says", "longer", func(h *hostile) *format.Body {
		id, _ := h.diffObject(append(h.inline("a", "b"), h.inline("b", "b")...))
		b := h.body(h.on(h.root(inlineEntry("a", "b")), nil))
		b.Commits[0].Diff = format.Diff{Pack: id, Bytes: uint64(len(h.inline("a", "b")))}
		return b
	}},
	{"diff shorter than it says", "", func(h *hostile) *format.Body {
		id, _ := h.diffObject(h.inline("a", "b"))
		b := h.body(h.on(h.root(inlineEntry("a", "b")), nil))
		b.Commits[0].Diff = format.Diff{Pack: id, Bytes: 1 << 40}
		return b
	}},
	{"diff that is a pack", "", func(h *hostile) *format.Body {
		b := h.upload(h.commit(edit{"big": noise(1, 20_000)}, h.second))
		b.Commits[0].Diff = format.Diff{Pack: b.Packs[0].ID, Bytes: 100}
		b.Packs = nil
		return b
	}},
}

// mergeBody returns a body with a merge of the two commits that all have, without changes.
func (h *hostile) mergeBody() *format.Body {
	h.t.Helper()
	m, err := commit.NewMerge(h.second.Root, h.base, h.second)
	if err != nil {
		h.t.Fatal(err)
	}
	return h.body(m)
}

// diffObject puts a diff into the bucket and returns its id and length there.
func (h *hostile) diffObject(diff []byte) (format.ID, uint64) {
	h.t.Helper()
	id := h.newID()
	var b bytes.Buffer
	w, err := h.sealer.NewWriter(&b, h.names.DiffLabel(id), true)
	if err == nil {
		_, err = w.Write(diff)
	}
	if err == nil {
		err = w.Close()
	}
	n := b.Len()
	if err == nil {
		err = h.bucket.PutIfAbsent(h.t.Context(), h.names.Pack(id), int64(n), &b)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return id, uint64(n)
}

// discard is a sink.
type discard struct{}

func (discard) PutNode(context.Context, btree.NewNode) error          { return nil }
func (discard) PutPiece(context.Context, object.Digest, []byte) error { return nil }

// TestHostile applies entries that a member with a bug has sealed. Each leaves the page as it was,
// and a good entry is applied after it.
func TestHostile(t *testing.T) {
	for _, group := range [][]hostileCase{hostileCommits, hostileDiffs, hostileValues, hostileRest} {
		for _, c := range group {
			t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) { testHostile(t, c) })
		}
	}
}

func testHostile(t *testing.T, c hostileCase) {
	w := newWorld(t)
	h := &hostile{device: w.device(t)}
	h.base = h.commit(edit{"k": []byte("v")})
	h.second = h.commit(edit{"l": noise(5, 3000)})
	h.push()
	victim := w.device(t)
	victim.pull()
	before := victim.rows()

	bad := w.entry(c.make(h))
	_, err := victim.apply(bad)
	if err == nil {
		t.Fatal("it was applied")
	}
	var e *ingest.EntryError
	missing := c.name == "pack that is not there"
	if errors.As(err, &e) == missing || !missing && (!errors.Is(err, base.ErrCorrupt) || !strings.HasPrefix(e.Object, w.names.Dir)) {
		t.Fatalf("error %v", err)
	}
	if !strings.Contains(err.Error(), c.want) {
		t.Fatalf("error %q does not say %q", err, c.want)
	}
	if after := victim.rows(); after != before {
		t.Fatalf("rows changed from\n%s\nto\n%s", before, after)
	}
	next := h.commit(edit{"good": noise(6, 2000)}, h.second)
	w.append(h.device.body(next))
	victim.pull()
	if got := victim.s.NewestHead(); got.ID != next.ID {
		t.Fatalf("head %s, want %s", got.ID, next.ID)
	}
	victim.check()
}

// TestValuesThatNobodyHas applies commits with values of which pieces are missing: a device that
// lost its bucket had no more. When another device sends the pieces, they can be read.
func TestValuesThatNobodyHas(t *testing.T) {
	one, two := chunk(noise(1, 5000)), chunk(noise(2, 5000))
	x := indexOf(t, []uint64{5000, 5000}, one, two)
	for _, c := range []struct {
		name     string
		root     format.InlinePiece
		size     uint64
		priority object.Priority
		sent     []format.InlinePiece
		missing  []format.InlinePiece
	}{
		{"eager", one, 5000, object.Eager, nil, []format.InlinePiece{one}},
		{"lazy", one, 5000, object.Lazy, nil, []format.InlinePiece{one}},
		{"part of an eager one", x, 10000, object.Eager, []format.InlinePiece{one, x}, []format.InlinePiece{two}},
	} {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			w := newWorld(t)
			h := &hostile{device: w.device(t)}
			h.base = h.commit(edit{"k": []byte("v")})
			h.second = h.commit(edit{"l": []byte("v")})
			h.push()
			d := w.device(t)
			d.pull()
			body := h.value(c.root.Digest, c.size, c.priority, c.sent...)
			body.Lacks = true
			h.append(body)
			if res := d.pull(); res.Missing != len(c.missing) || d.s.NewestHead().Generation != 3 {
				t.Fatalf("%d pieces are missing, want %d; head %s", res.Missing, len(c.missing), d.s.NewestHead().ID)
			}
			for _, p := range c.missing {
				if _, err := d.s.Piece(t.Context(), p.Digest); !errors.Is(err, base.ErrGone) {
					t.Errorf("piece that is missing: %v", err)
				}
			}
			if r, err := d.s.Check(t.Context(), storage.CheckOptions{}); err != nil || !r.Clean() || r.Missing != len(c.missing) {
				t.Errorf("%+v, %v", r, err)
			}
			h.append(&format.Body{Device: h.id, Pieces: c.missing})
			d.pull()
			d.check()
			for _, p := range c.missing {
				if got, err := d.s.Piece(t.Context(), p.Digest); err != nil || !bytes.Equal(got, p.Content) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
			}
		})
	}
}

// TestIndexBomb applies a value of 2^56 bytes that is a few pieces, each listed again and again: it
// is walked in a moment.
func TestIndexBomb(t *testing.T) {
	w := newWorld(t)
	h := &hostile{device: w.device(t)}
	h.base = h.commit(edit{"k": []byte("v")})
	h.second = h.commit(edit{"l": []byte("v")})
	h.push()
	victim := w.device(t)
	victim.pull()
	top := chunk(make([]byte, limits.MaxPieceBytes))
	ps, size := []format.InlinePiece{top}, uint64(limits.MaxPieceBytes)
	for range 4 {
		sizes, below := make([]uint64, 1024), make([]format.InlinePiece, 1024)
		for i := range sizes {
			sizes[i], below[i] = size, top
		}
		top = indexOf(t, sizes, below...)
		ps, size = append(ps, top), size*1024
	}
	h.append(h.value(top.Digest, size, object.Eager, ps...))
	victim.pull()
	if got := victim.s.NewestHead(); got.Generation != 3 {
		t.Fatalf("head %s", got.ID)
	}
}
