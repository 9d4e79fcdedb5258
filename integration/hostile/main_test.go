package hostile_test

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"go.uber.org/goleak"
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
func everything() bool { return os.Getenv("LEDGER_TIER") >= "2" }

// seeded returns the source of a test's choices.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := uint64(1)
	if v := os.Getenv("LEDGER_SEED"); v != "" {
		var err error
		if seed, err = strconv.ParseUint(v, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("LEDGER_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 13))
}
