// Package pagelog reads and appends the log of one page in a bucket, from epoch to epoch, as
// package epoch rules. It makes the requests; what an entry or a checkpoint means to the page is
// its Page's concern.
//
//	CatchUp   applies what others have appended, and enters their epochs
//	Append    appends an entry
//	Look      finds the newest epoch, and enters it
//	Cut       begins an epoch that gives history up
//	Renew     begins an epoch that repairs the bucket
//	Delete    begins the epoch that ends the page
//	Audit     proves that nothing of the log is missing
//	Sweep     deletes what past epochs have left behind
//
// # What is durable
//
// Nothing is, here. The position stands in the Page, which moves it in the same batch as what it
// stands for. After a crash, a Log that begins at that position goes on: a request whose answer is
// not known is followed by a read, an entry is known again by its hash or by the commits in it, and
// a turn that was broken off leaves objects that nobody names, which Sweep deletes.
//
// # Damage
//
// A *DamageError says that the bucket has lost or changed what belongs to the page. Nothing local
// is given up for it. A renewal (Renew) repairs the bucket from what the device has. ErrWiped and
// ErrRolledBack say the same of a bucket that has no epoch any more, or not the epoch in which the
// device is: then somebody else decides first, as it may be the wrong bucket. A *ForkError within a
// *DamageError proves that the bucket has shown two logs.
//
// Of the module the package imports bucket, epoch, seal and wire of cloudsync, and internal/base. A
// Log starts goroutines within a call only. It may change with any release.
package pagelog
