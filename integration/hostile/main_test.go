package hostile_test

import (
	"math/rand/v2"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/internal/tier"
)

// keyDir holds the key of the buckets of all tests.
var keyDir string

func TestMain(m *testing.M) {
	var err error
	if keyDir, err = os.MkdirTemp("", "hostile"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if err := os.RemoveAll(keyDir); err != nil {
			panic(err)
		}
		os.Exit(code)
	}))
}

// everything reports whether nothing is to be left to a sample.
func everything() bool { return tier.Nightly() }

// seeded returns the source of a test's choices.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := tier.Seed()
	t.Logf("LEDGER_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 13))
}
