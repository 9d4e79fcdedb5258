package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/segment"
)

// A group is taken by the log when nobody is about to join it, when it has groupCommits commits or groupBytes bytes, or when
// nobody has joined for groupDelay: with many writers one sync serves many commits, a single writer never waits, and one
// whose Update takes its time does not hold up the others.
const (
	groupCommits = 32
	groupBytes   = 1 << 20
	groupDelay   = 2 * time.Millisecond
)

// A group takes no more when it has one of these, which are far below what a batch can hold.
const (
	maxGroupBytes   = segment.MaxBatchBytes / 4
	maxGroupRecords = segment.MaxBatchRecords / 4
)

// group is what goes to the log as one batch.
type group struct {
	batch    *segment.Batch
	parts    [][]op
	commits  []*commit.Commit
	ahead    []*commit.Commit // that change no heads
	inner    []commit.ID      // those of them that are no heads
	news     bool             // there is something to upload in it
	journals []*Journal       // that were submitted with it: what they rely on is wanted until it is durable
	done     chan struct{}    // closed when the batch is durable or has failed
	err      error            // valid once done is closed
}

// Pending is a submission on its way to the disk.
type Pending struct {
	s *Store
	g *group
}

// Wait returns nil once the submission is durable, or the error with which it failed; then nothing of it is there. It takes
// no context: a batch is not abandoned half way, and the wait is bounded by the disk. Every Pending must be waited for, since
// those who wait do the writing.
func (p *Pending) Wait() error {
	if p.g == nil {
		return nil
	}
	return p.s.await(p.g)
}

// Submit hands the commits and the new pieces in j, which may be nil, to the next batch. From then on NewestHead and
// later submissions see the commits; readers see them when they are durable. The commits come parents first, and the parents of
// each are submitted or durable. j must not be used afterwards. When an append to the disk failed since j was made, Submit
// returns that failure, because the commits may rely on what was lost (I5). Commits that the page has already are passed over, with the
// explanations of j about them. ctx bounds the wait for a fold that has fallen behind.
func (s *Store) Submit(ctx context.Context, j *Journal, cs ...*commit.Commit) (*Pending, error) {
	if err := s.waitRoom(ctx); err != nil {
		return nil, err
	}
	if j != nil {
		if err := j.prepare(ctx, cs); err != nil {
			return nil, err
		}
	}
	given := cs
	cs, epoch, prunes, err := s.unknown(ctx, given)
	if err != nil {
		return nil, err
	}
	s.lockForSubmit()
	for s.prunes != prunes { // a parent may be gone
		s.mu.Unlock()
		if cs, epoch, prunes, err = s.unknown(ctx, given); err != nil {
			return nil, err
		}
		s.lockForSubmit()
	}
	defer s.mu.Unlock()
	if err := cmp.Or(s.writableLocked(), s.epochLocked(epoch)); err != nil {
		return nil, err
	}
	if j != nil {
		if err := s.epochLocked(j.epoch); err != nil {
			return nil, err
		}
	}
	cs = slices.DeleteFunc(cs, func(c *commit.Commit) bool { return s.unsettled[c.ID] != nil })
	g := s.groupLocked() // also when there is nothing to add: it is durable after what it was made on
	var ops, explained []op
	if j != nil {
		explained = j.explanationsOf(cs)
		ops = j.moveLocked(g.batch, len(cs)+len(explained))
		g.journals = append(g.journals, j)
	}
	for _, c := range cs {
		o := op{kind: recCommit, commit: c}
		addRecord(g.batch, &o, c.Encode())
		ops = append(ops, o)
		g.commits = append(g.commits, c)
		g.news = true
		s.unsettled[c.ID] = g
		s.chained = withCommit(s.chained, c)
	}
	for i := range explained {
		addRecord(g.batch, &explained[i], nil)
		ops = append(ops, explained[i])
	}
	g.parts = append(g.parts, ops)
	s.over.show(ops)
	return &Pending{s: s, g: g}, nil
}

