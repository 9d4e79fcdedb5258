package session

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// enteredNodes reads tree nodes, each in a call of its own.
type enteredNodes struct{ p *Page }

// Node implements btree.Source.
func (s enteredNodes) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	if err := s.p.enter(); err != nil {
		return nil, err
	}
	defer s.p.leave()
	n, err := s.p.env.Store.Node(ctx, d)
	if err != nil {
		s.p.note(err)
	}
	return n, err
}

// completedNodes reads the nodes of one commit's tree. When a read finds a part missing, it fetches
// the tree: the commit may be treeless, or a repair could not fetch a damaged part.
type completedNodes struct {
	btree.Source
	page   *Page
	commit *commit.Commit
}

// Node implements btree.Source.
func (s *completedNodes) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	n, err := s.Source.Node(ctx, d)
	if err == nil || !errors.Is(err, base.ErrNeedsFetch) && !errors.Is(err, base.ErrCorrupt) {
		return n, err
	}
	fetchErr := s.page.EnsureTree(ctx, s.commit)
	if errors.Is(fetchErr, base.ErrGone) {
		return nil, fmt.Errorf("%w: %w", err, fetchErr)
	}
	if fetchErr != nil {
		return nil, fetchErr
	}
	return s.Source.Node(ctx, d)
}

// Tree returns the tree of a commit. The caller need not stay entered.
func (p *Page) Tree(c *commit.Commit) btree.Tree {
	return btree.Tree{Page: p.env.Store.Page(), Source: &completedNodes{enteredNodes{p}, p, c}, Root: c.Root}
}

// Log returns the given commits and all their ancestors, each once, by descending generation down
// to the first commit; within a generation the newest first. The zero id means the handle's head.
// Without arguments Log starts from all heads. Errors, as the last element: ErrNotFound, ErrClosed,
// ErrCorrupt, those of ctx.
func (p *Page) Log(ctx context.Context, from ...commit.ID) iter.Seq2[*commit.Commit, error] {
	return Sequence("read log", func(yield func(*commit.Commit) bool) error {
		var ids []commit.ID
		for _, id := range from {
			c, release, err := p.Pin(ctx, id)
			if err != nil {
				return err
			}
			release()
			ids = append(ids, c.ID)
		}
		if len(ids) == 0 {
			heads, err := p.Heads()
			if err != nil {
				return err
			}
			for _, h := range heads {
				ids = append(ids, h.ID)
			}
		}
		return forward(commit.Walk(ctx, getter(p.durable), ids), yield)
	})
}

// Sequence returns the elements that fn yields; fn stops when yield returns false. An error of fn
// is the last element, wrapped with the name of the work. An error after yield has returned false
// is dropped.
func Sequence[T any](doing string, fn func(yield func(T) bool) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		more := true
		err := fn(func(t T) bool {
			more = yield(t, nil)
			return more
		})
		if err != nil && more {
			var none T
			yield(none, fmt.Errorf("%s: %w", doing, err))
		}
	}
}

// forward yields the elements of a sequence up to its error.
func forward[T any](seq iter.Seq2[T, error], yield func(T) bool) error {
	for t, err := range seq {
		if err != nil {
			return err
		}
		if !yield(t) {
			return nil
		}
	}
	return nil
}

// Diff returns the keys whose entries differ between two commits, in ascending order; a zero id
// means the handle's head. It skips equal subtrees, so that the cost follows the number of changes.
// Neither commit is pruned while the loop runs; the values of its entries may be read until the
// page is closed. Keys that do not begin with prefix, and keys below start, are left out. Errors,
// as the last element: ErrNotFound, ErrClosed, ErrCorrupt, those of ctx.
func (p *Page) Diff(ctx context.Context, from, to commit.ID, prefix, start []byte) iter.Seq2[btree.DiffEntry, error] {
	return Sequence("diff", func(yield func(btree.DiffEntry) bool) error {
		old, releaseOld, err := p.Pin(ctx, from)
		if err != nil {
			return err
		}
		defer releaseOld()
		cur, releaseCur, err := p.Pin(ctx, to)
		if err != nil {
			return err
		}
		defer releaseCur()
		return forward(diffTrees(ctx, p.Tree(old), p.Tree(cur), bytes.Clone(prefix), bytes.Clone(start)), yield)
	})
}

// diffTrees is btree.Diff within limits.
func diffTrees(ctx context.Context, left, right btree.Tree, prefix, start []byte) iter.Seq2[btree.DiffEntry, error] {
	if bytes.Compare(prefix, start) > 0 {
		start = prefix
	}
	return func(yield func(btree.DiffEntry, error) bool) {
		for d, err := range btree.Diff(ctx, left, right, start) {
			if err == nil && !bytes.HasPrefix(d.Key, prefix) || !yield(d, err) {
				return
			}
		}
	}
}

// Restore makes a new commit on the handle's head that resets the keys that begin with one of
// prefixes, without prefixes all keys, to an old commit. It returns the id of the new commit, or of
// the head when nothing differs. The message "" means "restore" and the short id. Like Update it
// waits for the page's write turn, and survives a crash when it returns nil. Errors: ErrNotFound,
// ErrInvalid (the zero id), ErrClosed, ErrReadOnly, ErrNoSpace, ErrCorrupt, those of ctx.
func (p *Page) Restore(ctx context.Context, id commit.ID, prefixes [][]byte, message string) (commit.ID, error) {
	if id.IsZero() {
		return commit.ID{}, fmt.Errorf("restore: no commit is named: %w", base.ErrInvalid)
	}
	message = cmp.Or(message, "restore "+id.Short())
	if err := ValidateMessage(message); err != nil {
		return commit.ID{}, fmt.Errorf("restore: %w", err)
	}
	target, release, err := p.Pin(ctx, id)
	if err != nil {
		return commit.ID{}, fmt.Errorf("restore: %w", err)
	}
	defer release()
	if err := p.EnsureTree(ctx, target); err != nil {
		return commit.ID{}, fmt.Errorf("restore: %w", err)
	}
	return p.Update(ctx, func(t *Tx) error {
		t.message = message
		if len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p []byte) bool { return len(p) == 0 }) {
			t.root = target.Root
			return nil
		}
		for _, prefix := range prefixes {
			if err := t.restore(ctx, target, prefix); err != nil {
				return err
			}
		}
		return nil
	})
}

// restore records the changes that reset the keys with a prefix to target.
func (t *Tx) restore(ctx context.Context, target *commit.Commit, prefix []byte) error {
	if err := t.enter(); err != nil {
		return err
	}
	defer t.leave()
	want := btree.Tree{Page: t.page.env.Store.Page(), Source: t.page.env.Store, Root: target.Root}
	for d, err := range diffTrees(ctx, t.tree(), want, prefix, nil) {
		if err != nil {
			return fmt.Errorf("restore: %w", err)
		}
		if err := t.Record(ctx, d.Key, &d.Right, d.HasRight); err != nil {
			return fmt.Errorf("restore: %w", err)
		}
	}
	return nil
}
