package profile

import (
	"encoding/hex"
	"errors"
	"testing"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
)

// TestSQLKeys has keys as Chromium writes them.
func TestSQLKeys(t *testing.T) {
	array := func(keys ...indexeddb.Key) indexeddb.Key {
		k, err := indexeddb.ArrayKey(keys...)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	date, err := indexeddb.DateKey(-1)
	if err != nil {
		t.Fatal(err)
	}
	number, err := indexeddb.NumberKey(1)
	if err != nil {
		t.Fatal(err)
	}
	binary := func(n int) indexeddb.Key {
		b := make([]byte, n)
		for i := range b {
			b[i] = 0xee
		}
		return indexeddb.BinaryKey(b)
	}
	for want, k := range map[string]indexeddb.Key{
		"10bff0000000000000": number, "20400fffffffffffff": date, "3000": indexeddb.StringKey(""), "306200": indexeddb.StringKey("a"),
		"300100": indexeddb.StringKey("\x00"), "307f00": indexeddb.StringKey("\x7e"), "30807f00": indexeddb.StringKey("\x7f"), "30bfff00": indexeddb.StringKey("\u3fff"),
		"30ff400000": indexeddb.StringKey("\u4000"), "30ffffff00": indexeddb.StringKey("\uffff"), "30ffd83dffde0000": indexeddb.StringKey("\U0001F600"),
		"4000": binary(0), "4009ee0000000000000001": binary(1), "4009eeeeeeeeeeeeeeee08": binary(8), "4009eeeeeeeeeeeeeeee09ee0000000000000001": binary(9),
		"5000": array(), "50306200400900000000000000000900000000000000000100": array(indexeddb.StringKey("a"), indexeddb.BinaryKey(make([]byte, 9))),
	} {
		if got := hex.EncodeToString(encodeSQLKey(nil, k)); got != want {
			t.Errorf("%s is %s, want %s", k, got, want)
		}
		b, err := hex.DecodeString(want)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := decodeSQLKey(b); err != nil || back != k {
			t.Errorf("%s is %s, error %v", want, back, err)
		}
	}
}

func FuzzDecodeSQLKey(f *testing.F) {
	for _, s := range []string{"\x10\xbf\xf0\x00\x00\x00\x00\x00\x00", "\x30b\x00", "\x30\x80\x7f\xff\xd8\x3d\x00", "\x40\x09\xee\xee\xee\xee\xee\xee\xee\xee\x08", "\x50\x30\x00\x40\x00\x00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := decodeSQLKey(b)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) {
				t.Error(err)
			}
			return
		}
		if back, err := decodeSQLKey(encodeSQLKey(nil, k)); err != nil || back.Compare(k) != 0 {
			t.Errorf("%x becomes %s, %s, error %v", b, k, back, err)
		}
	})
}
