package cloudsync_test

import (
	"testing"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
)

// sender returns who put a commit into the log, as the page knows it.
func (p *page) sender(id commit.ID) cloudsync.Sender {
	p.d.w.t.Helper()
	s, err := cloudsync.SenderOf(p.d.w.t.Context(), p.store, id)
	if err != nil {
		p.d.w.t.Fatal(err)
	}
	return s
}

// TestSenders: every device knows who put a commit into the log, who reads entries by the
// signature, and who begins with a checkpoint from that. What a commit says of its maker does not
// count. What is pruned leaves nothing behind.
func TestSenders(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	is := func(what string, p *page, id commit.ID, key seal.DeviceKey, verified bool) {
		t.Helper()
		want := cloudsync.Sender{Verified: verified}
		if !key.IsZero() {
			want.Device = key.ID()
		}
		if got := p.sender(id); got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
	a.commit(edit{"k": text("0")})
	first := a.commit(edit{"k": text("a")})
	is("before it is sent", a, first.ID, seal.DeviceKey{}, false)
	sync(t, a, b)
	second := b.commit(edit{"k": text("b")})
	sync(t, b, a)
	for _, p := range []*page{a, b} {
		is("first", p, first.ID, a.d.key, true)
		is("second", p, second.ID, b.d.key, true)
	}

	devices := func(p *page, want ...*page) {
		t.Helper()
		got, err := cloudsync.DevicesOf(t.Context(), p.store)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range want {
			// commits of the tests have the id of their device as its name
			if k := got[q.d.key.ID()]; k.Name != q.d.key.ID().String() || k.Last == 0 {
				t.Errorf("device %s: %+v", q.d.key.ID(), k)
			}
		}
		if len(got) != len(want) {
			t.Errorf("devices %+v, want %d", got, len(want))
		}
	}
	devices(a, a, b)
	devices(b, a, b)

	keepLast(t, a, 2)
	collectBucket(t, a, cloudsync.GCOptions{})
	sync(t, b)
	late := w.device()
	sync(t, late)
	is("first, by a checkpoint", late, first.ID, a.d.key, false)
	is("second, by a checkpoint", late, second.ID, b.d.key, false)
	devices(late, a, b)
	is("by what was read", b, first.ID, a.d.key, true)

	third := b.commit(edit{"k": text("c")})
	sync(t, b, a, late)
	is("third", late, third.ID, b.d.key, true)
	collectBucket(t, b, cloudsync.GCOptions{})
	sync(t, a, late, b)
	later := w.device()
	sync(t, later)
	is("third, by a checkpoint", later, third.ID, b.d.key, false)
	is("second, by two checkpoints", later, second.ID, b.d.key, false)
	for _, p := range []*page{a, b, late, later} {
		if _, err := p.store.Commit(t.Context(), first.ID); err == nil {
			t.Error("the first commit is not pruned")
		}
		is("first, pruned", p, first.ID, seal.DeviceKey{}, false)
	}
}
