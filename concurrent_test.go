package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

func TestUpdatesOfManyGoroutinesMakeAChain(t *testing.T) {
	r := open(t, t.TempDir(), nil)
	p := page(t, r, "app", "page")
	const workers, each = 64, 5
	ids := make([]map[ledger.CommitID]bool, workers)
	var wg sync.WaitGroup
	for w := range workers {
		ids[w] = map[ledger.CommitID]bool{}
		wg.Go(func() {
			for range each {
				id, err := p.Update(t.Context(), func(tx *ledger.Tx) error {
					v, err := tx.Get(t.Context(), []byte("counter"))
					if err != nil && !errors.Is(err, ledger.ErrNotFound) {
						return err
					}
					n, _ := strconv.Atoi(string(v)) // 0 when there is none
					return tx.Put(t.Context(), []byte("counter"), []byte(strconv.Itoa(n+1)))
				})
				if err != nil {
					t.Error(err)
					return
				}
				ids[w][id] = true
			}
		})
	}
	wg.Wait()
	wantContent(t, p, map[string]string{"counter": strconv.Itoa(workers * each)})
	seen := map[ledger.CommitID]bool{}
	for c, err := range p.Log(t.Context()) {
		must(t, err)
		seen[c.ID] = true
		if len(c.Parents) > 1 {
			t.Errorf("commit %+v", c)
		}
	}
	if len(seen) != workers*each+1 {
		t.Errorf("%d commits, want %d", len(seen), workers*each+1)
	}
	for _, m := range ids {
		for id := range m {
			if !seen[id] {
				t.Errorf("commit %s is not in the history", id)
			}
		}
	}
	st, err := admin.Stats(p)
	must(t, err)
	if st.Commits != workers*each || st.Batches >= workers*each {
		t.Errorf("%d commits in %d batches: no sync was shared", st.Commits, st.Batches)
	}
	checkClean(t, r)
}

func TestReadersBesideWriters(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	put(t, p, "a", "0", "b", "0")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				v := fmt.Appendf(nil, "%d.%d", w, i)
				_, err := p.Update(ctx, func(tx *ledger.Tx) error {
					return errors.Join(tx.Put(ctx, []byte("a"), v), tx.Put(ctx, []byte("b"), v))
				})
				if err != nil && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		wg.Go(func() {
			for range 200 {
				err := p.View(t.Context(), func(s *ledger.Snapshot) error {
					a, errA := s.Get(t.Context(), []byte("a"))
					b, errB := s.Get(t.Context(), []byte("b"))
					if string(a) != string(b) {
						t.Errorf("half a transaction is seen: %s and %s", a, b)
					}
					return errors.Join(errA, errB)
				})
				if err != nil {
					t.Error(err)
				}
			}
			cancel()
		})
	}
	wg.Wait()
	cancel()
}

func TestCloseCountsWhatWasLeftOpen(t *testing.T) {
	r := open(t, t.TempDir(), nil)
	p, q := page(t, r, "app", "one"), page(t, r, "app", "two")
	put(t, p, "k", "v")
	s, err := p.Snapshot(t.Context())
	must(t, err)
	_, err = q.Snapshot(t.Context())
	must(t, err)
	tx, err := p.Begin(t.Context(), nil)
	must(t, err)
	must(t, tx.Put(t.Context(), []byte("k"), []byte("lost")))
	it := s.Iter(ledger.ScanOptions{})
	err = r.Close()
	if err == nil || !strings.Contains(err.Error(), "1 transaction and 2 snapshots were left open") {
		t.Errorf("close: %v", err)
	}
	if again := r.Close(); again != err {
		t.Errorf("second close: %v", again)
	}

	_, pages := r.Pages(t.Context())
	_, status := admin.Status(t.Context(), r)
	_, check := admin.Check(t.Context(), r, nil)
	_, open := p.Repository().Page(t.Context(), "app", "one")
	_, get := s.Get(t.Context(), []byte("k"))
	_, txGet := tx.Get(t.Context(), []byte("k"))
	_, commit := tx.Commit(t.Context())
	_, up := p.Update(t.Context(), func(*ledger.Tx) error { return nil })
	_, heads := p.Heads(t.Context())
	_, tags := p.Tags(t.Context())
	_, resolve := p.Resolve(t.Context(), "HEAD")
	_, restore := p.Restore(t.Context(), ledger.CommitID{1}, "")
	it.Next(t.Context())
	var diff, rows, log error
	for _, diff = range p.Diff(t.Context(), ledger.CommitID{}, ledger.CommitID{}, nil) {
	}
	for _, rows = range admin.Rows(t.Context(), p, "") {
	}
	for _, log = range p.Log(t.Context()) {
	}
	for i, err := range []error{
		pages, status, check, open, get, txGet, commit, up, heads, tags, resolve, restore, it.Err(), diff, rows, log,
		tx.Put(t.Context(), nil, nil), admin.Backup(t.Context(), r, t.TempDir(), nil), admin.BackupTo(t.Context(), r, io.Discard, nil),
		p.Tag(t.Context(), "x", ledger.CommitID{}), p.View(t.Context(), func(*ledger.Snapshot) error { return nil }),
	} {
		if !errors.Is(err, ledger.ErrClosed) {
			t.Errorf("%d: got %v, want ErrClosed", i, err)
		}
	}
	must(t, tx.Rollback())
	must(t, s.Close())
	if err := q.Close(); err == nil {
		t.Error("closing the handle does not say what was left open")
	}
}

