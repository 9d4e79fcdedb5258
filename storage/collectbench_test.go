package storage_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// benchPieces is how many pieces are garbage in BenchmarkCollect, and how many are not:
// LEDGER_COLLECT_PIECES, or 20000.
func benchPieces(b *testing.B) int {
	if v := os.Getenv("LEDGER_COLLECT_PIECES"); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil {
			b.Fatal(err)
		}
		return n
	}
	return 20_000
}

// fillGarbage makes a page on the disk of n pieces that a head reaches and n that nothing does, in
// values of 1000 pieces each.
func fillGarbage(b *testing.B, n int) *world {
	w := newWorld(b, 1, storage.Options{})
	w.o.Dir, w.o.MemoryIndex, w.o.FS = filepath.Join(b.TempDir(), "page"), nil, nil
	w.must(storage.Create(b.Context(), w.o))
	s, err := storage.Open(b.Context(), w.o)
	w.must(err)
	w.s = s
	// Transient pieces of a journal are as live as those of a commit, until it ends.
	live, dead := s.NewJournal(), s.NewJournal()
	content := make([]byte, 64)
	for i := range n {
		for k, j := range []*storage.Journal{live, dead} {
			binary.BigEndian.PutUint64(content, uint64(2*i+k))
			w.must(j.PutPiece(b.Context(), object.Sum(object.Chunk, content), content))
		}
	}
	w.must(live.Flush(b.Context()))
	w.must(dead.Flush(b.Context()))
	dead.Rollback()
	w.must(s.Fold(b.Context()))
	b.Cleanup(func() { live.Rollback(); _ = s.Close() })
	return w
}

