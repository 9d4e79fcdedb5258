package ledger_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/cloudsync/seal/sealtest"
	"github.com/ledgerd/ledger/internal/tier"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdLockVariable); dir != "" {
		os.Exit(holdLock(dir))
	}
	if !tier.Nightly() {
		if err := flag.Set("rapid.checks", "15"); err != nil { // the command line may say otherwise
			panic(err)
		}
	}
	if err := sealtest.WarmUp(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
