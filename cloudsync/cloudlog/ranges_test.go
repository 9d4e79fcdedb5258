package cloudlog_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/cloudlog"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// writeRange stores the range from to, made of the entries that the bucket has.
func (c *cloud) writeRange(from, to uint64) {
	c.t.Helper()
	var entries []format.RangeEntry
	for n := from; n <= to; n++ {
		o, err := c.bucket.Get(c.t.Context(), c.names.Entry(n), 0, 0)
		if err != nil {
			c.t.Fatal(err)
		}
		stored, _ := c.bucket.Content(c.names.Entry(n))
		entries = append(entries, format.RangeEntry{Stored: stored, Created: o.Created})
	}
	b, err := format.EncodeRange(from, entries)
	if err != nil {
		c.t.Fatal(err)
	}
	c.bucket.Replace(c.names.Range(from, to), b)
}

// deleteEntries deletes the objects of entries.
func (c *cloud) deleteEntries(from, to uint64) {
	c.t.Helper()
	for n := from; n <= to; n++ {
		if err := c.bucket.Delete(c.t.Context(), c.names.Entry(n)); err != nil {
			c.t.Fatal(err)
		}
	}
}

func (c *cloud) writeFloor(f format.Floor) {
	c.t.Helper()
	b, err := format.SealFloor(c.sealer, c.names, f)
	if err != nil {
		c.t.Fatal(err)
	}
	c.bucket.Replace(c.names.Floor(f.K), b)
}

// flip changes a byte in the middle of an object.
func (c *cloud) flip(name string) {
	b, ok := c.bucket.Content(name)
	if !ok {
		c.t.Fatalf("no object %s", name)
	}
	b[len(b)/2] ^= 4
	c.bucket.Replace(name, b)
}

// filled appends n entries and returns the positions before and behind each.
func (c *cloud) filled(n int) (positions []format.Position) {
	c.t.Helper()
	w := c.device(format.Position{})
	positions = append(positions, w.at)
	for range n {
		w.mustAppend(1)
		positions = append(positions, w.at)
	}
	return positions
}

func TestRanges(t *testing.T) {
	c := newCloud(t, 1)
	end := c.filled(70)[70]
	c.writeRange(1, 32)
	c.writeRange(33, 64)

	d := c.device(format.Position{})
	_, gets := d.cost(func() {
		if found, err := d.CatchUp(t.Context(), true, d.apply); err != nil || !found {
			t.Fatal(found, err)
		}
	})
	// Range of 1024, two of 32 and one that is missing, one look at the floor, 65 to 72 ahead, 71
	// when it is asked for.
	if d.at != end || len(d.applied) != 70 || gets > 14 {
		t.Errorf("a first sync of 70 entries costs %d gets, applies %d, position %v", gets, len(d.applied), d.at)
	}

	late := c.device(format.Position{})
	_, gets = late.cost(late.mustCatchUp)
	if late.at != end || gets > 24 {
		t.Errorf("catching up with 70 entries costs %d gets, position %v", gets, late.at)
	}
	none := c.device(format.Position{}) // what ranges hold is the same as what single entries hold
	for _, name := range []string{c.names.Range(1, 32), c.names.Range(33, 64)} {
		c.bucket.Replace(name, []byte("nonsense"))
	}
	none.mustCatchUp()
	for i, e := range none.applied {
		if other := d.applied[i]; e.Header != other.Header || e.Hash != other.Hash || !e.Created.Equal(other.Created) || e.Stored != other.Stored {
			t.Fatalf("entry %d alone is %+v, from a range %+v", e.Number, e, other)
		}
	}
}