// unknown returns those of cs that the page does not have, the epoch in which that was so, and how often commits had been pruned. It fails when the parent of one is
// neither among them nor known. Equal transactions on one base, at one time, make one commit.
func (s *Store) unknown(ctx context.Context, cs []*commit.Commit) (out []*commit.Commit, epoch, prunes uint64, err error) {
	s.mu.Lock()
	var chained []*commit.Commit
	var failure error
	epoch, chained, failure, prunes = s.epoch, s.chained, s.failure, s.prunes
	s.mu.Unlock()
	isHead := func(id commit.ID) bool {
		return slices.ContainsFunc(chained, func(h *commit.Commit) bool { return h.ID == id })
	}
	given := func(id commit.ID) bool {
		return slices.ContainsFunc(out, func(o *commit.Commit) bool { return o.ID == id })
	}
	for _, c := range cs {
		if !slices.ContainsFunc(c.Parents, isHead) && !given(c.ID) { // else it is new: no head has children
			_, err := s.Commit(ctx, c.ID)
			if err == nil {
				continue
			}
			if !errors.Is(err, base.ErrNotFound) {
				return nil, 0, 0, err
			}
		}
		for _, p := range c.Parents {
			if isHead(p) || given(p) {
				continue
			}
			if _, err := s.Commit(ctx, p); errors.Is(err, base.ErrNotFound) {
				return nil, 0, 0, fmt.Errorf("submit commit %s whose parent %s is not there: %w", c.ID, p, cmp.Or(failure, base.ErrInvalid))
			} else if err != nil {
				return nil, 0, 0, err
			}
		}
		out = append(out, c)
	}
	return out, epoch, prunes, nil
}

// lockForSubmit takes mu when there is room for one more in the group. Otherwise it helps the group to the disk first.
func (s *Store) lockForSubmit() {
	for {
		s.mu.Lock()
		g := s.group
		if g == nil || g.batch.Bytes() < maxGroupBytes && g.batch.Len() < maxGroupRecords {
			return
		}
		s.mu.Unlock()
		_ = s.await(g) // those who submitted it are told; who relies on it finds the epoch changed
	}
}

func (s *Store) groupLocked() *group {
	if s.group == nil {
		s.group = &group{batch: segment.NewBatch(), done: make(chan struct{})}
	}
	return s.group
}

// addRecord adds o with its content to a batch.
func addRecord(b *segment.Batch, o *op, content []byte) {
	var buf [2*object.DigestSize + 16]byte
	b.Add(o.kind, o.appendHeader(buf[:0]), content)
}

// SetTag makes name point to a commit. It returns when that is durable. The name is 1 to limits.MaxTagBytes bytes. Errors
// match base.ErrNotFound when there is no such commit, and base.ErrInvalid.
func (s *Store) SetTag(ctx context.Context, name string, id commit.ID) error {
	if err := checkTagName(name); err != nil {
		return err
	}
	epoch := s.epochNow()
	release := s.Pin(id)
	defer release()
	if _, err := s.Commit(ctx, id); err != nil {
		return fmt.Errorf("tag %q: %w", name, err)
	}
	return s.submitTag(ctx, &tagChange{name: name, id: id}, epoch)
}

// DeleteTag removes a tag. It returns when that is durable. Errors match base.ErrNotFound when there is none.
func (s *Store) DeleteTag(ctx context.Context, name string) error {
	if err := checkTagName(name); err != nil {
		return err
	}
	tags, err := s.Tags(ctx)
	if err != nil {
		return err
	}
	if _, ok := tags[name]; !ok {
		return fmt.Errorf("delete tag %q: %w", name, base.ErrNotFound)
	}
	return s.submitTag(ctx, &tagChange{name: name, deleted: true}, s.epochNow())
}

func checkTagName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("tag without a name: %w", base.ErrInvalid)
	case len(name) > limits.MaxTagBytes:
		return fmt.Errorf("tag name of %d bytes, limit %d: %w", len(name), limits.MaxTagBytes, base.ErrTooLarge)
	}
	return nil
}

// epochNow returns what changes with every failed group. Who has looked at what is not durable yet compares it when he relies
// on that (I5).
func (s *Store) epochNow() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch
}

// epochLocked returns an error when a group has failed since epoch.
func (s *Store) epochLocked(epoch uint64) error {
	if epoch == s.epoch {
		return nil
	}
	return fmt.Errorf("commit on what an earlier failure took back: %w", s.failure)
}

