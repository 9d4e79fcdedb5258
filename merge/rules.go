package merge

import (
	"context"
	"iter"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
)

// Outcome is what becomes of a key in conflict.
type Outcome uint8

// The outcomes. The numbers are part of the format of decisions and only ever added to.
const (
	// Undecided is the zero Outcome; a decider may not leave it.
	Undecided Outcome = iota
	// TakeLeft and TakeRight take what a side has, its priority and its absence included.
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
	// Base, Left and Right are the entries of the key, each as far as there is one.
	Base, Left, Right          fb.Entry
	HasBase, HasLeft, HasRight bool
	// BaseUnknown tells that the bases of a criss-cross history do not agree about the key; HasBase
	// is then false.
	BaseUnknown bool

	// Outcome is the decider's answer.
	Outcome Outcome
	// New is the entry of TakeNew; its Key is ignored. Its value is stored, see Pair.Store.
	New fb.Entry
	// Rule names what decided, for people: at most MaxRuleBytes bytes.
	Rule string
	// LeftWriter and RightWriter are the commits that gave the key what it has on each side, as far
	// as the decider looked for them; else zero.
	LeftWriter, RightWriter commit.ID
}

// MaxRuleBytes is the greatest length of a rule's name in bytes.
const MaxRuleBytes = 128

// Decider decides conflicts. The outcome must follow from what commits contain, never from the
// device: both devices that merge the same commits must come to the same (I1).
type Decider interface {
	// Decide sets Outcome and Rule of each conflict of cs, which ascend by key. An error ends the
	// merge and is returned wrapped.
	Decide(ctx context.Context, p *Pair, cs []Conflict) error
}

// Owner merges a namespace as a whole.
type Owner interface {
	// Own yields, in ascending order of keys, the changes that make the merged content of the
	// namespace prefix of what Left has there. Pair.Changes gives what both sides have changed;
	// Pair.Report records decisions.
	Own(ctx context.Context, p *Pair, prefix []byte) iter.Seq2[btree.Change, error]
}

// Rule says who merges the keys that begin with Prefix: Decider or Owner, one of them.
type Rule struct {
	Prefix  []byte
	Decider Decider
	// All has the decider asked about every key that a side has changed, not just about conflicts.
	// It is not asked about a side without changes when the merge needs no key by key work.
	All   bool
	Owner Owner
}

// Rules choose by key: the rule with the longest prefix of a key counts. The zero Rules are last
// one wins for every key.
type Rules struct {
	Rules []Rule
}
