package storage

import (
	"testing"

	"github.com/ledgerd/ledger/storage/index"
)

// TestFoldHoldsOneTransaction writes many steps, of which no more than one transaction are held at a time, and all run in order.
func TestFoldHoldsOneTransaction(t *testing.T) {
	db := index.NewMemory()
	s := state{}
	err := db.Update(func(tx index.Tx) error {
		for _, name := range append([]string{bucketState}, spreadFamilies...) {
			if _, err := tx.CreateBucket(name); err != nil {
				return err
			}
		}
		return tx.Bucket(bucketState).Put(stateKey, s.encode())
	})
	if err != nil {
		t.Fatal(err)
	}
	w := &planWriter{ctx: t.Context(), db: db, most: 100, next: 77}
	ran := 0
	for i := range 5000 {
		w.addWeight(1+i%7, func(index.Tx) error {
			if ran != i {
				t.Errorf("step %d runs as number %d", i, ran)
			}
			ran++
			return nil
		})
		if w.weight > 100 || len(w.steps) > 100 {
			t.Fatalf("%d steps of weight %d are held", len(w.steps), w.weight)
		}
	}
	if err := w.finish(func(index.Tx) error { return nil }); err != nil || w.err != nil || ran != 5000 {
		t.Errorf("%d steps ran: %v, %v", ran, w.err, err)
	}
	err = db.View(func(tx index.Tx) error {
		st, err := parseState(tx.Bucket(bucketState).Get(stateKey))
		if st.next != 77 {
			t.Errorf("numbers up to %d are reserved", st.next)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
