// Package epoch decides what counts in the bucket of a page, and for how long. It is pure: it makes
// no requests, reads no clock and keeps no state of its own. A caller makes a request, hands the
// answer to a function of this package, and does what the function says.
//
// # The protocol
//
// One page, one bucket, any number of devices, no server. The store creates an object if its name
// is free, gets, lists after a name, and deletes; each object has a creation time by the bucket's
// clock. No device's clock is used, and no identity of a device: a copied directory is just one
// more device.
//
// What adds is an entry of a numbered log. What takes away, or repairs, is an epoch: one object
// that names one checkpoint. A device enters an epoch by one function, Join, and there is no other
// way to learn of a deletion.
//
//	epochs/{k}            a Proposal that was accepted; never deleted
//	log/{E}/{n}           entries of the epoch with the random id E, from Base+1 on, each with the
//	                      hash of the one before
//	packs/{E}/{id}        pieces of values and differences of trees
//	checkpoints/{E}/{id}  the state with which epoch E begins
//
// A device writes the checkpoint of an epoch, and packs that it needs, into the directory of the
// new epoch. So no other device can take them for something of the past before the epoch counts.
//
// # Actions
//
// Look: list epochs/ (Position.Look). The device does so daily, when a session begins, and when a
// verdict says so.
//
// Read: get the entry behind the position (Position.Read). An entry that was created a day or more
// after the last look is judged after another look, as it may have come to the name of a deleted
// one.
//
// Append: put what is unsynced behind the position (Position.Put). Packs go up before the entry
// that announces them. Whatever the answer is, other than a plain yes in time, the device reads
// that number. It knows an own entry by the commits in it. After a join all unsynced commits go up
// in one entry, with the merges made of them.
//
// Turn: begin an epoch. The device uploads what the manifest is to have, then the checkpoint, and
// puts a closing entry with the Proposal. A closing entry stops the log and decides nothing: each
// device that reads one looks, and puts the proposal at epochs/{k+1} (Position.Help). The object
// there decides, so the device looks again, and enters the newest epoch. Nothing is given up before
// that.
//
// Join: enter an epoch (Join). One rule for each commit of the device: one that the checkpoint has
// is synced, one that the epoch lists as gone is given up, each other one is unsynced. Packs that
// wait for their entry, and uploaded bodies, are dropped and made again. Places outside the
// manifest are forgotten; a piece that an unsynced commit needs is fetched first.
//
// Renewal: on evidence that the bucket has lost something, a device begins an epoch that keeps all
// that it has. There is evidence when no epoch is there, when the newest cannot be joined, when an
// entry is missing, cannot be opened or does not fit, and when a pack that a kept commit needs is
// gone. A hole below the position needs a cut.
//
// Adopt: before it enters an epoch with a renewal that it does not know, a device takes what the
// log of its own epoch has behind its position as unsynced (Position.Adopts). So a renewal by a
// device that could not read that far loses nothing.
//
// Delete: what an epoch is the first of its lineage not to name is deleted a month after that epoch
// began (Deletion.May). So a bucket whose epochs are all young is swept too.
//
// # Invariants
//
//	I1: devices at equal positions have equal log states.
//	I2: each commit, or one above it, is on some device, unless that device was lost with it.
//	I3: what the newest epoch's state names exists, unless the bucket lost it.
//	I4: an entry that counts for its writer is in the log for all, unless the bucket lost it.
//	I5: a commit and its ancestor are never merged.
//	I6: equal parents are merged with equal bases, on every device.
//	I7: after healing, a piece that a device holds and a kept commit needs has a place.
//	I8: after healing, all devices are in one epoch, at one position, with one head.
//	I9: a device that enters the next epoch less than a month late finds what its own one named.
//
// The tests explore a small model with these functions, step by step in every order, with faults of
// the network and of the bucket, and check the invariants in every state. Each rule has a mutant
// that the model catches.
//
// The package imports only the standard library. Its values may be used concurrently as long as
// none is changed. It may change with any release.
package epoch
