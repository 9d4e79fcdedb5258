package cloudsync_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
)

// breaking is a bucket whose connections end: within the bodies of some objects, and whenever a
// reader goes on from there.
type breaking struct {
	bucket.Bucket
	kind  string // part of the names of the objects
	cause error
}

func (k breaking) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	ended := bucket.NewError(ctx, bucket.OpGet, name, false, k.cause)
	o, err := k.Bucket.Get(ctx, name, off, n)
	switch {
	case err != nil || !strings.Contains(name, k.kind):
		return o, err
	case off > 0:
		return bucket.Object{}, errors.Join(ended, o.Body.Close())
	}
	half := io.LimitReader(o.Body, o.Size/2)
	o.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(half, iotest.ErrReader(ended)), o.Body}
	return o, nil
}

// TestConnectionsThatEndAreNoDamage has connections end within each kind of object, again and
// again: no device takes that for the end of the object, and begins an epoch.
func TestConnectionsThatEndAreNoDamage(t *testing.T) {
	w := newWorld(t)
	a, old := steady(t, w)
	a.commit(edit{"big": noise(3, 3_000_000)})
	sync(t, a, old)
	a.commit(edit{"k": text("v")})
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.commit(edit{"k": text("after the cut")})
	sync(t, a)
	names := w.b.Names()
	for _, kind := range []string{"/epochs/", "/checkpoints/", "/packs/", "/log/"} {
		for _, cause := range []error{io.EOF, io.ErrUnexpectedEOF} {
			for what, p := range map[string]*page{"new": w.device(), "old": old} {
				if kind == "/packs/" && p == old {
					continue // it reads no packs: their content is here
				}
				p.d.via = breaking{w.b, kind, cause}
				p.reopen()
				p = p.d.pages[p.ledger]
				if err := p.Sync(t.Context()); !errors.Is(err, base.ErrNetwork) || errors.Is(err, base.ErrCorrupt) {
					t.Errorf("%s, %v: a %s device: %v", kind, cause, what, err)
				}
				if !slices.Equal(w.b.Names(), names) {
					t.Fatalf("%s, %v: a %s device has changed the bucket", kind, cause, what)
				}
				p.d.via = nil
				p.reopen()
			}
		}
	}
	fresh := w.device()
	sync(t, a, old, fresh)
	sameHeads(t, a, old, fresh)
}
