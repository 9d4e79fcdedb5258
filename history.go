package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// enteredCommits reads commits that heads and commits name, one call at a time, so that a Close
// waits for no more than one of them.
type enteredCommits struct{ p *Page }

// Commit implements commit.Getter.
func (g enteredCommits) Commit(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	return g.p.commitBy(ctx, id, g.p.store.Known)
}

// enteredNodes reads tree nodes one call at a time.
type enteredNodes struct{ p *Page }

// Node implements btree.Source.
func (s enteredNodes) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	if err := s.p.enter(); err != nil {
		return nil, err
	}
	defer s.p.leave()
	n, err := s.p.store.Node(ctx, d)
	if err != nil {
		s.p.note(err)
	}
	return n, err
}

// fetchedRoots reads tree nodes one call at a time. of tells which commit has a root that is not
// here, so that its tree is fetched.
type fetchedRoots struct {
	enteredNodes
	of func(root object.Digest) (commit.ID, bool)
}

// Node implements btree.Source.
func (s fetchedRoots) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	n, err := s.enteredNodes.Node(ctx, d)
	if err == nil || !errors.Is(err, ErrNeedsFetch) {
		return n, err
	}
	id, ok := s.of(d)
	if !ok {
		return nil, err
	}
	if err := s.p.fetchTree(ctx, id); err != nil {
		return nil, err
	}
	return s.enteredNodes.Node(ctx, d)
}

// completedNodes reads the nodes of one commit's tree. A tree of which a part is not here is
// fetched when that part is read: that of a commit that is known as history only, or one that was
// damaged and could not be fetched by the repair.
type completedNodes struct {
	btree.Source
	page   *Page
	commit *commit.Commit
}

// Node implements btree.Source.
func (s *completedNodes) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	n, err := s.Source.Node(ctx, d)
	if err == nil || !errors.Is(err, ErrNeedsFetch) && !errors.Is(err, ErrCorrupt) {
		return n, err
	}
	fetchErr := s.page.ensureTree(ctx, s.commit)
	if errors.Is(fetchErr, ErrGone) {
		return nil, fmt.Errorf("%w: %w", err, fetchErr)
	}
	if fetchErr != nil {
		return nil, fetchErr
	}
	return s.Source.Node(ctx, d)
}

// tree returns the tree of a commit for callers who do not stay entered.
func (p *Page) tree(c *commit.Commit) btree.Tree {
	return btree.Tree{Page: p.shared.key.ID, Source: &completedNodes{enteredNodes{p}, p, c}, Root: c.Root}
}

// rootsOf remembers which of the commits that were read last has which root: a tree is read soon
// after its commit.
type rootsOf struct {
	commit.Getter
	lost   func(commit.ID) bool // whose trees are nowhere any more: another commit may have the same root, and its tree; nil: none
	mu     sync.Mutex
	roots  map[object.Digest]commit.ID // guarded by mu
	recent []object.Digest             // guarded by mu; a ring
	next   int                         // guarded by mu
}

// maxRoots is how many roots are remembered.
const maxRoots = 4096

func newRootsOf(g commit.Getter) *rootsOf {
	return &rootsOf{Getter: g, roots: map[object.Digest]commit.ID{}}
}

// Commit implements commit.Getter.
func (r *rootsOf) Commit(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	c, err := r.Getter.Commit(ctx, id)
	if err == nil {
		r.add(c)
	}
	return c, err
}

// add remembers the root of c.
func (r *rootsOf) add(c *commit.Commit) {
	if r.lost != nil && r.lost(c.ID) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.roots[c.Root]; known {
		return
	}
	r.roots[c.Root] = c.ID
	if len(r.recent) < maxRoots {
		r.recent = append(r.recent, c.Root)
		return
	}
	delete(r.roots, r.recent[r.next])
	r.recent[r.next] = c.Root
	r.next = (r.next + 1) % maxRoots
}

