// Package protocol decides what one device does with one page's log in a bucket: which entry it
// reads next, what a missing one means, where it puts its own, and whether that counts. It is pure:
// Machine.Step takes an event and returns effects, and there are no goroutines, clocks or requests
// here. Package cloudlog carries the effects out.
//
// # The log
//
// Entry N is created with put-if-absent, by a device that has applied all entries before it, and
// carries the hash of entry N-1. So the log is a chain, in one order for all devices, without a
// server. What an entry brings commutes with what others bring; therefore who loses the race for N
// applies the winner's entry and puts the same body at the next number. Only a condemnation does
// not commute: a body that relies on something which an entry before it condemns is made anew
// (Remake).
//
// # Floors
//
// Floor objects have numbers from 1 on without gaps, and are never deleted. Each names the lowest
// entry that stays; what is below may be deleted, at the earliest 30 days (Grace) after the floor
// was written. So the name of a deleted entry is free again, and a device that comes back after a
// long time could create it a second time. Two rules keep that from doing harm. An entry, also an
// own one that was just put, is taken into account only if it was created less than a day
// (Freshness) after a look at the floor, else the device looks first: a name that was free because
// of a deletion has a floor above it that is older than that look. And an entry below a floor that
// is younger than the first floor above it is no part of the log: it is passed over as if it were
// not there.
//
// # Invariants
//
//	I1: an entry is applied only if it carries the hash of the entry before it.
//	I2: an append is settled only if its entry is part of the log: at its number, chained, and not
//	    below a floor.
//	I3: nothing is put before all entries that were read are applied, and never below a known
//	    floor.
//	I4: whatever a put is answered, other than success, is followed by a look at the name, never
//	    by a guess.
//	I5: a body that relies on something condemned by an entry before it is never settled, nor one
//	    that condemns what an entry read since it was made relies on.
//	I6: all ages are differences between times of the bucket's clock.
//
// The exploration in the tests visits every interleaving of a small model and checks them, and
// checks too that each of the rules is needed: a machine without it is caught.
//
// The package imports only the standard library, and must not import anything of the module but
// internal/base. A Machine belongs to one goroutine at a time. It may change with any release.
package protocol
