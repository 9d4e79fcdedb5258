package bench

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/storage"
)

// pageStore opens the store below the page of a closed repository.
func pageStore(b *testing.B, repo string) *storage.Store {
	b.Helper()
	s, err := storage.Open(b.Context(), storage.Options{
		Dir: pageDir(b, repo), Page: ledger.DerivePageID(benchLedger, benchPage), Cache: storage.NewNodeCache(warmCache),
	})
	must(b, err)
	b.Cleanup(func() { must(b, s.Close()) })
	return s
}

func treeOf(s *storage.Store, src btree.Source, c *commit.Commit) btree.Tree {
	return btree.Tree{Page: s.Page(), Source: src, Root: c.Root}
}

// warmTree reads all nodes.
func warmTree(b *testing.B, t btree.Tree) {
	b.Helper()
	c := t.Cursor()
	for ok := true; ok; {
		var err error
		ok, err = c.Next(b.Context())
		must(b, err)
	}
}

// BenchmarkEdits measures what a commit of n random keys on a million costs before its sync:
// applying the sorted changes to the tree, making nodes and what of them goes to the log, and
// encoding the commit. The batch is then given up. Journals above 4 MiB begin to write in the
// background meanwhile, as they do in a commit. nodes and node-KiB are how many nodes it makes and
// how much is hashed for them.
//
// bbolt-ratio is to a transaction of bbolt that puts as many random keys, its sync included: it
// tells machines apart.
func BenchmarkEdits(b *testing.B) {
	dir := copied(b, millionPage(b))
	s := pageStore(b, dir)
	head := s.NewestHead()
	warmTree(b, treeOf(s, s, head))
	db, err := openBolt(boltCopy(b, dir))
	must(b, err)
	b.Cleanup(func() { must(b, db.Close()) })
	rng := generator(7)
	for _, c := range []struct{ keys, rounds int }{{1, 500}, {100, 50}, {10_000, 9}} {
		b.Run(fmt.Sprint(c.keys), func(b *testing.B) {
			n := min(c.keys, len(million().keys))
			var p pair
			var nodes, size []float64
			ours := func() time.Duration {
				changes := randomChanges(n, rng)
				d, made := edit(b, s, head, changes)
				nodes, size = append(nodes, float64(made.nodes)), append(size, float64(made.bytes)/1024)
				return d
			}
			theirs := func() time.Duration { return timed(func() { must(b, boltPut(db, rng, n)) }) }
			for b.Loop() {
				p.run(c.rounds, ours, theirs)
			}
			report(b, map[string]float64{
				"ms": ms(p.ours.median()), "p99-ms": ms(p.ours.percentile(0.99)), "bbolt-ms": ms(p.theirs.median()), "bbolt-ratio": p.ratio(),
				"nodes": median(nodes), "node-KiB": median(size),
			})
		})
	}
}

// countingSink counts nodes and their bytes on their way to a journal.
type countingSink struct {
	*storage.Journal
	nodes, bytes int
}

func (s *countingSink) PutNode(ctx context.Context, n btree.NewNode) error {
	s.nodes++
	s.bytes += len(n.Content)
	return s.Journal.PutNode(ctx, n)
}

func edit(b *testing.B, s *storage.Store, head *commit.Commit, changes []btree.Change) (time.Duration, *countingSink) {
	j := &countingSink{Journal: s.NewJournal()}
	defer j.Rollback()
	return timed(func() {
		root, err := treeOf(s, j, head).Apply(b.Context(), j, each(changes))
		must(b, err)
		c, err := commit.New(commit.Params{Now: time.Unix(1, 0), Root: root, Parents: []*commit.Commit{head}})
		must(b, err)
		_ = c.Encode()
	}), j
}

// randomChanges gives n random keys of the million new values. They are sorted.
func randomChanges(n int, rng *rand.Rand) []btree.Change {
	d := million()
	chosen := make(map[int]bool, n)
	out := make([]btree.Change, 0, n)
	for len(out) < n {
		i := rng.IntN(len(d.keys))
		if chosen[i] {
			continue
		}
		chosen[i] = true
		value := bytes.Clone(d.values[i][:])
		value[0], value[1] = ^value[0], byte(rng.Uint32())
		out = append(out, btree.Change{Entry: fb.Entry{Key: d.keys[i][:], Value: value, Inline: true, Size: uint64(len(value))}})
	}
	slices.SortFunc(out, func(a, b btree.Change) int { return bytes.Compare(a.Entry.Key, b.Entry.Key) })
	return out
}

func each(changes []btree.Change) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		for i := range changes {
			if !yield(changes[i], nil) {
				return
			}
		}
	}
}
