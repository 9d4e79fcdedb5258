package session

import (
	"bytes"
	"context"

	"github.com/ledgerd/ledger/btree"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
)

// The sizes of the batches in which a cursor reads the journal. A change of the transaction
// invalidates the batch, so the first batch is small.
const (
	minCursorBatch = 1
	maxCursorBatch = 512
)

// txCursor is the entryCursor of a transaction: it merges the entries of the base tree and the
// changes of the journal. Both sides stand at their first entry after at; after changes of the
// transaction they are read again.
type txCursor struct {
	t       *Tx
	reverse bool
	at      []byte // the lower bound of the next entry, in reverse the upper one; nil for the end
	current fb.Entry

	tree    treeCursor
	root    object.Digest // of tree
	stale   bool          // tree still stands at the last returned entry
	changes []btree.Change
	passed  int // of changes
	more    bool
	version uint64
	batch   int // 0 before the first step
}

func newTxCursor(t *Tx, reverse bool) *txCursor {
	return &txCursor{t: t, reverse: reverse}
}

func (c *txCursor) entry() fb.Entry { return c.current }

func (c *txCursor) start(ctx context.Context, bound []byte) (bool, error) {
	c.at = bytes.Clone(bound)
	return c.step(ctx)
}

// step moves to the first entry after at.
func (c *txCursor) step(ctx context.Context) (bool, error) {
	if err := c.t.enter(); err != nil {
		return false, err
	}
	defer c.t.leave()
	if err := c.refresh(ctx); err != nil {
		return false, err
	}
	for {
		change, has := c.head()
		onTree := c.tree.Valid()
		order := 0
		switch {
		case !has && !onTree:
			c.current = fb.Entry{}
			return false, nil
		case !has:
			order = 1
		case !onTree:
			order = -1
		default:
			order = bytes.Compare(change.Entry.Key, c.tree.Key())
			if c.reverse {
				order = -order
			}
		}
		if order > 0 {
			c.give(c.tree.Entry())
			c.stale = true
			return true, nil
		}
		c.passed++
		if order == 0 {
			if _, err := c.tree.step(ctx); err != nil {
				return false, err
			}
		}
		if !change.Delete {
			c.give(change.Entry)
			return true, nil
		}
		c.setAt(change.Entry.Key)
	}
}

func (c *txCursor) give(e fb.Entry) {
	c.current = e
	c.setAt(e.Key)
}

// setAt moves the cursor after a key.
func (c *txCursor) setAt(key []byte) {
	if c.at = append(c.at[:0], key...); !c.reverse {
		c.at = append(c.at, 0)
	} else if c.at == nil {
		c.at = []byte{}
	}
}

// refresh moves both sides after at, also after changes of the transaction.
func (c *txCursor) refresh(ctx context.Context) (err error) {
	if c.batch == 0 || c.root != c.t.root {
		c.tree, c.root = treeCursor{*c.t.tree().Cursor(), c.reverse}, c.t.root
		_, err = c.tree.start(ctx, c.at)
	} else if c.stale {
		_, err = c.tree.step(ctx)
	}
	if c.stale = false; err != nil {
		return err
	}
	if c.batch == 0 || c.version != c.t.journal.Version() {
		c.batch = minCursorBatch
		c.read()
	}
	return nil
}

// head returns the first change that has not been passed, and whether there is one.
func (c *txCursor) head() (btree.Change, bool) {
	if c.passed == len(c.changes) && c.more {
		c.batch = min(2*c.batch, maxCursorBatch)
		c.read() // all passed changes are before at
	}
	if c.passed == len(c.changes) {
		return btree.Change{}, false
	}
	return c.changes[c.passed], true
}

func (c *txCursor) read() {
	c.changes = c.t.journal.Batch(c.changes, c.at, c.reverse, c.batch)
	c.passed, c.more, c.version = 0, len(c.changes) == c.batch, c.t.journal.Version()
}
