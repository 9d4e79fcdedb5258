package ledger

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// TestWatchYieldsTheErrorOfADiff (defect 19 of the original: such a watch was stuck in silence):
// the error comes out, whichever part it meets, and a new watch from the last commit that was told
// wholly tells everything.
func TestWatchYieldsTheErrorOfADiff(t *testing.T) {
	ctx := t.Context()
	boom := errors.New("boom")
	var left atomic.Int64 // reads until the disk fails; negative: it never does
	left.Store(-1)
	fs := vfstest.NewFaulty(vfstest.NewMem(), func(op vfstest.Op) error {
		if op.Kind == vfstest.OpRead && strings.Contains(op.Name, "ledgers") && left.Load() >= 0 && left.Add(-1) < 0 {
			left.Store(0)
			return boom
		}
		return nil
	})
	r, err := openFiles(ctx, fs, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	open := func() *Page {
		p, err := r.Page(ctx, "app", "page")
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	fill := func(p *Page, value string) CommitID {
		id, err := p.Update(ctx, func(tx *Tx) error {
			for i := range 1000 {
				if err := tx.Put(ctx, fmt.Appendf(nil, "key-%04d", i), []byte(value)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	p := open()
	base := fill(p, "old")
	head := fill(p, "new")
	failedAt := map[int]bool{}
	for reads := int64(0); ; reads++ {
		if err := p.Close(); err != nil { // so that no node is in memory
			t.Fatal(err)
		}
		p = open()
		left.Store(reads)
		parts, failed := 0, false
		o := &WatchOptions{From: base, PageEntries: 50}
		for n, err := range p.Watch(ctx, o) {
			if failed {
				t.Fatal("something comes behind the error")
			}
			if err != nil {
				if !errors.Is(err, boom) || !strings.HasPrefix(err.Error(), "watch: ") || len(n.Changes) > 0 {
					t.Fatalf("got %+v, %v", n, err)
				}
				failed, failedAt[parts] = true, true
				continue
			}
			if parts++; parts == 20 {
				if n.First || !n.Last {
					t.Fatalf("part %+v, want the last", n)
				}
				break
			}
		}
		left.Store(-1)
		if !failed {
			if parts != 20 {
				t.Fatalf("%d parts", parts)
			}
			break
		}
		changes := 0
		for n, err := range p.Watch(ctx, o) {
			if err != nil {
				t.Fatal(err)
			}
			changes += len(n.Changes)
			if n.Resume == head {
				break
			}
		}
		if changes != 1000 {
			t.Fatalf("%d changes after %d reads and an error", changes, reads)
		}
	}
	if !failedAt[0] || len(failedAt) < 5 {
		t.Errorf("the disk failed after these numbers of parts: %v", failedAt)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}
