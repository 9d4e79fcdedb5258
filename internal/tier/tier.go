package tier

import (
	"os"
	"strconv"
)

// Level returns the tier; 0 when LEDGER_TIER is unset or not a number above 0.
func Level() int { return int(number("LEDGER_TIER", 0)) }

// Seed returns the seed of random tests from LEDGER_SEED; 1 when it is unset.
func Seed() uint64 { return number("LEDGER_SEED", 1) }

func number(name string, usual uint64) uint64 {
	n, err := strconv.ParseUint(os.Getenv(name), 10, 32)
	if err != nil {
		return usual
	}
	return n
}

// Nightly reports whether tests may take hours.
func Nightly() bool { return Level() >= 2 }

// Factor returns the multiple of the usual number of random cases to try, at least 1.
func Factor() int { return max(1, Level()) }

// Of returns short in tier 0, every in tier 1 and nightly above.
func Of[T any](short, every, nightly T) T {
	switch Level() {
	case 0:
		return short
	case 1:
		return every
	}
	return nightly
}
