package outgoing_test

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/internal/base"
)

// fill appends entries up to a number.
func (d *device) fill(to uint64, entryBytes int) {
	d.t.Helper()
	for d.number < to {
		out, err := d.page.Announce(d.t.Context(), &format.Body{
			Pieces: d.junk(entryBytes), Retention: &format.Retention{Commits: d.number + 1},
		})
		if err == nil {
			err = d.append(out)
		}
		if err != nil {
			d.t.Fatal(err)
		}
	}
}

func (d *device) wantRange(from, to uint64) {
	d.t.Helper()
	b, ok := d.b.Content(d.names().Range(from, to))
	if !ok {
		d.t.Fatalf("there is no range %d to %d", from, to)
	}
	entries, err := format.ParseRange(from, to, b)
	if err != nil {
		d.t.Fatal(err)
	}
	for i, e := range entries {
		stored, _ := d.b.Content(d.names().Entry(from + uint64(i)))
		if !bytes.Equal(stored, e.Stored) || e.Created.IsZero() {
			d.t.Fatalf("entry %d in range %d to %d is another", from+uint64(i), from, to)
		}
	}
}

func (d *device) writeRanges(number uint64, want int) bucket.Counts {
	d.t.Helper()
	before := d.m.Counts()
	n, err := d.page.WriteRanges(d.t.Context(), number)
	if err != nil || n != want {
		d.t.Fatalf("wrote %d ranges, want %d: %v", n, want, err)
	}
	c := d.m.Counts()
	return bucket.Counts{A: c.A - before.A, B: c.B - before.B}
}

func TestRangeOf32(t *testing.T) {
	d := newDevice(t)
	d.fill(64, 0)
	if c := d.writeRanges(33, 0); c != (bucket.Counts{}) {
		t.Errorf("a number that ends no range cost %+v", c)
	}
	if c := d.writeRanges(64, 1); c.A != 1 || c.B != 32 {
		t.Errorf("cost %+v", c)
	}
	d.wantRange(33, 64)
	d.writeRanges(64, 0) // it is there

	cached := map[uint64]format.RangeEntry{}
	for n := uint64(1); n <= 32; n++ {
		stored, _ := d.b.Content(d.names().Entry(n))
		cached[n] = format.RangeEntry{Stored: stored, Created: time.Unix(7, 0)}
	}
	d.opts = func(o *outgoing.Options) {
		o.Cached = func(n uint64) (format.RangeEntry, bool) {
			e, ok := cached[n]
			return e, ok
		}
	}
	d.newPage()
	if c := d.writeRanges(32, 1); c.A != 1 || c.B != 0 {
		t.Errorf("with a cache it cost %+v", c)
	}
	d.wantRange(1, 32)
}

func TestRangeOf1024(t *testing.T) {
	d := newDevice(t)
	d.fill(1024, 0)
	for n := uint64(32); n < 1024; n += 32 {
		if n != 64 { // whoever was to write it has died
			d.writeRanges(n, 1)
		}
	}
	if c := d.writeRanges(1024, 2); c.A != 3 || c.B != 32+31+32 {
		t.Errorf("cost %+v", c)
	}
	d.wantRange(33, 64)
	d.wantRange(993, 1024)
	d.wantRange(1, 1024)
}

// I6: what is wrong with entries or the bucket is no error, and leaves no range.
func TestRangesNeverFail(t *testing.T) {
	d := newDevice(t)
	d.fill(32, 0)
	d.b.SetBefore(func(op bucket.Op, name string) error {
		if op == bucket.OpPut || name == d.names().Entry(7) {
			return base.ErrNetwork
		}
		return nil
	})
	d.writeRanges(32, 0)
	d.b.SetBefore(nil)
	for _, n := range []uint64{1, 9, 32} {
		good, _ := d.b.Content(d.names().Entry(n))
		bad := bytes.Clone(good)
		bad[len(bad)-1] ^= 1
		d.b.Replace(d.names().Entry(n), bad)
		d.writeRanges(32, 0)
		d.b.Replace(d.names().Entry(n), good)
	}
	good, _ := d.b.Content(d.names().Entry(9)) // and one that is whole, but follows another entry
	out, err := d.page.Announce(t.Context(), &format.Body{Retention: &format.Retention{Commits: 1}})
	if err != nil {
		t.Fatal(err)
	}
	foreign, _, err := format.SealEntry(d.seal, d.names(), 9, format.Hash{1}, out.Body)
	if err != nil {
		t.Fatal(err)
	}
	d.b.Replace(d.names().Entry(9), foreign)
	d.writeRanges(32, 0)
	d.b.Replace(d.names().Entry(9), good)
	d.writeRanges(32, 1)
}

func TestRangeThatIsTooLong(t *testing.T) {
	d := newDevice(t)
	d.fill(32, 800_000)
	if c := d.writeRanges(32, 0); c.A != 0 {
		t.Errorf("cost %+v", c)
	}
}

// junk returns pieces of n bytes in all.
func (d *device) junk(n int) []format.InlinePiece {
	var ps []format.InlinePiece
	for i := 0; n > 0; i++ {
		b := []byte(noise(d.number*1000+uint64(i), min(n, 60_000)))
		ps = append(ps, format.InlinePiece{Digest: sum(b), Content: b})
		n -= len(b)
	}
	return ps
}

func BenchmarkRangeOf32(b *testing.B) {
	d := newDevice(b)
	d.fill(32, 10_000)
	state := d.b.State()
	for b.Loop() {
		d.b.Rollback(state)
		if n, err := d.page.WriteRanges(b.Context(), 32); n != 1 || err != nil {
			b.Fatal(fmt.Sprint(n), err)
		}
	}
}
