// Package hostile has the tests of a bucket with a hostile owner: every kind of object damaged,
// swapped and replayed, and a service that lies (promises 3 and 7 of README.md; docs/security.md).
// It has no code of its own.
//
// CI draws a sample from a seed, LEDGER_SEED; LEDGER_TIER=2 runs all cases:
//
//	LEDGER_TIER=2 go test -timeout 3h ./integration/hostile
package hostile
