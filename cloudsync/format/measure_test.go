package format_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// TestNumbersWithoutMeasure puts 2^40 and 2^64-1 in the place of each byte of what a member may
// seal: where a number of items or a length stands there is no memory for them. What is read takes
// memory for what is there.
func TestNumbersWithoutMeasure(t *testing.T) {
	body, err := fullBody(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	c, _ := fullCheckpoint(t)
	var checkpoint bytes.Buffer
	if err := c.EncodeTo(&checkpoint); err != nil {
		t.Fatal(err)
	}
	table := (&format.PackTable{Blocks: []seal.Block{{StoredBytes: 100}}, Pieces: []format.PackPiece{{Digest: piece(1, 0, 300).Digest, Bytes: 300}, {Digest: piece(2, 1, 10).Digest, Bytes: 10}}}).Encode()
	for name, o := range map[string]struct {
		b     []byte
		parse func(b []byte) error
	}{
		"body":       {body, func(b []byte) error { _, err := format.ParseBody(b); return err }},
		"checkpoint": {checkpoint.Bytes(), func(b []byte) error { _, err := format.ReadCheckpoint(bytes.NewReader(b), math.MaxInt64); return err }},
		"pack table": {table, func(b []byte) error { _, err := format.ParsePackTable(b, 100); return err }},
		"packs":      {format.EncodePacks(c.Packs), func(b []byte) error { _, err := format.ParsePacks(b); return err }},
		"range":      {mustRange(t, 33, rangeEntries()), func(b []byte) error { _, err := format.ParseRange(33, 35, b); return err }},
		"position":   {c.At.Encode(), func(b []byte) error { _, err := format.ParsePosition(b); return err }},
	} {
		if err := o.parse(o.b); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		refused := 0
		for i := range o.b {
			for _, n := range []uint64{1 << 40, math.MaxUint64} {
				b := append(binary.AppendUvarint(bytes.Clone(o.b[:i]), n), o.b[i+1:]...)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := o.parse(b)
				runtime.ReadMemStats(&after)
				if got := after.TotalAlloc - before.TotalAlloc; got > 1<<20 {
					t.Errorf("%s: %d bytes were allocated for %d at %d of %d", name, got, n, i, len(o.b))
				}
				if err == nil {
					continue // a number of commits to keep, the size of a value
				}
				if refused++; !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
					t.Errorf("%s: %d at %d: %v", name, n, i, err)
				}
			}
		}
		if refused < len(o.b) {
			t.Errorf("%s: only %d of %d were refused", name, refused, 2*len(o.b))
		}
	}
}