// TestRangeIsReadFromWhereTheLogGoesOn has a range of 1.3 MB that is read from several positions in
// it.
func TestRangeIsReadFromWhereTheLogGoesOn(t *testing.T) {
	c := newCloud(t, 1)
	w := c.device(format.Position{})
	rng := rand.New(rand.NewPCG(1, 2))
	positions := []format.Position{{}}
	for range 32 {
		content := make([]byte, 40<<10)
		for i := range content {
			content[i] = byte(rng.Uint32())
		}
		if _, err := w.append(w.body(func(b *format.Body) {
			b.Pieces = []format.InlinePiece{{Digest: object.Sum(0, content), Content: content}}
		})); err != nil {
			t.Fatal(err)
		}
		positions = append(positions, w.at)
	}
	c.writeRange(1, 32)
	for n := range uint64(32) {
		c.bucket.Replace(c.names.Entry(n+1), nil) // so that only the range has them
	}
	const entry = 42 << 10 // padded
	for _, from := range []int{0, 3, 5, 6, 7, 12, 16} {
		d := c.device(positions[from])
		before := d.meter.Counts().Down
		if _, err := d.CatchUp(t.Context(), true, d.apply); err != nil || d.at != positions[32] {
			t.Errorf("from %d: %v, position %v", from, err, d.at)
		}
		if read, most := d.meter.Counts().Down-before, int64((32-from)*entry+64<<10); read > most {
			t.Errorf("from %d: read %d bytes, want at most %d", from, read, most)
		}
		for i, e := range d.applied {
			if other := w.applied[from+i]; e.Hash != other.Hash || !e.Created.Equal(other.Created) {
				t.Errorf("from %d: entry %d differs", from, e.Number)
			}
		}
	}
	name := c.names.Range(1, 32)
	whole, _ := c.bucket.Content(name)
	for what, damaged := range map[string][]byte{"shorter": whole[:len(whole)-1], "longer": append(slices.Clone(whole), 0), "only its table": whole[:format.RangeTableBytes(32)]} {
		c.bucket.Replace(name, damaged)
		d := c.device(positions[12])
		if _, err := d.CatchUp(t.Context(), true, d.apply); !errors.Is(err, base.ErrCorrupt) || d.at != positions[12] {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestLongLogIsReadWithFewRequests reads a log of 33 000 short entries, of which the first 32 768
// stand in one range.
func TestLongLogIsReadWithFewRequests(t *testing.T) {
	if testing.Short() {
		t.Skip("seals 33 000 entries")
	}
	c := newCloud(t, 1)
	body := c.device(format.Position{}).body()
	var at, middle format.Position
	var entries []format.RangeEntry
	put := func(from uint64) {
		b, err := format.EncodeRange(from, entries[from-1:])
		if err != nil {
			t.Fatal(err)
		}
		c.bucket.Replace(c.names.Range(from, uint64(len(entries))), b)
	}
	for n := uint64(1); n <= 33_000; n++ {
		stored, hash, err := format.SealEntry(c.sealer, c.names, n, at.Hash, body)
		if err != nil {
			t.Fatal(err)
		}
		if at = (format.Position{Number: n, Hash: hash}); n == 20_000 {
			middle = at
		}
		entries = append(entries, format.RangeEntry{Stored: stored, Created: start})
		if n%1024 == 0 {
			put(n - 1023)
		}
		switch {
		case n == format.MaxRangeEntries:
			put(1)
		case n > format.MaxRangeEntries && n%32 == 0:
			put(n - 31)
		case n > 32_992:
			c.bucket.Replace(c.names.Entry(n), stored)
		}
	}
	for _, from := range []format.Position{{}, middle} {
		d := c.device(from)
		_, gets := d.cost(func() {
			if _, err := d.CatchUp(t.Context(), true, d.apply); err != nil {
				t.Fatal(err)
			}
		})
		// One or two of 1024, the range once or twice, 7 of 32, some that are not there, a look at
		// the floor, 8 single ones and 4 behind the last.
		if len(d.applied) != int(33_000-from.Number) || gets > 30 {
			t.Errorf("reading on from %d applies %d entries with %d gets", from.Number, len(d.applied), gets)
		}
	}
}

func TestRangeStandsForDeletedEntries(t *testing.T) {
	c := newCloud(t, 1)
	at := c.filled(40)
	c.writeRange(1, 32)
	c.writeFloor(format.Floor{K: 1, Low: 20, Checkpoint: 19})
	c.clock.Advance(40 * 24 * time.Hour)
	c.deleteEntries(1, 19)

	d := c.device(at[10]) // it has never seen a floor
	if err := d.Verify(t.Context()); err != nil {
		t.Errorf("verify a position that is in a range: %v", err)
	}
	d.mustAppend(1)
	if len(d.applied) != 31 || d.at.Number != 41 {
		t.Errorf("%d entries applied, position %v", len(d.applied), d.at)
	}
	if name := c.names.Entry(11); slices.Contains(c.bucket.Names(), name) {
		t.Errorf("entry was put at %s", name)
	}
}

// TestGrace lets a device read on below a floor as long as the entries are there.
func TestGrace(t *testing.T) {
	c := newCloud(t, 1)
	at := c.filled(40)
	for k := range uint64(5) {
		c.clock.Advance(time.Hour)
		c.writeFloor(format.Floor{K: k + 1, Low: 5 * (k + 2), Checkpoint: 30})
	}
	seen := func(o *cloudlog.Options) {
		o.Floor, o.FloorSeen = format.Floor{K: 5, Low: 30, Checkpoint: 30}, c.clock.Now()
	}
	d := c.device(at[8], seen)
	_, gets := d.cost(d.mustCatchUp)
	if len(d.applied) != 32 || gets > 60 {
		t.Errorf("%d entries applied with %d gets", len(d.applied), gets)
	}
	c.clock.Advance(31 * 24 * time.Hour)
	c.deleteEntries(1, 12)
	late := c.device(at[8], seen)
	if _, err := late.CatchUp(t.Context(), false, late.apply); !errors.Is(err, cloudlog.ErrPassed) || len(late.applied) != 0 {
		t.Errorf("%v, %d entries", err, len(late.applied))
	}
	if _, err := late.append(late.body()); !errors.Is(err, cloudlog.ErrPassed) || late.meter.Counts().A != 0 {
		t.Errorf("append: %v", err)
	}
	if f, looked := late.Floor(); f.K != 5 || looked.IsZero() {
		t.Errorf("floor %+v looked at %s", f, looked)
	}
}

// TestI2FreeName lets a device put at a name that is free because of a deletion.
func TestI2FreeName(t *testing.T) {
	for _, inRange := range []bool{true, false} {
		t.Run(fmt.Sprintf("range %t", inRange), func(t *testing.T) {
			c := newCloud(t, 1)
			at := c.filled(40)
			if inRange {
				c.writeRange(1, 32)
			}
			d := c.device(at[10])
			reader := c.device(at[10])
			if err := d.Verify(t.Context()); err != nil { // so that it looks at nothing when it appends
				t.Fatal(err)
			}
			c.writeFloor(format.Floor{K: 1, Low: 15, Checkpoint: 14})
			c.clock.Advance(40 * 24 * time.Hour)
			c.writeFloor(format.Floor{K: 2, Low: 20, Checkpoint: 19})
			c.clock.Advance(40 * 24 * time.Hour)
			c.deleteEntries(1, 19)
			d.skew = -80 * 24 * time.Hour // by its own clock it is a moment later
			_, err := d.append(d.body())
			if free, ok := c.bucket.Content(c.names.Entry(11)); !ok {
				t.Errorf("nothing was put at the free name: %d bytes", len(free))
			}
			if !inRange {
				if !errors.Is(err, cloudlog.ErrPassed) || len(d.applied) != 0 || d.Position() != at[10] {
					t.Errorf("%v, %d entries applied", err, len(d.applied))
				}
			} else if err != nil || d.at.Number != 41 {
				t.Errorf("%v, position %v", err, d.at)
			}
			// Others take no notice of it.
			_, err = reader.CatchUp(t.Context(), false, reader.apply)
			if inRange && (err != nil || reader.at != d.at) || !inRange && (!errors.Is(err, cloudlog.ErrPassed) || len(reader.applied) != 0) {
				t.Errorf("a reader: %v, %d entries, position %v", err, len(reader.applied), reader.at)
			}
		})
	}
}

func TestBadObjects(t *testing.T) {
	wantNamed := func(t *testing.T, err error, name string) {
		t.Helper()
		if !errors.Is(err, base.ErrCorrupt) || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want corrupt and %s", err, name)
		}
	}
	t.Run("entry", func(t *testing.T) {
		c := newCloud(t, 1)
		c.filled(40)
		name := c.names.Entry(13)
		c.flip(name)
		d := c.device(format.Position{})
		_, err := d.CatchUp(t.Context(), false, d.apply)
		wantNamed(t, err, name)
		before := d.meter.Counts().B
		if _, err = d.CatchUp(t.Context(), false, d.apply); d.meter.Counts().B-before > 8 {
			t.Errorf("a bad entry costs %d gets", d.meter.Counts().B-before)
		}
		wantNamed(t, err, name)
		if d.at.Number != 0 && d.at.Number != 12 || d.Position() != d.at {
			t.Errorf("position %v, log %v", d.at, d.Position())
		}
	})
	t.Run("entry in good range", func(t *testing.T) {
		c := newCloud(t, 1)
		end := c.filled(40)[40]
		c.writeRange(1, 32)
		c.flip(c.names.Entry(3))
		d := c.device(format.Position{})
		d.mustCatchUp()
		if d.at != end {
			t.Errorf("position %v", d.at)
		}
	})
	t.Run("good entry in bad range", func(t *testing.T) {
		c := newCloud(t, 1)
		end := c.filled(40)[40]
		c.writeRange(1, 32)
		c.flip(c.names.Range(1, 32))
		d := c.device(format.Position{})
		if _, err := d.CatchUp(t.Context(), true, d.apply); err != nil || d.at != end {
			t.Error(err, d.at)
		}
	})
	t.Run("exchanged entries in range", func(t *testing.T) {
		c := newCloud(t, 1)
		end := c.filled(40)[40]
		a, _ := c.bucket.Content(c.names.Entry(7))
		b, _ := c.bucket.Content(c.names.Entry(8))
		c.bucket.Replace(c.names.Entry(7), b)
		c.bucket.Replace(c.names.Entry(8), a)
		c.writeRange(1, 32)
		c.bucket.Replace(c.names.Entry(7), a)
		c.bucket.Replace(c.names.Entry(8), b)
		d := c.device(format.Position{})
		if _, err := d.CatchUp(t.Context(), true, d.apply); err != nil || d.at != end {
			t.Error(err, d.at)
		}
	})
	t.Run("too long", func(t *testing.T) {
		c := newCloud(t, 1)
		c.filled(2)
		c.bucket.Replace(c.names.Entry(3), make([]byte, format.MaxEntryBytes+1))
		d := c.device(format.Position{})
		_, err := d.CatchUp(t.Context(), false, d.apply)
		wantNamed(t, err, c.names.Entry(3))
	})
	t.Run("foreign chain", func(t *testing.T) {
		c := newCloud(t, 1)
		at := c.filled(3)
		d := c.device(at[3])
		stored, _, err := format.SealEntry(c.sealer, c.names, 4, format.Hash{1}, d.body())
		if err != nil {
			t.Fatal(err)
		}
		c.bucket.Replace(c.names.Entry(4), stored)
		_, err = d.CatchUp(t.Context(), false, d.apply)
		wantNamed(t, err, c.names.Entry(4))
	})
	t.Run("hole", func(t *testing.T) {
		c := newCloud(t, 1)
		c.filled(12)
		c.deleteEntries(7, 7)
		d := c.device(format.Position{})
		_, err := d.CatchUp(t.Context(), true, d.apply)
		wantNamed(t, err, c.names.Entry(7))
		if d.at.Number != 6 {
			t.Errorf("position %v", d.at)
		}
	})
	t.Run("floor", func(t *testing.T) {
		c := newCloud(t, 1)
		c.writeFloor(format.Floor{K: 1, Low: 2, Checkpoint: 1})
		c.flip(c.names.Floor(1))
		d := c.device(format.Position{})
		_, _, err := d.LookFloor(t.Context())
		wantNamed(t, err, c.names.Floor(1))
	})
}

func TestLookFloor(t *testing.T) {
	c := newCloud(t, 1)
	for k := range uint64(300) {
		c.writeFloor(format.Floor{K: k + 1, Low: 10 * (k + 1), Checkpoint: 10 * (k + 1)})
	}
	d := c.device(format.Position{})
	_, gets := d.cost(func() {
		f, at, err := d.LookFloor(t.Context())
		if err != nil || f.K != 300 || f.Low != 3000 || !at.Equal(c.clock.Now()) {
			t.Errorf("%+v at %s, %v", f, at, err)
		}
	})
	if gets > 20 {
		t.Errorf("the newest of 300 floors costs %d gets", gets)
	}
	d.wantCost("the next look", 0, 3, func() {
		if _, _, err := d.LookFloor(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if err := c.bucket.Delete(t.Context(), c.names.Floor(300)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.LookFloor(t.Context()); !errors.Is(err, cloudlog.ErrRolledBack) || !errors.Is(err, base.ErrConflict) {
		t.Errorf("a floor is gone: %v", err)
	}
	c.writeFloor(format.Floor{K: 300, Low: 3000, Checkpoint: 3000})
	c.writeFloor(format.Floor{K: 301, Deleted: true})
	if f, _, err := d.LookFloor(t.Context()); err != nil || !f.Deleted {
		t.Errorf("%+v, %v", f, err)
	}
	if _, err := d.append(d.body()); !errors.Is(err, cloudlog.ErrDeleted) || !errors.Is(err, cloudlog.ErrPassed) {
		t.Errorf("append to a deleted page: %v", err)
	}
}
