package cloudsync_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// lacking returns the pieces of values that the page knows where to find, and does not hold.
func (p *page) lacking() (ds []object.Digest) {
	t := p.d.w.t
	t.Helper()
	placed, err := p.store.PlacedIn(t.Context(), func(storage.CloudPlace) bool { return true })
	if err != nil {
		t.Fatal(err)
	}
	for _, q := range placed {
		if st, err := p.store.PieceState(q.Digest); err != nil {
			t.Fatal(err)
		} else if !st.Held {
			ds = append(ds, q.Digest)
		}
	}
	return ds
}

// TestLostEpochs: a new device takes a log without an epoch for damage, not for an empty page. A
// device with the page brings it back.
func TestLostEpochs(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.commit(edit{"k": []byte("v")})
	sync(t, a)
	w.remove(a.names().Epoch(0))
	b := w.device()
	for range 2 {
		if err := b.Sync(t.Context()); !errors.Is(err, cloudsync.ErrBucketDamaged) || !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("a new device: %v", err)
		}
	}
	if _, err := a.Reupload(t.Context()); err != nil {
		t.Fatal(err)
	}
	sync(t, b)
	same(t, a, b)
}

// TestFetchOfWhatWasMoved fetches pieces from a pack that is not there: the log says where they are
// now, or nothing.
func TestFetchOfWhatWasMoved(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.commit(edit{"lazy": append([]byte("lazy:"), noise(1, 1_200_000)...)})
	sync(t, a)
	b := w.synced()
	packs := w.packs() // with the chunks, and with what lists them
	for _, n := range packs {
		w.remove(n)
	}
	named := func(err error) bool {
		return slices.ContainsFunc(packs, func(n string) bool { return strings.Contains(err.Error(), n) })
	}
	ds := b.lacking()
	if len(ds) == 0 {
		t.Fatal("the test fetches nothing")
	}
	if _, err := b.Fetch(t.Context(), ds); !errors.Is(err, base.ErrGone) || !named(err) {
		t.Errorf("fetch from nowhere: %v", err)
	}
	if err := w.device().Sync(t.Context()); !errors.Is(err, cloudsync.ErrBucketDamaged) || !named(err) {
		t.Errorf("a new device: %v", err)
	}
	if _, err := a.Reupload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Fetch(t.Context(), ds); err != nil || n == 0 {
		t.Errorf("fetch of what was moved: %d bytes, %v", n, err)
	}
	same(t, a, b)
}
