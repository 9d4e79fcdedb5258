package storage_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dchest/siphash"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// lowKeys returns n keys that lie in one node, since all are of level 0.
func lowKeys(n int) []string {
	var keys []string
	k0, k1 := binary.LittleEndian.Uint64(testPage[:8]), binary.LittleEndian.Uint64(testPage[8:])
	for i := 0; len(keys) < n; i++ {
		if k := fmt.Sprintf("low %06d", i); siphash.Hash(k0, k1, []byte(k))>>(64-btree.FanoutBits) != 0 {
			keys = append(keys, k)
		}
	}
	return keys
}

// largeNode is an edit that makes a node of more than 64 KiB, the greatest length of a piece.
func largeNode(rng *rand.Rand) edit {
	e := edit{}
	for _, k := range lowKeys(280) {
		e[k] = noise(rng, btree.InlineLimit)
	}
	return e
}

// golden is a page with rows of every kind that was closed properly.
type golden struct {
	*world
	heads []commit.ID
	merge *commit.Commit // with an explanation
}

// newGolden makes the page in memory; dir, if not "", takes page.db.
func newGolden(t testing.TB, seed uint64, o storage.Options, dir string) *golden {
	w := newWorld(t, seed, o)
	if dir != "" {
		w.o.Dir, w.o.MemoryIndex = dir, nil
		w.must(w.mem.MkdirAll(filepath.Dir(dir)))
	}
	w.must(storage.Create(t.Context(), w.o))
	s, err := storage.Open(t.Context(), w.o)
	w.must(err)
	w.s = s
	first := w.commit(many(0, 30))
	w.commit(largeNode(w.rng))
	w.commitFlushed(edit{"large": noise(w.rng, 150<<10)}, 3)
	for i := range 12 {
		w.commit(edit{"key 001": fmt.Appendf(nil, "version %d", i)})
	}
	a := w.s.NewestHead()
	b, err := w.tryCommit(first, edit{"side": noise(w.rng, 3000)}, 0)
	w.must(err)
	m := w.explainedMerge(edit{"side": []byte("merged")}, a, b)
	w.must(w.wait(m))
	side, err := w.tryCommit(first, small(3), 0)
	w.must(err)
	w.must(w.setTag("kept", side))
	w.must(w.setTag("moved", a))
	w.must(w.setTag("moved", b))
	w.must(w.setTag("gone", a))
	w.must(w.setTag("gone", nil))
	j := w.s.NewJournal()
	_, err = putValue(t.Context(), j, "x", noise(w.rng, 20<<10), 1)
	w.must(err)
	j.Rollback()
	g := &golden{world: w, merge: m.c}
	for _, h := range w.s.Heads() {
		g.heads = append(g.heads, h.ID)
	}
	if len(g.heads) != 2 {
		t.Fatalf("%d heads", len(g.heads))
	}
	w.must(checkClean(w.s))
	w.close()
	return g
}

// segments returns the names and contents of the segment files.
func (g *golden) segments() map[string][]byte {
	infos, err := g.mem.ReadDir(g.o.Dir)
	g.must(err)
	files := map[string][]byte{}
	for _, i := range infos {
		if strings.HasSuffix(i.Name, ".seg") {
			b, err := vfs.ReadFile(g.mem, filepath.Join(g.o.Dir, i.Name), 1<<30)
			g.must(err)
			files[i.Name] = b
		}
	}
	return files
}

