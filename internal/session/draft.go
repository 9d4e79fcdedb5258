package session

import (
	"context"
	"iter"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/storage"
)

// The following is for merges, which read versions without a commit yet and write a part of one.

// Namespace are the keys that a Draft writes.
type Namespace struct {
	// Prefix begins all of them.
	Prefix []byte
	// Holds reports whether a key is one of them.
	Holds func(key []byte) bool
}

// Draft returns a transaction on a commit that writes keys of a namespace; nil are all keys. Its
// changes are not committed: see Tx.Changes. The caller must end it with Tx.Freeze.
func (p *Page) Draft(base *commit.Commit, sink *storage.Journal, within *Namespace) *Tx {
	return &Tx{page: p, base: base, managed: true, release: func() {}, root: base.Root, sink: sink, nodes: sink, within: within}
}

// holds reports whether the transaction may write a key.
func (t *Tx) holds(key []byte) bool { return t.within == nil || t.within.Holds(key) }

// Changes returns the changes in ascending order. The transaction must not change meanwhile.
// Errors, as the last element: as Record.
func (t *Tx) Changes(ctx context.Context) iter.Seq2[btree.Change, error] {
	if t.root == t.base.Root {
		return t.journal.All()
	}
	return func(yield func(btree.Change, error) bool) {
		before, after := t.tree(), t.tree()
		before.Root = t.base.Root
		var err error
		if after.Root, err = t.apply(ctx); err != nil {
			yield(btree.Change{}, err)
			return
		}
		for d, err := range btree.Diff(ctx, before, after, nil) {
			c := btree.Change{Delete: !d.HasRight, Entry: d.Right}
			c.Entry.Key = d.Key
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

// Freeze makes a draft unusable for its users; its changes stay.
func (t *Tx) Freeze() { t.over.Store(true) }

// Version returns a snapshot of a tree, whose values are read from sink. It pins nothing and is
// valid until end is called.
func (p *Page) Version(c *commit.Commit, t btree.Tree, sink *storage.Journal) (s *Snapshot, end func()) {
	v := &state{page: p, commit: c, tree: t, values: sink, release: func() {}, managed: true}
	return &Snapshot{state: v}, func() { v.end() }
}