func TestCloseWhileBusy(t *testing.T) {
	for range 3 {
		r := open(t, t.TempDir(), nil)
		p := page(t, r, "app", "page")
		put(t, p, "k", string(pseudo(1, 200_000)))
		var wg sync.WaitGroup
		var done, closed atomic.Int64
		note := func(err error) bool {
			if err == nil {
				done.Add(1)
				return true
			}
			if !errors.Is(err, ledger.ErrClosed) && !errors.Is(err, ledger.ErrTxDone) {
				t.Errorf("got %v, want ErrClosed", err)
			}
			closed.Add(1)
			return false
		}
		for w := range 16 {
			wg.Go(func() {
				for i := 0; ; i++ {
					var err error
					switch w % 4 {
					case 0, 1:
						_, err = p.Update(t.Context(), func(tx *ledger.Tx) error {
							return tx.Put(t.Context(), key(w*1000+i), pseudo(uint64(i), 2000))
						})
					case 2:
						err = p.View(t.Context(), func(s *ledger.Snapshot) error {
							_, err := s.Get(t.Context(), []byte("k"))
							return err
						})
					case 3:
						var q *ledger.Page
						if q, err = p.Repository().Page(t.Context(), "app", fmt.Sprint("page", w)); err == nil {
							err = q.Close()
						}
					}
					if !note(err) {
						return
					}
				}
			})
		}
		for done.Load() < 200 {
			if _, err := p.Heads(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if closed.Load() != 16 {
			t.Errorf("%d goroutines were told", closed.Load())
		}
	}
}

func TestCloseDoesNotWaitForClosures(t *testing.T) {
	r := open(t, t.TempDir(), nil)
	p := page(t, r, "app", "page")
	inside, release := make(chan struct{}), make(chan struct{})
	results := make(chan error, 2)
	go func() {
		_, err := p.Update(t.Context(), func(tx *ledger.Tx) error {
			close(inside)
			<-release
			return tx.Put(t.Context(), []byte("k"), []byte("v"))
		})
		results <- err
	}()
	<-inside
	go func() { // waits for the turn that the closure holds
		_, err := p.Update(t.Context(), func(*ledger.Tx) error { return nil })
		results <- err
	}()
	must(t, r.Close())
	wantErr(t, <-results, ledger.ErrClosed)
	close(release)
	wantErr(t, <-results, ledger.ErrClosed)
}

func TestHandlesOpenedAtOnceShareTheStore(t *testing.T) {
	r := open(t, t.TempDir(), nil)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 5 {
				p, err := r.Page(t.Context(), "app", "page")
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := p.Update(t.Context(), func(tx *ledger.Tx) error { return tx.Put(t.Context(), key(i), []byte("v")) }); err != nil {
					t.Error(err)
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if got := pageContent(t, page(t, r, "app", "page")); len(got) != 16 {
		t.Errorf("%d keys", len(got))
	}
}

// TestReadWhileCommitting reads a value of a transaction on another goroutine until the transaction
// has ended.
func TestReadWhileCommitting(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	for i := range 20 {
		tx, err := p.Begin(t.Context(), nil)
		must(t, err)
		want := bytes.Repeat([]byte{byte(i), 1, 2, 3}, 60_000)
		must(t, tx.Put(t.Context(), []byte("k"), want))
		v, err := tx.Open(t.Context(), []byte("k"))
		must(t, err)
		begun, done := make(chan struct{}), make(chan error, 1)
		go func() {
			b := make([]byte, 1000)
			for n := 0; ; n++ {
				if n == 1 {
					close(begun)
				}
				off := n * 977 % 200_000
				if _, err := v.ReadAt(b, int64(off)); err != nil {
					done <- err
					return
				}
				if !bytes.Equal(b, want[off:off+len(b)]) {
					done <- fmt.Errorf("other bytes at %d", off)
					return
				}
			}
		}()
		<-begun
		if i%2 == 0 {
			_, err = tx.Commit(t.Context())
			must(t, err)
		} else {
			must(t, tx.Rollback())
		}
		wantErr(t, <-done, ledger.ErrTxDone)
	}
}
