package merge

import (
	"context"
	"iter"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
)

// Outcome is the decision about a key in conflict.
type Outcome uint8

// The outcomes. The numbers are part of the format of decisions and only ever added to.
const (
	// Undecided is the zero Outcome; a decider may not leave it.
	Undecided Outcome = iota
	// TakeLeft and TakeRight take the entry of a side, with its priority, or its absence.
	TakeLeft
	TakeRight
	// TakeNew takes a new entry.
	TakeNew
	// TakeNone removes the key.
	TakeNone
)

// Conflict is a key that both sides have changed to different content; with Rule.All any key that a
// side has changed.
type Conflict struct {
	// Key is borrowed, as are the entries: they stay valid and must not be changed.
	Key []byte
	// Base, Left and Right are the entries of the key, where they exist.
	Base, Left, Right          fb.Entry
	HasBase, HasLeft, HasRight bool
	// BaseUnknown says that the bases of a criss-cross history disagree about the key; HasBase is
	// then false.
	BaseUnknown bool

	// Outcome is the decider's answer.
	Outcome Outcome
	// New is the entry of TakeNew; its Key is ignored. Its value is stored, see Pair.Store.
	New fb.Entry
	// Rule names the deciding rule, for people: at most MaxRuleBytes bytes.
	Rule string
	// LeftWriter and RightWriter are the commits that gave the key its entry on each side, if the
	// decider looked for them; else zero.
	LeftWriter, RightWriter commit.ID
}

// MaxRuleBytes is the greatest length of a rule's name in bytes.
const MaxRuleBytes = 128

// Decider decides conflicts. The outcome must follow from the content of commits, never from the
// device: devices that merge the same commits must get the same result (I1).
type Decider interface {
	// Decide sets Outcome and Rule of each conflict of cs, which ascend by key. An error ends the
	// merge and is returned wrapped.
	Decide(ctx context.Context, p *Pair, cs []Conflict) error
}

// Owner merges a namespace as a whole.
type Owner interface {
	// Own yields, in ascending order of keys, the changes from Left's content of the namespace
	// prefix to the merged content. Pair.Changes yields the changes of both sides; Pair.Report
	// records decisions.
	Own(ctx context.Context, p *Pair, prefix []byte) iter.Seq2[btree.Change, error]
}

// Rule assigns the keys that begin with Prefix to Decider or Owner, exactly one of them.
type Rule struct {
	Prefix  []byte
	Decider Decider
	// All makes the merge ask the decider about every key that a side has changed, not only about
	// conflicts. The decider is not asked when the merge takes one side whole.
	All   bool
	Owner Owner
}

// Rules choose by key: the rule with the longest prefix of a key counts. The zero Rules are last
// one wins for every key.
type Rules struct {
	Rules []Rule
}
