// Package sim is the simulator: several devices that edit a page, exchange commits, merge, close
// and crash, in one process, from one seed.
//
// A History is data: a few devices and their steps in sequence. Generate makes a History from a
// seed. Run carries it out on real page stores in memory, and heals it: all commits are delivered
// to all devices and merged until nothing changes. Run returns an error when a promise was broken.
// So a failure can be replayed, reduced to the relevant steps (Minimise), and printed as a Go
// literal for a test.
//
// Run checks a history against a model: the graph of all commits, the content of each as a map, and
// a merge of such maps that is as simple as the design allows (reference.go). Errors cite these
// promises:
//
//	S1: after each step a device has the heads and the commits that follow from the steps, also
//	    after reopening and crashing; acknowledged commits are there.
//	S2: each merge has the content of the model's plain merge, and its explanation lists every
//	    conflict.
//	S3: devices whose rules agree make the same merge commit of the same two commits.
//	S4: devices that exchange everything reach one head within 2 rounds for each device and 2
//	    more, and one more round changes nothing.
//	S5: reaching that head takes no more merge commits than there were heads and devices, when the
//	    rules agree and all is delivered before it is merged.
//	S6: every commit is an ancestor of that head; generations and timestamps are those that follow
//	    from the parents.
//	S7: no edit is missing unless another edit overwrote it. A key has the value of a write that
//	    was not an ancestor of a later write of the key. It is the newest such write where the
//	    history has no criss-cross and no clock was set back by more than a day, and the only
//	    such write where there is just one. After a criss-cross a maximum that was also lowered
//	    has the value of any write. A counter has the sum of all additions, a maximum that is
//	    only raised the greatest value, a set every element put in and not taken out.
//	S8: the stores are intact: Check finds nothing (only if Options request it, since it takes as
//	    long as hundreds of steps).
//
// # With a bucket
//
// GenerateCloud makes histories in which devices exchange commits only through a bucket. Each
// device has the sync of an app, driven by steps. Requests fail, answers are lost, bodies are cut
// and changed. Callers leave and the power fails at any request or write, also during a sync.
// Values of some keys are lazy. Pieces and whole pages are given up. Disks are replaced by backups
// and by those of others, and rows about the bucket are lost. Garbage is collected while weeks
// pass. The bucket itself is wiped or rolled back, or loses single objects, while processes restart
// or go on. Clocks are set to other years, and devices are cloned. Healing then ends the faults,
// restarts all processes, and lets all devices sync, or upload again if sync requires it.
//
//	S9: a call to the bucket succeeds, or its error follows from the events: no network, a bad
//	    object, another bucket, the caller has left. After a successful sync the device has no
//	    unsynced commits, and has everything reported to any device as being in the bucket.
//	S10: a sync without faults makes no more requests than the model allows (see cheap); a device
//	     at rest requests one object, and puts nothing.
//	S11: all devices, and one cloned at the end, have equal tags and the whole content of the
//	     head, byte for byte, with no piece that exists only there. A value may be missing only
//	     where devices gave up their copies and the bucket lost its own. Commits may be missing
//	     when their only disk was replaced, or when an evicted page left them to a bucket that
//	     was lost; the commits that remain count. A device may lack history, but no content, when
//	     the log has lost two things: the first was covered by a checkpoint for devices that had
//	     read past it, and the second is that checkpoint. Where a merge rule needs a lost value,
//	     the heads stay as they are, and nothing more is required.
//
// # With garbage
//
// GenerateGarbage makes histories of one or two devices that give up history, take snapshots, leave
// transactions open, compact and crash while their garbage is collected. The collector does a step
// between any two steps, and during syncs. Some histories of GenerateCloud do this, too. At the end
// everything is collected.
//
//	S12: no step of the collector fails; exactly the pruned commits are gone. Snapshots and all
//	     kept commits can be read: each piece is here, or in the bucket. After two cycles, or
//	     four where the bucket may have more, no piece or node is left without a reference from
//	     kept data, and nothing from a transaction. Where the device lacks nodes or pieces that
//	     may refer to others, this holds only for data outside of the bucket.
//
// Prune gives up what gc.Prune selects, in view of the heads of all devices and backups, as if the
// bucket had recorded the position of each device. Then no device commits on or tags a commit below
// a pruned one. Retain sets the retention of the bucket, and each cut gives up the rest. Any device
// may then commit on its commits and tag them. Heads stay, and so do commits tagged on the device
// that gives up others. The last writer of a value may be given up or pruned: where it decides,
// either side is right (docs/sync.md). A lost or rolled back bucket may return a head to a device
// that joined after it had been given up. After history was given up and a bucket lost, or when a
// tree was lost with a bucket, each device merges with its remaining data. Then S2, S3, S5 and S7
// do not apply (docs/sync.md, what a lost bucket costs). Tags may differ where one device gave up a
// commit that another tagged meanwhile.
//
// Not simulated here: concurrent syncs of one page, background sync and several pages (see package
// background; devices take turns), and a move to a bucket with other keys by choice.
//
// The package imports the parts of a device: storage with the packages below it, merge, and
// cloudsync with package mem as its bucket. S7 follows from the edits alone, so it finds mistakes
// that model and merge share.
//
// Add new kinds of steps to History and World.step, new state of a device to device, and new
// promises to World.verify. Time and randomness come from the history. Every device has its own
// clock, with an error given by the history. No call waits: with a bucket, a wait advances the time
// for all. Run starts no goroutines except those of stores and syncs, and none outlives it. The API
// may change with any release.
package sim
