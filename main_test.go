package ledger_test

import (
	"flag"
	"os"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/seal/sealtest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdLockVariable); dir != "" {
		os.Exit(holdLock(dir))
	}
	if os.Getenv("LEDGER_TIER") < "2" {
		if err := flag.Set("rapid.checks", "15"); err != nil { // the command line may say otherwise
			panic(err)
		}
	}
	if err := sealtest.WarmUp(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
