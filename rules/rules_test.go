package rules_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledger/rules"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// merged returns what a key becomes that has base, and that two branches have put to left and
// right, in this order; nil is no value.
func merged(t *testing.T, s ledger.Strategy, base, left, right []byte) []byte {
	t.Helper()
	ctx, key := t.Context(), []byte("k/1")
	page := ledgertest.Page(t, ledgertest.OpenWith(t, ledger.Options{InMemory: true, ManualMerge: true}), "app", "main")
	page.SetMergeRules(ledger.MergeRule{Prefix: []byte("k/"), Strategy: s})
	put := func(value []byte) func(*ledger.Tx) error {
		return func(tx *ledger.Tx) error {
			if err := tx.Put(ctx, []byte("other"), value); err != nil || value == nil {
				return err
			}
			return tx.Put(ctx, key, value)
		}
	}
	from, err := page.Update(ctx, put(base))
	if err != nil {
		t.Fatal(err)
	}
	for _, value := range [][]byte{left, right} {
		tx, err := page.Begin(ctx, &ledger.TxOptions{Base: from})
		if err != nil {
			t.Fatal(err)
		}
		if err := put(value)(tx); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := page.Merge(ctx); err != nil {
		t.Fatal(err)
	}
	var got []byte
	err = page.View(ctx, func(s *ledger.Snapshot) (err error) {
		got, err = s.Get(ctx, key)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestStrategies: each strategy decides a conflict as its comment says, and where it cannot, the
// last one wins.
func TestStrategies(t *testing.T) {
	longest := rules.ByValue("longest", func(_, left, right []byte) ([]byte, bool) {
		if len(left) > len(right) {
			return left, true
		}
		return right, len(left) < len(right)
	})
	for name, c := range map[string]struct {
		s                       ledger.Strategy
		base, left, right, want string
	}{
		"counter":             {rules.Counter(), "10", "15", "8", "13"},
		"counter of text":     {rules.Counter(), "10", "15", "x", "x"},
		"maximum":             {rules.Maximum(), "1", "20", "3", "20"},
		"maximum of text":     {rules.Maximum(), "a", "c", "b", "c"},
		"set union":           {rules.SetUnion(), "a\nb\n", "b\nc\n", "a\nb\nd\n", "b\nc\nd\n"},
		"last one wins":       {rules.LastOneWins(), "1", "2", "3", "3"},
		"by value":            {longest, "", "long", "no", "long"},
		"by value, undecided": {longest, "", "aa", "bb", "bb"},
	} {
		if got := merged(t, c.s, []byte(c.base), []byte(c.left), []byte(c.right)); string(got) != c.want {
			t.Errorf("%s: %q, not %q", name, got, c.want)
		}
	}
}

// sides takes a group from the side that has changed the key with the greatest name.
type sides struct{ groups *int }

func (sides) Name() string            { return "sides" }
func (sides) Group(key []byte) []byte { return key[:2] }
func (s sides) MergeGroup(ctx context.Context, _ *rules.Merge, g *rules.Group) error {
	*s.groups++
	side, err := g.Newest(ctx)
	if err != nil {
		return err
	}
	return g.Take(ctx, side)
}
func (sides) Finish(context.Context, *rules.Merge) error { return nil }

// TestGrouped: a group strategy is asked once for each group, and decides what it becomes.
func TestGrouped(t *testing.T) {
	n := 0
	if got := merged(t, rules.Grouped(sides{&n}), []byte("1"), []byte("2"), []byte("3")); string(got) != "3" || n != 1 {
		t.Errorf("%q after %d groups", got, n)
	}
}
