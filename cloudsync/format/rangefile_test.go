package format_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/base"
)

func rangeEntries() []format.RangeEntry {
	return []format.RangeEntry{
		{Stored: []byte("first"), Created: time.Unix(1_700_000_000, 5).UTC()},
		{Stored: []byte("2")},
		{Stored: []byte("the third"), Created: time.Unix(0, 1).UTC()},
	}
}

func mustRange(t testing.TB, from uint64, entries []format.RangeEntry) []byte {
	t.Helper()
	b, err := format.EncodeRange(from, entries)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestRangeRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.Uint64Range(1, 1<<40).Draw(t, "from")
		entries := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) format.RangeEntry {
			e := format.RangeEntry{Stored: rapid.SliceOfN(rapid.Byte(), 1, 100).Draw(t, "stored")}
			if ns := rapid.Int64Range(0, 1<<61).Draw(t, "created"); ns > 0 {
				e.Created = time.Unix(0, ns).UTC()
			}
			return e
		}), 1, 40).Draw(t, "entries")
		b, err := format.EncodeRange(from, entries)
		if err != nil {
			t.Fatal(err)
		}
		to := from + uint64(len(entries)) - 1
		got, err := format.ParseRange(from, to, b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(entries, got); diff != "" {
			t.Fatal(diff)
		}
		places, err := format.ParseRangeTable(from, to, b[:format.RangeTableBytes(len(entries))])
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range places {
			if !bytes.Equal(b[p.Offset:p.Offset+int64(p.Bytes)], entries[i].Stored) || !p.Created.Equal(entries[i].Created) {
				t.Fatalf("entry %d does not stand at %v", i, p)
			}
		}
	})
}

func TestRangesThatNobodyWrites(t *testing.T) {
	small := []format.RangeEntry{{Stored: []byte("x")}}
	for name, c := range map[string]struct {
		from    uint64
		entries []format.RangeEntry
		want    error
	}{
		"from 0":          {0, small, base.ErrInvalid},
		"from 2^63":       {1 << 63, small, base.ErrInvalid},
		"nothing":         {1, nil, base.ErrInvalid},
		"too many":        {1, make([]format.RangeEntry, format.MaxRangeEntries+1), base.ErrInvalid},
		"empty entry":     {1, make([]format.RangeEntry, 1), base.ErrInvalid},
		"entry too long":  {1, []format.RangeEntry{{Stored: make([]byte, format.MaxEntryBytes+1)}}, base.ErrInvalid},
		"too long in all": {1, []format.RangeEntry{{Stored: make([]byte, 8<<20)}, {Stored: make([]byte, 8<<20)}, {Stored: make([]byte, 8<<20)}}, base.ErrTooLarge},
		"before 1970":     {1, []format.RangeEntry{{Stored: []byte("x"), Created: time.Unix(-1, 0)}}, base.ErrInvalid},
		"at 1970":         {1, []format.RangeEntry{{Stored: []byte("x"), Created: time.Unix(0, 0)}}, base.ErrInvalid},
		"far ahead":       {1, []format.RangeEntry{{Stored: []byte("x"), Created: time.Unix(1<<40, 0)}}, base.ErrInvalid},
	} {
		if _, err := format.EncodeRange(c.from, c.entries); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBadRanges(t *testing.T) {
	good := mustRange(t, 33, rangeEntries())
	table := format.RangeTableBytes(3)
	for i := range good {
		_, err := format.ParseRange(33, 35, good[:i])
		mustRefuse(t, "cut", "range", err)
		bad := bytes.Clone(good)
		bad[i] ^= 0x10
		if _, err := format.ParseRange(33, 35, bad); i < table {
			mustRefuse(t, "flip", "range", err)
		} else if err != nil { // entries are proved when they are opened
			t.Errorf("byte %d of an entry: %v", i, err)
		}
	}
	for name, c := range map[string]struct {
		from, to uint64
		b        []byte
	}{
		"more":        {33, 35, append(bytes.Clone(good), 0)},
		"other first": {34, 36, good},
		"fewer":       {33, 34, good},
		"as many":     {33, 36, good},
		"reversed":    {33, 32, good},
		"zero":        {0, 2, good},
		"endless":     {1, 1 << 62, good},
		"huge":        {1, 1<<64 - 1, good},
	} {
		_, err := format.ParseRange(c.from, c.to, c.b)
		mustRefuse(t, name, "range", err)
	}
	bad := bytes.Clone(good)
	bad[4] = 2
	if _, err := format.ParseRange(33, 35, bad); !isA[*base.FormatError](err) {
		t.Errorf("newer version: %v", err)
	}
}

func FuzzDecodeRange(f *testing.F) {
	f.Add(uint64(33), uint64(35), mustRange(f, 33, rangeEntries()))
	f.Add(uint64(1), uint64(1<<62), []byte("LRNG\x01"))
	f.Fuzz(func(t *testing.T, from, to uint64, b []byte) {
		var entries []format.RangeEntry
		var err error
		bounded(t, len(b), func() { entries, err = format.ParseRange(from, to, b) })
		if err != nil {
			mustRefuse(t, "range", "range", err)
			return
		}
		if again := mustRange(t, from, entries); !bytes.Equal(again, b) {
			t.Errorf("accepted %x, encodes as %x", b, again)
		}
	})
}
