package ledger_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger"
)

func TestBeginMakesSiblings(t *testing.T) {
	p := memoryPage(t, ledger.Options{Device: "here", ManualMerge: true})
	base := put(t, p, "k", "base")
	a, err := p.Begin(t.Context(), nil)
	must(t, err)
	b, err := p.Begin(t.Context(), &ledger.TxOptions{Base: base})
	must(t, err)
	must(t, a.Put(t.Context(), []byte("k"), []byte("a")))
	must(t, b.Put(t.Context(), []byte("k"), []byte("b")))
	must(t, b.SetMessage("from b"))
	if v, err := a.Get(t.Context(), []byte("k")); err != nil || string(v) != "a" {
		t.Errorf("a sees %q, %v", v, err)
	}
	idA, err := a.Commit(t.Context())
	must(t, err)
	idB, err := b.Commit(t.Context())
	must(t, err)
	heads, err := p.Heads(t.Context())
	must(t, err)
	if len(heads) != 2 || heads[0].ID != idA || heads[1].ID != idB || heads[1].Message != "from b" || heads[1].Device != "here" {
		t.Fatalf("heads %+v", heads)
	}
	if diff := cmp.Diff([]ledger.CommitID{base}, heads[1].Parents); diff != "" {
		t.Error(diff)
	}
	wantContent(t, p, map[string]string{"k": "b"})
	at, err := p.At(t.Context(), idA)
	must(t, err)
	if got := content(t, at.Reader, ledger.ScanOptions{}); got["k"] != "a" {
		t.Errorf("at a: %v", got)
	}
	must(t, at.Close())
	_, err = a.Commit(t.Context())
	wantErr(t, err, ledger.ErrTxDone)
	must(t, a.Rollback())
	checkClean(t, p.Repository())
}

func TestFailOnConflict(t *testing.T) {
	p := memoryPage(t, ledger.Options{ManualMerge: true})
	base := put(t, p, "k", "base")
	strict := &ledger.TxOptions{FailOnConflict: true}
	begin := func(o *ledger.TxOptions, v string) *ledger.Tx {
		tx, err := p.Begin(t.Context(), o)
		must(t, err)
		must(t, tx.Put(t.Context(), []byte("k"), []byte(v)))
		return tx
	}
	a, b := begin(strict, "a"), begin(strict, "b")
	idA, err := a.Commit(t.Context())
	must(t, err)
	_, err = b.Commit(t.Context())
	wantErr(t, err, ledger.ErrConflict)
	wantErr(t, b.Put(t.Context(), nil, nil), ledger.ErrTxDone)
	wantContent(t, p, map[string]string{"k": "a"})

	// A base that is a head, though not the newest, is no conflict.
	_, err = begin(&ledger.TxOptions{Base: base}, "sibling").Commit(t.Context())
	must(t, err)
	idC, err := begin(&ledger.TxOptions{Base: idA, FailOnConflict: true}, "c").Commit(t.Context())
	must(t, err)
	c, err := p.Commit(t.Context(), idC)
	must(t, err)
	if len(c.Parents) != 1 || c.Parents[0] != idA || c.Generation != 3 {
		t.Errorf("commit %+v", c)
	}
	// No change is no conflict.
	tx, err := p.Begin(t.Context(), &ledger.TxOptions{Base: base, FailOnConflict: true})
	must(t, err)
	if got, err := tx.Commit(t.Context()); err != nil || got != base {
		t.Errorf("%s, %v", got, err)
	}
}

// TestRefusedTransactionGetsItsTurn tries a refused transaction again while another writer waits:
// it is not refused again.
func TestRefusedTransactionGetsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memoryPage(t, ledger.Options{ManualMerge: true})
		put(t, p, "k", "base")
		again := refuse(t, p)
		must(t, again.Put(t.Context(), []byte("mine"), []byte("1")))
		order := make(chan string, 2)
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := p.Update(t.Context(), func(tx *ledger.Tx) error {
				order <- "update"
				return tx.Put(t.Context(), []byte("k"), []byte("later"))
			})
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // it waits for the turn
		order <- "again"
		_, err := again.Commit(t.Context())
		must(t, err)
		wg.Wait()
		if first := <-order; first != "again" {
			t.Errorf("first came %s", first)
		}
		wantContent(t, p, map[string]string{"k": "later", "mine": "1"})
		tx, err := p.Begin(t.Context(), &ledger.TxOptions{FailOnConflict: true}) // nothing is left to make good
		must(t, err)
		put(t, p, "k", "beside it")
		must(t, tx.Put(t.Context(), []byte("k"), []byte("x")))
		_, err = tx.Commit(t.Context())
		wantErr(t, err, ledger.ErrConflict)
	})
}

// TestForgottenTransactionHoldsNobodyUp begins a transaction in its turn and leaves it: writers go
// on after a while, and it is refused then.
func TestForgottenTransactionHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := memoryPage(t, ledger.Options{ManualMerge: true})
		put(t, p, "k", "base")
		forgotten := refuse(t, p)
		put(t, p, "k", "meanwhile")
		must(t, forgotten.Put(t.Context(), []byte("k"), []byte("late")))
		_, err := forgotten.Commit(t.Context())
		wantErr(t, err, ledger.ErrConflict)

		// Within a closure of Update the turn cannot come.
		_, err = p.Update(t.Context(), func(tx *ledger.Tx) error {
			within, err := p.Begin(t.Context(), &ledger.TxOptions{FailOnConflict: true})
			if err != nil {
				return err
			}
			return errors.Join(within.Rollback(), tx.Put(t.Context(), []byte("k"), []byte("end")))
		})
		must(t, err)
		wantContent(t, p, map[string]string{"k": "end"})

		left := refuse(t, p) // Close of the page ends it
		must(t, left.Put(t.Context(), []byte("k"), []byte("x")))
		if err := p.Close(); err == nil {
			t.Error("an open transaction is not told")
		}
	})
}

// refuse has a transaction refused, and returns the next one.
func refuse(t *testing.T, p *ledger.Page) *ledger.Tx {
	t.Helper()
	strict := &ledger.TxOptions{FailOnConflict: true}
	first, err := p.Begin(t.Context(), strict)
	must(t, err)
	must(t, first.Put(t.Context(), []byte("k"), []byte("first")))
	put(t, p, "k", "other")
	_, err = first.Commit(t.Context())
	wantErr(t, err, ledger.ErrConflict)
	again, err := p.Begin(t.Context(), strict)
	must(t, err)
	return again
}

func TestRollback(t *testing.T) {
	p := memoryPage(t, ledger.Options{JournalBytes: 1})
	base := put(t, p, "k", "base")
	tx, err := p.Begin(t.Context(), nil)
	must(t, err)
	must(t, tx.Put(t.Context(), []byte("k"), pseudo(1, 5<<20)))
	must(t, tx.Rollback())
	must(t, tx.Rollback())
	_, err = tx.Commit(t.Context())
	wantErr(t, err, ledger.ErrTxDone)
	heads, err := p.Heads(t.Context())
	must(t, err)
	if len(heads) != 1 || heads[0].ID != base {
		t.Errorf("heads %+v", heads)
	}
	checkClean(t, p.Repository())
}
