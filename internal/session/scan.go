package session

import (
	"bytes"
	"context"
	"fmt"

	"github.com/ledgerd/ledger/btree"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
)

// ScanOptions select entries. The zero value selects all of them, in ascending order.
type ScanOptions struct {
	// Prefix limits the keys to those that begin with it.
	Prefix []byte
	// Start is the lower limit of the keys, inclusive, and End the upper limit, exclusive; nil
	// means no limit. Both keep this meaning with Reverse.
	Start, End []byte
	// Reverse gives the entries in descending order.
	Reverse bool
	// KeysOnly says that the caller copies no inline values.
	KeysOnly bool
	// Limit is the greatest number of entries; 0 means no limit.
	Limit int
}

// Iter walks over entries with borrowed memory. It is for one goroutine at a time. It allocates
// nothing for each entry.
type Iter struct {
	from     Origin
	src      entryCursor
	lo, hi   []byte // nil: no limit
	reverse  bool
	keysOnly bool
	limit    int
	n        int // entries returned so far, including the run
	moves    int // of src
	entry    fb.Entry
	started  bool

	// The run is a sequence of adjacent entries in one tree node, returned without moving src.
	tree *btree.Cursor // of a snapshot, nil in a transaction
	node *fb.Node      // nil outside of a run
	i    int           // the present entry of node
	stop int           // the last entry of the run
	step int           // from one entry of the run to the next: 1, or -1 when reverse
	done bool
	err  error
}

// entryCursor walks over the entries of a version of a page, in one direction. The caller has not
// entered, and its moves fail after the end of their origin.
type entryCursor interface {
	// start moves to the first entry at or after bound, or in reverse to the last entry before it;
	// nil is the end from which the direction starts.
	start(ctx context.Context, bound []byte) (bool, error)
	// step moves to the next entry.
	step(ctx context.Context) (bool, error)
	// entry is borrowed until the next move.
	entry() fb.Entry
}

// treeCursor walks over a tree.
type treeCursor struct {
	btree.Cursor
	reverse bool
}

func (c *treeCursor) start(ctx context.Context, bound []byte) (bool, error) {
	switch {
	case !c.reverse:
		return c.Seek(ctx, bound)
	case bound == nil:
		return c.Last(ctx)
	}
	return c.SeekBefore(ctx, bound)
}

func (c *treeCursor) step(ctx context.Context) (bool, error) {
	if c.reverse {
		return c.Prev(ctx)
	}
	return c.Next(ctx)
}

// snapshotCursor is the entryCursor of a snapshot. Only the reading of a node enters: to enter at
// each move would make the processor wait for all memory that it reads ahead.
type snapshotCursor struct {
	treeCursor
	of *state
}

func (c *snapshotCursor) start(ctx context.Context, bound []byte) (bool, error) {
	if err := c.of.open(); err != nil {
		return false, err
	}
	return c.treeCursor.start(ctx, bound)
}

func (c *snapshotCursor) step(ctx context.Context) (bool, error) {
	if err := c.of.open(); err != nil {
		return false, err
	}
	return c.treeCursor.step(ctx)
}

func (c *snapshotCursor) entry() fb.Entry { return c.Entry() }

// startRun finds the adjacent entries that are also in the range.
func (it *Iter) startRun() {
	if it.tree == nil {
		return
	}
	n, first, i, last := it.tree.Run()
	left := last - i
	if it.reverse {
		if first < i && it.lo != nil {
			k, _ := n.Search(it.lo)
			first = max(first, k)
		}
		left = i - first
	} else if left > 0 && it.hi != nil {
		k, _ := n.Search(it.hi)
		left = min(last, k-1) - i
	}
	left = max(left, 0)
	if it.limit > 0 {
		left = min(left, it.limit-it.n)
	}
	it.n += left
	it.node, it.i, it.stop = n, i, i+left*it.step
}

// endRun moves the cursor to the present entry of the run.
func (it *Iter) endRun() {
	if it.node != nil {
		it.tree.Jump(it.i)
		it.node = nil
	}
}

