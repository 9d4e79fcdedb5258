package ledger

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ledgerd/ledger/gc"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// TestCollectTellsWhatItHasDone lets the disk be full after some writes of a collection that gives
// history up. What was given up is told beside the error, and nothing is told that was not.
func TestCollectTellsWhatItHasDone(t *testing.T) {
	for room := range int64(3) {
		t.Run(fmt.Sprint(room), func(t *testing.T) {
			ctx := t.Context()
			var armed atomic.Bool
			var writes atomic.Int64
			fs := vfstest.NewFaulty(vfstest.NewMem(), func(op vfstest.Op) error {
				if op.Kind == vfstest.OpWrite && armed.Load() && writes.Add(1) > room {
					return syscall.ENOSPC
				}
				return nil
			})
			r, err := openFiles(ctx, fs, Options{Collection: CollectionOptions{Off: true}})
			check(t, err)
			defer r.Close()
			p, err := r.Page(ctx, "app", "page")
			check(t, err)
			for i := range 5 {
				_, err := p.Update(ctx, func(tx *Tx) error { return tx.Put(ctx, []byte("k"), []byte(fmt.Sprint(i))) })
				check(t, err)
			}
			before, err := p.store.FindCommits(ctx, nil, false, 100)
			check(t, err)
			armed.Store(true)
			told, err := admin.Collect(ctx, r, &gc.Policy{Commits: 1}, false)
			armed.Store(false)
			if room < 2 && !errors.Is(err, ErrNoSpace) {
				t.Errorf("collect: %v, want ErrNoSpace", err)
			}
			left, err := p.store.FindCommits(ctx, nil, false, 100)
			check(t, err)
			if gone := len(before) - len(left); told != gone || gone > 0 != (room > 0) {
				t.Errorf("%d commits are gone, %d are told", gone, told)
			}
		})
	}
}
