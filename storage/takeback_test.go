package storage_test

import (
	"errors"
	"syscall"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage"
)

// TestFailedJournalLeavesNothing lets a journal run out of room after some batches of pieces. What
// it has written goes off the log with Rollback, as far as nothing else names it, and all that was
// committed stays.
func TestFailedJournalLeavesNothing(t *testing.T) {
	for name, between := range map[string]func(w *world, j *storage.Journal, room *int){
		"alone":    func(*world, *storage.Journal, *int) {},
		"a commit": func(w *world, _ *storage.Journal, _ *int) { w.commit(small(5)) },
		"a fold":   func(w *world, _ *storage.Journal, _ *int) { w.must(w.s.Fold(w.t.Context())) },
		"a fold that fails": func(w *world, _ *storage.Journal, room *int) {
			*room = 250 // rows of objects come behind those of numbers
			if err := w.s.Fold(w.t.Context()); !errors.Is(err, base.ErrNoSpace) {
				w.t.Errorf("fold without room for the index: %v, want ErrNoSpace", err)
			}
			*room = 1 << 30
		},
		"a value of its": func(w *world, j *storage.Journal, _ *int) { putNoise(w, j, 1<<20) },
	} {
		t.Run(name, func(t *testing.T) {
			full, room := false, 1<<30
			w := newWorld(t, 1, storage.Options{SegmentBytes: 64 << 20})
			w.o.FS = vfstest.NewFaulty(w.mem, func(op vfstest.Op) error {
				if full && op.Kind == vfstest.OpWrite {
					return syscall.ENOSPC
				}
				return nil
			})
			w.foldTxRows = 4
			w.before = func() error {
				if room--; room < 0 {
					return base.ErrNoSpace
				}
				return nil
			}
			w.open()
			w.commit(edit{"a": noise(w.rng, 300<<10)})
			w.reopen() // so that the journal goes on in the segment of the commit
			before := w.s.Stats().SegmentBytes

			j := w.s.NewJournal()
			putNoise(w, j, 10<<20)
			w.must(j.Flush(t.Context()))
			between(w, j, &room)
			putNoise(w, j, 6<<20)
			full = true
			err := j.Flush(t.Context())
			if !errors.Is(err, base.ErrNoSpace) {
				t.Fatalf("flush on a full disk: %v, want ErrNoSpace", err)
			}
			j.Rollback()
			full = false
			after := w.s.Stats().SegmentBytes
			if alone := name == "alone" || name == "a value of its"; alone && after != before || !alone && after > before+11<<20 {
				t.Errorf("segments of %d bytes before, %d after", before, after)
			}
			w.commit(small(7))
			w.must(w.verify(w.s, w.promise(), w.rng))
			w.must(checkClean(w.s))
			w.reopen()
			w.must(w.verify(w.s, w.promise(), w.rng))
			w.must(checkClean(w.s))

			cycles(t, w.s.NewCollector(storage.CollectOptions{}), 2) // what the others knew of comes back so
			_, err = w.s.Compact(t.Context(), storage.CompactOptions{})
			w.must(err)
			if after := w.s.Stats().SegmentBytes; after > before+64<<10 {
				t.Errorf("segments of %d bytes before, %d after gc and compact", before, after)
			}
			w.must(w.verify(w.s, w.promise(), w.rng))
			w.must(checkClean(w.s))
			w.close()
		})
	}
}

// TestFailedCommitLeavesNothing lets the disk be full from the n-th write of a commit on, for every
// n, with segments so small that the commit needs several. At once, and after the next open, the
// log has no batch more than before.
func TestFailedCommitLeavesNothing(t *testing.T) {
	for n := 0; ; n++ {
		full, writes := false, 0
		w := newWorld(t, 1, storage.Options{SegmentBytes: 64 << 10})
		w.o.FS = vfstest.NewFaulty(w.mem, func(op vfstest.Op) error {
			if !full || !takesSpace(op.Kind) {
				return nil
			}
			if writes++; writes > n {
				return syscall.ENOSPC
			}
			return nil
		})
		w.open()
		w.commit(edit{"a": noise(w.rng, 100<<10)})
		w.reopen()
		before := batchBytes(w.s)
		full = true
		_, err := w.tryCommit(nil, edit{"b": noise(w.rng, 300<<10), "c": noise(w.rng, 40<<10)}, 2)
		full = false
		if err == nil {
			if n < 10 {
				t.Fatalf("the commit made %d writes", n)
			}
			w.close()
			return
		}
		if !errors.Is(err, base.ErrNoSpace) {
			t.Fatalf("commit on a disk that is full after %d writes: %v, want ErrNoSpace", n, err)
		}
		if after := batchBytes(w.s); after != before {
			t.Errorf("full after %d writes: batches of %d bytes before, %d after", n, before, after)
		}
		w.commit(small(7))
		w.must(w.verify(w.s, w.promise(), w.rng))
		w.must(checkClean(w.s))
		w.reopen()
		w.must(w.verify(w.s, w.promise(), w.rng))
		w.must(checkClean(w.s))
		w.close()
	}
}

// batchBytes returns what the segments have besides their headers, which stay.
func batchBytes(s *storage.Store) int64 {
	st := s.Stats()
	return st.SegmentBytes - 32*int64(st.Segments)
}

func putNoise(w *world, j *storage.Journal, size int) {
	w.t.Helper()
	_, err := putValue(w.t.Context(), j, "big", noise(w.rng, size), 0)
	w.must(err)
}
