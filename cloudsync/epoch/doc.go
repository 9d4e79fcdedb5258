// Package epoch decides which objects count in the bucket of a page, and for how long. The package
// is pure: it makes no requests, reads no clock and keeps no state. The caller makes a request,
// passes the answer to a function of this package, and does what the verdict says.
//
// # The protocol
//
// One page, one bucket, any number of devices, no server. The store creates an object if its name
// is free, gets, lists after a name, and deletes. Each object has a creation time by the bucket's
// clock. The protocol uses no device's clock and no device identity: a copied directory is one more
// device.
//
// An addition is an entry of a numbered log. A removal or a repair is an epoch: one object that
// names one checkpoint. A device enters an epoch by one function, Join. There is no other way to
// learn of a deletion.
//
//	epochs/{k}            a Proposal that was accepted; never deleted
//	log/{E}/{n}           entries of the epoch with the random id E, from Base+1 on, each with the
//	                      hash of the one before
//	packs/{E}/{id}        pieces of values and differences of trees
//	checkpoints/{E}/{id}  the state with which epoch E begins
//
// A device writes the checkpoint of an epoch, and the packs that the checkpoint needs, into the
// directory of the new epoch. So no other device takes them for objects of a past epoch before the
// new epoch counts.
//
// # Actions
//
// Look: list epochs/ (Position.Look). The device looks daily, when a session begins, and when a
// verdict says so.
//
// Read: get the entry after the position (Position.Read). If the entry was created a day or more
// after the last look, the device looks again first: the entry may have taken the name of a deleted
// one.
//
// Append: put the unsynced commits after the position (Position.Put). Packs go up before the entry
// that announces them. After any answer but a plain yes in time, the device reads that number. It
// recognizes its own entry by the commits in it. After a join, all unsynced commits go up in one
// entry, with the merges made of them.
//
// Turn: begin an epoch. A cut waits until the log has one head. The device uploads the packs of the
// new manifest, then the checkpoint, and puts a closing entry with the Proposal. A closing entry
// ends the log and decides nothing. Each device that reads a closing entry looks, and puts the
// proposal at epochs/{k+1} (Position.Help). The object there decides, so the device looks again and
// enters the newest epoch. Nothing is given up before that.
//
// Join: enter an epoch (Join). One rule holds for each commit of the device. A commit in the
// checkpoint is synced. A commit that the epoch lists as gone is given up. Any other commit is
// unsynced. Pending packs and uploaded bodies are dropped and made again. Places outside the
// manifest are forgotten; a piece that an unsynced commit needs is fetched first.
//
// Merge: a device keeps the given-up commits that it has below unsynced commits and below pinned
// ones (Joined.Held). While a merge of its heads needs one as a base, or as a base of bases, the
// device merges first and sends later (Joined.Wait). The head of a cut descends from all that the
// cut gave up (State.Above). After a renewal with several heads this is unknown: a merge may take
// an older base. Of several heads, those are merged first between which least was given up, and of
// these those with the latest base: the base of two others may be given up, and a head above both
// sides of it then has a later base with each.
//
// Renewal: on evidence that the bucket has lost an object, a device begins an epoch that keeps
// everything it has. Evidence is: no epoch exists; the newest epoch cannot be joined; an entry of
// the log is missing, cannot be opened or does not fit; a pack that a kept commit needs is gone.
//
// Adopt: before a device enters an epoch with a renewal new to it, it takes the entries after its
// position in its own log as unsynced (Position.Adopts). So a renewal by a device that could not
// read that far loses nothing. A commit above one that the device has given up is not adopted: the
// devices that have it send it again.
//
// Delete: an object is deleted a month after the first epoch of the lineage began that does not
// name it. So the newest epoch that began a month ago decides (Settled, Deletion.May): what it does
// not name is deleted, as far as it was written before that epoch.
//
// # Invariants
//
//	I1: devices at equal positions have equal log states.
//	I2: each commit, or one above it, is on some device, unless that device was lost with it.
//	I3: what the newest epoch's state names exists, unless the bucket lost it.
//	I4: an entry that counts for its writer is in the log for all, unless the bucket lost it.
//	I5: a commit and its ancestor are never merged.
//	I6: equal parents are merged with equal bases, on every device, unless the bucket lost an
//	    epoch that gave history up: then each device merges with the history that it has left.
//	    As long as the bucket loses nothing, these are the true bases.
//	I7: after healing, a piece that a device holds and a kept commit needs has a place.
//	I8: after healing, all devices are in one epoch, at one position, with one head.
//	I9: a device that enters the next epoch less than a month late finds what its own one named.
//	I10: each commit that an epoch gives up is an ancestor of one of its heads, or was erased.
//
// The tests explore a small model with these functions, step by step in every order, with faults of
// the network and of the bucket, and check the invariants in every state. Each rule has a mutant
// that the model catches.
//
// The package imports only the standard library. Concurrent use of its values is safe as long as
// none is changed. The package may change with any release.
package epoch
