// Package sim is the simulator: several devices that edit a page, exchange commits, merge, close and crash, in one process, from one seed.
//
// A History is data: a few devices and the steps that they take one after another. Generate makes one from a seed, Run carries it out on real
// page stores in memory, heals it (everything is delivered to everybody and merged until nothing changes) and returns an error when a promise was
// broken. What fails can therefore be replayed, cut down to the steps that matter (Minimise), and printed as a Go literal for a test.
//
// What Run knows about a history it knows from a model of its own: the graph of all commits, the content of each as a map, and a merge of such
// maps that is as plain as the design's words allow (reference.go). The promises, cited by the errors:
//
//	S1: after each step a device has the heads and the commits that follow from the steps, also after reopening and crashing; what was
//	    acknowledged is there.
//	S2: each merge has the content that the plain merge of the model has, and its explanation tells every conflict.
//	S3: devices whose rules agree make one and the same merge commit of the same two commits.
//	S4: devices that exchange everything come to rest on one head within 2 rounds for each device and 2 more, and one more round changes nothing.
//	S5: coming to rest takes no more merge commits than there were heads and devices, when the rules agree and all is delivered before it is merged.
//	S6: every commit is an ancestor of that head; generations and timestamps are those that follow from the parents.
//	S7: no edit that no other edit overwrote is missing: a key has the value of a write that no later write of the key knew of, of the newest such
//	    write where the history has no criss-cross, of the only one where there is one; a counter has the sum of all that was added, a maximum that is
//	    only raised the greatest, a set what was ever put in and not taken out.
//	S8: the stores are whole: Check finds nothing (only where Options ask, since it takes as long as hundreds of steps).
//
// The package imports what a device is made of: storage with what lies under it, and merge. S7 follows from the edits alone: it would find a mistake that model and merge share.
//
// More kinds of steps have their place in History and World.step, more that a device holds in device, more promises in World.verify. Time and
// randomness come from the history: every device has a clock of its own, wrong by as much as the history says, and nothing waits. Run starts no
// goroutines but those of the stores, and none outlives it. It may change with any release.
package sim
