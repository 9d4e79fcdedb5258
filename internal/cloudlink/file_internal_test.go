package cloudlink

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

func anyFile(t *rapid.T) *file {
	f := &file{
		source: keySource(rapid.IntRange(0, 2).Draw(t, "source")), paused: rapid.Bool().Draw(t, "paused"), shared: rapid.Bool().Draw(t, "shared"),
		url: rapid.StringN(0, -1, maxCloudText).Draw(t, "url"), keyFile: rapid.String().Draw(t, "keyFile"), credentials: rapid.String().Draw(t, "credentials"),
		keys: rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 1, 300), 1, 3).Draw(t, "keys"),
	}
	f.rules = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Rule {
		k := Rule{
			Page: base.Page{Ledger: rapid.StringN(0, -1, 300).Draw(t, "ledger")}, Prefix: rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "prefix"), CompressionOff: rapid.Bool().Draw(t, "compression"), DedupOff: rapid.Bool().Draw(t, "dedup"),
		}
		copy(k.Page.ID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "page"))
		return k
	}), 0, 3).Draw(t, "rules")
	copy(f.tie[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "tie"))
	key, err := seal.ParseDeviceKey(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "key"))
	if err != nil {
		t.Fatal(err)
	}
	f.key = key
	return f
}

func encoded(t interface{ Fatal(...any) }, f *file) []byte {
	b, err := f.encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func sameKey(a, b seal.DeviceKey) bool { return a.Bytes().Equal(b.Bytes()) }

// TestFile: what was written is read, and nothing else is.
func TestFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := anyFile(t)
		b := encoded(t, f)
		got, err := parseFile(b)
		if err != nil || !cmp.Equal(f, got, cmp.AllowUnexported(file{}), cmpopts.EquateEmpty(), cmp.Comparer(sameKey)) {
			t.Fatalf("read %+v, %v; wrote %+v", got, err, f)
		}
		i := rapid.IntRange(0, 8*len(b)-1).Draw(t, "bit")
		b[i/8] ^= 1 << (i % 8)
		if got, err := parseFile(b); err == nil {
			t.Fatalf("with bit %d changed read %+v", i, got)
		}
		b[i/8] ^= 1 << (i % 8)
		if got, err := parseFile(b[:rapid.IntRange(0, len(b)-1).Draw(t, "length")]); err == nil {
			t.Fatalf("cut short read %+v", got)
		}
	})
}

func FuzzParseFile(f *testing.F) {
	f.Add(encoded(f, &file{url: "dir:/x", keyFile: "/k", source: keyInFile, keys: [][]byte{[]byte("ring"), []byte("next")}}))
	f.Add([]byte(cloudMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseFile(b)
		if err != nil {
			if base.KindOf(err) != base.Corrupt && base.KindOf(err) != base.Unsupported {
				t.Errorf("error of kind %d: %v", base.KindOf(err), err)
			}
			return
		}
		if !bytes.Equal(encoded(t, c), b) {
			t.Error("read what encode would not write")
		}
	})
}
