package cloudsync_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
)

// TestForkIsRepaired has the bucket lose an entry and take another one with its number. The device
// that has applied the first one notices it after it was opened again, and the log is repaired.
func TestForkIsRepaired(t *testing.T) {
	for _, next := range []bool{false, true} { // whether an entry stands behind the other one
		w := newWorld(t)
		a, b := steady(t, w)
		before := w.b.State()
		a.commit(edit{"side": text("a")})
		sync(t, a)
		a.reopen()
		w.b.Rollback(before)
		b.commit(edit{"side": text("b")})
		sync(t, b)
		if next {
			b.commit(edit{"more": text("b")})
			sync(t, b)
		}
		w.clock.Advance(25 * time.Hour)
		sync(t, a)
		healed(t, w, a, b)
	}
}

// TestShutOutWritesNothing has somebody write who has the data keys of before a rotation: entries,
// and an epoch that deletes the page. Once another device has written with the new key, nothing of
// it counts, also for a device that began anew.
func TestShutOutWritesNothing(t *testing.T) {
	for _, what := range []string{"entry", "epoch"} {
		for _, rotated := range []bool{false, true} {
			w := newWorld(t)
			a, b := steady(t, w)
			if rotated {
				a.changeKeys(seal.Change{NewDataKey: true})
			}
			a.commit(edit{"k": text("new key")})
			sync(t, a, b)
			old, names := seal.NewSealer(w.ring, nil), a.names()
			st, err := cloudsync.StandingOf(t.Context(), a.store)
			if err != nil {
				t.Fatal(err)
			}
			var name string
			var stored []byte
			if what == "entry" {
				var stream bytes.Buffer
				out := wire.NewWriter(&stream, wire.Body)
				if err := errors.Join(out.Write(&wire.Size{}), out.Write(&wire.Retention{Last: 77})); err != nil {
					t.Fatal(err)
				}
				name = names.Entry(st.At.Epoch, st.At.Number+1)
				stored, _, err = wire.SealEntry(old, names, st.At.Epoch, st.At.Number+1, st.At.Hash, wire.InlineBody(stream.Bytes(), out.Parts()))
				if err != nil {
					t.Fatal(err)
				}
			} else {
				x := &epoch.Proposal{ID: epoch.ID{7}, Kind: epoch.Deleted, Parent: st.At.Epoch, Renewed: st.At.Renewed, Base: st.At.Number, BaseHash: st.At.Hash}
				name = names.Epoch(st.At.K + 1)
				if stored, err = wire.SealEpoch(old, names, x); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.b.PutIfAbsent(t.Context(), name, int64(len(stored)), bytes.NewReader(stored)); err != nil {
				t.Fatal(err)
			}
			b.reopen()
			w.clock.Advance(25 * time.Hour)
			counts := false
			for range 3 {
				for _, p := range []*page{b, a} {
					err := p.Sync(t.Context())
					if counts = counts || errors.Is(err, cloudsync.ErrDeleted); err != nil && !errors.Is(err, cloudsync.ErrDeleted) {
						t.Fatal(err)
					}
				}
			}
			for _, p := range []*page{a, b} {
				r, err := cloudsync.RetentionOf(t.Context(), p.store)
				if err != nil {
					t.Fatal(err)
				}
				counts = counts || r.Last == 77
			}
			if counts == rotated {
				t.Errorf("%s with an old key, rotated %t: it counts %t", what, rotated, counts)
			}
			if !counts {
				a.commit(edit{"k": text("goes on")})
				healed(t, w, a, b)
			}
		}
	}
}
