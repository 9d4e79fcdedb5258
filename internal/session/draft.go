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
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
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

// Draft returns a transaction on a tree that writes keys of a namespace. Its changes are not
// committed: see Tx.Changes. The caller must end it with Tx.Forget.
func (p *Page) Draft(base *commit.Commit, root object.Digest, sink *Sink, within *Namespace) *Tx {
	t := &Tx{page: p, base: base, managed: true, release: func() {}, root: root, sink: sink, nodes: sink, within: within}
	t.journal.Init(p.env.JournalBytes, p.env.Store.TempDir())
	return t
}

// Record gives key an entry, or none. Errors: those of the file system.
func (t *Tx) Record(key []byte, e *fb.Entry, has bool) error { return t.journal.SetTo(key, e, has) }

// Changes returns the changes in ascending order. The transaction must not change meanwhile.
// Errors, as the last element: base.ErrCorrupt, those of the file system.
func (t *Tx) Changes() iter.Seq2[btree.Change, error] { return t.journal.All() }

// Freeze makes a draft unusable for its users; its changes stay.
func (t *Tx) Freeze() { t.over.Store(true) }

// Forget ends a draft.
func (t *Tx) Forget() {
	t.Freeze()
	t.page.env.Warn(t.journal.Clear())
}

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
