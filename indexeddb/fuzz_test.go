package indexeddb_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/internal/base"
)

// corrupt fails the test when err is not the error of malformed bytes.
func corrupt(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("%v", err)
	}
}

func FuzzDecodeRow(f *testing.F) {
	for _, row := range fixtureRows(f) {
		f.Add(row.key)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := indexeddb.DecodeRow(b)
		if err != nil {
			corrupt(t, err)
			return
		}
		if again := r.Append(nil); !bytes.Equal(again, b) {
			t.Errorf("%x becomes %x", b, again)
		}
		_ = r.Describe()
	})
}

func FuzzDecodeValue(f *testing.F) {
	for _, row := range fixtureRows(f) {
		f.Add(row.key, row.value)
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		r, err := indexeddb.DecodeRow(key)
		if err != nil {
			return
		}
		if _, err := throughValue(r, value); err != nil {
			corrupt(t, err)
		}
	})
}

func FuzzDecodeSortable(f *testing.F) {
	for _, s := range []string{"\x30\x80\x7f\xff\xd8\x3d\x00", "\x40\x09\xee\xee\xee\xee\xee\xee\xee\xee\x08", "\x50\x30\x00\x40\x00\x00"} {
		f.Add([]byte(s))
	}
	for _, row := range fixtureRows(f) {
		if r, err := indexeddb.DecodeRow(row.key); err == nil && !r.Primary.IsZero() {
			f.Add(r.Primary.AppendSortable(nil))
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k, rest, err := indexeddb.DecodeSortable(b)
		if err != nil {
			corrupt(t, err)
			return
		}
		if again := append(k.AppendSortable(nil), rest...); !bytes.Equal(again, b) {
			t.Errorf("%x becomes %x", b, again)
		}
	})
}

func FuzzDecodePageRow(f *testing.F) {
	for _, row := range fixtureRows(f) {
		if r, err := indexeddb.DecodeRow(row.key); err == nil && r.Kind != indexeddb.KindScope && r.Kind != indexeddb.KindExists {
			key, value := indexeddb.PageRow(r, row.value)
			f.Add(key, value)
		}
	}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		r, v, err := indexeddb.DecodePageRow(key, value)
		if err != nil {
			corrupt(t, err)
			return
		}
		if r.Kind == indexeddb.KindContent {
			return
		}
		if k, _ := indexeddb.PageRow(r, v); !bytes.Equal(k, key) {
			t.Errorf("%x becomes %x", key, k)
		}
		if _, err := indexeddb.RowGroup(key); err != nil {
			t.Error(err)
		}
	})
}

func FuzzCompareRows(f *testing.F) {
	rows := fixtureRows(f)
	for i := range rows[1:] {
		f.Add(rows[i].key, rows[i+1].key)
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if c := indexeddb.CompareRows(a, b); c != -indexeddb.CompareRows(b, a) || indexeddb.CompareRows(a, a) != 0 {
			t.Errorf("%x and %x compare as %d and %d", a, b, c, indexeddb.CompareRows(b, a))
		}
	})
}

func FuzzDecodeScope(f *testing.F) {
	f.Add([]byte{0}, []byte{8, 1})
	f.Add([]byte{1, 5}, []byte{0x0a, 2, 8, 1})
	f.Add([]byte{2, 5, 0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, []byte{0x0a, 6, 0x0a, 1, 'k', 0x12, 1, 'v'})
	f.Add([]byte{2, 5, 1, 0, 0, 0, 0, 0, 0, 0, 1}, []byte{0x0a, 6, 0x0a, 1, 'a', 0x12, 1, 'b'})
	f.Fuzz(func(t *testing.T, key, value []byte) {
		s, err := indexeddb.DecodeScope(key)
		if err != nil {
			corrupt(t, err)
		} else if again := s.Append(nil); !bytes.Equal(again, key) {
			t.Errorf("%x becomes %x", key, again)
		}
		if _, err := indexeddb.DecodeScopeTask(value, s.Cleanup); err != nil {
			corrupt(t, err)
		}
		if _, err := indexeddb.ScopeCommitted(value); err != nil {
			corrupt(t, err)
		}
		if _, err := indexeddb.DecodeKeyPath(value); err != nil {
			corrupt(t, err)
		}
	})
}
