package storage_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var testPage = [16]byte{1, 2, 3}

func options(t testing.TB) storage.Options {
	t.Helper()
	return storage.Options{Dir: filepath.Join(t.TempDir(), "page"), Page: testPage}
}

func open(t testing.TB, o storage.Options) *storage.Store {
	t.Helper()
	if !o.ReadOnly {
		if err := storage.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	s, err := storage.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func closeStore(t testing.TB, s *storage.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// edit is one change of a page: a nil value deletes the key.
type edit map[string][]byte

func (e edit) changes(ctx context.Context, j *storage.Journal) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		for _, k := range slices.Sorted(maps.Keys(e)) {
			v := e[k]
			c := btree.Change{Delete: v == nil, Entry: fb.Entry{Key: []byte(k), Value: v, Inline: true, Size: uint64(len(v))}}
			if len(v) > btree.InlineLimit {
				root, err := split.SplitBytes(ctx, split.DefaultTable(), v, func(ctx context.Context, p split.Piece) error {
					return j.PutPiece(ctx, p.Digest, p.Content)
				})
				c.Entry = fb.Entry{Key: []byte(k), Digest: root, Size: uint64(len(v))}
				if err != nil {
					yield(c, err)
					return
				}
			}
			if !yield(c, nil) {
				return
			}
		}
	}
}

// submit makes a commit on the newest head and returns it with what is to be waited for.
func submit(ctx context.Context, s *storage.Store, e edit) (*commit.Commit, *storage.Pending, error) {
	unlock, err := s.Lock(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer unlock()
	return submitOn(ctx, s, s.NewestHead(), e)
}

func submitOn(ctx context.Context, s *storage.Store, head *commit.Commit, e edit) (*commit.Commit, *storage.Pending, error) {
	j := s.NewJournal()
	defer j.Rollback()
	root, err := btree.Tree{Page: testPage, Source: j, Root: head.Root}.Apply(ctx, j, e.changes(ctx, j))
	if err != nil {
		return nil, nil, err
	}
	c, err := commit.New(commit.Params{Now: time.Unix(1, 0), Root: root, Parents: []*commit.Commit{head}})
	if err != nil {
		return nil, nil, err
	}
	p, err := s.Submit(ctx, j, c)
	return c, p, err
}

func update(t testing.TB, s *storage.Store, e edit) *commit.Commit {
	t.Helper()
	c, p, err := submit(t.Context(), s, e)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// content reads all of a commit.
func content(ctx context.Context, s *storage.Store, c *commit.Commit) (map[string][]byte, error) {
	return contentOf(ctx, s, c.Root)
}

// contentOf reads all of a tree.
func contentOf(ctx context.Context, s *storage.Store, root object.Digest) (map[string][]byte, error) {
	m := map[string][]byte{}
	cur := btree.Tree{Page: testPage, Source: s, Root: root}.Cursor()
	ok, err := cur.First(ctx)
	for ; ok && err == nil; ok, err = cur.Next(ctx) {
		e := cur.Entry()
		v := bytes.Clone(e.Value)
		if !e.Inline {
			var b bytes.Buffer
			if _, err := split.NewReader(ctx, s, e.Digest, e.Size).WriteTo(&b); err != nil {
				return nil, fmt.Errorf("value of %q: %w", e.Key, err)
			}
			v = b.Bytes()
		}
		m[string(e.Key)] = v
	}
	return m, err
}

func wantContent(t testing.TB, s *storage.Store, c *commit.Commit, want map[string][]byte) {
	t.Helper()
	got, err := content(t.Context(), s, c)
	if err != nil {
		t.Fatal(err)
	}
	if !maps.EqualFunc(got, want, bytes.Equal) {
		t.Fatalf("commit %s holds %d keys, want %d, or other values", c.ID, len(got), len(want))
	}
}

func wantClean(t testing.TB, s *storage.Store) *storage.CheckReport {
	t.Helper()
	r, err := s.Check(t.Context(), storage.CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Problems {
		t.Error(p)
	}
	return r
}

// history makes commits with random edits and returns what the page holds after each.
func history(t testing.TB, s *storage.Store, rng *rand.Rand, commits int) (cs []*commit.Commit, models []map[string][]byte) {
	t.Helper()
	model := map[string][]byte{}
	for range commits {
		e := edit{}
		for range 1 + rng.IntN(20) {
			k := fmt.Sprintf("key %03d", rng.IntN(200))
			switch rng.IntN(10) {
			case 0, 1:
				e[k] = nil
			case 2:
				v := make([]byte, 300+rng.IntN(100<<10))
				for i := range v {
					v[i] = byte(rng.Uint32())
				}
				e[k] = v
			default:
				e[k] = []byte(fmt.Sprint("value ", rng.Uint64()))
			}
		}
		cs = append(cs, update(t, s, e))
		for k, v := range e {
			if v == nil {
				delete(model, k)
			} else {
				model[k] = v
			}
		}
		models = append(models, maps.Clone(model))
	}
	return cs, models
}

func TestHistorySurvivesReopenAndRebuild(t *testing.T) {
	o := options(t)
	s := open(t, o)
	cs, models := history(t, s, rand.New(rand.NewPCG(1, 2)), 60)
	check := func(when string) {
		t.Helper()
		for i, c := range cs {
			got, err := s.Commit(t.Context(), c.ID)
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			wantContent(t, s, got, models[i])
		}
		if h := s.Heads(); len(h) != 1 || h[0].ID != cs[len(cs)-1].ID {
			t.Fatalf("%s: heads %v", when, h)
		}
		r := wantClean(t, s)
		if r.Commits != len(cs) {
			t.Fatalf("%s: check saw %d commits, want %d", when, r.Commits, len(cs))
		}
	}
	check("before closing")
	closeStore(t, s)
	s = open(t, o)
	check("after reopening")
	if r := s.Recovery(); r.IndexRebuilt != "" || len(r.Torn) > 0 || r.RewrittenBatches > 0 {
		t.Fatalf("recovery after a clean close: %+v", r)
	}
	closeStore(t, s)
	if err := os.Remove(filepath.Join(o.Dir, "page.db")); err != nil {
		t.Fatal(err)
	}
	s = open(t, o)
	if s.Recovery().IndexRebuilt == "" {
		t.Fatal("a missing index was not reported")
	}
	check("after rebuilding")
	closeStore(t, s)
	ro := o
	ro.ReadOnly = true
	s = open(t, ro)
	check("read-only")
}
