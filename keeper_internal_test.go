package ledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ledgerd/ledger/internal/reclaim"
)

func keep(t *testing.T, r *Repository, ref PageRef) *Page {
	t.Helper()
	k, err := r.keepPage(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func wantGone(t *testing.T, k *Page, want bool) {
	t.Helper()
	gone := false
	select {
	case <-k.in.Gate().Life().Done():
		gone = true
	default:
	}
	if gone != want {
		t.Errorf("given up: %v, want %v", gone, want)
	}
}

// TestKeptPageGivesWay: a page that is only kept is evicted, deleted and listed as one that is
// closed; when it may not go, it stays kept.
func TestKeptPageGivesWay(t *testing.T) {
	w := newEvictWorld(t)
	r, ref := w.device(w.mem)
	ctx := t.Context()
	k := keep(t, r, ref)
	u, _, err := admin.Usage(ctx, r)
	if err != nil || len(u) != 1 || u[0].State == PageOpen || u[0].Bar != reclaim.Free || u[0].LastClosed.IsZero() {
		t.Errorf("usage %+v, %v", u, err)
	}
	if left, _, err := admin.Evict(ctx, r, true, ref); err != nil || len(left) != 1 {
		t.Errorf("dry run: %+v, %v", left, err)
	}
	wantGone(t, k, false)

	// Open for an app, and with something that only this device has.
	p := w.page(r)
	if _, _, err := admin.Evict(ctx, r, false, ref); !isBar(err, reclaim.InUse) {
		t.Errorf("open: %v", err)
	}
	_, err = p.Update(ctx, func(tx *Tx) error { return tx.Put(ctx, []byte("new"), []byte("x")) })
	if err = errors.Join(err, p.Close()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := admin.Evict(ctx, r, false, ref); !isBar(err, reclaim.Unsynced) {
		t.Errorf("unsynced: %v", err)
	}
	if _, err := r.DeletePage(ctx, ref, nil); !isBar(err, reclaim.Unsynced) {
		t.Errorf("unsynced: %v", err)
	}
	wantGone(t, k, false)
	p = w.page(r)
	if err := errors.Join(p.Sync(ctx), p.Close()); err != nil {
		t.Fatal(err)
	}

	if _, freed, err := admin.Evict(ctx, r, false, ref); err != nil || freed == 0 {
		t.Errorf("evict: %+v, %v", freed, err)
	}
	wantGone(t, k, true)
	if err := k.Close(); err != nil {
		t.Error(err)
	}
	if _, err := r.keepPage(ctx, ref); !errors.Is(err, ErrNotFound) {
		t.Errorf("keep an evicted page: %v", err)
	}
	p = w.page(r)
	if err := errors.Join(whole(ctx, p), p.Close()); err != nil {
		t.Error(err)
	}
	k = keep(t, r, ref)
	if _, err := r.space.Evict(ctx, reclaim.EvictOptions{FreeBytes: 1}); err != nil {
		t.Error(err)
	}
	wantGone(t, k, true)
	p = w.page(r)
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	k = keep(t, r, ref)
	if _, err := r.DeletePage(ctx, ref, nil); err != nil {
		t.Error(err)
	}
	wantGone(t, k, true)
}

func isBar(err error, bar reclaim.Bar) bool {
	e, ok := errors.AsType[*EvictError](err)
	return ok && e.Bar == bar
}

// TestKeepAndEvictAtRandom has a page kept again whenever it is given up, opened and written, and
// evicted all the while: nothing is lost, and who evicts is not kept from it for ever.
func TestKeepAndEvictAtRandom(t *testing.T) {
	w := newEvictWorld(t)
	r, ref := w.device(w.mem)
	ctx, stop := context.WithCancel(t.Context())
	var keepers sync.WaitGroup
	for range 2 {
		keepers.Go(func() {
			for ctx.Err() == nil {
				k, err := r.keepPage(ctx, ref)
				if errors.Is(err, ErrNotFound) {
					continue
				}
				if err != nil {
					if ctx.Err() == nil {
						t.Error(err)
					}
					return
				}
				select {
				case <-k.in.Gate().Life().Done():
				case <-ctx.Done():
				}
				if err := k.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 6 {
		for evicted := false; !evicted && !t.Failed(); {
			left, _, err := admin.Evict(ctx, r, false, ref)
			if err != nil && !isBar(err, reclaim.InUse) {
				t.Error(err)
			}
			evicted = len(left) > 0
		}
		p, err := openIt(ctx, r)
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Update(ctx, func(tx *Tx) error { return tx.Put(ctx, fmt.Appendf(nil, "%d", i), []byte("x")) })
		if err = errors.Join(err, whole(ctx, p), p.Sync(ctx), p.Close()); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	keepers.Wait()
	p := w.page(r)
	defer p.Close()
	if err := p.View(t.Context(), func(s *Snapshot) error {
		for i := range 6 {
			if _, err := s.Get(t.Context(), fmt.Appendf(nil, "%d", i)); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
		}
		return whole(t.Context(), p)
	}); err != nil {
		t.Error(err)
	}
}
