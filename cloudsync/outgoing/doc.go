// Package outgoing makes what goes up to a bucket for one page: bodies of log entries from unsynced
// commits, checkpoints, and ranges of the log (design section 9). It uploads what a body refers to;
// who appends the body is package cloudlog's caller.
//
// A body brings commits with their diffs, the local pieces of the values that these diffs put,
// tags, and packs that no entry has announced yet. Few pieces stand in the body itself; more go to
// packs, which are uploaded first, and whose places become durable here one pack after another. So
// what a crash or a failing bucket leaves behind is used by the next body.
//
// Invariants, cited by number in code and tests:
//
//	I1: a body brings durable commits only, parents before children. The base of a diff is a
//	    parent that is in the body or a head of the log; if there is none, a head of the log or
//	    the empty tree. So who began with the newest checkpoint has it, whatever the commit was
//	    made on.
//	I2: an index piece becomes synced only after all the pieces that it lists. So a walk may stop
//	    at a synced piece.
//	I3: a pack is in the metadata row from the moment in which one of its pieces is synced until
//	    the entry that announces it counts. What was uploaded by an earlier life of the process,
//	    or before an error, is looked for once more before that entry.
//	I4: what is not synced and not held is not sent: nobody here has it.
//	I5: memory follows neither the number of changes nor the length of values: a diff beyond 16
//	    MiB, sealed, lies in a temporary file, and pieces leave for packs when they are more than
//	    1 MiB.
//	I6: nothing of a range can make sync fail, and a range holds only entries that follow from one
//	    another.
//
// # The row of packs
//
// The value of the row sync_metadata/packs, integers as minimal uvarints; there is no row when both
// lists are empty:
//
//	1   format version: 1
//	    number of packs; for each
//	16  id
//	    bytes of the object
//	    number of pieces
//	 1  1 if it holds pieces of EAGER values, else 0
//	33  a piece of the pack, to see whether its place still counts
//	    number of diffs that were uploaded for commits which are unsynced still; for each
//	 1  0 the diff of the commit, 1 that of its explanation
//	32  commit
//	 1  1 if a base follows, 0 for the empty tree
//	32  base
//	16  id of the object
//	    bytes of its plaintext
//
// The row sync_metadata/adoptedpacks, of package ingest, has the packs of the checkpoint with which
// the page began (format.EncodePacks). The row sync_metadata/packrefs has the packs that the last
// checkpoint written here lists, so that the next one asks the bucket only about others: a version
// byte 1, then their number and for each id, bytes, pieces and the byte 0 or 1 as above.
//
// The package imports format, seal, bucket, pack, storage and what these stand on; it must not
// import ingest, cloudlog or cloudsync. A Page's calls run one at a time; an Uploader's goroutines
// run during a call only. It may change with any release.
package outgoing
