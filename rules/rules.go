package rules

import (
	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/merging"
	"github.com/ledgerd/ledger/merge"
)

// LastOneWins decides for the side on which the key was written last, by the timestamp of the
// commit that wrote it there. Which side made its last commit later does not matter, nor that a
// merge commit is young.
func LastOneWins() ledger.Strategy { return ledger.Strategy{} }

// ByValue has conflicts decided by a function of three values, which is recorded under name: 1 to
// 128 bytes of UTF-8. A nil slice stands for absence, also where there is no base. rule returns the
// merged value, nil to remove the key, or ok false when it cannot decide; then, and for values
// above 1 MiB or where the value of the base is not known, the last one wins. It must follow from
// its arguments alone, which it must neither change nor retain.
func ByValue(name string, rule func(base, left, right []byte) (value []byte, ok bool)) ledger.Strategy {
	return ledger.Strategy{Kind: merging.ByValue, Name: name, Value: rule}
}

// Counter is for decimal integers of up to 1000 digits: what both sides have added is added, also
// when that is the same. Absence is 0. Where a value is no integer, the last one wins.
func Counter() ledger.Strategy { return builtIn(merge.ByValueEqual("counter", merge.Counter, nil)) }

// Maximum takes the greater decimal integer, or the bytewise greater value when one is no integer.
func Maximum() ledger.Strategy { return builtIn(merge.ByValueNoBase("maximum", merge.Maximum, nil)) }

// SetUnion is for sets of lines: what both sides have, and what one has added; what one has removed
// is gone. The result is sorted, and each line ends with a line feed.
func SetUnion() ledger.Strategy { return builtIn(merge.ByValue("set union", merge.SetUnion, nil)) }

func builtIn(d merge.Decider) ledger.Strategy {
	return ledger.Strategy{Kind: merging.BuiltIn, Decider: d}
}

// Grouped has g merge a namespace as a whole.
func Grouped(g GroupStrategy) ledger.Strategy {
	if g == nil {
		return ledger.Strategy{Kind: merging.Grouped}
	}
	return ledger.Strategy{Kind: merging.Grouped, Group: groupStrategy{g}}
}
