package storage

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/storage/index"
)

// TestPruneWaitsInOrder prunes in a page with a damaged row of a tag, while the fold turn is taken,
// for which the rebuild of the index waits. The holder of the fold turn gets the append turn.
func TestPruneWaitsInOrder(t *testing.T) {
	s := openMemory(t, Options{})
	err := s.index.Update(func(tx index.Tx) error { return tx.Bucket(bucketTags).Put([]byte("tag"), []byte("bad")) })
	if err != nil {
		t.Fatal(err)
	}
	s.foldTurn.Wait()
	pruned := make(chan error, 1)
	go func() {
		_, err := s.pruneSome(t.Context(), []commit.ID{{1}}, nil, &parentsSeen{})
		pruned <- err
	}()
	for i := 0; i < 10000 && len(s.appendTurn) == 0; i++ {
		runtime.Gosched()
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := s.appendTurn.Take(ctx); err != nil {
		t.Error("the two turns wait for each other")
	} else {
		s.appendTurn.Give()
	}
	s.foldTurn.Give()
	if err := <-pruned; err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