// BenchmarkCollect deletes pieces that are garbage among as many that are not, and the same number
// of such rows in a bbolt file of their own, in sorted batches.
//
//	LEDGER_COLLECT_PIECES=1000000 go test ./storage -run '^$' -bench 'BenchmarkCollect$'
//	-benchtime 1x
func BenchmarkCollect(b *testing.B) {
	n := benchPieces(b)
	b.Run("collector", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			w := fillGarbage(b, n)
			c := w.s.NewCollector(storage.CollectOptions{})
			b.StartTimer()
			cycles(b, c, 1)
			if got := c.Stats().Pieces; got != n {
				b.Fatalf("%d pieces deleted", got)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/piece")
	})
	b.Run("bbolt", func(b *testing.B) {
		for b.Loop() {
			b.StopTimer()
			db, dead := fillRows(b, n)
			b.StartTimer()
			for batch := range slices.Chunk(dead, 4096) {
				if err := db.Update(func(tx index.Tx) error {
					return sortedRows(batch, func(bucket string, k []byte, _ *[41]byte) error { return tx.Bucket(bucket).Delete(k) })
				}); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/piece")
	})
}

// sortedRows calls fn with the rows of pieces in the order of their keys.
func sortedRows(batch [][41]byte, fn func(bucket string, k []byte, row *[41]byte) error) error {
	slices.SortFunc(batch, func(x, y [41]byte) int { return slices.Compare(x[:33], y[:33]) })
	for i := range batch {
		if err := fn("objects", batch[i][:33], &batch[i]); err != nil {
			return err
		}
	}
	slices.SortFunc(batch, func(x, y [41]byte) int { return slices.Compare(x[33:], y[33:]) })
	for i := range batch {
		if err := fn("numbers", batch[i][33:], &batch[i]); err != nil {
			return err
		}
	}
	return nil
}

// fillRows makes a bbolt file of 2 n pieces, each with a row by digest and one by number, and
// returns the keys of every second one.
func fillRows(b *testing.B, n int) (index.DB, [][41]byte) {
	db, err := index.OpenFile(filepath.Join(b.TempDir(), "rows"), index.Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { db.Close() })
	var all [][41]byte
	content := make([]byte, 64)
	for i := range 2 * n {
		binary.BigEndian.PutUint64(content, uint64(i))
		d := object.Sum(object.Chunk, content)
		var k [41]byte
		copy(k[:], d[:])
		binary.BigEndian.PutUint64(k[33:], uint64(i))
		all = append(all, k)
	}
	for batch := range slices.Chunk(slices.Clone(all), 100_000) {
		if err := db.Update(func(tx index.Tx) error {
			return sortedRows(batch, func(bucket string, k []byte, row *[41]byte) error {
				if v := make([]byte, 12); bucket == "objects" {
					return tx.Bucket(bucket).Put(k, v)
				}
				return tx.Bucket(bucket).Put(k, row[:33])
			})
		}); err != nil {
			b.Fatal(err)
		}
	}
	var dead [][41]byte
	for i := 1; i < len(all); i += 2 {
		dead = append(dead, all[i])
	}
	return db, dead
}

// BenchmarkCommitWhileCollecting measures one-key commits alone and beside a collector, with what
// the background gives it to do in a step. median-ratio is that of the medians; p99-ratio is that
// of the 99th percentile beside it to appending 4 MiB to a file and syncing it, median, and
// alone-p99-ratio that of the 99th percentile alone.
//
//	LEDGER_COLLECT_PIECES=200000 go test ./storage -run '^$' -bench BenchmarkCommitWhileCollecting
//	                             -benchtime 1x
func BenchmarkCommitWhileCollecting(b *testing.B) {
	var medians, p99s, alones []float64
	commits := 0
	for b.Loop() {
		w := fillGarbage(b, benchPieces(b))
		disk := appended(b)
		alone, last := commitTimes(b, w, nil, 1000, func() bool { return false })
		ctx, stop := context.WithCancel(b.Context())
		ended := make(chan error, 1)
		c := w.s.NewCollector(storage.CollectOptions{Numbers: 1 << 14, Candidates: 1 << 14, Deletions: 1024})
		go func() {
			for {
				if more, err := c.Step(ctx); err != nil || !more {
					ended <- err
					return
				}
			}
		}()
		beside, _ := commitTimes(b, w, last, 20000, func() bool { return len(ended) > 0 })
		stop()
		<-ended
		if c.Stats().Pieces == 0 {
			b.Fatal("nothing was collected meanwhile")
		}
		commits += len(beside)
		medians = append(medians, float64(beside[len(beside)/2])/float64(alone[len(alone)/2]))
		p99s = append(p99s, float64(beside[len(beside)*99/100])/float64(disk))
		alones = append(alones, float64(alone[len(alone)*99/100])/float64(disk))
	}
	for unit, all := range map[string][]float64{"median-ratio": medians, "p99-ratio": p99s, "alone-p99-ratio": alones} {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2], unit)
	}
	b.ReportMetric(float64(commits)/float64(b.N), "commits")
}

// commitTimes makes up to n commits of one key, until done says so, and returns how long they took,
// sorted.
func commitTimes(b *testing.B, w *world, last *commit.Commit, n int, done func() bool) ([]time.Duration, *commit.Commit) {
	var took []time.Duration
	for i := range n {
		if done() {
			break
		}
		begin := time.Now()
		c, err := w.tryCommit(last, edit{"k": fmt.Append(nil, n, i)}, 0)
		w.must(err)
		last = c
		took = append(took, time.Since(begin))
	}
	if len(took) == 0 {
		b.Fatal("no commit was made")
	}
	slices.Sort(took)
	return took, last
}

// appended returns how long it takes to append 4 MiB to a file and to sync it, the median.
func appended(b *testing.B) time.Duration {
	f, err := os.Create(filepath.Join(b.TempDir(), "appended"))
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	var took []time.Duration
	content := make([]byte, 4<<20)
	for range 15 {
		begin := time.Now()
		if _, err := f.Write(content); err != nil {
			b.Fatal(err)
		}
		if err := f.Sync(); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	return took[len(took)/2]
}
