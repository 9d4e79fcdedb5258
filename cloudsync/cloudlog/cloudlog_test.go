package cloudlog_test

import (
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/format"
)

func TestCosts(t *testing.T) {
	c := newCloud(t, 1)
	a, b := c.device(format.Position{}), c.device(format.Position{})
	a.mustAppend(1)
	b.mustCatchUp()
	a.wantCost("an append in steady state", 1, 0, func() { a.mustAppend(1) })
	b.wantCost("taking one entry", 0, 2, b.mustCatchUp)
	b.wantCost("an idle look", 0, 1, b.mustCatchUp)
	b.wantCost("losing a race", 2, 1, func() { a.mustAppend(1); b.mustAppend(1) })
	c.clock.Advance(2 * time.Hour)
	b.wantCost("an append after two hours", 1, 1, func() { b.mustAppend(1) })
	b.wantCost("the next one", 1, 0, func() { b.mustAppend(1) })
	c.clock.Advance(25 * time.Hour)
	b.wantCost("an append after a day", 1, 2, func() { b.mustAppend(1) })
	c.clock.Advance(7 * time.Hour)
	b.wantCost("an idle look after seven hours", 0, 2, b.mustCatchUp)
	b.wantCost("the next one", 0, 1, b.mustCatchUp)
	if len(b.applied) != 7 || b.Position() != b.at || b.at.Number != 7 {
		t.Errorf("%d entries applied, position %v, durable %v", len(b.applied), b.Position(), b.at)
	}
}
