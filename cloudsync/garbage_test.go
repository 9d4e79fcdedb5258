package cloudsync_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"testing"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
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
