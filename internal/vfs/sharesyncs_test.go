package vfs_test

import (
	"sync"
	"testing"
	"testing/synctest"

	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// slowSyncs lets each sync of a directory wait for a token.
type slowSyncs struct {
	vfs.FS
	tokens chan struct{}
	count  int
}

func (s *slowSyncs) SyncDir(dir string) error {
	<-s.tokens
	s.count++
	return s.FS.SyncDir(dir)
}

// TestShareSyncs: calls that come while a directory is synced share the next sync, and none is
// answered by one that began before it came.
func TestShareSyncs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := &slowSyncs{FS: vfstest.NewMem(), tokens: make(chan struct{})}
		fs := vfs.ShareSyncs(slow)
		var first, others sync.WaitGroup
		first.Go(func() { _ = fs.SyncDir("/") })
		synctest.Wait() // it is being synced
		for range 5 {
			others.Go(func() { _ = fs.SyncDir("/") })
		}
		synctest.Wait() // all of them wait
		slow.tokens <- struct{}{}
		first.Wait()
		slow.tokens <- struct{}{}
		others.Wait()
		if slow.count != 2 {
			t.Errorf("%d syncs", slow.count)
		}
	})
}
