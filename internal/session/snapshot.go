package session

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/split"
)

// Snapshot is an immutable version of a page. Its commit is not pruned before Close. It is safe for
// concurrent use.
type Snapshot struct{ *state }

// Reader has the reads of a Snapshot and a Tx, which see one version of a page. See their methods.
type Reader interface {
	Get(ctx context.Context, key []byte) ([]byte, error)
	Lookup(ctx context.Context, key []byte) (fb.Entry, error)
	Seek(ctx context.Context, key []byte) ([]byte, error)
	Iter(o ScanOptions) *Iter
	Origin() Origin
}

// state is the origin of the entries of a snapshot.
type state struct {
	page    *Page
	commit  *commit.Commit
	nodes   completedNodes
	tree    btree.Tree
	values  split.Source
	release func()
	managed bool // by View, which closes it
	over    atomic.Bool
}

// newSnapshot makes a snapshot of a commit that is pinned until release is called. The caller has
// entered the page.
func (p *Page) newSnapshot(c *commit.Commit, release func(), managed bool) *Snapshot {
	both := &struct { // one allocation
		state
		Snapshot
	}{state: state{page: p, commit: c, nodes: completedNodes{enteredNodes{p}, p, c}, values: p.env.Store, release: release, managed: managed}}
	s := &both.state
	s.tree = btree.Tree{Page: p.env.Store.Page(), Source: &s.nodes, Root: c.Root}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.snapshots[s] = struct{}{}
	both.Snapshot.state = s
	return &both.Snapshot
}

// open fails once the snapshot has ended.
func (s *state) open() error {
	if s.over.Load() {
		return fmt.Errorf("snapshot: %w", base.ErrClosed)
	}
	return nil
}

func (s *state) enter() error {
	if err := s.open(); err != nil {
		return err
	}
	return s.page.enter()
}

func (s *state) leave()               { s.page.leave() }
func (s *state) session() *Page       { return s.page }
func (s *state) pieces() split.Source { return s.values }

func (s *state) find(ctx context.Context, key []byte) (fb.Entry, bool, error) {
	return s.tree.Get(ctx, key)
}

// end releases the commit and reports whether this call did so.
func (s *state) end() bool {
	if s.over.Swap(true) {
		return false
	}
	s.release()
	return true
}

// Commit returns the commit that the snapshot shows.
func (s *Snapshot) Commit() *commit.Commit { return s.commit }

// Origin returns the origin of the snapshot's entries.
func (s *Snapshot) Origin() Origin { return s.state }

// Close releases the commit. It is idempotent. Later reads fail with base.ErrClosed.
func (s *Snapshot) Close() {
	s.page.mu.Lock()
	delete(s.page.snapshots, s.state)
	s.page.mu.Unlock()
	s.end()
}

// Get returns the value of key, which belongs to the caller. It reads the whole value into memory;
// see OpenValue for long values. Errors: ErrNotFound, ErrNeedsFetch, ErrTooLarge (it does not fit
// into memory), ErrClosed, ErrCorrupt, those of ctx.
func (s *Snapshot) Get(ctx context.Context, key []byte) ([]byte, error) {
	n, i, err := s.locate(ctx, key)
	if err != nil {
		return nil, err
	}
	if v, inline := n.Value(i); inline {
		return ownedBytes(v), nil
	}
	e := n.Entry(i)
	return ReadValue(ctx, s.state, &e)
}

// Lookup returns the entry of key, borrowed. Errors: base.ErrNotFound, base.ErrClosed,
// base.ErrCorrupt, those of ctx.
func (s *Snapshot) Lookup(ctx context.Context, key []byte) (fb.Entry, error) {
	n, i, err := s.locate(ctx, key)
	if err != nil {
		return fb.Entry{}, err
	}
	return n.Entry(i), nil
}

// Seek returns the first key at or after key; it belongs to the caller. It costs as much as a Get,
// and less than an Iter. Errors: as Get; ErrNotFound when no key follows.
func (s *Snapshot) Seek(ctx context.Context, key []byte) ([]byte, error) {
	if err := s.open(); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("seek: %w", err)
	}
	found, err := s.tree.Seek(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("seek: %w", err)
	}
	if found == nil {
		return nil, errNoEntry
	}
	return ownedBytes(found), nil
}

// locate returns the node with the entry of key, and the entry's number there.
func (s *Snapshot) locate(ctx context.Context, key []byte) (*fb.Node, int, error) {
	if err := s.open(); err != nil {
		return nil, 0, err
	}
	if err := ctx.Err(); err != nil {
		return nil, 0, fmt.Errorf("get: %w", err)
	}
	n, i, err := s.tree.Find(ctx, key)
	if err != nil {
		return nil, 0, fmt.Errorf("get: %w", err)
	}
	if n == nil {
		return nil, 0, errNoEntry
	}
	return n, i, nil
}

// errNoEntry is allocated once, since failed look-ups are frequent.
var errNoEntry = fmt.Errorf("get: no such key: %w", base.ErrNotFound)

// Iter returns an iterator over the entries that o selects, without an allocation per entry.
func (s *Snapshot) Iter(o ScanOptions) *Iter {
	walk := &struct {
		Iter
		cursor snapshotCursor
	}{cursor: snapshotCursor{treeCursor{*s.tree.Cursor(), o.Reverse}, s.state}} // one allocation: often used for one entry
	walk.tree = &walk.cursor.Cursor
	walk.open(s.state, &walk.cursor, o)
	return &walk.Iter
}
