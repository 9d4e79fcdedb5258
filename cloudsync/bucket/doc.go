// Package bucket says what Ledger asks of an object store: four calls on a flat namespace of
// objects that never change, and proofs that a store keeps what it promises. The stores are
// packages mem, dir and gcs beside it; Meter and Retry wrap any of them, and Probe tests one with
// real requests.
//
// # Why put-if-absent only
//
// Devices have nothing in common but the bucket, so something in it must decide who was first.
// Creating a name that nobody has created yet is the weakest condition that can decide, and the
// only one that all stores worth using have: generations, ETags in conditions, conditional deletes,
// copies and compositions differ from store to store, and their emulators often ignore them. With
// it, entry N of a log belongs to whoever creates the name of N. As an object never changes and its
// name is never used again, what was read once stays true: it can be cached, read in ranges over
// several requests, and fetched again after an error without looking whether it is still the same.
//
// # Why ambiguity is told
//
// A request whose answer is lost may have been carried out. For a get that does not matter. For
// put-if-absent it does: the next try is told that the name is taken, by the very object that the
// first try stored. No store can tell the two cases apart, and a wrapper that guesses loses a write
// or makes it twice. So every error says whether the write may have landed (Ambiguous), and Retry
// keeps that mark on the ErrExists that a later try brings. Who gets it reads the object and looks
// whether it is their own: writers put a random number into what they write. Busy counts as
// ambiguous for a put: real stores answer 429 to several who create one name at once, of whom one
// has won.
//
// # What requests cost
//
// Stores bill requests by class. Puts and lists (class A) cost some ten times what gets cost (class
// B), and deletes are free. Refused and failed requests count like others here, as some stores bill
// them. Therefore nothing polls with List; a get carries the size of the whole object, its age and
// the time of the bucket, so that nobody asks twice; and the creation time of a new object comes
// with the answer to its put (see WithCreated). Meter counts what the model says.
//
// # Rules
//
// The package imports internal/base and internal/clock of the module, and must not import any
// store, or a client of one. Every Bucket is safe for concurrent use. Errors of a Bucket are *Error
// (or wrap one), whose Class says what may be done; StatusClass is the table from HTTP, and
// RetryTable the one from classes to retries. Nothing here starts goroutines, except Probe, which
// waits for its own. Times are those of the bucket's own clock, never of the device.
//
// It may change with any release.
package bucket
