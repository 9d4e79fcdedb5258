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

// benchPieces is how many pieces are garbage in BenchmarkCollect, and how many are not: LEDGER_COLLECT_PIECES, or 20000.
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

// fillGarbage makes a page on the disk of n pieces that a head reaches and n that nothing does, in values of 1000 pieces each.
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

// BenchmarkCollect deletes pieces that are garbage among as many that are not, and the same number of such rows in a bbolt file of their own,
// in sorted batches.
//
//	LEDGER_COLLECT_PIECES=1000000 go test ./storage -run '^$' -bench 'BenchmarkCollect$' -benchtime 1x
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

// fillRows makes a bbolt file of 2 n pieces, each with a row by digest and one by number, and returns the keys of every second one.
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
			for _, name := range []string{"objects", "numbers"} {
				if _, err := tx.CreateBucket(name); err != nil {
					return err
				}
			}
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

// BenchmarkCommitWhileCollecting measures the median time of a one-key commit, alone and beside a collector.
//
//	go test ./storage -run '^$' -bench BenchmarkCommitWhileCollecting -benchtime 1x
func BenchmarkCommitWhileCollecting(b *testing.B) {
	for _, collect := range []bool{false, true} {
		b.Run(fmt.Sprintf("collector=%v", collect), func(b *testing.B) {
			for b.Loop() {
				w := fillGarbage(b, benchPieces(b))
				ctx, stop := context.WithCancel(b.Context())
				ended := make(chan error, 1)
				if c := w.s.NewCollector(storage.CollectOptions{}); collect {
					go func() {
						for {
							if more, err := c.Step(ctx); err != nil || !more {
								ended <- err
								return
							}
						}
					}()
				}
				var took []time.Duration
				var last *commit.Commit
				for i := range 2000 {
					if collect && len(ended) > 0 {
						break
					}
					begin := time.Now()
					c, err := w.tryCommit(last, edit{"k": fmt.Append(nil, i)}, 0)
					w.must(err)
					last = c
					took = append(took, time.Since(begin))
				}
				if stop(); collect {
					<-ended
				}
				slices.Sort(took)
				b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us/median")
				b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "us/p99")
				b.ReportMetric(float64(len(took)), "commits")
			}
		})
	}
}
