package ledger_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdLockVariable); dir != "" {
		os.Exit(holdLock(dir))
	}
	goleak.VerifyTestMain(m)
}
