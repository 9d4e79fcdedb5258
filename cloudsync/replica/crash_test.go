package replica_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/storage/index"
)

var errStopped = errors.New("stopped")

// crash ends the process: what was not made durable is lost.
func (d *member) crash() {
	d.t.Helper()
	clone := d.mem.CrashClone(vfstest.KeepNone)
	d.close()
	d.mem, d.fs, d.index = clone, clone, index.NewMemory()
	d.open()
}

// faulty has the page write to a disk that asks inject before it changes anything.
func (d *member) faulty(inject func() error) {
	d.t.Helper()
	d.close()
	d.fs = vfstest.NewFaulty(d.mem, func(op vfstest.Op) error {
		if op.Kind == vfstest.OpWrite || op.Kind == vfstest.OpSync {
			return inject()
		}
		return nil
	})
	d.open()
}

var _ vfs.FS = (*vfstest.Mem)(nil)

// TestEnterCrashes stops a device that was away, and that has unsynced commits on what was given up
// since, at each request and at each write while it comes back, and lets it go on.
func TestEnterCrashes(t *testing.T) {
	for _, what := range []string{"bucket", "disk"} {
		t.Run(what, func(t *testing.T) {
			for fail := 1; ; fail += tier.Of(3, 1, 1) {
				if !enterCrashes(t, what, fail) {
					if fail < 6 {
						t.Errorf("%d steps", fail)
					}
					return
				}
			}
		})
	}
}

// enterCrashes stops the device at step fail, and reports whether there was one.
func enterCrashes(t *testing.T, what string, fail int) (stopped bool) {
	ctx := context.Background()
	w := newFleet(t, 4, 2)
	a, b := w.devices[0], w.devices[1]
	for i := range 3 {
		a.commit(puts{fmt.Sprint(i): {content: w.noise(3000)}, "lazy": {content: w.noise(5000), lazy: true}})
		w.must(a.sync(ctx))
	}
	w.must(b.sync(ctx))
	b.commit(puts{"b": {content: w.noise(2000)}})
	b.commit(puts{"b": nil, "c": {content: w.noise(20)}})
	a.retain = &wire.Retention{Last: 1}
	for i := range 3 {
		a.commit(puts{fmt.Sprint(i): {content: w.noise(3000)}})
		w.must(a.sync(ctx))
		w.must(a.log.Cut(ctx))
		w.must(a.sync(ctx))
	}
	var n atomic.Int64
	step := func() error {
		if n.Add(1) >= int64(fail) {
			return errStopped
		}
		return nil
	}
	if what == "bucket" {
		w.bucket.SetBefore(func(bucket.Op, string) error { return step() })
	} else {
		b.faulty(step)
	}
	_, err := b.log.CatchUp(ctx)
	if stopped = n.Load() >= int64(fail); stopped != (err != nil) {
		t.Fatalf("step %d of %d: %v", fail, n.Load(), err)
	}
	w.bucket.SetBefore(nil)
	b.crash()
	for _, d := range []*member{b, a, b} {
		if err := d.sync(ctx); err != nil {
			t.Fatalf("step %d: %v", fail, err)
		}
	}
	w.check()
	if t.Failed() {
		t.Fatalf("step %d", fail)
	}
	for _, d := range w.devices {
		d.close()
	}
	return stopped
}
