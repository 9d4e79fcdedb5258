package session

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// The following is for merges, which read versions without a commit yet and write a part of one.

// Namespace are the keys that begin with a prefix.
type Namespace struct {
	Prefix []byte
	// Others are longer prefixes whose keys are not in the namespace.
	Others [][]byte
}

// Holds reports whether key is in the namespace. A nil namespace holds all keys.
func (n *Namespace) Holds(key []byte) bool {
	return n == nil || bytes.HasPrefix(key, n.Prefix) &&
		!slices.ContainsFunc(n.Others, func(o []byte) bool { return bytes.HasPrefix(key, o) })
}

// Check fails for a key that is not in the namespace. Errors: base.ErrInvalid.
func (n *Namespace) Check(key []byte) error {
	if n.Holds(key) {
		return nil
	}
	return fmt.Errorf("the key is outside of the namespace that is merged: %w", base.ErrInvalid)
}

// Draft returns a transaction on a commit that writes keys of a namespace. Its changes are not
// committed: see Tx.Changes. The caller must end it with Tx.Freeze.
func (p *Page) Draft(base *commit.Commit, sink *storage.Journal, within *Namespace) *Tx {
	return &Tx{page: p, base: base, managed: true, release: func() {}, root: base.Root, sink: sink, nodes: sink, within: within}
}

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

// Version returns a snapshot of a tree, whose values are read from values. It pins nothing and is
// valid until end is called.
func (p *Page) Version(c *commit.Commit, t btree.Tree, values split.Source) (s *Snapshot, end func()) {
	v := &state{page: p, commit: c, tree: t, values: values, release: func() {}, managed: true}
	return &Snapshot{state: v}, func() { v.end() }
}

// Borrow returns an origin for entries with their inline values; other values are read from values.
// After over is set, reads fail with base.ErrTxDone.
func (p *Page) Borrow(values split.Source, over *atomic.Bool) Origin {
	return &borrowed{p, values, over}
}

type borrowed struct {
	page   *Page
	values split.Source
	over   *atomic.Bool
}

var errMergeOver = fmt.Errorf("read a value of a merge that has gone on: %w", base.ErrTxDone)

func (o *borrowed) enter() error {
	if err := o.page.enter(); err != nil {
		return err
	}
	if o.over.Load() {
		o.page.leave()
		return errMergeOver
	}
	return nil
}

func (o *borrowed) leave()               { o.page.leave() }
func (o *borrowed) session() *Page       { return o.page }
func (o *borrowed) pieces() split.Source { return o.values }

// find is never needed: the entries have their inline values.
func (o *borrowed) find(context.Context, []byte) (fb.Entry, bool, error) {
	return fb.Entry{}, false, nil
}
