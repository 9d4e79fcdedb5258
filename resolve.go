package ledger

import (
	"container/heap"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ledgerd/ledger/commit"
)

// maxCandidates is how many commits the error about an ambiguous prefix lists.
const maxCandidates = 10

// Resolve finds the commit that a revision names:
//
//	HEAD                      the handle's head
//	NAME                      a tag
//	3f2a...                   at least 4 digits of a commit id, when no other begins so
//	2024-05-01, RFC 3339      the newest ancestor of the handle's head that is not younger; a date
//	                          means its end in UTC
//	REV~n                     the nth first parent of REV; ~ alone means ~1. Of a merge, the newer
//	                          parent is the first
//
// They are tried in this order. Errors: ErrNotFound, ErrInvalid (an ambiguous prefix; the error
// lists the candidates), ErrClosed, ErrCorrupt, those of ctx.
func (p *Page) Resolve(ctx context.Context, revision string) (CommitID, error) {
	name, steps, err := parseRevision(revision)
	if err != nil {
		return CommitID{}, err
	}
	c, err := p.resolveName(ctx, name)
	if err != nil {
		return CommitID{}, err
	}
	if steps > c.Generation {
		return CommitID{}, fmt.Errorf("revision %q: commit %s has at most %d ancestors in a row: %w", revision, c.ID.Short(), c.Generation, ErrNotFound)
	}
	for range steps {
		if c.IsFirst() {
			return CommitID{}, fmt.Errorf("revision %q goes beyond the first commit: %w", revision, ErrNotFound)
		}
		if c, err = p.firstParent(ctx, c); err != nil {
			return CommitID{}, fmt.Errorf("revision %q: %w", revision, err)
		}
	}
	return CommitID(c.ID), nil
}

func (p *Page) resolveName(ctx context.Context, name string) (*commit.Commit, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	head, err := p.head(ctx)
	if err != nil {
		return nil, fmt.Errorf("revision %q: %w", name, err)
	}
	if name == headRevision {
		return head, nil
	}
	tags, err := p.store.Tags(ctx)
	if err != nil {
		p.note(err)
		return nil, fmt.Errorf("revision %q: %w", name, err)
	}
	if id, ok := tags[name]; ok {
		return p.known(ctx, name, id)
	}
	if c, err := p.resolvePrefix(ctx, name); err == nil || !errors.Is(err, ErrNotFound) {
		return c, err
	}
	if at, ok := parseRevisionTime(name); ok {
		return p.resolveTime(ctx, head, at)
	}
	return nil, fmt.Errorf("revision %q is no tag, no commit id and no time: %w", name, ErrNotFound)
}

func (p *Page) known(ctx context.Context, name string, id commit.ID) (*commit.Commit, error) {
	c, err := p.store.Known(ctx, id)
	if err == nil {
		err = p.store.WaitDurable(c)
	}
	if err != nil {
		p.note(err)
		return nil, fmt.Errorf("revision %q: %w", name, err)
	}
	return c, nil
}

// resolvePrefix finds the commit whose id begins with the digits.
func (p *Page) resolvePrefix(ctx context.Context, digits string) (*commit.Commit, error) {
	notFound := fmt.Errorf("revision %q: no commit id begins so: %w", digits, ErrNotFound)
	if len(digits) < minPrefix || len(digits) > 2*commit.IDSize {
		return nil, notFound
	}
	padded := digits
	half := len(digits)%2 == 1
	if half {
		padded += "0"
	}
	prefix, err := hex.DecodeString(padded)
	if err != nil {
		return nil, notFound
	}
	ids, err := p.store.FindCommits(ctx, prefix, half, maxCandidates+1)
	if err != nil {
		p.note(err)
		return nil, fmt.Errorf("revision %q: %w", digits, err)
	}
	switch len(ids) {
	case 0:
		return nil, notFound
	case 1:
		return p.known(ctx, digits, ids[0])
	}
	var list []string
	for _, id := range ids[:min(len(ids), maxCandidates)] {
		list = append(list, id.String()[:max(16, min(len(digits)+4, 2*commit.IDSize))])
	}
	if len(ids) > maxCandidates {
		list = append(list, "...")
	}
	return nil, fmt.Errorf("revision %q is ambiguous, it may be %s: %w", digits, strings.Join(list, ", "), ErrInvalid)
}

// resolveTime finds the newest of the commits that are not younger than at, that head descends from
// or is, and that it reaches by younger ones alone. The first commit is as old as time.
func (p *Page) resolveTime(ctx context.Context, head *commit.Commit, at time.Time) (*commit.Commit, error) {
	// A commit comes out of the queue after its descendants. By the clocks it may be younger than
	// they.
	q := byGeneration{head}
	held := map[commit.ID]bool{head.ID: true}
	var newest *commit.Commit
	for len(q) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("look for a commit at %s: %w", at, err)
		}
		c := heap.Pop(&q).(*commit.Commit)
		delete(held, c.ID)
		if c.IsFirst() || !time.Unix(0, c.Timestamp).After(at) {
			if newest == nil || commit.Compare(c, newest) > 0 {
				newest = c
			}
			continue
		}
		for _, id := range c.Parents {
			if held[id] {
				continue
			}
			parent, err := p.store.Known(ctx, id)
			if err != nil {
				p.note(err)
				return nil, fmt.Errorf("look for a commit at %s: %w", at, err)
			}
			held[id] = true
			heap.Push(&q, parent)
		}
	}
	if newest == nil {
		return nil, fmt.Errorf("no commit is as old as %s: %w", at, ErrNotFound)
	}
	return newest, nil
}

// byGeneration is a heap of commits, the greatest generation first.
type byGeneration []*commit.Commit

func (q byGeneration) Len() int           { return len(q) }
func (q byGeneration) Less(i, j int) bool { return commit.CompareGeneration(q[i], q[j]) > 0 }
func (q byGeneration) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }

// Push is for package heap.
func (q *byGeneration) Push(x any) { *q = append(*q, x.(*commit.Commit)) }

// Pop is for package heap.
func (q *byGeneration) Pop() any {
	old := *q
	c := old[len(old)-1]
	*q = old[:len(old)-1]
	return c
}

// firstParent returns the newer parent of c, which has one.
func (p *Page) firstParent(ctx context.Context, c *commit.Commit) (*commit.Commit, error) {
	var first *commit.Commit
	for _, id := range c.Parents {
		parent, err := p.durableCommit(ctx, id)
		if err != nil {
			return nil, err
		}
		if first == nil || commit.Compare(parent, first) > 0 {
			first = parent
		}
	}
	return first, nil
}
