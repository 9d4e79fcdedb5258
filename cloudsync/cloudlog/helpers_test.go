package cloudlog_test

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/cloudlog"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/seal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// cloud is a bucket with the keys of one page.
type cloud struct {
	t      testing.TB
	clock  *mem.Clock
	bucket *mem.Bucket
	sealer *seal.Sealer
	names  format.PageNames
	ids    uint64
}

func newCloud(t testing.TB, seed uint64) *cloud {
	t.Helper()
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], seed)
	source := rand.NewChaCha8(key)
	ring, err := seal.NewKeyring(seal.AES256GCM, source)
	if err != nil {
		t.Fatal(err)
	}
	c := &cloud{t: t, clock: mem.NewAutoClock(start), sealer: seal.NewSealer(ring, source)}
	c.bucket = mem.New(mem.Options{Clock: c.clock, Seed: seed})
	c.names = format.NamesOf(ring, "app", [16]byte{1})
	c.bucket.Replace(format.FirstRing, []byte("keyring"))
	return c
}

func (c *cloud) id(kind byte) format.ID {
	c.ids++
	var id format.ID
	binary.BigEndian.PutUint64(id[8:], c.ids)
	id[0] = kind
	return id
}

// device is a log with what its device has made durable.
type device struct {
	*cloud
	*cloudlog.Log
	meter   *bucket.Meter
	id      format.ID
	at      format.Position
	applied []*format.Entry // by number from the first on that was applied
	batches []int
	fail    error         // of apply and settle
	skew    time.Duration // of the device's clock
}

// skewed is the clock of a device.
type skewed struct{ d *device }

func (s skewed) Now() time.Time { return s.d.clock.Now().Add(s.d.skew) }

func (s skewed) After(d time.Duration) (<-chan time.Time, func()) { return s.d.clock.After(d) }

func (c *cloud) device(at format.Position, change ...func(*cloudlog.Options)) *device {
	d := &device{cloud: c, meter: bucket.NewMeter(c.bucket), id: c.id('d'), at: at}
	o := cloudlog.Options{Bucket: bucket.NewRetry(d.meter, bucket.RetryOptions{Clock: c.clock, Jitter: func() float64 { return 0.5 }}), Sealer: c.sealer, Names: c.names,
		Clock: skewed{d}, Jitter: func() uint64 { return 7 }, At: at}
	for _, f := range change {
		f(&o)
	}
	d.Log = cloudlog.New(o)
	return d
}

func (d *device) apply(_ context.Context, entries []*format.Entry, at format.Position) error {
	if d.fail != nil {
		return d.fail
	}
	for _, e := range entries {
		d.take(e)
	}
	if d.at != at {
		d.t.Errorf("position %v behind entries up to %v", at, d.at)
	}
	d.batches = append(d.batches, len(entries))
	return nil
}

func (d *device) take(e *format.Entry) {
	if e.Number != d.at.Number+1 || e.Previous != d.at.Hash || e.Created.IsZero() {
		d.t.Errorf("entry %d with hash %s before it, created at %s, is given behind %v", e.Number, e.Previous, e.Created, d.at)
	}
	d.applied = append(d.applied, e)
	d.at = format.Position{Bucket: d.at.Bucket, Number: e.Number, Hash: e.Hash}
}

func (d *device) settle(_ context.Context, a cloudlog.Appended, e *format.Entry) error {
	if d.fail != nil {
		return d.fail
	}
	d.take(e)
	if d.at != a.Position || a.Created != e.Created || a.Stored != e.Stored {
		d.t.Errorf("settled as %+v and entry %+v", a, e)
	}
	return nil
}

func (d *device) body(change ...func(*format.Body)) *format.SealedBody {
	d.t.Helper()
	b := &format.Body{Device: d.id, Pieces: nil, Tags: []format.TagChange{{Name: "t", Removed: true}}}
	for _, f := range change {
		f(b)
	}
	s, err := format.SealBody(d.sealer, d.names, d.cloud.id('b'), b)
	if err != nil {
		d.t.Fatal(err)
	}
	return s
}

func (d *device) append(b *format.SealedBody) (cloudlog.Appended, error) {
	return d.Append(d.t.Context(), b, d.apply, d.settle)
}

func (d *device) mustAppend(n int) {
	d.t.Helper()
	for range n {
		if _, err := d.append(d.body()); err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *device) mustCatchUp() {
	d.t.Helper()
	if _, err := d.CatchUp(d.t.Context(), false, d.apply); err != nil {
		d.t.Fatal(err)
	}
}

// cost returns the puts and gets that fn makes.
func (d *device) cost(fn func()) (puts, gets int64) {
	before := d.meter.Counts()
	fn()
	after := d.meter.Counts()
	return after.A - before.A, after.B - before.B
}

func (d *device) wantCost(what string, puts, gets int64, fn func()) {
	d.t.Helper()
	if p, g := d.cost(fn); p != puts || g != gets {
		d.t.Errorf("%s costs %d puts and %d gets, want %d and %d", what, p, g, puts, gets)
	}
}
