package cli

import (
	"testing"
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
