// Package hostile has the tests that put a bucket into the hands of a hostile owner: every kind of
// object damaged, swapped and replayed, and a service that lies (promises 3 and 7 of
// README.md; docs/security.md). It has no code of its own.
//
// In CI a sample is drawn from a seed, LEDGER_SEED; LEDGER_TIER=2 goes through everything:
//
//	LEDGER_TIER=2 go test -timeout 3h ./integration/hostile
package hostile
