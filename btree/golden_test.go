package btree_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/object"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

// The roots of fixed contents, and levels of fixed keys, never change within a format version.
func TestGolden(t *testing.T) {
	got := map[string]string{"empty": btree.EmptyRoot.String()}
	long := model{}
	for _, k := range lowKeys(40, 4096) {
		long[k] = inline(k, "v")
	}
	mixed := numbered(1000)
	for i := range uint64(1000) {
		switch k := key(i); i % 5 {
		case 0:
			mixed[k] = reference(k, fmt.Sprint(i), 257+i<<20, object.Lazy)
		case 1:
			mixed[k] = reference(k, fmt.Sprint(i), 257+i, object.Eager)
		case 2:
			mixed[k] = inline(k, strings.Repeat("v", btree.InlineLimit))
		}
	}
	for name, m := range map[string]model{
		"one empty key":    {"": inline("", "")},
		"one":              {"key": inline("key", "value")},
		"numbered 1000":    numbered(1000),
		"mixed 1000":       mixed,
		"node of 160 KiB":  long,
		"keys of the pool": numberedPool(),
	} {
		got[name] = build(t, newStore(), m).String()
	}
	for _, k := range append(highKeys(3, 3), "", "a", "key", "k84") {
		got["level of "+k] = fmt.Sprint(btree.Level(testPage, []byte(k)), btree.Level([16]byte{}, []byte(k)))
	}
	path := filepath.Join("testdata", "roots.json")
	if *update {
		b, err := json.MarshalIndent(got, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]string
	if err := json.Unmarshal(b, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func numberedPool() model {
	m := model{}
	for i, k := range keyPool {
		m[k] = inline(k, fmt.Sprint(i))
	}
	return m
}

// The share of keys at a level falls by 2^FanoutBits a level.
func TestLevels(t *testing.T) {
	var count [btree.MaxLevel + 1]int
	const n = 1 << 17
	for i := range uint64(n) {
		count[btree.Level(testPage, []byte(key(i)))]++
	}
	for l, rest := 0, n; l < 3; l++ {
		want := rest - rest>>btree.FanoutBits
		if d := count[l] - want; d*d > 25*want {
			t.Errorf("%d keys of level %d, want about %d", count[l], l, want)
		}
		rest >>= btree.FanoutBits
	}
}
