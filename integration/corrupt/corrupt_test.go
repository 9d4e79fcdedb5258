package corrupt_test

import (
	"bytes"
	"context"
	"encoding/base32"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/storage"
)

// place is a page of the golden repository.
type place struct{ ledger, page string }

// golden is a repository that was closed, as files, and what its pages hold.
type golden struct {
	files  map[string][]byte // by path below the repository
	values map[place]map[string][]byte
	tags   map[place][]string
}

func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

func build(t *testing.T) *golden {
	t.Helper()
	ctx := t.Context()
	dir := filepath.Join(t.TempDir(), "repo")
	repo, err := ledger.Open(ctx, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	g := &golden{files: map[string][]byte{}, values: map[place]map[string][]byte{}, tags: map[place][]string{}}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, at := range []place{{"one", "first"}, {"one", "second"}, {"two", "first"}} {
		if err := g.fill(ctx, repo, at, rng); err != nil {
			t.Fatal(err)
		}
	}
	if err := repo.Close(); err != nil {
		t.Fatal(err)
	}
	if err := explainedMerge(ctx, dir, place{"one", "first"}); err != nil {
		t.Fatal(err)
	}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err == nil {
			g.files[rel], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.read(ctx, dir); err != nil {
		t.Fatalf("undamaged: %v", err)
	}
	return g
}

// fill makes a page.
func (g *golden) fill(ctx context.Context, repo *ledger.Repository, at place, rng *rand.Rand) error {
	p, err := repo.Page(ctx, at.ledger, at.page)
	if err != nil {
		return err
	}
	values := map[string][]byte{}
	g.values[at] = values
	for i := range 6 {
		id, err := p.Update(ctx, func(tx *ledger.Tx) error {
			for k := range 8 {
				key, v := fmt.Sprintf("key %d %d", i, k), fmt.Appendf(nil, "value %d %d", i, k)
				if k == 0 {
					v = noise(rng, 1000+i*6000)
				}
				values[key] = v
				if err := tx.Put(ctx, []byte(key), v); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if i%2 == 0 {
			name := fmt.Sprint("tag", i)
			g.tags[at] = append(g.tags[at], name)
			if err := p.Tag(ctx, name, id); err != nil {
				return err
			}
		}
	}
	return p.Close()
}

// explainedMerge adds a merge that changes nothing to a page, with an explanation, so that there
// are records and rows of these.
func explainedMerge(ctx context.Context, dir string, at place) (err error) {
	id := ledger.DerivePageID(at.ledger, at.page)
	name := func(b []byte) string {
		return strings.ToLower(base32.HexEncoding.WithPadding(base32.NoPadding).EncodeToString(b))
	}
	found, err := filepath.Glob(filepath.Join(dir, "*", "ledgers", name([]byte(at.ledger)), name(id[:])))
	if err != nil || len(found) != 1 {
		return fmt.Errorf("find page %v: %v, %w", at, found, errors.Join(err, errWrong))
	}
	s, err := storage.Open(ctx, storage.Options{Dir: found[0], Page: id})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	head := s.Heads()[0]
	var sides []*commit.Commit
	for _, device := range []string{"a", "b"} {
		c, err := commit.New(commit.Params{Root: head.Root, Parents: []*commit.Commit{head}, Device: device})
		if err != nil {
			return err
		}
		sides = append(sides, c)
	}
	m, err := commit.NewMerge(head.Root, sides[0], sides[1])
	if err != nil {
		return err
	}
	j := s.NewJournal()
	defer j.Rollback()
	root, err := btree.Build(ctx, id, j, func(yield func(fb.Entry, error) bool) {
		for i := range 40 {
			d := merge.Decision{Key: fmt.Appendf(nil, "key %03d", i), Outcome: merge.TakeLeft, Rule: "last one wins", LeftWriter: sides[0].ID}
			v, err := d.Encode()
			if !yield(fb.Entry{Key: d.Key, Value: v, Inline: true, Size: uint64(len(v))}, err) || err != nil {
				return
			}
		}
	})
	if err != nil {
		return err
	}
	j.Explain(m.ID, root)
	p, err := s.Submit(ctx, j, append(sides, m)...)
	if err != nil {
		return err
	}
	return p.Wait()
}

// write puts the files into an empty directory.
func (g *golden) write(dir string, change map[string][]byte) error {
	for name, b := range g.files {
		if c, ok := change[name]; ok {
			if b = c; b == nil {
				continue
			}
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// errWrong marks content that is not what was written, without an error that says so.
var errWrong = errors.New("wrong")

// read reads everything and returns the first error.
func (g *golden) read(ctx context.Context, dir string) (err error) {
	repo, err := ledger.Open(ctx, dir, &ledger.Options{MustExist: true, CacheBytes: 1 << 20})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, repo.Close()) }()
	infos, err := repo.Pages(ctx)
	if err != nil {
		return err
	}
	for at := range g.values {
		// Names are lost with page_usage_db until a page is opened by its name.
		id := ledger.DerivePageID(at.ledger, at.page)
		if !slices.ContainsFunc(infos, func(i ledger.PageInfo) bool { return i.Ledger == at.ledger && i.ID == id }) {
			return fmt.Errorf("page %v is not listed: %w", at, errWrong)
		}
		if err := g.readPage(ctx, repo, at); err != nil {
			return fmt.Errorf("page %v: %w", at, err)
		}
	}
	if len(infos) != len(g.values) {
		return fmt.Errorf("%d pages are listed: %w", len(infos), errWrong)
	}
	r, err := admin.Check(ctx, repo, nil)
	if err != nil {
		return err
	}
	if !r.OK() {
		return fmt.Errorf("check: %w: %+v", ledger.ErrCorrupt, r)
	}
	return nil
}

func (g *golden) readPage(ctx context.Context, repo *ledger.Repository, at place) (err error) {
	p, err := repo.Page(ctx, at.ledger, at.page)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	n := 0
	err = p.View(ctx, func(s *ledger.Snapshot) error {
		for e, err := range s.Scan(ctx, ledger.ScanOptions{}) {
			if err != nil {
				return err
			}
			v, err := e.Value(ctx)
			if err != nil {
				return err
			}
			if want, ok := g.values[at][string(e.Key)]; !ok || !bytes.Equal(v, want) {
				return fmt.Errorf("value of %q: %w", e.Key, errWrong)
			}
			n++
		}
		return nil
	})
	if err != nil {
		return err
	}
	if n != len(g.values[at]) {
		return fmt.Errorf("%d values, want %d: %w", n, len(g.values[at]), errWrong)
	}
	tags, err := p.Tags(ctx)
	if err != nil {
		return err
	}
	if len(tags) != len(g.tags[at]) {
		return fmt.Errorf("%d tags, want %d: %w", len(tags), len(g.tags[at]), errWrong)
	}
	commits := 0
	for _, err := range p.Log(ctx) {
		if err != nil {
			return err
		}
		commits++
	}
	if commits < 6 {
		return fmt.Errorf("%d commits: %w", commits, errWrong)
	}
	return nil
}

// try damages the repository and reads it. It returns whether an error said so.
func (g *golden) try(t *testing.T, what string, change map[string][]byte) (told bool) {
	t.Helper()
	dir, err := os.MkdirTemp("", "ledger-corrupt-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := g.write(dir, change); err != nil {
		t.Fatal(err)
	}
	err = g.read(t.Context(), dir)
	switch {
	case err == nil:
		return false
	case errors.Is(err, errWrong):
		t.Errorf("%s: nobody says so: %v", what, err)
	case !errors.Is(err, ledger.ErrCorrupt) && !errors.Is(err, ledger.ErrUnsupported) && !errors.Is(err, ledger.ErrNoRepository):
		t.Errorf("%s: an error that does not tell of damage: %v", what, err)
	}
	return true
}

// TestDamagedFiles flips bytes of every file of a repository, cuts each and takes each away: what
// is read is right, or an error says what is damaged.
func TestDamagedFiles(t *testing.T) {
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.IsDir() {
		t.Setenv("TMPDIR", "/dev/shm") // where a sync costs nothing
	}
	g := build(t)
	rng := rand.New(rand.NewPCG(tier.Seed(), 3))
	each := 14
	if tier.Nightly() {
		each = 2000
	}
	cases, told := 0, 0
	for name, b := range g.files {
		try := func(what string, b []byte) {
			t.Helper()
			cases++
			if g.try(t, name+": "+what, map[string][]byte{name: b}) {
				told++
			}
		}
		step := max(1, len(b)/each)
		for off := 0; off < len(b); off += 1 + rng.IntN(2*step) {
			c := bytes.Clone(b)
			c[off] ^= 1 << rng.IntN(8)
			try(fmt.Sprintf("flip at %d", off), c)
		}
		for _, size := range []int{0, 1, len(b) / 2, len(b) - 1} {
			if size >= 0 && size < len(b) {
				try(fmt.Sprintf("cut at %d", size), b[:size:size])
			}
		}
		try("missing", nil)
		if t.Failed() {
			t.Logf("%s has %d bytes", name, len(b))
		}
	}
	t.Logf("%d cases in %d files, %d told", cases, len(g.files), told)
}
