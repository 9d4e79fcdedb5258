package cli

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledger"
)

// TestPartlyIsNotNothing gives errors behind what was done an exit code of their own, unless the error has one.
func TestPartlyIsNotNothing(t *testing.T) {
	full := fmt.Errorf("collect garbage: %w", ledger.ErrNoSpace)
	for _, c := range []struct {
		err  error
		done bool
		want int
	}{
		{full, true, ExitPartly},
		{full, false, ExitError},
		{fmt.Errorf("collect garbage: %w", ledger.ErrCorrupt), true, ExitCorrupt},
		{nil, true, ExitDone},
	} {
		if got := ExitCode(partly(c.err, c.done)); got != c.want {
			t.Errorf("%v, done %t: exit code %d, want %d", c.err, c.done, got, c.want)
		}
	}
	if hint := (&app{}).hintOf(partly(full, true)); hint == "" {
		t.Error("no hint")
	}
}
