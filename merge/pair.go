package merge

import (
	"context"
	"errors"
	"io"
	"iter"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
)

// Pair is a merge of two commits while it is being made.
type Pair struct {
	// Left and Right are the commits, Left the lesser in the order of commit.Compare.
	Left, Right *commit.Commit
	// Base is the tree of the common ancestor. In a criss-cross history, with several Bases, it is the virtual one, in which
	// the keys about which the bases do not agree are absent; Unknown has these keys then.
	Base, Unknown btree.Tree
	Bases         []*commit.Commit
	// LeftTree and RightTree are the trees of the sides.
	LeftTree, RightTree btree.Tree

	env *Env
}

var errNotBuilt = errors.New("not built yet")

// Changes yields, in order, every key with a prefix that a side has changed, as conflicts without outcome: also when only one side has, or
// both to the same content. The last pair has the error, if there is one.
func (p *Pair) Changes(ctx context.Context, prefix []byte) iter.Seq2[Conflict, error] {
	return func(yield func(Conflict, error) bool) { yield(Conflict{}, errNotBuilt) }
}

// Report records a decision of an Owner. c must have a Key, an Outcome and a Rule. A later report of a key replaces an earlier one.
func (p *Pair) Report(ctx context.Context, c *Conflict) error { return errNotBuilt }

// Open returns a reader of the value of an entry. It belongs to the caller.
func (p *Pair) Open(ctx context.Context, e *fb.Entry) io.ReadSeeker { return nil }

// Value reads a value of at most limit bytes into memory; it must not be changed. Errors match base.ErrTooLarge beyond that, or are those
// of reading pieces.
func (p *Pair) Value(ctx context.Context, e *fb.Entry, limit int64) ([]byte, error) {
	return nil, errNotBuilt
}

// Store stores a value for an outcome TakeNew and returns its entry without key. A short value is inline, and then always eager.
func (p *Pair) Store(ctx context.Context, value []byte, priority object.Priority) (fb.Entry, error) {
	return fb.Entry{}, errNotBuilt
}

// StoreReader is Store for what r gives until io.EOF; memory does not depend on its length.
func (p *Pair) StoreReader(ctx context.Context, r io.Reader, priority object.Priority) (fb.Entry, error) {
	return fb.Entry{}, errNotBuilt
}

// Newest returns TakeLeft or TakeRight for the side that wrote one of the keys last, by the rule of LastOneWins. keys ascend.
func (p *Pair) Newest(ctx context.Context, keys [][]byte) (Outcome, error) { return 0, errNotBuilt }

// Heads merges heads into one, two at a time in the order of commit.Compare, and returns the merges in order: N-1 for N heads, none for one. No
// head may be an ancestor of another. What the commits reach is in e.Sink; they are not stored. When Heads
// fails, what e.Sink has received is of no use.
func Heads(ctx context.Context, e *Env, rules Rules, heads []*commit.Commit) ([]Merged, error) {
	return nil, errNotBuilt
}

// Relation says how two commits are related.
type Relation struct {
	// Bases are the maximal common ancestors, in the order of commit.Compare: at least one. When one of the commits is an
	// ancestor of the other, it is the only one.
	Bases []*commit.Commit
	// LeftOwn and RightOwn tell whether a side has a commit that the other has not and that is no merge.
	LeftOwn, RightOwn bool
}

// Relate finds the common ancestors of two commits. It reads the commits between them and their bases, and few more. Errors: those of
// the Getter, *base.CorruptError, that of ctx.
func Relate(ctx context.Context, g commit.Getter, left, right *commit.Commit) (Relation, error) {
	return Relation{}, errNotBuilt
}

var _ = split.NewReader