// of returns the commit that has a root.
func (r *rootsOf) of(root object.Digest) (commit.ID, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, ok := r.roots[root]
	return id, ok
}

// Log returns the given commits and all their ancestors, each once, from the greatest generation to
// the first commit; equal generations newest first. The zero id means the handle's head. Without
// arguments it starts from all heads. Errors, as the last element: ErrNotFound, ErrClosed,
// ErrCorrupt, those of ctx.
func (p *Page) Log(ctx context.Context, from ...CommitID) iter.Seq2[Commit, error] {
	return func(yield func(Commit, error) bool) {
		var ids []commit.ID
		for _, id := range from {
			c, release, err := p.pinOutside(ctx, id)
			if err != nil {
				yield(Commit{}, fmt.Errorf("read log: %w", err))
				return
			}
			release()
			ids = append(ids, c.ID)
		}
		if len(ids) == 0 {
			if err := p.enter(); err != nil {
				yield(Commit{}, err)
				return
			}
			for _, h := range p.store.Heads() {
				ids = append(ids, h.ID)
			}
			p.leave()
		}
		for c, err := range commit.Walk(ctx, enteredCommits{p}, ids) {
			if err != nil {
				yield(Commit{}, fmt.Errorf("read log: %w", err))
				return
			}
			if !yield(newCommit(c), nil) {
				return
			}
		}
	}
}

// Change is one key whose entry differs between two commits.
type Change struct {
	Key []byte
	// Old and New are the entries; nil where the key is absent. Not both are nil.
	Old, New *Entry
}

// DiffOptions limit a Diff. Nil means everything.
type DiffOptions struct {
	// Prefix limits the keys to those that begin with it.
	Prefix []byte
	// Start is the first key of interest.
	Start []byte
}

// Diff returns the keys whose entries differ between two commits, in ascending order; a zero id
// means the handle's head. Equal subtrees are skipped, so that the cost follows the number of
// changes. Both commits are kept from being pruned while the loop runs; the values of its entries
// may be read until the page is closed. o may be nil. Errors, as the last element: ErrNotFound,
// ErrClosed, ErrCorrupt, those of ctx.
func (p *Page) Diff(ctx context.Context, from, to CommitID, o *DiffOptions) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		old, releaseOld, err := p.pinOutside(ctx, from)
		if err != nil {
			yield(Change{}, fmt.Errorf("diff: %w", err))
			return
		}
		defer releaseOld()
		cur, releaseCur, err := p.pinOutside(ctx, to)
		if err != nil {
			yield(Change{}, fmt.Errorf("diff: %w", err))
			return
		}
		defer releaseCur()
		var limits DiffOptions
		if o != nil {
			limits = DiffOptions{Prefix: bytes.Clone(o.Prefix), Start: bytes.Clone(o.Start)}
		}
		for d, err := range diffTrees(ctx, p.tree(old), p.tree(cur), limits) {
			if err != nil {
				yield(Change{}, fmt.Errorf("diff: %w", err))
				return
			}
			if !yield(p.newChange(&d), nil) {
				return
			}
		}
	}
}