// submitTag writes a change of a tag, unless a group has failed since epoch: the commit may have been in it.
func (s *Store) submitTag(ctx context.Context, t *tagChange, epoch uint64) error {
	if err := s.waitRoom(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	if err := cmp.Or(s.writableLocked(), s.epochLocked(epoch)); err != nil {
		s.mu.Unlock()
		return err
	}
	g := s.groupLocked()
	o := op{kind: recTag, tag: t}
	addRecord(g.batch, &o, nil)
	g.parts = append(g.parts, []op{o})
	g.news = true
	s.mu.Unlock()
	return s.await(g)
}

// await returns when g is done. Whoever gets the append turn first writes the group for all of them.
func (s *Store) await(g *group) error {
	select {
	case <-g.done:
		return g.err
	default:
	}
	select {
	case <-g.done:
		return g.err
	case s.appendTurn <- struct{}{}:
	}
	select {
	case <-g.done: // by the one who had the turn before
	default:
		s.gather(g)
		s.appendGroup()
	}
	s.appendTurn.release()
	<-g.done
	return g.err
}

// gather lets those who are about to join come in. Those whom the group before has just let go are runnable but have not come to
// Lock yet: they get the processor first.
func (s *Store) gather(g *group) {
	for quiet := 0; quiet < 3; {
		if s.joiners.Load() == 0 {
			runtime.Gosched()
			quiet++
			continue
		}
		quiet = 0
		s.mu.Lock()
		n, bytes := len(g.commits), g.batch.Bytes()
		s.mu.Unlock()
		if n >= groupCommits || bytes >= groupBytes || !s.awaitJoiner() {
			return
		}
	}
}

// awaitJoiner waits until somebody has joined or given up, and reports false when that takes longer than groupDelay.
func (s *Store) awaitJoiner() bool {
	timeout, release := s.o.Clock.After(groupDelay)
	defer release()
	select {
	case <-s.joined:
		return true
	case <-timeout:
		return false
	}
}

// appendGroup writes the group that has been collected. The caller holds the append turn.
func (s *Store) appendGroup() {
	s.mu.Lock()
	g := s.group
	s.group = nil
	s.appending = g
	s.mu.Unlock()
	if g != nil {
		s.appendTaken(g)
	}
}

// appendTaken writes a group that nobody joins any more, and wakes who waits for the heads to change, or for something to upload: without
// mu, which they take first of all. The caller holds the append turn.
func (s *Store) appendTaken(g *group) {
	for _, changed := range s.appendAlone(g) {
		close(changed)
	}
}

// appendAlone writes a group. It returns the channels to close.
func (s *Store) appendAlone(g *group) (changed []chan struct{}) {
	s.mu.Lock()
	if err := s.poisoned; err != nil {
		s.appending = nil
		s.failLocked(g, err)
		s.mu.Unlock()
		return nil
	}
	a := s.beginAppendLocked()
	s.mu.Unlock()

	done, err := s.log.Main().Append(g.batch)

	s.mu.Lock()
	defer s.mu.Unlock()
	defer delete(s.appenders, a)
	s.appending = nil
	if err != nil {
		s.noteFailureLocked(err)
		s.failLocked(g, fmt.Errorf("append to the page's log: %w", err))
		return nil
	}
	s.over.settle(g.parts, done)
	for _, c := range g.commits {
		s.heads = withCommit(s.heads, c)
	}
	for _, cs := range [][]*commit.Commit{g.commits, g.ahead} {
		for _, c := range cs {
			delete(s.unsettled, c.ID)
			if s.parents != nil {
				for _, p := range c.Parents {
					s.parents[p] = true
				}
			}
		}
	}
	s.heads = withoutCommits(s.heads, g.inner)
	if len(g.commits)+len(g.inner) > 0 && !s.closed && s.headsChanged != nil {
		changed = append(changed, s.headsChanged)
		s.headsChanged = nil
	}
	if g.news && !s.closed && s.syncChanged != nil {
		changed = append(changed, s.syncChanged)
		s.syncChanged = nil
	}
	s.counters.groups.Add(1)
	s.counters.commits.Add(uint64(len(g.commits) + len(g.ahead)))
	close(g.done)
	s.wantFold()
	return changed
}

// beginAppendLocked marks that a batch is being appended whose number is greater than what it notes (see foldLimit).
func (s *Store) beginAppendLocked() *appender {
	a := new(appender)
	s.appenders[a] = s.log.Complete()
	return a
}

// failLocked fails g and everything that is chained on it: the group that was collected meanwhile, and every journal that is
// open now (I5).
func (s *Store) failLocked(g *group, err error) {
	s.epoch++
	s.failure = err
	failed := []*group{g}
	if s.group != nil {
		failed = append(failed, s.group)
		s.group = nil
	}
	for _, g := range failed {
		for _, ops := range g.parts {
			s.over.hide(ops)
		}
		for _, cs := range [][]*commit.Commit{g.commits, g.ahead} {
			for _, c := range cs {
				delete(s.unsettled, c.ID)
			}
		}
		g.err = err
		close(g.done)
	}
	s.chained = append(s.chained[:0:0], s.heads...)
}

// noteFailureLocked makes the page read-only when the log has become so.
func (s *Store) noteFailureLocked(err error) {
	if s.poisoned == nil && errors.Is(err, base.ErrReadOnly) {
		s.poisoned = fmt.Errorf("page: %w", err)
		s.foldDone.tell() // for who waits for room
	}
}
