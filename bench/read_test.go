package bench

import (
	"context"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// warmSides opens the million keys in both stores and reads them once.
func warmSides(b *testing.B) (*ledger.Snapshot, *bbolt.Bucket) {
	b.Helper()
	repo, page := openPage(b, copied(b, millionPage(b)), ledger.Options{})
	warm(b, page)
	snapshot, err := page.Snapshot(b.Context())
	must(b, err)
	db, err := bbolt.Open(millionBolt(b), 0o600, &bbolt.Options{ReadOnly: true})
	must(b, err)
	tx, err := db.Begin(false)
	must(b, err)
	bucket := tx.Bucket(boltBucket)
	b.Cleanup(func() {
		must(b, snapshot.Close())
		closePage(b, repo, page)
		must(b, tx.Rollback())
		must(b, db.Close())
	})
	scanBolt(bucket)
	return snapshot, bucket
}

// touched keeps what was read from being optimised away.
var touched int

// BenchmarkPointGet reads random keys of a million from a snapshot of a warm page. Against it,
// bbolt reads the same keys in one read transaction, where the value is borrowed; Get's value
// belongs to the caller, so it allocates that, and nothing else.
func BenchmarkPointGet(b *testing.B) {
	snapshot, bucket := warmSides(b)
	d, ctx := million(), context.Background()
	n := scaled(200_000, 1000)
	rng := generator(8)
	order := make([]int32, n)
	var p pair
	var perGet []float64
	ours := func() time.Duration {
		return timed(func() {
			for _, i := range order {
				v, err := snapshot.Get(ctx, d.keys[i][:])
				if err != nil {
					b.Fatal(err)
				}
				touched += int(v[0])
			}
		})
	}
	theirs := func() time.Duration {
		return timed(func() {
			for _, i := range order {
				touched += int(bucket.Get(d.keys[i][:])[0])
			}
		})
	}
	for b.Loop() {
		for range 8 {
			for i := range order {
				order[i] = int32(rng.IntN(len(d.keys)))
			}
			p.run(2, ours, theirs)
		}
		perGet = append(perGet, allocations(func() { ours() })/float64(n))
	}
	report(b, map[string]float64{
		"ratio": p.ratio(), "ledger-us": us(p.ours.median()) / float64(n), "bbolt-us": us(p.theirs.median()) / float64(n), "allocs/get": median(perGet),
	})
}

// BenchmarkScan reads all keys and values of a warm page of a million in order, borrowed. Against
// it, a cursor of bbolt. ratio is that of rates.
func BenchmarkScan(b *testing.B) {
	snapshot, bucket := warmSides(b)
	n := len(million().keys)
	var p pair
	var perEntry []float64
	ours := func() time.Duration {
		return timed(func() {
			if got := scanSnapshot(b, snapshot); got != million().bytes() {
				b.Fatalf("%d bytes read, want %d", got, million().bytes())
			}
		})
	}
	theirs := func() time.Duration {
		return timed(func() {
			if got := scanBolt(bucket); got != million().bytes() {
				b.Fatalf("%d bytes read from bbolt, want %d", got, million().bytes())
			}
		})
	}
	for b.Loop() {
		p.run(15, ours, theirs)
		perEntry = append(perEntry, allocations(func() { ours() })/float64(n))
	}
	rate := func(d time.Duration) float64 { return float64(n) / 1e6 / d.Seconds() }
	report(b, map[string]float64{
		"ratio": 1 / p.ratio(), "ledger-M/s": rate(p.ours.median()), "bbolt-M/s": rate(p.theirs.median()), "allocs/entry": median(perEntry),
	})
}

func scanSnapshot(b *testing.B, s *ledger.Snapshot) (n int) {
	ctx := context.Background()
	it := s.Iter(ledger.ScanOptions{})
	for it.Next(ctx) {
		k := it.Key()
		v, _ := it.InlineValue()
		touched += int(k[0]) + int(v[0])
		n += len(k) + len(v)
	}
	must(b, it.Err())
	return n
}

func scanBolt(bucket *bbolt.Bucket) (n int) {
	c := bucket.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		touched += int(k[0]) + int(v[0])
		n += len(k) + len(v)
	}
	return n
}

// BenchmarkDiff1000 lists the changes between two commits of a million keys of which 1000 differ,
// in a warm page. A second pass below the public package counts the nodes that a diff reads, and
// those of them that both trees share, of which there must be none.
func BenchmarkDiff1000(b *testing.B) {
	dir := copied(b, millionPage(b))
	n := min(1000, len(million().keys)/2)
	repo, page := openPage(b, dir, ledger.Options{})
	heads, err := page.Heads(b.Context())
	must(b, err)
	from := heads[0].ID
	to, err := page.Update(b.Context(), func(tx *ledger.Tx) error {
		for _, c := range randomChanges(n, generator(9)) {
			if err := tx.Put(b.Context(), c.Entry.Key, c.Entry.Value); err != nil {
				return err
			}
		}
		return nil
	})
	must(b, err)
	warm(b, page)
	var s samples
	for b.Loop() {
		for range 21 {
			found := 0
			s.add(timed(func() {
				for c, err := range page.Diff(b.Context(), from, to, nil) {
					must(b, err)
					touched += int(c.Key[0])
					found++
				}
			}))
			if found != n {
				b.Fatalf("%d changes found, want %d", found, n)
			}
		}
	}
	closePage(b, repo, page)
	store := pageStore(b, dir)
	reads, shared, found := countDiff(b, store, commit.ID(from), commit.ID(to))
	if shared != 0 || found != n {
		b.Errorf("diff read %d nodes that both trees share and found %d changes, want 0 and %d", shared, found, n)
	}
	report(b, map[string]float64{"ms": ms(s.median()), "nodes-read": float64(reads), "shared-nodes-read": float64(shared)})
}

// readCounter counts each node that is read.
type readCounter struct {
	*storage.Store
	reads map[object.Digest]int
}

func (c readCounter) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	c.reads[d]++
	return c.Store.Node(ctx, d)
}

// countDiff returns how many nodes a diff reads, how many of these are in both trees, and how many
// changes there are.
func countDiff(b *testing.B, s *storage.Store, from, to commit.ID) (reads, shared, found int) {
	b.Helper()
	left, err := s.Commit(b.Context(), from)
	must(b, err)
	right, err := s.Commit(b.Context(), to)
	must(b, err)
	counter := readCounter{s, map[object.Digest]int{}}
	for _, err := range btree.Diff(b.Context(), treeOf(s, counter, left), treeOf(s, counter, right), nil) {
		must(b, err)
		found++
	}
	inLeft, inRight := nodesOf(b, treeOf(s, s, left)), nodesOf(b, treeOf(s, s, right))
	for d, n := range counter.reads {
		reads += n
		if inLeft[d] && inRight[d] {
			shared += n
		}
	}
	return reads, shared, found
}

func nodesOf(b *testing.B, t btree.Tree) map[object.Digest]bool {
	b.Helper()
	all := map[object.Digest]bool{}
	must(b, btree.Verify(b.Context(), t, func(_ *fb.Node, d object.Digest, children func() error) error {
		all[d] = true
		return children()
	}))
	return all
}