// open makes it, which is zero, an iterator over the entries that o selects.
func (it *Iter) open(from Origin, src entryCursor, o ScanOptions) {
	it.from, it.src, it.reverse, it.keysOnly, it.limit = from, src, o.Reverse, o.KeysOnly, o.Limit
	if o.Limit < 0 {
		it.fail(fmt.Errorf("scan with a limit of %d entries: %w", o.Limit, base.ErrInvalid))
		return
	}
	it.step = 1
	if it.reverse {
		it.step = -1
	}
	lo, hi := o.Start, o.End
	if bytes.Compare(o.Prefix, lo) > 0 {
		lo = o.Prefix
	}
	if end := base.PrefixEnd(o.Prefix); end != nil && (hi == nil || bytes.Compare(end, hi) < 0) {
		hi = end
	}
	it.lo, it.hi = bytes.Clone(lo), bytes.Clone(hi)
}

// checkEvery is the number of moves between nodes after which an iterator checks its context.
const checkEvery = 16

// Next moves to the next entry, at first to the first one. It returns false at the end and on an
// error; see Err. It checks ctx, and whether the source is still open, between tree nodes, not at
// each entry.
func (it *Iter) Next(ctx context.Context) bool {
	if it.i != it.stop { // short enough to be inlined
		it.i += it.step
		return true
	}
	return it.nextRun(ctx)
}

func (it *Iter) nextRun(ctx context.Context) bool {
	if it.done {
		return false
	}
	it.endRun()
	if it.limit > 0 && it.n == it.limit {
		it.end()
		return false
	}
	if it.moves++; it.moves%checkEvery == 1 {
		if err := ctx.Err(); err != nil {
			return it.fail(fmt.Errorf("scan: %w", err))
		}
	}
	ok, err := it.move(ctx)
	if err != nil {
		return it.fail(fmt.Errorf("scan: %w", err))
	}
	if ok && it.tree != nil {
		ok = it.within(it.tree.Key())
	} else if ok {
		it.entry = it.src.entry()
		ok = it.within(it.entry.Key)
	}
	if !ok {
		it.end()
		return false
	}
	it.n++
	it.startRun()
	return true
}

func (it *Iter) move(ctx context.Context) (bool, error) {
	if it.started {
		return it.src.step(ctx)
	}
	it.started = true
	bound := it.lo
	if it.reverse {
		bound = it.hi
	}
	return it.src.start(ctx, bound)
}

func (it *Iter) within(key []byte) bool {
	if it.reverse {
		return bytes.Compare(key, it.lo) >= 0
	}
	return it.hi == nil || bytes.Compare(key, it.hi) < 0
}

func (it *Iter) fail(err error) bool {
	it.err = err
	it.end()
	return false
}

func (it *Iter) end() {
	it.done, it.entry, it.node, it.i, it.stop = true, fb.Entry{}, nil, 0, 0
}

// Key returns the entry's key, borrowed until the next call of Next.
func (it *Iter) Key() []byte {
	if it.node != nil {
		return it.node.Key(it.i)
	}
	return it.entry.Key
}

// Value reads the entry's value into memory, whatever its length. It belongs to the caller;
// InlineValue avoids the copy of a short value. Errors: as Entry.Value; ErrInvalid before the first
// Next and after the last.
func (it *Iter) Value(ctx context.Context) ([]byte, error) {
	if !it.started || it.done {
		return nil, fmt.Errorf("read the value of an iterator that stands at no entry: %w", base.ErrInvalid)
	}
	e := it.Current()
	return ReadValue(ctx, it.from, &e)
}

// InlineValue returns the entry's value, borrowed until the next call of Next, when it is
// inline: at most 256 bytes, stored in the tree entry itself. For any other value ok is false, and
// Value reads it.
func (it *Iter) InlineValue() (value []byte, ok bool) {
	if it.node != nil {
		return it.node.Value(it.i)
	}
	return it.entry.Value, it.entry.Inline
}

// Size returns the length of the entry's value in bytes.
func (it *Iter) Size() int64 { return int64(it.Current().Size) }

// Current returns the present entry, borrowed.
func (it *Iter) Current() fb.Entry {
	if it.node != nil {
		return it.node.Entry(it.i)
	}
	return it.entry
}

// Origin returns the origin of the entries.
func (it *Iter) Origin() Origin { return it.from }

// KeysOnly reports the value of ScanOptions.KeysOnly.
func (it *Iter) KeysOnly() bool { return it.keysOnly }

// Err returns the error that ended the walk, nil at a regular end.
func (it *Iter) Err() error { return it.err }
