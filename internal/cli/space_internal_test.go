package cli

import (
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

func TestParseSize(t *testing.T) {
	for text, want := range map[string]int64{
		"": 0, "1": 1, "700": 700, "1K": 1024, "500M": 500 << 20, "1.5GiB": 3 << 29, "2 G": 2 << 30, "3t": 3 << 40, "9b": 9,
	} {
		if got, err := parseSize(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"0", "-1", "x", "1X", "1KM", "1e3", "0x10", "NaN", "Inf", "1_000", "K", "9999999999T", "0.1"} {
		if got, err := parseSize(text); err == nil {
			t.Errorf("%q is %d, want an error", text, got)
		}
	}
}

func TestBarLines(t *testing.T) {
	page := func(name string, size, away int64) admin.PageUsage {
		info := ledger.PageInfo{PageRef: ledger.PageRef{Ledger: name}, SizeBytes: size, EvictedBytes: away}
		if away > 0 {
			info.State = ledger.PageEvicted
		}
		return admin.PageUsage{PageInfo: info}
	}
	pages := []admin.PageUsage{page("a", 100, 0), page("little", 1, 0), page("much", 2000, 0), page("away", 0, 1000), page("none", 0, 0)}
	want := []string{
		"much        2.0 KiB ###################",
		"away         1000 B ---------",
		"a             100 B #",
		"little          1 B #",
		"none            0 B",
	}
	if diff := cmp.Diff(want, barLines(pages, 40, "#", "-")); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
	for width := 1; width < 200; width++ {
		for _, line := range barLines(append(pages, page("a ledger with a name that is rather long", 5, 0)), width, "#", "-") {
			if n := utf8.RuneCountInString(line); n > max(width, 22) {
				t.Errorf("width %d: a line of %d: %q", width, n, line)
			}
		}
	}
}
