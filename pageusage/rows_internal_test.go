package pageusage

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
)

// FuzzRows: what decodes encodes to the same row, and the rest is damage.
func FuzzRows(f *testing.F) {
	p := Page{Ledger: "l", ID: [16]byte{1}}
	f.Add(rowKey(p), encodeTime(5))
	f.Add(rowKey(p), encodeTime(0))
	f.Add(rowKey(p), encodeTime(1<<62))
	f.Add(rowKey(p), encodeTime(1<<62-1))
	f.Add(rowKey(p), encodeName(rowKey(p), "name"))
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, k, v []byte) {
		u, err := decodeUsage(k, v)
		if err == nil {
			when := uint64(0)
			if !u.Open {
				when = stamp(u.Closed)
			}
			if !bytes.Equal(rowKey(u.Page), k) || !bytes.Equal(encodeTime(when), v) {
				t.Fatalf("%x %x is read as %+v", k, v, u)
			}
		} else if !errors.Is(err, base.ErrCorrupt) {
			t.Fatal(err)
		}
		if p, n, err := decodeSize(k, v); err == nil {
			if !bytes.Equal(rowKey(p), k) || !bytes.Equal(encodeSize(n), v) || n < 0 {
				t.Fatalf("%x %x is read as %d bytes", k, v, n)
			}
		} else if !errors.Is(err, base.ErrCorrupt) {
			t.Fatal(err)
		}
		name, err := decodeName(k, v)
		if err == nil && !bytes.Equal(encodeName(k, name), v) || err != nil && !errors.Is(err, base.ErrCorrupt) {
			t.Fatalf("%x %x is read as %q, %v", k, v, name, err)
		}
	})
}
