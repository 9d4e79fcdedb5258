package hostile_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"maps"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// moments are what a device does that has something to send.
var moments = map[string]func(context.Context, *ledger.Repository) error{
	"send": func(ctx context.Context, r *ledger.Repository) error {
		_, err := r.Sync(ctx)
		return err
	},
	"cut": func(ctx context.Context, r *ledger.Repository) error {
		_, err := admin.Collect(ctx, r, &admin.CollectOptions{Retention: &admin.Retention{Commits: 2}})
		return err
	},
	"check": func(ctx context.Context, r *ledger.Repository) error {
		_, err := admin.CheckCloud(ctx, r, &admin.CloudCheckOptions{Repair: true})
		return err
	},
}

// TestDamagedUnderASender damages each kind of object, or takes it away, between the last sync of a
// device and what it does next: it sends a commit, cuts the log, or checks the bucket. The commit
// comes to a new device once the object is as it was.
func TestDamagedUnderASender(t *testing.T) {
	for i, g := range targets(t, 1) {
		for _, moment := range sortedKeys(moments) {
			if g.costly() && moment != sortedKeys(moments)[i%len(moments)] && !everything() {
				continue
			}
			for _, gone := range []bool{false, true} {
				t.Run(g.String()+"/"+moment, func(t *testing.T) { g.underSender(t, moments[moment], gone) })
			}
		}
	}
}

// underSender damages the object, or takes it away, before a device does something.
func (g target) underSender(t *testing.T, do func(context.Context, *ledger.Repository) error, gone bool) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	o := newOwner(g.s.end)
	r, err := g.s.clone(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, r)
	p := openPage(t, r, targetLedger, targetName)
	if _, err := valuesOf(ctx, p); err != nil {
		t.Fatal(err)
	}
	_ = p.Close() // it was only read
	put(t, r, "written", "meanwhile")
	content := bytes.Clone(g.s.content[g.name])
	content[len(content)*2/3] ^= 4
	if gone {
		content = nil
	}
	o.show(replaced(o.b.State(), g.name, content), lies{})
	a := &attack{s: g.s, object: g.name, withheld: gone}
	err = do(ctx, r)
	if err != nil {
		a.judgeError(t, "the device", err)
	}
	a.s = &scene{known: withAll(t, g.s, r), heads: g.s.heads, values: g.s.values}
	a.content(t, "the device", r, false)
	if now, ok := o.b.Content(g.name); !ok || bytes.Equal(now, content) { // else the device has put another one
		o.show(replaced(o.b.State(), g.name, g.s.content[g.name]), lies{})
	}
	if _, healed := r.Sync(ctx); healed != nil {
		t.Fatalf("sync with a healed bucket: %v, before: %v", healed, err)
	}
	fresh, healed := g.s.clone(ctx, o)
	if healed != nil {
		t.Fatalf("clone of a healed bucket: %v, before: %v", healed, err)
	}
	defer closeIt(t, fresh)
	want := maps.Clone(g.s.values[targetLedger+"/"+targetName])
	want["written"] = sha256.Sum256([]byte("meanwhile"))
	p = openPage(t, fresh, targetLedger, targetName)
	got, readErr := valuesOf(ctx, p)
	if readErr = errors.Join(readErr, p.Close()); readErr != nil || !maps.Equal(got, want) {
		t.Errorf("a new device has %d values, want %d: %v, before: %v", len(got), len(want), readErr, err)
	}
}
