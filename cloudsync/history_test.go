package cloudsync_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
)

// settled syncs pages until all have seen all, together with a new device, and checks that they are
// the same.
func settled(t *testing.T, w *world, ps ...*page) {
	t.Helper()
	ps = append(ps, w.device())
	for range 2 {
		sync(t, ps...)
	}
	sameHeads(t, ps...)
	for i, p := range ps {
		if !maps.Equal(p.content(), ps[0].content()) {
			t.Errorf("page %d has another content: %v", i, p.content())
		}
	}
}

// history returns a page with all trees, and others that know its first commits without trees.
func history(t *testing.T, w *world, others int) (*page, []*page) {
	t.Helper()
	c := w.device()
	for i := range 5 {
		c.commit(edit{key(i): text("x")})
		sync(t, c)
	}
	if err := c.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	var ps []*page
	for range others {
		ps = append(ps, w.device())
	}
	sync(t, ps...)
	return c, ps
}

func reupload(t *testing.T, ps ...*page) {
	t.Helper()
	for i, p := range ps {
		p.reopen()
		if missing, err := p.Reupload(t.Context()); err != nil || missing != 0 {
			t.Fatalf("page %d: %d missing, %v", i, missing, err)
		}
	}
}

// TestReuploadOfHistoryByMany has devices with and without old trees, each with a commit of its
// own, upload anew one after another.
func TestReuploadOfHistoryByMany(t *testing.T) {
	for name, order := range map[string][]int{"without trees first": {1, 2, 0}, "with trees first": {0, 1, 2}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c, ps := history(t, w, 2)
			all := append([]*page{c}, ps...)
			for i, p := range all {
				p.commit(edit{"own " + key(i): text("y")})
			}
			w.b.Wipe()
			w.connect()
			for _, i := range order {
				reupload(t, all[i])
			}
			settled(t, w, all...)
		})
	}
}

// TestReuploadOfHistoryAtOnce has two devices without old trees upload anew at the same moment.
func TestReuploadOfHistoryAtOnce(t *testing.T) {
	for _, at := range []string{"/log/", "/epochs/"} {
		t.Run(at[1:len(at)-1], func(t *testing.T) {
			w := newWorld(t)
			_, ps := history(t, w, 2)
			a, b := ps[0], ps[1]
			a.commit(edit{"a": text("y")})
			b.commit(edit{"b": text("y")})
			w.b.Wipe()
			w.connect()
			done := false
			a.reopen()
			w.b.SetBefore(func(op bucket.Op, name string) error {
				if !done && op == bucket.OpPut && strings.Contains(name, at) {
					done = true
					if _, err := a.Reupload(t.Context()); err != nil {
						t.Error(err)
					}
				}
				return nil
			})
			reupload(t, b)
			w.b.SetBefore(nil)
			settled(t, w, a, b)
		})
	}
}

// TestReuploadOfHistoryToOneWhoIsBehind rolls a bucket back to where one device has read to;
// another one knows what came since, in part without trees.
func TestReuploadOfHistoryToOneWhoIsBehind(t *testing.T) {
	w := newWorld(t)
	c, ps := history(t, w, 1)
	a, old := ps[0], w.b.State()
	for i := range 5 {
		c.commit(edit{key(i): text("z")})
		sync(t, c)
	}
	if err := c.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := w.device()
	sync(t, b)
	b.commit(edit{"b": text("y")})
	w.b.Rollback(old)
	a.reopen()
	a.commit(edit{"a": text("y")})
	sync(t, a) // does not notice
	b.reopen()
	checkStop(t, w, b, cloudsync.ErrBucketRolledBack)
	reupload(t, b)
	settled(t, w, a, b)
}

// TestReuploadInOneEntry has a device with all trees send them in one entry, in which a commit that
// another device does not know builds on one that this one knows without its tree.
func TestReuploadInOneEntry(t *testing.T) {
	w := newWorld(t)
	c, late := w.device(), w.device()
	for i := range 5 {
		c.commit(edit{key(i): text("x"), "long": noise(uint64(i), 3000)})
		sync(t, c)
		if i == 2 {
			sync(t, late)
		}
	}
	if err := c.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	a := w.device()
	sync(t, a)
	late.commit(edit{"late": text("y")})
	sync(t, late, c)
	w.b.Wipe()
	w.connect()
	reupload(t, c, a)
	settled(t, w, c, a)
}
