package ledger_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger"
)

func TestBeginMakesSiblings(t *testing.T) {
	p := memoryPage(t, ledger.Options{Device: "here", Merge: manual})
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
	if got := content(t, at, ledger.ScanOptions{}); got["k"] != "a" {
		t.Errorf("at a: %v", got)
	}
	must(t, at.Close())
	_, err = a.Commit(t.Context())
	wantErr(t, err, ledger.ErrTxDone)
	must(t, a.Rollback())
	checkClean(t, p.Ledger().Repository())
}

func TestFailOnConflict(t *testing.T) {
	p := memoryPage(t, ledger.Options{Merge: manual})
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
	checkClean(t, p.Ledger().Repository())
}
