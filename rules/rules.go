package rules

import (
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/merge"
)

// LastOneWins takes the side that wrote the key last, by the timestamp of the commit with that
// write. The timestamps of the sides' last commits and of merge commits do not matter.
func LastOneWins() ledger.Strategy { return ledger.Strategy{} }

// ByValue decides conflicts by a function of three values, which is recorded under name: 1 to 128
// bytes of UTF-8. A nil slice means absence, also of a base. rule returns the merged value, nil to
// remove the key, or ok false when it cannot decide. Then the last one wins, as for values above 1
// MiB or when the base value is unknown. rule must depend on its arguments alone, and neither
// change nor retain them.
func ByValue(name string, rule func(base, left, right []byte) (value []byte, ok bool)) ledger.Strategy {
	if rule == nil {
		return ledger.Strategy{Wrong: fmt.Errorf("no function: %w", ledger.ErrInvalid)}
	}
	return ledger.Strategy{Name: name, Value: rule}
}

// Counter is for decimal integers of up to 1000 digits: it adds the changes of both sides, even if
// they are equal. Absence is 0. When a value is no integer, the last one wins.
func Counter() ledger.Strategy {
	return ledger.Strategy{Decider: merge.ByValue{Name: "counter", Rule: merge.Counter, Equal: true}}
}

// Maximum takes the greater decimal integer, or the bytewise greater value when one is no integer.
func Maximum() ledger.Strategy {
	return ledger.Strategy{Decider: merge.ByValue{Name: "maximum", Rule: merge.Maximum, NoBase: true}}
}

// SetUnion is for sets of lines: it applies the additions and removals of both sides. The result is
// sorted, and each line ends with a line feed.
func SetUnion() ledger.Strategy {
	return ledger.Strategy{Decider: merge.ByValue{Name: "set union", Rule: merge.SetUnion}}
}

// Grouped merges a namespace as a whole by g.
func Grouped(g GroupStrategy) ledger.Strategy {
	if g == nil {
		return ledger.Strategy{Wrong: fmt.Errorf("no group strategy: %w", ledger.ErrInvalid)}
	}
	return ledger.Strategy{Group: groupStrategy{g}}
}
