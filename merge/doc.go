// Package merge makes the heads of a page come together. docs/merging.md says what users see of it.
//
// It finds the common ancestors of two commits, streams the three-way difference of their trees,
// has conflicts decided by rules, and makes the tree, the merge commits and a record of what
// decided each conflict. It also reads that record back: Why tells which commits and merges gave a
// key its value, Undo what a page would be without a commit.
//
// Invariants, cited by the tests:
//
//	I1: a merge is a pure function of the two commits and the rules: which one is called left
//	    follows from what they contain (commit.Compare), and nothing else of the device has a part
//	    in it.
//	I2: a change of one side stands, deletions too; only keys that both sides changed to different
//	    content are decided by rules.
//	I3: nodes that a side shares with the base are not read for it; memory follows neither the
//	    number of changes nor that of conflicts.
//	I4: a virtual base leaves nothing behind: no commit, and no node that a commit reaches.
//	I5: when neither side has a commit of its own that is no merge, no rule is asked: so devices
//	    whose rules disagree come to rest.
//	I6: no rule is asked about a base, except rules that follow from values alone.
//
// The package decides; storage executes. It must not import storage, bbolt or anything above them;
// of the module it imports btree, commit, split, flatbuffers, object, internal/base and
// internal/limits. It starts no goroutines. Its functions may be called concurrently as far as what
// they are given may. It may change with any release.
package merge
