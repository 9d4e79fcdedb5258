package storage_test

import (
	"encoding/binary"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

const million = 1 << 20

func benchKey(i int) []byte {
	k := make([]byte, 16)
	binary.BigEndian.PutUint64(k, uint64(i))
	return k
}

// fill builds a page of n keys with values of 100 bytes, durable.
func fill(b testing.TB, s *storage.Store, n int) *commit.Commit {
	b.Helper()
	j := s.NewJournal()
	defer j.Rollback()
	v := make([]byte, 100)
	root, err := btree.Build(b.Context(), testPage, j, func(yield func(fb.Entry, error) bool) {
		for i := range n {
			binary.BigEndian.PutUint64(v, uint64(i))
			if !yield(fb.Entry{Key: benchKey(i), Value: v, Inline: true, Size: 100}, nil) {
				return
			}
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	c, err := commit.New(commit.Params{Now: time.Unix(1, 0), Root: root, Parents: s.Heads()[:1]})
	if err != nil {
		b.Fatal(err)
	}
	p, err := s.Submit(b.Context(), j, c)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func one(k, v []byte) iter.Seq2[btree.Change, error] {
	return func(yield func(btree.Change, error) bool) {
		yield(btree.Change{Entry: fb.Entry{Key: k, Value: v, Inline: true, Size: uint64(len(v))}}, nil)
	}
}

func commitOne(b testing.TB, s *storage.Store, k, v []byte) *storage.Pending {
	unlock, err := s.Lock(b.Context())
	if err != nil {
		b.Error(err)
		return nil
	}
	defer unlock()
	head := s.NewestHead()
	j := s.NewJournal()
	root, err := btree.Tree{Page: testPage, Source: j, Root: head.Root}.Apply(b.Context(), j, one(k, v))
	if err != nil {
		b.Error(err)
		return nil
	}
	c, err := commit.New(commit.Params{Now: time.Unix(1, 0), Root: root, Parents: []*commit.Commit{head}})
	if err != nil {
		b.Error(err)
		return nil
	}
	p, err := s.Submit(b.Context(), j, c)
	if err != nil {
		b.Error(err)
	}
	return p
}

func BenchmarkCommitOneKey(b *testing.B) {
	o := options(b)
	o.Cache = storage.NewNodeCache(512 << 20)
	s := open(b, o)
	fill(b, s, million)
	if err := s.Fold(b.Context()); err != nil {
		b.Fatal(err)
	}
	for _, writers := range []int{1, 64} {
		b.Run(map[int]string{1: "1", 64: "64"}[writers], func(b *testing.B) {
			before := s.Stats()
			var wg sync.WaitGroup
			b.ResetTimer()
			for w := range writers {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(b.N), uint64(w)))
					v := make([]byte, 100)
					for i := w; i < b.N; i += writers {
						binary.BigEndian.PutUint64(v, rng.Uint64())
						if p := commitOne(b, s, benchKey(rng.IntN(million)), v); p == nil || p.Wait() != nil {
							b.Error("commit failed")
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			after := s.Stats()
			b.ReportMetric(float64(after.BytesWritten-before.BytesWritten)/float64(b.N), "B/commit")
			b.ReportMetric(float64(b.N)/float64(after.Groups-before.Groups), "commits/sync")
		})
	}
}

// BenchmarkPlaces gives a page the places of many pieces that it does not hold, folds them, drops
// nothing, and forgets them.
func BenchmarkPlaces(b *testing.B) {
	const n = 60000
	for b.Loop() {
		s := open(b, options(b))
		var batch storage.SyncBatch
		for i := range n {
			p := storage.PlacedPiece{Digest: object.Sum(0, binary.BigEndian.AppendUint64(nil, uint64(i)))}
			p.Place = storage.CloudPlace{Pack: [16]byte{1, byte(i >> 11)}, Block: uint32(i >> 6), Offset: int64(i) << 11, StoredBytes: 100000, At: 1000, Bytes: 1500}
			batch.Places = append(batch.Places, p)
		}
		start := time.Now()
		p, err := s.SubmitSync(b.Context(), nil, &batch)
		if err == nil {
			err = p.Wait()
		}
		if err == nil {
			err = s.Fold(b.Context())
		}
		if err != nil {
			b.Fatal(err)
		}
		folded := time.Now()
		st := s.Stats()
		if err := s.ForgetCloud(b.Context(), false); err != nil {
			b.Fatal(err)
		}
		forgot := time.Now()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(folded.Sub(start).Milliseconds()), "ms/places")
		b.ReportMetric(float64(forgot.Sub(folded).Microseconds()), "us/forget")
		b.ReportMetric(float64(time.Since(forgot).Milliseconds()), "ms/sweep")
		b.ReportMetric(float64(st.IndexBytes)/n, "indexB/place")
		b.ReportMetric(float64(st.BytesWritten)/n, "logB/place")
	}
}

// BenchmarkSyncQueries asks a page with 10 000 unsynced commits what sync asks for each entry,
// after one more commit, and again when nothing has changed.
func BenchmarkSyncQueries(b *testing.B) {
	s := open(b, options(b))
	fill(b, s, 1000)
	for i := range 10_000 {
		if p := commitOne(b, s, benchKey(i%1000), binary.BigEndian.AppendUint64(nil, uint64(i))); p == nil || p.Wait() != nil {
			b.Fatal("commit failed")
		}
	}
	ask := func(b *testing.B) {
		for range 6 {
			if _, err := s.Metadata(b.Context(), "position"); err != nil {
				b.Fatal(err)
			}
		}
		for range 3 {
			if ids, err := s.Unsynced(b.Context()); err != nil || len(ids) < 10_000 {
				b.Fatalf("%d unsynced, %v", len(ids), err)
			}
		}
	}
	for _, changes := range []bool{false, true} {
		b.Run(map[bool]string{false: "same", true: "changed"}[changes], func(b *testing.B) {
			ask(b)
			for i := 0; b.Loop(); i++ {
				if changes {
					b.StopTimer()
					if p := commitOne(b, s, benchKey(i%1000), binary.BigEndian.AppendUint64(nil, uint64(i))); p == nil || p.Wait() != nil {
						b.Fatal("commit failed")
					}
					b.StartTimer()
				}
				ask(b)
			}
		})
	}
}
