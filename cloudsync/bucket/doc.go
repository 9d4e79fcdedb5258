// Package bucket defines the object store that Ledger needs: four calls on a flat namespace of
// immutable objects, and proofs that a store keeps its promises. The stores are packages mem, dir,
// gcs and s3 beside it. Meter and Retry wrap any of them, and Probe tests one with real requests.
//
// # Why put-if-absent only
//
// Devices share nothing but the bucket, so the bucket must decide which device was first. Creating
// a name that does not exist yet is the weakest condition that can decide, and the only one that
// all useful stores have. Generations, ETags in conditions, conditional deletes, copies and
// compositions differ from store to store, and their emulators often ignore them. With
// put-if-absent, entry N of a log belongs to the device that creates the name of N. As an object
// never changes and its name is never reused, data that was read once stays valid. It can be
// cached, read in ranges over several requests, and fetched again after an error without a check
// that it is still the same.
//
// # Why ambiguity is reported
//
// A request whose answer is lost may have been carried out. For a get that does not matter. For
// put-if-absent it does: the next try finds the name taken, by the object of the first try. No
// store can distinguish the two cases, and a wrapper that guesses loses a write or makes it twice.
// So every error says whether the write may have landed (Ambiguous), and Retry keeps that mark on
// the ErrExists of a later try. The caller then reads the object and checks whether it is its own:
// writers put a random number into their objects. Busy counts as ambiguous for a put: real stores
// answer 429 to several concurrent creators of one name, of which one has won.
//
// # What requests cost
//
// Stores bill requests by class. Puts and lists (class A) cost some ten times as much as gets
// (class B), and deletes are free. Refused and failed requests count too, as some stores bill them.
// Therefore List is not used for polling. A get carries the size of the whole object, its age and
// the time of the bucket, so that no second request is needed. The creation time of a new object
// comes with the answer to its put (see WithCreated). Meter counts by this model.
//
// # Rules
//
// The package imports internal/base and internal/clock of the module, and must not import any
// store, or a client of one. Every Bucket is safe for concurrent use. Errors of a Bucket are *Error
// (or wrap one), whose Class says what may be done. StatusClass is the table from HTTP, and
// RetryTable the one from classes to retries. Only Probe, Meter and InParallel start goroutines,
// and each waits for its own. Times are those of the bucket's clock, never of the device.
//
// The package may change with any release.
package bucket
