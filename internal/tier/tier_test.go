package tier_test

import (
	"testing"

	"github.com/ledgerd/ledger/internal/tier"
)

func TestTiers(t *testing.T) {
	for _, c := range []struct {
		env     string
		level   int
		of      string
		nightly bool
		factor  int
	}{
		{"", 0, "short", false, 1}, {"x", 0, "short", false, 1}, {"-1", 0, "short", false, 1}, {"1", 1, "every", false, 1},
		{"2", 2, "nightly", true, 2}, {"3", 3, "nightly", true, 3},
	} {
		t.Setenv("LEDGER_TIER", c.env)
		if l, f, n, o := tier.Level(), tier.Factor(), tier.Nightly(), tier.Of("short", "every", "nightly"); l != c.level || f != c.factor || n != c.nightly || o != c.of {
			t.Errorf("LEDGER_TIER=%s: level %d, factor %d, nightly %t, %s", c.env, l, f, n, o)
		}
	}
	for env, want := range map[string]uint64{"": 1, "x": 1, "7": 7} {
		t.Setenv("LEDGER_SEED", env)
		if got := tier.Seed(); got != want {
			t.Errorf("LEDGER_SEED=%s: %d, want %d", env, got, want)
		}
	}
}
