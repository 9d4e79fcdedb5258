package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger"
)

func TestTxSeesItsOwnChanges(t *testing.T) {
	for _, journal := range []int64{0, 1} { // 1: every change spills
		t.Run(fmt.Sprint(journal), func(t *testing.T) {
			p := memoryPage(t, ledger.Options{JournalBytes: journal})
			put(t, p, "a", "1", "b", "2", "c", "3", "d", "4")
			update(t, p, func(tx *ledger.Tx) error {
				ctx := t.Context()
				long := string(pseudo(1, 20_000))
				must(t, tx.Put(ctx, []byte("b"), []byte("two")))
				must(t, tx.Put(ctx, []byte("bb"), []byte(long)))
				must(t, tx.Delete(ctx, []byte("c")))
				must(t, tx.Delete(ctx, []byte("absent")))
				want := map[string]string{"a": "1", "b": "two", "bb": long, "d": "4"}
				if diff := cmp.Diff(want, content(t, tx.Reader, ledger.ScanOptions{})); diff != "" {
					t.Errorf("content (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]string{"d", "bb", "b", "a"}, keysIn(t, tx.Reader, ledger.ScanOptions{Reverse: true})); diff != "" {
					t.Errorf("reverse (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]string{"bb", "b"}, keysIn(t, tx.Reader, ledger.ScanOptions{Prefix: []byte("b"), Reverse: true})); diff != "" {
					t.Errorf("prefix (-want +got):\n%s", diff)
				}
				_, err := tx.Get(ctx, []byte("c"))
				wantErr(t, err, ledger.ErrNotFound)
				e, err := tx.Stat(ctx, []byte("bb"))
				must(t, err)
				if e.Size != 20_000 || e.Inline || e.Object == "" {
					t.Errorf("entry %+v", e)
				}
				if pageContent(t, p)["c"] != "3" {
					t.Error("others see the change before the commit")
				}
				return nil
			})
			if got := pageContent(t, p); len(got) != 4 || got["b"] != "two" {
				t.Errorf("content %v", sortedKeys(got))
			}
			checkClean(t, p.Repository())
		})
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestScanSeesChangesOfItsLoop(t *testing.T) {
	for _, journal := range []int64{0, 600} {
		p := memoryPage(t, ledger.Options{JournalBytes: journal})
		var want []string
		update(t, p, func(tx *ledger.Tx) error {
			for i := range 100 {
				must(t, tx.Put(t.Context(), key(i), []byte("v")))
			}
			return nil
		})
		update(t, p, func(tx *ledger.Tx) error {
			n := 0
			for e, err := range tx.Scan(t.Context(), ledger.ScanOptions{}) {
				must(t, err)
				if want = append(want, string(e.Key)); n%2 == 0 {
					must(t, tx.Delete(t.Context(), e.Key))
				}
				if n == 10 {
					must(t, tx.Put(t.Context(), key(1000), []byte("ahead")))
					must(t, tx.Put(t.Context(), key(0), []byte("behind")))
					must(t, tx.Delete(t.Context(), key(50)))
				}
				n++
			}
			return nil
		})
		if len(want) != 100 || want[99] != string(key(1000)) {
			t.Errorf("saw %d keys, the last %s", len(want), want[len(want)-1])
		}
		if got := pageContent(t, p); len(got) != 51 || got[string(key(0))] != "behind" {
			t.Errorf("%d keys remain", len(got))
		}
	}
}

func TestUpdateErrorsAndPanicsChangeNothing(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	before := put(t, p, "a", "1")
	mine := errors.New("mine")
	_, err := p.Update(t.Context(), func(tx *ledger.Tx) error {
		must(t, tx.Put(t.Context(), []byte("a"), []byte("2")))
		return mine
	})
	if err != mine {
		t.Errorf("got %v, want the closure's error as it is", err)
	}
	func() {
		defer func() {
			if recover() != "boom" {
				t.Error("the panic did not go on")
			}
		}()
		_, _ = p.Update(t.Context(), func(tx *ledger.Tx) error {
			must(t, tx.Put(t.Context(), []byte("a"), []byte("3")))
			panic("boom")
		})
	}()
	wantContent(t, p, map[string]string{"a": "1"})
	var kept *ledger.Tx
	id := update(t, p, func(tx *ledger.Tx) error {
		kept = tx
		wantErr(t, tx.Rollback(), ledger.ErrInvalid)
		_, err := tx.Commit(t.Context())
		wantErr(t, err, ledger.ErrInvalid)
		return nil
	})
	if id != before {
		t.Error("an update without changes made a commit")
	}
	wantErr(t, kept.Put(t.Context(), nil, nil), ledger.ErrTxDone)
	_, err = kept.Get(t.Context(), []byte("a"))
	wantErr(t, err, ledger.ErrTxDone)
	for _, err := range kept.Scan(t.Context(), ledger.ScanOptions{}) {
		wantErr(t, err, ledger.ErrTxDone)
	}
}

func TestNoChangeNoCommit(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	long := string(pseudo(7, 70_000))
	id := put(t, p, "a", "1", "long", long)
	if got := put(t, p, "a", "1", "long", long); got != id {
		t.Error("putting the same made a commit")
	}
	got := update(t, p, func(tx *ledger.Tx) error {
		must(t, tx.SetMessage("nothing"))
		must(t, tx.DeleteRange(t.Context(), nil, nil))
		must(t, tx.Put(t.Context(), []byte("long"), []byte(long)))
		return tx.Put(t.Context(), []byte("a"), []byte("1"))
	})
	if got != id {
		t.Error("clearing and putting the same made a commit")
	}
	tx, err := p.Begin(t.Context(), nil)
	must(t, err)
	if got, err := tx.Commit(t.Context()); err != nil || got != id {
		t.Errorf("empty transaction: %s, %v", got, err)
	}
}

func TestClearForgetsEarlierChanges(t *testing.T) {
	for _, journal := range []int64{0, 1} {
		p := memoryPage(t, ledger.Options{JournalBytes: journal})
		put(t, p, "a", "1", "b", "2")
		update(t, p, func(tx *ledger.Tx) error {
			must(t, tx.Put(t.Context(), []byte("c"), pseudo(1, 10_000)))
			must(t, tx.DeleteRange(t.Context(), nil, nil))
			if got := keysIn(t, tx.Reader, ledger.ScanOptions{}); len(got) != 0 {
				t.Errorf("after clear: %v", got)
			}
			return tx.Put(t.Context(), []byte("d"), []byte("4"))
		})
		wantContent(t, p, map[string]string{"d": "4"})
		update(t, p, func(tx *ledger.Tx) error { return tx.DeleteRange(t.Context(), nil, nil) })
		heads, err := p.Heads(t.Context())
		must(t, err)
		first, err := p.Resolve(t.Context(), "HEAD~3")
		must(t, err)
		c, err := p.Commit(t.Context(), first)
		must(t, err)
		if heads[0].Root != c.Root || c.Generation != 0 {
			t.Error("a cleared page has another root than an empty one")
		}
		checkClean(t, p.Repository())
	}
}

func TestDeleteRange(t *testing.T) {
	for _, journal := range []int64{0, 2000} {
		p := memoryPage(t, ledger.Options{JournalBytes: journal})
		const n = 3000
		update(t, p, func(tx *ledger.Tx) error {
			for i := range n {
				must(t, tx.Put(t.Context(), key(i), []byte("v")))
			}
			return nil
		})
		update(t, p, func(tx *ledger.Tx) error {
			must(t, tx.Put(t.Context(), append(key(100), 'x'), []byte("new")))
			must(t, tx.DeleteRange(t.Context(), key(10), key(2000)))
			must(t, tx.DeleteRange(t.Context(), key(2990), nil))
			must(t, tx.DeleteRange(t.Context(), nil, key(5)))
			must(t, tx.DeleteRange(t.Context(), key(9), key(6)))
			return nil
		})
		got := sortedKeys(pageContent(t, p))
		if len(got) != 5+990 || got[0] != string(key(5)) || got[5] != string(key(2000)) || got[len(got)-1] != string(key(2989)) {
			t.Errorf("%d keys remain: %v ... %s", len(got), got[:6], got[len(got)-1])
		}
		update(t, p, func(tx *ledger.Tx) error { return tx.DeleteRange(t.Context(), nil, nil) })
		wantContent(t, p, map[string]string{})
	}
}

func TestPutReader(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	boom := errors.New("boom")
	for _, n := range []int{0, 1, 255, 256, 257, 4096, 65_536, 65_537, 1_000_000} {
		value := pseudo(uint64(n), n)
		for _, size := range []int64{-1, int64(n)} {
			for name, r := range map[string]io.Reader{
				"plain": bytes.NewReader(value), "halves": iotest.HalfReader(bytes.NewReader(value)), "data with EOF": iotest.DataErrReader(bytes.NewReader(value)),
			} {
				k := fmt.Appendf(nil, "%d %d %s", n, size, name)
				update(t, p, func(tx *ledger.Tx) error {
					return tx.PutReader(t.Context(), k, r, size, ledger.Lazy)
				})
				s, err := p.Snapshot(t.Context())
				must(t, err)
				e, err := s.Stat(t.Context(), k)
				must(t, err)
				if got, err := e.Value(t.Context()); err != nil || !bytes.Equal(got, value) {
					t.Errorf("%s: %d bytes, %v", k, len(got), err)
				}
				if e.Inline != (n <= 256) || (e.Priority == ledger.Lazy) == e.Inline {
					t.Errorf("%s: inline %t, %s", k, e.Inline, e.Priority)
				}
				must(t, s.Close())
			}
		}
		for name, c := range map[string]struct {
			r    io.Reader
			size int64
			want error
		}{
			"too long":      {bytes.NewReader(append(bytes.Clone(value), 1)), int64(n), ledger.ErrInvalid},
			"too short":     {bytes.NewReader(value), int64(n) + 1, ledger.ErrInvalid},
			"negative size": {bytes.NewReader(value), -2, ledger.ErrInvalid},
			"fails":         {io.MultiReader(bytes.NewReader(value), iotest.ErrReader(boom)), -1, boom},
			"torn":          {io.MultiReader(bytes.NewReader(value), iotest.ErrReader(io.ErrUnexpectedEOF)), -1, io.ErrUnexpectedEOF},
			"gives nothing": {io.MultiReader(bytes.NewReader(value), nothing{}), -1, io.ErrNoProgress},
		} {
			update(t, p, func(tx *ledger.Tx) error {
				must(t, tx.Put(t.Context(), []byte("k"), []byte("before")))
				if err := tx.PutReader(t.Context(), []byte("k"), c.r, c.size, ledger.Eager); !errors.Is(err, c.want) {
					t.Errorf("%s with %d bytes: got %v, want %v", name, n, err, c.want)
				}
				if v, err := tx.Get(t.Context(), []byte("k")); err != nil || string(v) != "before" {
					t.Errorf("%s with %d bytes: the transaction has changed: %d bytes, %v", name, n, len(v), err)
				}
				return nil
			})
		}
	}
	checkClean(t, p.Repository())
}

type nothing struct{}

func (nothing) Read([]byte) (int, error) { return 0, nil }

// TestNothingToCall gives no reader and no function.
func TestNothingToCall(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	_, err := p.Update(t.Context(), nil)
	wantErr(t, err, ledger.ErrInvalid)
	wantErr(t, p.View(t.Context(), nil), ledger.ErrInvalid)
	update(t, p, func(tx *ledger.Tx) error {
		wantErr(t, tx.PutReader(t.Context(), []byte("k"), nil, -1, ledger.Eager), ledger.ErrInvalid)
		return nil
	})
}

func TestPutReaderFromItsOwnTransaction(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	value := pseudo(11, 6<<20)
	update(t, p, func(tx *ledger.Tx) error {
		must(t, tx.Put(t.Context(), []byte("a"), value))
		v, err := tx.Open(t.Context(), []byte("a"))
		must(t, err)
		must(t, tx.Put(t.Context(), []byte("a"), []byte("changed since")))
		if _, err := v.Seek(1, io.SeekStart); err != nil {
			t.Fatal(err)
		}
		return tx.PutReader(t.Context(), []byte("b"), v, v.Size()-1, ledger.Eager)
	})
	err := p.View(t.Context(), func(s *ledger.Snapshot) error {
		v, err := s.Open(t.Context(), []byte("b"))
		must(t, err)
		defer v.Close()
		return iotest.TestReader(v, value[1:])
	})
	must(t, err)
}

func TestValueReading(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	for _, n := range []int{0, 100, 300_000} {
		value := pseudo(uint64(n), n)
		put(t, p, "k", string(value))
		s, err := p.Snapshot(t.Context())
		must(t, err)
		v, err := s.Open(t.Context(), []byte("k"))
		must(t, err)
		if v.Size() != int64(n) {
			t.Errorf("size %d, want %d", v.Size(), n)
		}
		must(t, iotest.TestReader(v, value))
		if _, err := v.ReadAt(make([]byte, 1), -1); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("negative offset: %v", err)
		}
		if _, err := v.Seek(-1, io.SeekStart); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("negative position: %v", err)
		}
		must(t, v.Close())
		must(t, v.Close())
		_, err = v.ReadAt(make([]byte, 1), 0)
		wantErr(t, err, ledger.ErrClosed)
		v, err = s.Open(t.Context(), []byte("k"))
		must(t, err)
		must(t, s.Close())
		if n > 0 {
			_, err = v.Read(make([]byte, 1))
			wantErr(t, err, ledger.ErrClosed)
		}
	}
}

func TestLimits(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	update(t, p, func(tx *ledger.Tx) error {
		ctx := t.Context()
		must(t, tx.Put(ctx, bytes.Repeat([]byte("k"), 4096), []byte("v")))
		for _, err := range []error{
			tx.Put(ctx, bytes.Repeat([]byte("k"), 4097), nil),
			tx.Delete(ctx, bytes.Repeat([]byte("k"), 4097)),
			tx.PutReader(ctx, bytes.Repeat([]byte("k"), 4097), strings.NewReader(""), -1, ledger.Eager),
			tx.SetMessage(strings.Repeat("m", 16<<10+1)),
		} {
			wantErr(t, err, ledger.ErrTooLarge)
			if !strings.ContainsAny(err.Error(), "0123456789") {
				t.Errorf("%v names no limit", err)
			}
		}
		wantErr(t, tx.PutPriority(ctx, nil, nil, 2), ledger.ErrInvalid)
		wantErr(t, tx.SetMessage("\xff"), ledger.ErrInvalid)
		for _, err := range tx.Scan(ctx, ledger.ScanOptions{Limit: -1}) {
			wantErr(t, err, ledger.ErrInvalid)
		}
		return tx.SetMessage(strings.Repeat("m", 16<<10))
	})
	_, err := p.Begin(t.Context(), &ledger.TxOptions{Base: ledger.CommitID{1}})
	wantErr(t, err, ledger.ErrNotFound)
}

func TestCanceledContexts(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	put(t, p, "k", "v")
	s, err := p.Snapshot(t.Context())
	must(t, err)
	defer s.Close()
	tx, err := p.Begin(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, getErr := s.Get(ctx, []byte("k"))
	_, updateErr := p.Update(ctx, func(*ledger.Tx) error { return nil })
	_, snapErr := p.Snapshot(ctx)
	var scanErr error
	for _, scanErr = range s.Scan(ctx, ledger.ScanOptions{}) {
	}
	_, openErr := ledger.Open(ctx, t.TempDir(), nil)
	var logErr error
	for _, logErr = range p.Log(ctx) {
	}
	for i, err := range []error{
		getErr, updateErr, snapErr, scanErr, openErr, logErr, tx.Put(ctx, nil, nil), tx.DeleteRange(ctx, []byte("a"), nil),
		tx.PutReader(ctx, nil, strings.NewReader(""), -1, 0), p.View(ctx, func(*ledger.Snapshot) error { return nil }),
	} {
		if !errors.Is(err, context.Canceled) || errors.Is(err, ledger.ErrClosed) {
			t.Errorf("%d: got %v, want context.Canceled", i, err)
		}
	}
	must(t, tx.Put(t.Context(), []byte("k"), []byte("w")))
	if _, err := tx.Commit(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("commit: %v", err)
	}
	wantErr(t, tx.Put(t.Context(), nil, nil), ledger.ErrTxDone)
	wantContent(t, p, map[string]string{"k": "v"})
}
