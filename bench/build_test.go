package bench

import (
	"iter"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/storage"
)

// BenchmarkBulkBuild1M stores a million sorted keys, durable, in an empty page. Against it, bbolt
// takes them in ten sorted transactions. Build makes the tree from the sorted sequence; Update puts
// them one by one in one transaction, with a journal that holds them in memory. The time of
// closing, which folds the index, stands beside.
func BenchmarkBulkBuild1M(b *testing.B) {
	million()
	b.Run("Build", func(b *testing.B) { benchmarkBuild(b, buildTree) })
	b.Run("Update", func(b *testing.B) { benchmarkBuild(b, buildUpdate) })
}

func benchmarkBuild(b *testing.B, build func(*testing.B, *builds) time.Duration) {
	var p pair
	var more builds
	for b.Loop() {
		p.run(5, func() time.Duration { return build(b, &more) }, func() time.Duration {
			path := filepath.Join(tempDir(b), "rows")
			db, err := openBolt(path)
			must(b, err)
			d := settled(func() { must(b, boltPutAll(db)) })
			must(b, db.Close())
			must(b, os.Remove(path))
			return d
		})
	}
	report(b, map[string]float64{
		"ratio": p.ratio(), "ledger-ms": ms(p.ours.median()), "bbolt-ms": ms(p.theirs.median()), "close-ms": ms(more.closing.median()),
		"processor-ms": ms(more.processor.median()),
	})
}

// builds holds what is measured of a build beside its time.
type builds struct{ closing, processor samples }

func (m *builds) time(b *testing.B, fn func()) time.Duration {
	b.Helper()
	return settled(func() {
		used := processorTime(b)
		fn()
		m.processor.add(processorTime(b) - used)
	})
}

// buildUpdate uses the public package.
func buildUpdate(b *testing.B, more *builds) time.Duration {
	dir := filepath.Join(tempDir(b), "repo")
	repo, page := openPage(b, dir, ledger.Options{JournalBytes: 1 << 30})
	d := more.time(b, func() { must(b, putAll(b, page)) })
	more.closing.add(timed(func() { closePage(b, repo, page) }))
	must(b, os.RemoveAll(dir))
	return d
}

// buildTree uses what stands below it.
func buildTree(b *testing.B, more *builds) time.Duration {
	o := storage.Options{Dir: filepath.Join(tempDir(b), "page"), Page: ledger.DerivePageID(benchLedger, benchPage), Cache: storage.NewNodeCache(warmCache)}
	must(b, storage.Create(b.Context(), o))
	s, err := storage.Open(b.Context(), o)
	must(b, err)
	d := more.time(b, func() {
		j := s.NewJournal()
		defer j.Rollback()
		root, err := btree.Build(b.Context(), o.Page, j, entries())
		must(b, err)
		c, err := commit.New(commit.Params{Now: time.Unix(1, 0), Root: root, Parents: []*commit.Commit{commit.First()}})
		must(b, err)
		pending, err := s.Submit(b.Context(), j, c)
		must(b, err)
		must(b, pending.Wait())
	})
	more.closing.add(timed(func() { must(b, s.Close()) }))
	must(b, os.RemoveAll(o.Dir))
	return d
}

// entries are the million rows as entries of a tree.
func entries() iter.Seq2[fb.Entry, error] {
	d := million()
	return func(yield func(fb.Entry, error) bool) {
		for i := range d.keys {
			v := d.values[i][:]
			if !yield(fb.Entry{Key: d.keys[i][:], Value: v, Inline: true, Size: uint64(len(v))}, nil) {
				return
			}
		}
	}
}
