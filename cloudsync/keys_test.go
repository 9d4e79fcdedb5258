package cloudsync_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/tier"
)

// changeKeys changes the keyring by a device.
func (p *page) changeKeys(c seal.Change) {
	p.d.w.t.Helper()
	err := p.d.s.ChangeKeys(p.d.w.t.Context(), func(*seal.Keyring) (seal.Change, error) { return c, nil })
	if err != nil {
		p.d.w.t.Fatal(err)
	}
}

// TestRotation draws a new data key in buckets with few and many entries, 100 000 by night: three
// requests, nothing is uploaded again, and devices that knew only the old one read what comes after
// and what came before, as does a new one.
func TestRotation(t *testing.T) {
	sizes := []int{10, 1000}
	if tier.Nightly() {
		sizes = append(sizes, 100_000)
	}
	for _, entries := range sizes {
		t.Run(fmt.Sprint(entries), func(t *testing.T) { testRotation(t, entries) })
	}
}

// fillLog makes and sends commits of one key.
func fillLog(t *testing.T, p *page, entries int) {
	t.Helper()
	for i := range entries {
		p.commit(edit{key(i): noise(uint64(i), 100)})
		sync(t, p)
		if i%128 > 0 {
			continue
		}
		// A sync looks at all that is not folded into the index yet.
		if err := p.store.Fold(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

func testRotation(t *testing.T, entries int) {
	w := newWorld(t)
	a, b := steady(t, w)
	fillLog(t, a, entries)
	sync(t, b)
	names := w.b.Names()
	n := a.counts(func() { a.changeKeys(seal.Change{NewDataKey: true}) })
	if n.A+n.B != 3 {
		t.Errorf("%d requests", n.A+n.B)
	}
	t.Logf("%d requests and %d bytes up behind %d entries in %d objects", n.A+n.B, n.Up, entries, len(names))
	before := map[string]bool{}
	for _, name := range names {
		before[name] = true
	}
	more := slices.DeleteFunc(w.b.Names(), func(name string) bool { return before[name] })
	if len(more) != 1 || !strings.HasPrefix(more[0], wire.KeysPrefix) {
		t.Errorf("new objects %v", more)
	}
	a.commit(edit{"after": []byte("rotation")})
	sync(t, a, b)
	if got := b.content()["after"]; got != "rotation" || b.d.s.Keyring().DataKeys() != 2 {
		t.Errorf("after a rotation the other device has %q, and %d data keys", got, b.d.s.Keyring().DataKeys())
	}
	c := w.device() // with the keyring from before
	sync(t, c)
	if !maps.Equal(a.content(), c.content()) {
		t.Error("a new device has other content")
	}
	c.commit(edit{"from": []byte("c")})
	sync(t, c, a)
	if a.content()["from"] != "c" {
		t.Error("what the new device wrote does not arrive")
	}
}

// TestShutOut removes the slot with which a device has the bucket open: it is told so, keeps what
// it has, can write here, and sees nothing of what comes later.
func TestShutOut(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	lost := seal.NewMasterKey(nil)
	a.changeKeys(seal.Change{AddSlots: []seal.NewSlot{{Master: lost, Label: "phone"}}})
	first := w.ring
	var err error
	if w.ring, _, err = cloudsync.Connect(t.Context(), w.b, lost, false, nil); err != nil {
		t.Fatal(err)
	}
	b := w.device()
	w.ring = first
	a.commit(edit{"k": []byte("1")})
	sync(t, a, b)
	slots := a.d.s.Keyring().Slots()
	a.changeKeys(seal.Change{RemoveSlots: []seal.ID{slots[1].ID}})
	a.commit(edit{"k": []byte("2")})
	sync(t, a)
	b.commit(edit{"mine": []byte("3")})
	if err := b.Sync(t.Context()); !errors.Is(err, cloudsync.ErrShutOut) {
		t.Errorf("who is shut out: %v", err)
	}
	if got := b.content(); got["k"] != "1" || got["mine"] != "3" {
		t.Errorf("who is shut out has %v", got)
	}
	if _, _, err := cloudsync.Connect(t.Context(), w.b, lost, false, nil); !errors.Is(err, cloudsync.ErrShutOut) {
		t.Errorf("a new device with that key: %v", err)
	}
	sync(t, a)
	if got := a.content(); got["k"] != "2" || got["mine"] != "" {
		t.Errorf("the other has %v", got)
	}
}

// TestKeyringIsTakenBack: whoever has seen a ring notices when it is gone, damaged, or another
// bucket's.
func TestKeyringIsTakenBack(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.commit(edit{"k": []byte("1")})
	sync(t, a)
	old := w.b.State()
	a.changeKeys(seal.Change{NewDataKey: true})
	ring := a.d.s.Keyring()
	name := wire.RingName(ring.BucketID(), ring.Number())
	now := w.b.State()
	check := func(what string, want error) {
		t.Helper()
		if err := a.d.s.CheckKeys(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", what, err, want)
		}
		w.b.Rollback(now)
		if err := a.d.s.CheckKeys(t.Context()); err != nil {
			t.Errorf("%s, and whole again: %v", what, err)
		}
	}
	w.b.Rollback(old)
	check("rolled back", cloudsync.ErrBucketRolledBack)
	w.b.Replace(name, []byte("short"))
	check("cut", cloudsync.ErrBucketDamaged)
	w.b.Wipe()
	check("wiped", cloudsync.ErrBucketWiped)
	other := newWorld(t)
	w.b.Rollback(other.b.State())
	check("another bucket", cloudsync.ErrBucketReplaced)
	// The owner puts something in the place of the next ring.
	w.b.Replace(wire.RingName(ring.BucketID(), ring.Number()+1), []byte("nonsense"))
	check("a ring that is none", cloudsync.ErrBucketDamaged)
}

// TestKeyringChangesMeet has many devices change the keyring at once: all changes count.
func TestKeyringChangesMeet(t *testing.T) {
	w := newWorld(t)
	var devices []*page
	for range 4 {
		devices = append(devices, w.device())
	}
	errs := make(chan error)
	for _, p := range devices {
		master := seal.NewMasterKey(nil)
		go func() {
			errs <- p.d.s.ChangeKeys(t.Context(), func(*seal.Keyring) (seal.Change, error) {
				return seal.Change{NewDataKey: true, AddSlots: []seal.NewSlot{{Master: master, Label: "added"}}}, nil
			})
		}()
	}
	for range devices {
		if err := <-errs; err != nil && !errors.Is(err, bucket.ErrExists) {
			t.Error(err)
		}
	}
	for _, p := range devices {
		if err := p.d.s.CheckKeys(t.Context()); err != nil {
			t.Error(err)
		}
		if k := p.d.s.Keyring(); k.DataKeys() < 5 || countAdded(k) != 4 {
			t.Errorf("%d data keys, %d slots", k.DataKeys(), countAdded(k))
		}
	}
}

// countAdded counts the slots of TestKeyringChangesMeet.
func countAdded(k *seal.Keyring) (n int) {
	for _, s := range k.Slots() {
		if s.Label == "added" {
			n++
		}
	}
	return n
}

// TestRingsAreBounded has a bucket show more rings, each after the one before, than there may be:
// who opens it reads no more of them.
func TestRingsAreBounded(t *testing.T) {
	b := mem.New(mem.Options{})
	keys, err := seal.NewKeyring(seal.Plain, nil)
	if err != nil {
		t.Fatal(err)
	}
	ring, _, err := keys.Found(seal.NewSlot{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b.Replace(wire.FirstRing, ring)
	for n := uint64(1); n < seal.MaxRings+100; n++ {
		before := sha256.Sum256(ring)
		ring = bytes.Clone(ring)
		binary.BigEndian.PutUint64(ring[20:], n)
		copy(ring[28:], before[:])
		sum := sha256.Sum256(ring[:len(ring)-len(before)])
		copy(ring[len(ring)-len(sum):], sum[:])
		b.Replace(wire.RingName(keys.BucketID(), n), ring)
	}
	read := 0
	b.SetBefore(func(op bucket.Op, _ string) error {
		if op == bucket.OpGet {
			read++
		}
		return nil
	})
	if chain, err := cloudsync.ReadKeys(t.Context(), b); err != nil || len(chain.Rings())*seal.MaxKeyringBytes > 128<<20 {
		t.Errorf("%d rings are held, %v", len(chain.Rings()), err)
	}
	if read > 2048 {
		t.Errorf("%d rings were read", read)
	}
}
