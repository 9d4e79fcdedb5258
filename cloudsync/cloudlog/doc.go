// Package cloudlog reads and appends to one page's log in a bucket. It carries out what the machine
// of package protocol decides, and decides nothing itself but when to read ahead, how long to wait,
// and when a proof of the position is old.
//
// What is read is opened, and so authenticated, by package format, and chained by the machine; what
// it means to the page is for the caller's apply to verify. Entries that come out of a range pass
// the same checks as those with objects of their own.
//
// # What calls cost
//
// With a position that was proved within six hours, a CatchUp that finds nothing costs one get. An
// Append in steady state costs one put. Once a day, by the bucket's clock, either costs one get
// more: the look at the floor. A position is proved with one get of the entry at it.
//
// # Invariants
//
// The position moves only after apply or settle has returned nil for it, so it never runs ahead of
// what is durable. A call that fails leaves it where it was. Memory is bounded: one batch
// (Options.MaxBatchBytes), one entry more, and one range or four entries as they are stored.
//
// Every wait obeys the context. A Log has goroutines only within a call, when it reads ahead. The
// calls of one Log run one at a time; the caller sees to that. The package imports bucket, format,
// protocol and seal beside internal/base and internal/clock, and must not import storage or whoever
// gives meaning to entries. It may change with any release.
package cloudlog
