package cloudsync_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/wire"
)

// TestGarbageAboveTheNewestCheckpoint has the bucket's owner put what is no epoch above the one
// with the newest checkpoint. It stops neither the devices that have the page, nor a new one, nor
// one that may not write; whoever repairs the log first keeps all of it.
func TestGarbageAboveTheNewestCheckpoint(t *testing.T) {
	garbage := map[string][]byte{
		"short": []byte("junk"), "empty": {}, "another version": bytes.Repeat([]byte{69}, 512), "framed": append([]byte{2, 1, 2, 0}, make([]byte, 508)...),
	}
	for what, content := range garbage {
		for _, first := range []string{"new", "known", "reader"} {
			t.Run(fmt.Sprint(what, " ", first), func(t *testing.T) {
				w := newWorld(t)
				a := w.device()
				for i := range 3 {
					a.commit(edit{key(i): text("1"), "long": noise(uint64(i), 40_000)})
					sync(t, a)
					if i == 1 {
						if err := a.Checkpoint(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				}
				want := a.content()
				at, err := cloudsync.StandingOf(t.Context(), a.store)
				if err != nil {
					t.Fatal(err)
				}
				w.b.Replace(a.names().Epoch(at.At.K+1), content)
				b := a
				switch first {
				case "new":
					b = w.device()
				case "reader":
					b = w.device()
					w.b.SetBefore(func(op bucket.Op, _ string) error {
						if op == bucket.OpPut {
							return fs.ErrPermission
						}
						return nil
					})
					if err := b.Sync(t.Context()); !errors.Is(err, cloudsync.ErrBucketDamaged) {
						t.Errorf("a reader: %v", err)
					}
					if !maps.Equal(b.content(), want) {
						t.Error("a reader does not get what the bucket has")
					}
					w.b.SetBefore(nil)
				}
				b.commit(edit{"from": text("b")})
				sync(t, b)
				want["from"] = "b"
				for which, p := range []*page{w.synced(), w.synced(), b} {
					if !maps.Equal(p.content(), want) {
						t.Errorf("device %d has other content", which)
					}
				}
				sync(t, a)
				if !maps.Equal(a.content(), want) {
					t.Error("the first device has other content")
				}
			})
		}
	}
}

// TestGarbageAtTheGreatestNumber puts garbage at the greatest number that an entry may have. A
// check names it, and where the hole before it begins; devices repair the log, although
// no entry can close it behind that number.
func TestGarbageAtTheGreatestNumber(t *testing.T) {
	w := newWorld(t)
	a, b := steady(t, w)
	at, err := cloudsync.StandingOf(t.Context(), a.store)
	if err != nil {
		t.Fatal(err)
	}
	far, hole := a.names().Entry(at.At.Epoch, wire.MaxNumber), a.names().Entry(at.At.Epoch, at.At.Number+1)
	w.b.Replace(far, []byte("junk"))
	report, err := a.Check(t.Context(), cloudsync.CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var bad []string
	for _, o := range report.Damaged {
		bad = append(bad, o.Name)
	}
	slices.Sort(bad) // they are read two at a time
	if !slices.Equal(bad, []string{hole, far}) {
		t.Errorf("damaged: %q", bad)
	}
	a.reopen() // which audits the log
	a.commit(edit{"k": text("after")})
	sync(t, a)
	b.commit(edit{"b": text("beside")})
	b.reopen()
	sync(t, b, a)
	sameHeads(t, a, b)
	fresh := w.device()
	sync(t, fresh)
	sameHeads(t, a, fresh)

	// Above such an epoch no other can stand: all that helps is to delete it.
	last := a.names().Epoch(wire.MaxNumber)
	w.b.Replace(last, []byte("junk"))
	a.reopen()
	if err := a.Sync(t.Context()); !errors.Is(err, cloudsync.ErrBucketDamaged) || !strings.Contains(err.Error(), last) {
		t.Errorf("an epoch at the greatest number: %v", err)
	}
	w.remove(last)
	sync(t, a, b)
	sameHeads(t, a, b)
}
