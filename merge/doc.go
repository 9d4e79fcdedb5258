// Package merge merges the heads of a page. docs/merging.md says what users see of it.
//
// It finds the common ancestors of two commits, streams the three-way difference of their trees,
// has rules decide conflicts, and makes the tree, the merge commits and a record of the decisions.
// It also reads that record: Why returns the commits and merges that gave a key its value, Undo the
// page without the changes of a commit.
//
// Invariants, cited by the tests:
//
//	I1: a merge is a pure function of the two commits and the rules: their content determines
//	    which one is called left (commit.Compare), and nothing of the device has a part in it.
//	I2: a change of one side stands, deletions too; rules decide only about keys that both sides
//	    changed to different content.
//	I3: nodes that a side shares with the base are not read for it; memory depends neither on the
//	    number of changes nor on that of conflicts, except for what owners make and report.
//	I4: a virtual base leaves no commit. What no commit reaches of its tree is garbage.
//	I5: when neither side has a non-merge commit of its own, no rule is asked: so devices with
//	    different rules stop merging each other's merges.
//	I6: no rule is asked about a base, except rules that follow from values alone.
//
// The package decides; storage executes. It must not import storage, bbolt or anything above them;
// of the module it imports btree, commit, split, flatbuffers, object, internal/base and
// internal/limits. It starts no goroutines. Its functions are as safe for concurrent use as their
// arguments. It may change with any release.
package merge
