// Package sim is the simulator: several devices that edit a page, exchange commits, merge, close
// and crash, in one process, from one seed.
//
// A History is data: a few devices and the steps that they take one after another. Generate makes
// one from a seed, Run carries it out on real page stores in memory, heals it (everything is
// delivered to everybody and merged until nothing changes) and returns an error when a promise was
// broken. What fails can therefore be replayed, cut down to the steps that matter (Minimise), and
// printed as a Go literal for a test.
//
// What Run knows about a history it knows from a model of its own: the graph of all commits, the
// content of each as a map, and a merge of such maps that is as plain as the design's words allow
// (reference.go). The promises, cited by the errors:
//
//	S1: after each step a device has the heads and the commits that follow from the steps, also
//	    after reopening and crashing; what was acknowledged is there.
//	S2: each merge has the content that the plain merge of the model has, and its explanation
//	    tells every conflict.
//	S3: devices whose rules agree make one and the same merge commit of the same two commits.
//	S4: devices that exchange everything come to rest on one head within 2 rounds for each device
//	    and 2 more, and one more round changes nothing.
//	S5: coming to rest takes no more merge commits than there were heads and devices, when the
//	    rules agree and all is delivered before it is merged.
//	S6: every commit is an ancestor of that head; generations and timestamps are those that follow
//	    from the parents.
//	S7: no edit that no other edit overwrote is missing: a key has the value of a write that no
//	    later write of the key knew of, of the newest such write where the history has no
//	    criss-cross and no clock was set back by more than a day, of the only one where there is
//	    one; a counter has the sum of all that was added, a maximum that is only raised the
//	    greatest, a set what was ever put in and not taken out.
//	S8: the stores are whole: Check finds nothing (only where Options ask, since it takes as long
//	    as hundreds of steps).
//
// # With a bucket
//
// GenerateCloud makes histories in which devices exchange commits through nothing but a bucket.
// Each has what syncs a page in an app, told to do so by steps; requests fail, answers are lost,
// bodies are cut and changed; callers leave and the power fails at any request or write, in the
// midst of a sync. Values of some keys come when they are read. Pieces and whole pages are given
// up, disks are replaced by backups and by those of others, rows about the bucket are lost, garbage
// is collected while weeks pass, and the bucket itself is wiped or put back, or loses single
// objects, while processes begin anew or go on. Clocks are set to other years, and devices are
// cloned. Healing then ends the faults, begins all processes anew and lets all sync, or upload anew
// who is told to.
//
//	S9: a call to the bucket ends well, or with an error that what happens explains: no network, a
//	    bad object, another bucket, its caller has left. After a sync that ended well nothing is
//	    unsynced here, and everything is here that any device had been told is in the bucket.
//	S10: a sync without faults asks no more than the model says (see cheap); devices at rest ask
//	     for one object each, and put nothing.
//	S11: all devices, and one that is cloned in the end, have equal tags and the whole content of
//	     the head, byte for byte, with no piece that is here only. A value may be missing only
//	     where
//	    devices had given theirs up and the bucket lost its own. Commits that were on no other
//	            disk than one that was replaced, or that an evicted page left
//	    to a bucket which was lost, may be missing; what is there of them counts. A device may
//	       lack history, no content, when the log has lost two
//	    things: one of which a checkpoint told to who had read past it, and that. Where a rule of
//	            merging needs a value that nobody has any more, the heads stay as they are, and
//	            nothing more is asked for.
//
// # With garbage
//
// GenerateGarbage makes histories of one or two devices that give history up, take snapshots, leave
// transactions open, compact and crash while their garbage is collected: the collector does a step
// between any two steps, and in the midst of syncs. Some histories of GenerateCloud have that, too.
// In the end everything is collected.
//
//	S12: no step of the collector fails; what was pruned is gone, and nothing else. Snapshots, and
//	     all commits that are kept, can be read: each piece is here, or in the bucket. After two
//	    cycles, or four where the bucket may know more, there is no piece and no node that nothing
//	            kept refers to, and nothing that a transaction left. Where the device does not
//	            have
//	    all that leads on, that holds for what is not in the bucket.
//
// Prune gives up what gc.Prune says, with the heads of all devices and backups in mind: as if the
// bucket told how far each device is. Nobody commits on something above which others have pruned,
// nor tags it. Retain lets the bucket itself say what is kept, and each cut gives up the rest: then
// anybody commits on what he has, and tags it; heads stay, and so do commits that are tagged where
// they are given up. Who wrote a value last may be gone when history is given up or pruned: where
// that decides, either side is right (docs/sync.md). A bucket that is lost or
// put back may bring a head back to a device that came when it had been given up. Where history was
// given up and a bucket is lost, or where a tree went with a bucket, devices merge with what each
// has left: then S2, S3, S5 and S7 are not asked for (docs/sync.md, what a lost bucket costs). Tags
// may differ where one device gave up what another tagged meanwhile.
//
// Not simulated here: several syncs of one page at a time, the background and several pages (see
// package background; devices take turns), and a move to a bucket with other keys by choice.
//
// The package imports what a device is made of: storage with what lies under it, merge, and
// cloudsync with package mem as its bucket. S7 follows from the edits alone: it would find a
// mistake that model and merge share.
//
// More kinds of steps have their place in History and World.step, more that a device holds in
// device, more promises in World.verify. Time and randomness come from the history: every device
// has a clock of its own, wrong by as much as the history says, and nothing waits: with a bucket,
// time passes for all when somebody would. Run starts no goroutines but those of stores and syncs,
// and none outlives it. It may change with any release.
package sim
