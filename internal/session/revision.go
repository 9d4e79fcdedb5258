package session

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

const (
	headRevision = "HEAD"
	// noRevision is the tools' name for the state before the first commit.
	noRevision = "none"
	// minPrefix is the least number of digits that may name a commit.
	minPrefix = 4
	// maxCandidates is how many commits the error about an ambiguous prefix lists.
	maxCandidates = 10
)

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
func (p *Page) Resolve(ctx context.Context, revision string) (commit.ID, error) {
	name, steps, err := parseRevision(revision)
	if err != nil {
		return commit.ID{}, err
	}
	c, err := p.resolveName(ctx, name)
	if err != nil {
		return commit.ID{}, err
	}
	if steps > c.Generation {
		return commit.ID{}, fmt.Errorf("revision %q: commit %s has at most %d ancestors in a row: %w", revision, c.ID.Short(), c.Generation, base.ErrNotFound)
	}
	for range steps {
		if c.IsFirst() {
			return commit.ID{}, fmt.Errorf("revision %q goes beyond the first commit: %w", revision, base.ErrNotFound)
		}
		if c, err = p.firstParent(ctx, c); err != nil {
			return commit.ID{}, fmt.Errorf("revision %q: %w", revision, err)
		}
	}
	return c.ID, nil
}

// parseRevision splits a revision into its name and the number of steps back.
func parseRevision(revision string) (name string, steps uint64, err error) {
	name, rest, found := strings.Cut(revision, "~")
	if name == "" {
		return "", 0, fmt.Errorf("revision %q has no name; try HEAD, a tag, digits of a commit id, or a date: %w", revision, base.ErrInvalid)
	}
	if !found {
		return name, 0, nil
	}
	for _, s := range strings.Split(rest, "~") {
		n := uint64(1)
		if s != "" {
			if n, err = strconv.ParseUint(s, 10, 32); err != nil {
				return "", 0, fmt.Errorf("revision %q: %q behind '~' is no number: %w", revision, s, base.ErrInvalid)
			}
		}
		steps += n
	}
	return name, steps, nil
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
	tags, err := p.env.Store.Tags(ctx)
	if err != nil {
		p.note(err)
		return nil, fmt.Errorf("revision %q: %w", name, err)
	}
	if id, ok := tags[name]; ok {
		return p.known(ctx, name, id)
	}
	if c, err := p.resolvePrefix(ctx, name); err == nil || !errors.Is(err, base.ErrNotFound) {
		return c, err
	}
	if at, ok := parseRevisionTime(name); ok {
		return p.resolveTime(ctx, head, at)
	}
	return nil, fmt.Errorf("revision %q is no tag, no commit id and no time: %w", name, base.ErrNotFound)
}

func (p *Page) known(ctx context.Context, name string, id commit.ID) (*commit.Commit, error) {
	c, err := p.durable(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("revision %q: %w", name, err)
	}
	return c, nil
}

// resolvePrefix finds the commit whose id begins with the digits.
func (p *Page) resolvePrefix(ctx context.Context, digits string) (*commit.Commit, error) {
	notFound := fmt.Errorf("revision %q: no commit id begins so: %w", digits, base.ErrNotFound)
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
	ids, err := p.env.Store.FindCommits(ctx, prefix, half, maxCandidates+1)
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
	return nil, fmt.Errorf("revision %q is ambiguous, it may be %s: %w", digits, strings.Join(list, ", "), base.ErrInvalid)
}

// parseRevisionTime reads a time, or a date, which means its last nanosecond in UTC.
func parseRevisionTime(s string) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, true
	}
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t.AddDate(0, 0, 1).Add(-1), true
	}
	return time.Time{}, false
}

// resolveTime finds the newest commit that is not younger than at, among head and its ancestors
// that are reachable from head through younger commits only. The first commit is older than any
// time.
func (p *Page) resolveTime(ctx context.Context, head *commit.Commit, at time.Time) (*commit.Commit, error) {
	// The queue returns a commit after its descendants. With wrong clocks it may be younger than
	// they are.
	var q commit.Queue[struct{}]
	q.Add(head)
	var newest *commit.Commit
	for q.Len() > 0 {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("look for a commit at %s: %w", at, err)
		}
		c := q.Next().Commit
		if c.IsFirst() || !time.Unix(0, c.Timestamp).After(at) {
			if newest == nil || commit.Compare(c, newest) > 0 {
				newest = c
			}
			continue
		}
		for _, id := range c.Parents {
			parent, err := p.stored(ctx, id)
			if err != nil {
				return nil, fmt.Errorf("look for a commit at %s: %w", at, err)
			}
			q.Add(parent)
		}
	}
	if newest == nil {
		return nil, fmt.Errorf("no commit is as old as %s: %w", at, base.ErrNotFound)
	}
	return newest, nil
}

// firstParent returns the newer parent of c, which has at least one.
func (p *Page) firstParent(ctx context.Context, c *commit.Commit) (*commit.Commit, error) {
	var first *commit.Commit
	for _, id := range c.Parents {
		parent, err := p.Commit(ctx, id)
		if err != nil {
			return nil, err
		}
		if first == nil || commit.Compare(parent, first) > 0 {
			first = parent
		}
	}
	return first, nil
}
