package indexeddb_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/indexeddb"
)

// fixtureRow is a row of a directory that Chromium wrote. The value is cut at 200 bytes.
type fixtureRow struct {
	kind       string
	key, value []byte
}

// fixtureRows reads testdata/rows-hex.txt.gz: kind, ids, key and value in hexadecimal.
func fixtureRows(t testing.TB) (rows []fixtureRow) {
	t.Helper()
	f, err := os.Open("testdata/rows-hex.txt.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(z); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		fields := strings.Split(lines.Text(), " ")
		row := fixtureRow{kind: fields[0]}
		if row.key, err = hex.DecodeString(fields[2]); err != nil {
			t.Fatal(err)
		}
		if row.value, err = hex.DecodeString(strings.TrimSuffix(fields[3], "...")); err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		rows = append(rows, row)
	}
	return rows
}

// TestRowsOfChromium decodes every row key, encodes it again, takes it to the form of a page and
// back, and compares the order of rows with that of the directory and of the page.
func TestRowsOfChromium(t *testing.T) {
	rows := fixtureRows(t)
	if len(rows) < 300 {
		t.Fatalf("%d rows", len(rows))
	}
	var last, lastPage []byte
	kinds := map[string]indexeddb.Kind{
		"record": indexeddb.KindRecord, "exists": indexeddb.KindExists, "index": indexeddb.KindIndexRow, "blob": indexeddb.KindExternal,
		"dbmeta50": indexeddb.KindStore, "dbmeta100": indexeddb.KindIndex, "dbmeta200": indexeddb.KindStoreName,
		"global50": indexeddb.KindScope, "global201": indexeddb.KindDatabaseName,
	}
	for i, row := range rows {
		r, err := indexeddb.DecodeRow(row.key)
		if err != nil {
			t.Fatalf("%s %x: %v", row.kind, row.key, err)
		}
		if want, ok := kinds[row.kind]; ok && r.Kind != want {
			t.Errorf("%s %x is a %s", row.kind, row.key, r.Kind)
		}
		if again := r.Append(nil); !bytes.Equal(again, row.key) {
			t.Errorf("%s: %x becomes %x", row.kind, row.key, again)
		}
		// The fixture begins each kind of data anew.
		if i > 0 && rows[i-1].kind == row.kind && row.kind != "index" && indexeddb.CompareRows(last, row.key) >= 0 {
			t.Errorf("%x stands behind %x", row.key, last)
		}
		last = row.key
		if r.Kind == indexeddb.KindExists || r.Kind == indexeddb.KindScope {
			continue
		}
		key, value := indexeddb.PageRow(r, row.value)
		back, backValue, err := indexeddb.DecodePageRow(key, value)
		if err != nil {
			t.Fatalf("%s %x: %v", row.kind, row.key, err)
		}
		wantValue := row.value
		if r.Kind == indexeddb.KindIndexRow {
			wantValue = nil
		}
		if again := back.Append(nil); indexeddb.CompareRows(again, row.key) != 0 || !bytes.Equal(backValue, wantValue) {
			t.Errorf("%s: by way of a page, %x becomes %x, value %x", row.kind, row.key, again, backValue)
		}
		if i > 0 && rows[i-1].kind == row.kind && bytes.Compare(lastPage, key) >= 0 {
			t.Errorf("on a page, %x stands behind the row before", row.key)
		}
		lastPage = key
	}
}

// TestValuesOfChromium decodes the values of all metadata and data rows, and encodes them again.
func TestValuesOfChromium(t *testing.T) {
	for _, row := range fixtureRows(t) {
		r, err := indexeddb.DecodeRow(row.key)
		if err != nil {
			t.Fatal(err)
		}
		again, err := throughValue(r, row.value)
		if err != nil {
			t.Errorf("%s: %x: %v", r.Describe(), row.value, err)
		} else if !bytes.Equal(again, row.value) {
			t.Errorf("%s: %x becomes %x", r.Describe(), row.value, again)
		}
	}
}

// throughValue decodes and encodes the value of a row.
func throughValue(r indexeddb.Row, value []byte) ([]byte, error) {
	type property struct {
		kind indexeddb.Kind
		n    byte
	}
	asInt := map[property]bool{
		{indexeddb.KindGlobal, 0}: true, {indexeddb.KindGlobal, 1}: true, {indexeddb.KindGlobal, 2}: true, {indexeddb.KindDatabase, 3}: true,
		{indexeddb.KindStore, 4}: true, {indexeddb.KindStore, 5}: true, {indexeddb.KindStore, 7}: true,
		{indexeddb.KindDatabaseName, 0}: true, {indexeddb.KindStoreName, 0}: true, {indexeddb.KindExists, 0}: true,
	}
	p := property{r.Kind, r.Property}
	switch {
	case asInt[p]:
		n, err := indexeddb.DecodeInt(value)
		return indexeddb.AppendInt(nil, n), err
	case r.Kind == indexeddb.KindDatabase:
		n, rest, err := indexeddb.DecodeVarInt(value)
		return append(indexeddb.AppendVarInt(nil, n), rest...), err
	case p == property{indexeddb.KindGlobal, 4}:
		entries, err := indexeddb.DecodeJournal(value)
		return indexeddb.AppendJournal(nil, entries), err
	case r.Kind == indexeddb.KindScope:
		n, err := indexeddb.DecodeScopesVersion(value)
		return indexeddb.AppendScopesVersion(nil, n), err
	case r.Kind == indexeddb.KindStore && r.Property == 1, r.Kind == indexeddb.KindIndex && r.Property == 2:
		path, err := indexeddb.DecodeKeyPath(value)
		return path.Append(nil), err
	case r.Property == 0 && (r.Kind == indexeddb.KindStore || r.Kind == indexeddb.KindIndex):
		s, err := indexeddb.DecodeString(value)
		return indexeddb.AppendString(nil, s), err
	case r.Kind == indexeddb.KindStore || r.Kind == indexeddb.KindIndex:
		v, err := indexeddb.DecodeBool(value)
		return indexeddb.AppendBool(nil, v), err
	case r.Kind == indexeddb.KindRecord:
		version, v, err := indexeddb.DecodeRecord(value)
		return indexeddb.AppendRecord(nil, version, v), err
	case r.Kind == indexeddb.KindIndexRow:
		version, primary, err := indexeddb.DecodeIndexValue(value)
		return indexeddb.AppendIndexValue(nil, version, primary), err
	}
	objects, err := indexeddb.DecodeExternalObjects(value, 5)
	return indexeddb.AppendExternalObjects(nil, objects), err
}
