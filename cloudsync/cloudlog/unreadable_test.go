package cloudlog_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/cloudlog"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/base"
)

// putFloor puts a floor.
func (c *cloud) putFloor(f format.Floor) {
	c.t.Helper()
	sealed, err := format.SealFloor(c.sealer, c.names, f)
	if err == nil {
		err = c.bucket.PutIfAbsent(c.t.Context(), c.names.Floor(f.K), int64(len(sealed)), bytes.NewReader(sealed))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// TestUnreadable has entry 3 of 8 be none that can be read on from: that is an error which says so,
// until a floor passes it.
func TestUnreadable(t *testing.T) {
	for name, spoil := range map[string]func(c *cloud){
		"missing": func(c *cloud) {
			if err := c.bucket.Delete(c.t.Context(), c.names.Entry(3)); err != nil {
				c.t.Fatal(err)
			}
		},
		"empty":   func(c *cloud) { c.bucket.Replace(c.names.Entry(3), nil) },
		"damaged": func(c *cloud) { c.bucket.Replace(c.names.Entry(3), []byte("damaged")) },
		"another": func(c *cloud) { // by a device that was put in the place of entry 2
			other := c.device(format.Position{Number: 2, Hash: format.Hash{1}})
			stored, _, err := format.SealEntry(c.sealer, c.names, 3, format.Hash{1}, other.body())
			if err != nil {
				c.t.Fatal(err)
			}
			c.bucket.Replace(c.names.Entry(3), stored)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCloud(t, 1)
			c.device(format.Position{}).mustAppend(8)
			spoil(c)
			d := c.device(format.Position{})
			_, err := d.CatchUp(t.Context(), true, d.apply) // which reads ahead, and so sees entry 4
			e, ok := errors.AsType[*cloudlog.UnreadableError](err)
			if !ok || e.Number != 3 || !errors.Is(err, base.ErrCorrupt) || d.at.Number != 2 {
				t.Fatalf("at %d: %v", d.at.Number, err)
			}
			c.putFloor(format.Floor{K: 1, Low: 9, Checkpoint: 9})
			_, err = d.CatchUp(t.Context(), true, d.apply)
			if floor, _ := d.Floor(); !errors.Is(err, cloudlog.ErrPassed) || floor.Checkpoint != 9 || d.at.Number != 2 {
				t.Errorf("at %d, floor %+v: %v", d.at.Number, floor, err)
			}
			if _, err := d.append(d.body()); !errors.Is(err, cloudlog.ErrPassed) {
				t.Errorf("append below the floor: %v", err)
			}
		})
	}
}
