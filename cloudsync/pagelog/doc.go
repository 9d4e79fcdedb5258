// Package pagelog reads and appends the log of one page in a bucket, from epoch to epoch, by the
// rules of package epoch. It makes the requests. Its Page gives entries and checkpoints their
// meaning.
//
//	CatchUp   applies the entries of other devices, and enters their epochs
//	Append    appends an entry
//	Look      finds the newest epoch, and enters it
//	Cut       begins an epoch that gives history up
//	Renew     begins an epoch that repairs the bucket
//	Delete    begins the epoch that ends the page
//	Audit     proves that no entry of the log is missing
//	Sweep     deletes objects of past epochs
//
// # What is durable
//
// A Log has no durable state. The Page keeps the position, and moves it in the same batch as the
// data that it stands for. After a crash, a Log goes on at that position. If the answer to a
// request is unknown, a read follows. The Log recognizes its own entry by its hash or by the
// commits in it. An interrupted turn leaves objects that no epoch names, which Sweep deletes.
//
// # Damage
//
// A *DamageError says that the bucket has lost or changed an object of the page. The device gives
// no local data up for it. A renewal (Renew) repairs the bucket from the device's data. ErrWiped
// and ErrRolledBack report a bucket that has no epoch, or not the epoch of the device. It may be
// the wrong bucket, so the user decides first.
//
// Of the module the package imports bucket, epoch, seal and wire of cloudsync, and internal/base. A
// Log starts goroutines only within a call. The package may change with any release.
package pagelog
