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
	for _, r := range []row{blank, {}, {closed: 5, sizeBytes: 7, name: "name"}, {closed: 1 << 62}, {closed: 1<<62 + 1}, {sizeBytes: -1}} {
		f.Add(rowKey(p), r.encode(rowKey(p)))
	}
	f.Add([]byte{}, []byte{})
	f.Fuzz(func(t *testing.T, k, v []byte) {
		p, r, err := decode(k, v)
		if err == nil {
			if !bytes.Equal(rowKey(p), k) || !bytes.Equal(r.encode(k), v) || r.sizeBytes < 0 {
				t.Fatalf("%x %x is read as %+v", k, v, r)
			}
		} else if !errors.Is(err, base.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

// TestRowsAreStrict: times and sizes that nobody writes are damage, whatever the checksum says.
func TestRowsAreStrict(t *testing.T) {
	k := rowKey(Page{Ledger: "l"})
	for _, r := range []row{{closed: 1<<62 + 1}, {sizeBytes: -1}} {
		if _, _, err := decode(k, r.encode(k)); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}