// diffTrees is btree.Diff within limits.
func diffTrees(ctx context.Context, left, right btree.Tree, o DiffOptions) iter.Seq2[btree.DiffEntry, error] {
	start := o.Start
	if bytes.Compare(o.Prefix, start) > 0 {
		start = o.Prefix
	}
	return func(yield func(btree.DiffEntry, error) bool) {
		for d, err := range btree.Diff(ctx, left, right, start) {
			if err == nil && !bytes.HasPrefix(d.Key, o.Prefix) {
				return
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

func (p *Page) newChange(d *btree.DiffEntry) Change {
	c := Change{Key: append([]byte{}, d.Key...)}
	if d.HasLeft {
		e := newEntry(p, &d.Left, true)
		c.Old = &e
	}
	if d.HasRight {
		e := newEntry(p, &d.Right, true)
		c.New = &e
	}
	return c
}

// pinOutside is pin for a caller who does not stay entered.
func (p *Page) pinOutside(ctx context.Context, id CommitID) (*commit.Commit, func(), error) {
	c, release, err := p.pinFor(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	p.leave()
	return c, release, nil
}

// RestoreOptions say what Restore restores.
type RestoreOptions struct {
	// Prefix limits it to the keys that begin with it; others stay as they are.
	Prefix []byte
	// Message is recorded in the new commit; "" means "restore" and the short id of the commit.
	Message string
}

// Restore makes a new commit on the handle's head with the content of an old one. It returns the id
// of the new commit, or of the head when nothing differs. o may be nil. Like Update it waits for
// the page's write turn, and survives a crash when it returns nil. Errors: ErrNotFound, ErrInvalid
// (the zero id), ErrClosed, ErrReadOnly, ErrNoSpace, ErrCorrupt, those of ctx.
func (p *Page) Restore(ctx context.Context, id CommitID, o *RestoreOptions) (CommitID, error) {
	if o == nil {
		o = &RestoreOptions{}
	}
	if id.IsZero() {
		return CommitID{}, fmt.Errorf("restore: no commit is named: %w", ErrInvalid)
	}
	message := o.Message
	if message == "" {
		message = "restore " + id.Short()
	}
	if err := ValidateMessage(message); err != nil {
		return CommitID{}, fmt.Errorf("restore: %w", err)
	}
	target, release, err := p.pinOutside(ctx, id)
	if err != nil {
		return CommitID{}, fmt.Errorf("restore: %w", err)
	}
	defer release()
	if err := p.ensureTree(ctx, target); err != nil {
		return CommitID{}, fmt.Errorf("restore: %w", err)
	}
	if len(o.Prefix) == 0 {
		return p.restoreAll(ctx, target, message)
	}
	prefix := bytes.Clone(o.Prefix)
	return p.Update(ctx, func(t *Tx) error {
		t.message = message
		return t.restore(ctx, target, prefix)
	})
}

// restoreAll makes a commit with the root of target.
func (p *Page) restoreAll(ctx context.Context, target *commit.Commit, message string) (CommitID, error) {
	if err := p.enter(); err != nil {
		return CommitID{}, err
	}
	defer p.leave()
	call := p.gate.Call(ctx)
	defer call.Release()
	var started time.Time
	head, c, pending, err := p.submitRoot(call, target.Root, message)
	if err != nil {
		return CommitID{}, call.Explain(fmt.Errorf("restore: %w", err))
	}
	if c == nil {
		return p.seen(head)
	}
	if p.ledger.repo.o.Observer != nil {
		started = p.ledger.repo.clock.Now()
	}
	return p.settle(c, pending, 0, started)
}

// submitRoot hands a commit with an old root on the handle's head to the disk.
func (p *Page) submitRoot(ctx context.Context, root object.Digest, message string) (head, c *commit.Commit, pending *storage.Pending, err error) {
	unlock, err := p.store.Lock(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	defer unlock()
	// The journal says whether the disk failed after the head was looked up.
	j := p.store.NewJournal()
	defer j.Rollback()
	if head, err = p.chainedHead(ctx); err != nil {
		return nil, nil, nil, err
	}
	c, pending, err = p.submit(ctx, j, root, head, message)
	return head, c, pending, err
}

// restore records the changes that make the keys with a prefix what they are in target.
func (t *Tx) restore(ctx context.Context, target *commit.Commit, prefix []byte) error {
	if err := t.enter(); err != nil {
		return err
	}
	defer t.leave()
	want := btree.Tree{Page: t.page.shared.key.ID, Source: t.page.store, Root: target.Root}
	for d, err := range diffTrees(ctx, t.tree(), want, DiffOptions{Prefix: prefix}) {
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		c := btree.Change{Delete: !d.HasRight, Entry: d.Right}
		c.Entry.Key = d.Key
		if err := t.journal.Set(&c); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	return nil
}
