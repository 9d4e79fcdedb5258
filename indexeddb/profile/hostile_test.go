package profile_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/syndtr/goleveldb/leveldb"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/profile"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// maxPeak is how much memory reading a directory may take, whatever stands in it.
const maxPeak = 64 << 20

// bounded runs the test again in a process of its own, with a directory that prepare has filled,
// and measures the memory that it takes from the system. In that process it returns the directory,
// and "" elsewhere.
func bounded(t *testing.T, prepare func(dir string)) string {
	t.Helper()
	const child = "LEDGER_TEST_CHILD"
	if dir := os.Getenv(child); dir != "" {
		t.Cleanup(func() {
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			fmt.Printf("peak %d\n", m.HeapSys+m.StackSys) // neither is ever given back
		})
		return dir
	}
	dir := t.TempDir()
	prepare(dir)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.count=1")
	// The garbage that the collector leaves is not what is bounded.
	cmd.Env = append(os.Environ(), child+"="+dir, "GOMEMLIMIT="+strconv.Itoa(maxPeak/2))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found := regexp.MustCompile(`(?m)^peak (\d+)$`).FindSubmatch(out)
	if found == nil {
		t.Fatalf("no peak in %s", out)
	}
	peak, err := strconv.Atoi(string(found[1]))
	t.Logf("peak %d MiB", peak>>20)
	if err != nil || peak > maxPeak {
		t.Errorf("%d bytes of memory, error %v", peak, err)
	}
	return ""
}

// copyFixture copies a directory that Chromium wrote, with its blobs, into one of a name.
func copyFixture(t *testing.T, to string) (dir string) {
	t.Helper()
	if err := os.CopyFS(to, os.DirFS("testdata/chromium-156")); err != nil {
		t.Fatal(err)
	}
	dirs, err := filepath.Glob(filepath.Join(to, "*.leveldb"))
	if err != nil || len(dirs) != 1 {
		t.Fatal(dirs, err)
	}
	return dirs[0]
}

// TestHostileRows: keys and values that no browser writes, in rows that are sound otherwise, are
// named, and take little memory and time.
func TestHostileRows(t *testing.T) {
	all := bounded(t, func(dir string) { writeHostileRows(t, dir) })
	if all == "" {
		return
	}
	entries, err := os.ReadDir(all)
	if err != nil || len(entries) < 50 {
		t.Fatal(len(entries), err)
	}
	for _, e := range entries {
		name, err := url.PathUnescape(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		readHostileRow(t, name, filepath.Join(all, e.Name()))
	}
}

// readHostileRow wants the damage to be named.
func readHostileRow(t *testing.T, name, dir string) {
	var first error
	p, err := profile.Open(t.Context(), dir, &profile.Options{Damage: func(err error) error {
		if first == nil {
			first = err
		}
		return nil
	}})
	if err == nil {
		var result profile.Result
		if result, err = p.Check(t.Context()); err == nil && first == nil && result.Opaque == 0 {
			t.Errorf("%s: nobody has noticed", name)
		}
		err = errors.Join(err, p.Close())
	}
	if err != nil && !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("%s: %v", name, err)
	}
	if first != nil && (!errors.Is(first, base.ErrCorrupt) || !strings.Contains(first.Error(), "1/1") && !strings.Contains(first.Error(), "row ")) {
		t.Errorf("%s: %v names no row", name, first)
	}
}

// writeHostileRows makes a directory for each row.
func writeHostileRows(t *testing.T, all string) {
	varint := func(n uint64) string { return string(binary.AppendUvarint(nil, n)) }
	deep := func(n int) string { return strings.Repeat("\x04\x01", n) + "\x04\x00" }
	const prefix = "\x00\x01\x01\x01" // records of object store 1/1
	type hostile struct{ key, value string }
	good := indexeddb.StringKey("k").Append(nil)
	valued := func(v string) hostile { return hostile{string(good), "\x02" + envelope + v} }
	cases := map[string]hostile{
		"array 10 000 deep in a key":     {deep(10_000), "\x02" + envelope + "T"},
		"array too deep by one in a key": {deep(2001), "\x02" + envelope + "T"},
		"1 MiB that is no key":           {strings.Repeat("\xfe", 1<<20), "\x02" + envelope + "T"},
		"1 MiB of nested arrays":         {strings.Repeat("\x04\x01", 1<<19), "\x02" + envelope + "T"},
		"array 20 000 deep in a value":   valued(strings.Repeat("A\x01", 20_000) + "T" + strings.Repeat("$\x00\x01", 20_000)),
		"object 120 000 deep":            valued(strings.Repeat("o\"\x01a", 120_000)),
		"map without end":                valued(strings.Repeat(";", 500_000)),
		"version alone":                  {string(good), "\x80"},
	}
	for _, n := range []uint64{1 << 31, 1 << 40, 1 << 62, 1<<64 - 1} {
		for _, tag := range []string{"\x01", "\x06", "\x04"} {
			cases[fmt.Sprintf("key of type %x and length %d", tag, n)] = hostile{tag + varint(n), "\x02" + envelope + "T"}
		}
		for _, tag := range []string{`"`, "c", "S", "B", "Z", "A", "a", "^", `R"`, `\L`, `\#`, "~", "B\x00V?"} {
			cases[fmt.Sprintf("value of tag %q and length %d", tag, n)] = valued(tag + varint(n))
		}
		cases[fmt.Sprintf("value in an object of length %d", n)] = hostile{string(good), "\x02\xff\x11\x01" + varint(n) + varint(n)}
		cases[fmt.Sprintf("compressed value of length %d", n)] = hostile{string(good), "\x02\xff\x11\x02" + varint(n) + "\x00\x00"}
	}
	for name, c := range cases {
		edit(t, copyFixture(t, filepath.Join(all, url.PathEscape(name))), func(db *leveldb.DB) error {
			exists := "\x00\x01\x01\x02" + c.key
			return errors.Join(db.Put([]byte(prefix+c.key), []byte(c.value), nil), db.Put([]byte(exists), []byte{2}, nil))
		})
	}
}

// TestLongKeys: keys of 1 MiB come to a page.
func TestLongKeys(t *testing.T) {
	dir := bounded(t, func(dir string) {
		dir = copyFixture(t, dir)
		for _, k := range []indexeddb.Key{indexeddb.StringKey(strings.Repeat("x", 1<<19)), indexeddb.BinaryKey(make([]byte, 1<<20))} {
			row := indexeddb.Row{Kind: indexeddb.KindRecord, Database: 1, Store: 1, Primary: k}
			exists := row
			exists.Kind = indexeddb.KindExists
			edit(t, dir, func(db *leveldb.DB) error {
				return errors.Join(db.Put(row.Append(nil), []byte("\x02"+envelope+"T"), nil), db.Put(exists.Append(nil), []byte{2}, nil))
			})
		}
	})
	if dir == "" {
		return
	}
	p, err := profile.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	page := ordered.NewMemory()
	first, err := p.Import(t.Context(), page)
	if err != nil {
		t.Fatal(err)
	}
	again, err := profile.OpenPage(t.Context(), page, nil)
	if err != nil {
		t.Fatal(err)
	}
	if checked, err := again.Check(t.Context()); err != nil || checked.Records != first.Records {
		t.Errorf("%+v, error %v", checked, err)
	}
}