// damage changes one file of a file system.
func damage(t testing.TB, m *vfstest.Mem, name string, change func(f vfs.File) error) {
	t.Helper()
	f, err := m.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(change(f), f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

func flip(off int, bits byte, content []byte) func(vfs.File) error {
	return func(f vfs.File) error {
		_, err := f.WriteAt([]byte{content[off] ^ bits}, int64(off))
		return err
	}
}

// outcome is what opening and reading a damaged page has led to.
type outcome struct {
	refused bool // Open has said what is damaged
	told    bool // reading or Check has
	torn    bool // Open has cut something off, and says so
	rebuilt bool
}

// look opens a damaged page, reads everything, and checks it. It fails when something is wrong or
// missing and nobody says so. Every error must be one that names what is corrupt.
func (g *golden) look(o storage.Options) (out outcome, err error) {
	ctx := context.Background()
	s, err := storage.Open(ctx, o)
	if err != nil {
		out.refused = true
		return out, g.mustName(err)
	}
	defer func() { err = errors.Join(err, named(s.Close())) }()
	told, wrong, err := g.readAll(s)
	if err != nil {
		return out, err
	}
	r, cerr := s.Check(ctx, storage.CheckOptions{})
	if cerr != nil {
		return out, g.mustName(cerr)
	}
	for _, p := range r.Problems {
		if err := g.mustName(p); err != nil {
			return out, err
		}
	}
	rec := s.Recovery()
	out.told = told || !r.Clean()
	out.torn = len(rec.Torn) > 0
	out.rebuilt = rec.IndexRebuilt != ""
	if wrong != nil && !out.told && !out.torn && !out.rebuilt {
		return out, wrong
	}
	if r.Clean() && !out.torn {
		if told, wrong, err := g.readAll(s); told || wrong != nil || err != nil {
			return out, fmt.Errorf("check is clean and reading is not: %v %w", told, errors.Join(wrong, err))
		}
	}
	return out, nil
}

// mustName returns an error when err does not name what is corrupt.
func (g *golden) mustName(err error) error {
	var c *base.CorruptError
	if errors.As(err, &c) && c.Where != "" {
		return nil
	}
	return fmt.Errorf("an error that names nothing: %w", err)
}

// named passes over errors that name what is corrupt.
func named(err error) error {
	if errors.Is(err, base.ErrCorrupt) {
		return nil
	}
	return err
}

// readAll reads everything that was ever promised. told: an error has named something. wrong:
// something is not there and no error has said so. err: wrong content, or an error that names
// nothing.
func (g *golden) readAll(s *storage.Store) (told bool, wrong, err error) {
	ctx := context.Background()
	note := func(e error) {
		if e != nil && err == nil {
			told, err = true, g.mustName(e)
		}
	}
	values := map[object.Digest][]byte{}
	for _, c := range g.acked {
		got, e := s.Commit(ctx, c.ID)
		if errors.Is(e, base.ErrNotFound) {
			wrong = fmt.Errorf("commit of generation %d is gone", c.Generation)
			continue
		}
		if note(e); e != nil {
			continue
		}
		m, e := contentOnce(ctx, s, got, values)
		if note(e); e == nil && !maps.EqualFunc(m, g.models[c.ID], bytes.Equal) {
			return told, nil, fmt.Errorf("wrong content of commit of generation %d", c.Generation)
		}
	}
	for merge, want := range g.ackExplained {
		root, _, e := s.Explanation(ctx, merge)
		if note(e); e == nil && root != want[0] {
			wrong = fmt.Errorf("explanation %s of merge %s, want %s", root, merge, want[0])
		} else if e == nil {
			m, e := contentOf(ctx, s, root)
			if note(e); e == nil && !maps.EqualFunc(m, g.decided[root], bytes.Equal) {
				return told, nil, fmt.Errorf("wrong decisions of merge %s", merge)
			}
		}
		merges, e := s.Merges(ctx, g.merge.Parents[0], g.merge.Parents[1])
		if note(e); e == nil && (len(merges) != 1 || merges[0] != merge) {
			wrong = fmt.Errorf("merges %v, want %s", merges, merge)
		}
	}
	tags, e := s.Tags(ctx)
	if note(e); e == nil {
		for name, values := range g.tags {
			if want := values[g.tagged[name]]; tags[name] != want {
				wrong = fmt.Errorf("tag %q is %s, want %s", name, tags[name], want)
			}
		}
	}
	heads := s.Heads()
	same := len(heads) == len(g.heads)
	for i := range heads {
		same = same && heads[i].ID == g.heads[i]
	}
	if !same {
		wrong = errors.New("other heads")
	}
	ids, e := s.Unsynced(ctx)
	if note(e); e == nil && len(ids) != len(g.acked) {
		wrong = fmt.Errorf("%d unsynced commits, want %d", len(ids), len(g.acked))
	}
	return told, wrong, err
}

// contentOnce is content for many commits, which reads each value once.
func contentOnce(ctx context.Context, s *storage.Store, c *commit.Commit, values map[object.Digest][]byte) (map[string][]byte, error) {
	m := map[string][]byte{}
	cur := btree.Tree{Page: testPage, Source: s, Root: c.Root}.Cursor()
	ok, err := cur.First(ctx)
	for ; ok && err == nil; ok, err = cur.Next(ctx) {
		e := cur.Entry()
		v, known := values[e.Digest]
		switch {
		case e.Inline:
			v = bytes.Clone(e.Value)
		case !known:
			var b bytes.Buffer
			if _, err := split.NewReader(ctx, s, e.Digest, e.Size).WriteTo(&b); err != nil {
				return nil, err
			}
			v = b.Bytes()
			values[e.Digest] = v
		}
		m[string(e.Key)] = v
	}
	return m, err
}

// copyOf returns options for a copy of the page.
func (g *golden) copyOf() (storage.Options, *vfstest.Mem) {
	o := g.o
	m := g.mem.CrashClone(vfstest.KeepAll)
	o.FS = m
	if g.ix != nil && o.MemoryIndex != nil {
		o.MemoryIndex = g.ix.Clone()
	}
	o.Cache = storage.NewNodeCache(4 << 20)
	return o, m
}

// stride is the distance of two damaged bytes, so that about n are tried for each change, a quarter
// of them in tier 0, all at night.
func stride(size, n int) int { return tier.Of(max(1, 4*size/n), max(1, size/n), 1) }

// TestCorruptSegments flips bytes of the segments and cuts them after a clean close: everything
// reads right, or an error names the place; Check finds each damage.
func TestCorruptSegments(t *testing.T) {
	g := newGolden(t, 1, storage.Options{SegmentBytes: 64 << 10}, "")
	rng := rand.New(rand.NewPCG(tier.Seed(), 5))
	cases := 0
	for name, b := range g.segments() {
		path := filepath.Join(g.o.Dir, name)
		each := func(what string, off int, change func(vfs.File) error) {
			t.Helper()
			cases++
			o, m := g.copyOf()
			damage(t, m, path, change)
			out, err := g.look(o)
			if err != nil {
				t.Fatalf("LEDGER_SEED=%d, %s at %d of %s: %v", tier.Seed(), what, off, name, err)
			}
			if !out.refused && !out.told {
				t.Fatalf("LEDGER_SEED=%d, %s at %d of %s: nobody says so: %+v", tier.Seed(), what, off, name, out)
			}
		}
		st := stride(len(b), 70)
		for off := 0; off < len(b); off++ {
			if off < 80 || (off+rng.IntN(st))%st == 0 {
				each("flip", off, flip(off, 1<<rng.IntN(8), b))
			}
		}
		st = stride(len(b), 12)
		for size := 0; size < len(b); size += 1 + rng.IntN(2*st) {
			each("cut", size, func(f vfs.File) error { return f.Truncate(int64(size)) })
		}
	}
	t.Logf("%d cases", cases)
}

// TestCorruptSegmentsWithoutIndex does the same when page.db is gone: then what is damaged behind
// the last named end of a segment cannot be told from a torn tail, and is shown as one.
func TestCorruptSegmentsWithoutIndex(t *testing.T) {
	g := newGolden(t, 1, storage.Options{SegmentBytes: 64 << 10}, "")
	rng := rand.New(rand.NewPCG(tier.Seed(), 6))
	cases, torn := 0, 0
	for name, b := range g.segments() {
		path := filepath.Join(g.o.Dir, name)
		st := stride(len(b), 60)
		for off := 0; off < len(b); off += 1 + rng.IntN(2*st) {
			cases++
			o, m := g.copyOf()
			o.MemoryIndex = index.NewMemory()
			damage(t, m, path, flip(off, 1<<rng.IntN(8), b))
			out, err := g.look(o)
			if err != nil {
				t.Fatalf("LEDGER_SEED=%d, flip at %d of %s: %v", tier.Seed(), off, name, err)
			}
			if !out.refused && !out.told && !out.torn {
				t.Fatalf("LEDGER_SEED=%d, flip at %d of %s: nobody says so: %+v", tier.Seed(), off, name, out)
			}
			if out.torn {
				torn++
			}
		}
	}
	t.Logf("%d cases, %d of them told as torn tails", cases, torn)
}

// TestWrongSegments takes a segment away, gives one the name of another, and takes one from another
// page. Without page.db nobody can know of a newest segment that is gone.
func TestWrongSegments(t *testing.T) {
	g := newGolden(t, 1, storage.Options{SegmentBytes: 64 << 10}, "")
	o2 := storage.Options{SegmentBytes: 64 << 10}
	other := newGolden(t, 1, o2, "")
	foreign := newWorld(t, 1, o2)
	foreign.o.Page = [16]byte{9}
	foreign.must(storage.Create(t.Context(), foreign.o))
	files := g.segments()
	names := sortedKeys(edit(files))
	try := func(what string, change func(m *vfstest.Mem)) {
		t.Helper()
		for _, indexed := range []bool{true, false} {
			o, m := g.copyOf()
			if !indexed {
				o.MemoryIndex = index.NewMemory()
			}
			change(m)
			out, err := g.look(o)
			if err != nil {
				t.Errorf("%s, index %v: %v", what, indexed, err)
			} else if !out.refused && !out.told && !out.torn && indexed {
				t.Errorf("%s, index %v: nobody says so: %+v", what, indexed, out)
			}
		}
	}
	put := func(m *vfstest.Mem, name string, b []byte) {
		path := filepath.Join(g.o.Dir, name)
		if err := m.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		g.must(vfs.WriteFile(m, path, b))
	}
	for i, name := range names {
		try("missing "+name, func(m *vfstest.Mem) {
			g.must(m.Remove(filepath.Join(g.o.Dir, name)))
			g.must(m.SyncDir(g.o.Dir))
		})
		next := names[(i+1)%len(names)]
		try(name+" under another name", func(m *vfstest.Mem) {
			put(m, name, files[next])
			put(m, next, files[name])
		})
	}
	foreignFiles := map[string][]byte{}
	infos, err := foreign.mem.ReadDir(worldDir)
	g.must(err)
	for _, i := range infos {
		foreignFiles[i.Name], err = vfs.ReadFile(foreign.mem, filepath.Join(worldDir, i.Name), 1<<30)
		g.must(err)
	}
	for name := range foreignFiles {
		try("segment of another page", func(m *vfstest.Mem) { put(m, name, foreignFiles[name]) })
	}
	if a, b := other.segments(), files; !maps.EqualFunc(a, b, bytes.Equal) {
		t.Error("one history gives two logs")
	}
}

// TestCorruptIndex flips bytes of page.db and cuts it: the page opens and reads right, with an
// index that was made anew or without, and Check tells of rows that differ.
func TestCorruptIndex(t *testing.T) {
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.IsDir() {
		t.Setenv("TMPDIR", "/dev/shm") // where a sync costs nothing
	}
	dir := filepath.Join(t.TempDir(), "page")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	g := newGolden(t, 1, storage.Options{SegmentBytes: 64 << 10}, dir)
	path := filepath.Join(dir, "page.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(tier.Seed(), 7))
	var cases, rebuilt, told int
	each := func(what string, off int, b []byte) {
		t.Helper()
		cases++
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		o, _ := g.copyOf()
		out, err := g.look(o)
		if err != nil {
			t.Fatalf("LEDGER_SEED=%d, %s at %d: %v", tier.Seed(), what, off, err)
		}
		if out.refused {
			t.Fatalf("LEDGER_SEED=%d, %s at %d: the page does not open, though its log is intact", tier.Seed(), what, off)
		}
		if out.rebuilt {
			rebuilt++
		} else if out.told {
			told++
		}
	}
	st := stride(len(whole), 200)
	for off := 0; off < len(whole); off += 1 + rng.IntN(2*st) {
		b := bytes.Clone(whole)
		b[off] ^= 1 << rng.IntN(8)
		each("flip", off, b)
	}
	st = stride(len(whole), 30)
	for size := 0; size < len(whole); size += 1 + rng.IntN(2*st) {
		each("cut", size, whole[:size])
	}
	t.Logf("page.db of %d bytes: %d cases, %d made anew, %d told by Check", len(whole), cases, rebuilt, told)
}

// TestCorruptBoth damages the segments and page.db, so that neither can be made anew from the
// other: also a second process is told.
func TestCorruptBoth(t *testing.T) {
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.IsDir() {
		t.Setenv("TMPDIR", "/dev/shm") // where a sync costs nothing
	}
	dir := filepath.Join(t.TempDir(), "page")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	g := newGolden(t, 1, storage.Options{SegmentBytes: 64 << 10, FoldRows: 20}, dir)
	path := filepath.Join(dir, "page.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(tier.Seed(), 8))
	segments := g.segments()
	names := sortedKeys(edit(segments))
	told := 0
	for i := range tier.Of(30, 120, 120*tier.Factor()) {
		b := bytes.Clone(whole)
		for range 1 + rng.IntN(30) {
			b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		o, m := g.copyOf()
		name := names[rng.IntN(len(names))]
		damage(t, m, filepath.Join(dir, name), flip(rng.IntN(len(segments[name])), 1<<rng.IntN(8), segments[name]))
		for range 2 {
			out, err := g.look(o)
			if err != nil {
				t.Fatalf("LEDGER_SEED=%d, case %d: %v", tier.Seed(), i, err)
			}
			if !out.refused && !out.told && !out.torn {
				t.Fatalf("LEDGER_SEED=%d, case %d: nobody says so: %+v", tier.Seed(), i, out)
			}
			if out.told {
				told++
			}
			if out.torn {
				break // it has been said and cut off: the second finds nothing
			}
		}
	}
	t.Logf("%d opened", told)
}

// TestCorruptLastBatch damages the last batch of a page that was not closed: it may have been torn,
// and Open says that.
func TestCorruptLastBatch(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	for i := range 5 {
		w.commit(small(i))
	}
	size := func() int {
		b, err := vfs.ReadFile(w.mem, worldDir+"/00000001.seg", 1<<30)
		w.must(err)
		return len(b)
	}
	from := size()
	before := w.promise()
	w.commit(small(9))
	b, err := vfs.ReadFile(w.mem, worldDir+"/00000001.seg", 1<<30)
	w.must(err)
	for off := from; off < size(); off++ {
		o := w.o
		m := w.mem.CrashClone(vfstest.KeepAll)
		o.FS, o.MemoryIndex = m, w.ix.Clone()
		damage(t, m, worldDir+"/00000001.seg", flip(off, 4, b))
		s, err := storage.Open(t.Context(), o)
		w.must(err)
		if r := s.Recovery(); len(r.Torn) != 1 || r.Torn[0].Offset != uint64(from) {
			t.Fatalf("byte %d: recovery %+v", off, r)
		}
		w.must(w.verify(s, before, w.rng))
		w.must(s.Close())
	}
	w.close()
}
