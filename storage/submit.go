package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/turn"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/segment"
)

// The log takes a group when no caller is about to join it, when it has groupCommits commits or
// groupBytes bytes, or when none has joined for groupDelay. So with many writers one sync serves
// many commits, a single writer never waits, and a slow Update does not delay the others. A group
// of groupBytes takes no more: the reserve has room for a copy of its batch.
const (
	groupCommits = 32
	groupBytes   = 1 << 20
	groupDelay   = 2 * time.Millisecond
)

// group is the set of submissions that the log writes as one batch.
type group struct {
	batch    *segment.Batch
	header   headerRoom
	parts    [][]op
	commits  []*commit.Commit
	ahead    []*commit.Commit // commits that change no heads
	inner    []commit.ID      // commits among them that are no heads
	news     bool             // the group has something to upload
	journals []*Journal       // submitted with the group; what they rely on stays wanted until it is durable
	done     chan struct{}    // closed when the batch is durable or has failed
	err      error            // valid once done is closed
}

// committing is the state of group commit.
type committing struct {
	turn       turn.Lock     // the page's write turn
	joiners    atomic.Int32  // callers between Lock and Submit, which are about to join the group
	joined     chan struct{} // notified when joiners may have become fewer or the group larger
	appendTurn turn.Lock     // its holder appends a group

	group     *group               // guarded by mu; being collected, nil when there is none
	appending *group               // guarded by mu; being appended, nil when there is none
	chained   []*commit.Commit     // guarded by mu; heads including commits that are not durable yet
	unsettled map[commit.ID]*group // guarded by mu; commits that are not durable yet, and the groups they wait for
	appenders map[*appender]uint64 // guarded by mu; appends in flight, see foldLimit
	held      bool                 // guarded by mu; bulk segments are not appended to, see holdAppends
	appended  sync.Cond            // of mu; appenders have become fewer, or held has ended
	epoch     uint64               // guarded by mu; counts failed groups
	failure   error                // guarded by mu; of the newest failed group
}

// appender marks a call of Append on the log whose batch is not in the overlay yet.
type appender struct{ _ byte }

func newGroup() *group { return &group{batch: segment.NewBatch(), done: make(chan struct{})} }

// Pending is a submission in flight to the disk.
type Pending struct {
	s *Store
	g *group
}

// Wait returns nil once the submission is durable, or the error with which it failed; a failed
// submission leaves nothing. Wait takes no context: a batch is not abandoned half way, and the disk
// bounds the wait. Every Pending must be waited for, since the waiters do the writing.
func (p *Pending) Wait() error { return p.s.await(p.g) }

// Submit adds the commits and the new pieces in j, which may be nil, to the next batch. NewestHead
// and later submissions then see the commits; readers see them when they are durable. Parents
// precede children in cs, and each parent is submitted or durable. j must not be used afterwards.
// When an append to the disk has failed since j was made, Submit returns that failure, because the
// commits may rely on what was lost (I5). Submit skips commits that the page has already, and the
// explanations of j about them. ctx bounds the wait for a fold that lags.
func (s *Store) Submit(ctx context.Context, j *Journal, cs ...*commit.Commit) (*Pending, error) {
	if j != nil {
		j.turn.Lock()
		defer j.turn.Unlock()
	}
	if err := s.ready(ctx, j, cs); err != nil {
		return nil, err
	}
	given := make([]ReceivedCommit, len(cs))
	for i, c := range cs {
		given[i].Commit = c
	}
	var fresh []ReceivedCommit
	return s.submit(submission{
		journal: j, room: len(cs),
		look: func() (v viewed, err error) {
			fresh, _, v, err = s.parted(ctx, given, false)
			return v, err
		},
		add: func(g *group, ops []op) []op {
			fresh = slices.DeleteFunc(fresh, func(r ReceivedCommit) bool { return s.unsettled[r.Commit.ID] != nil })
			for _, r := range fresh {
				ops = append(ops, s.addCommitLocked(g, r.Commit, originLocal))
				g.news = true
			}
			return g.add(ops, j.explanationsOf(fresh))
		},
	})
}

// submission is what one caller adds to a group. All of it is in one batch.
type submission struct {
	journal *Journal // added first, if not nil; it is over when the submission is in a group
	room    int      // about how many records add makes
	// look, if not nil, finds what the page has of what the records rely on. It is called without
	// mu, and again when commits were pruned meanwhile.
	look func() (viewed, error)
	// check, if not nil, refuses the submission. It is called under mu.
	check func() error
	// add adds records to the batch of g, and to ops, which it returns. It is called under mu.
	add func(g *group, ops []op) []op
	// late says that readers see the records when they are durable, not before.
	late bool
	// news says that the records are something to upload.
	news bool
}

// viewed identifies the state in which a caller has looked at records that are not durable yet. The
// submission fails when a group has failed since (I5). The caller looks again when commits were
// pruned since.
type viewed struct{ epoch, prunes uint64 }

// ready waits until the page has room for more, and writes the part of j that is too large for one
// batch with cs. j may be nil.
func (s *Store) ready(ctx context.Context, j *Journal, cs []*commit.Commit) error {
	if err := s.waitRoom(ctx); err != nil || j == nil {
		return err
	}
	return j.prepare(ctx, cs)
}

// submit adds a submission to the group that is being collected. All submissions pass through it,
// after a call of ready.
func (s *Store) submit(u submission) (*Pending, error) {
	v, err := s.lockForSubmit(u.look)
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if err := s.writableLocked(); err != nil {
		return nil, err
	}
	if u.look != nil {
		err = s.epochLocked(v.epoch)
	}
	if err == nil && u.journal != nil {
		err = s.epochLocked(u.journal.epoch)
	}
	if err == nil && u.check != nil {
		err = u.check()
	}
	if err != nil {
		return nil, err
	}
	if s.group == nil { // also for an empty submission: it is durable after what it was made on
		s.group = newGroup()
	}
	g := s.group
	var ops []op
	if j := u.journal; j != nil {
		ops = j.moveLocked(g, u.room)
		g.journals = append(g.journals, j)
	}
	ops = u.add(g, ops)
	g.parts, g.news = append(g.parts, ops), g.news || u.news
	if !u.late {
		s.over.showLocked(ops)
	}
	return &Pending{s: s, g: g}, nil
}

// parted separates the commits that the page lacks from those that it has, and returns the state in
// which it looked. It fails when a parent is neither among the commits nor in the page. A received
// commit may be one that was pruned, and so may its parents. Equal transactions on one base, at one
// time, make one commit.
func (s *Store) parted(ctx context.Context, cs []ReceivedCommit, received bool) (fresh, here []ReceivedCommit, v viewed, err error) {
	s.mu.RLock()
	chained, failure := s.chained, s.failure
	v = viewed{s.epoch, s.prunes}
	s.mu.RUnlock()
	isHead := func(id commit.ID) bool {
		return slices.ContainsFunc(chained, func(h *commit.Commit) bool { return h.ID == id })
	}
	given := make(map[commit.ID]bool, len(cs))
	for _, r := range cs {
		c := r.Commit
		if given[c.ID] || c.IsFirst() {
			continue
		}
		given[c.ID] = true
		if received || !slices.ContainsFunc(c.Parents, isHead) { // else it is new: no head has children made on this device
			_, err := s.Commit(ctx, c.ID)
			if err == nil {
				here = append(here, r)
				continue
			}
			if !errors.Is(err, base.ErrNotFound) && !(received && errors.Is(err, base.ErrGone)) {
				return nil, nil, v, err
			}
		}
		for _, p := range c.Parents {
			if isHead(p) || given[p] {
				continue
			}
			_, err := s.Commit(ctx, p)
			switch {
			case err == nil, received && errors.Is(err, base.ErrGone), r.Shallow && errors.Is(err, base.ErrNotFound):
			case errors.Is(err, base.ErrNotFound):
				return nil, nil, v, fmt.Errorf("submit commit %s whose parent %s is not there: %w", c.ID, p, cmp.Or(failure, base.ErrInvalid))
			default:
				return nil, nil, v, err
			}
		}
		fresh = append(fresh, r)
	}
	return fresh, here, v, nil
}

// lockForSubmit takes mu when the group has room for one more and the result of look still holds.
// Otherwise it first helps to write the group, or looks again. look may be nil.
func (s *Store) lockForSubmit(look func() (viewed, error)) (v viewed, err error) {
	for {
		if look != nil {
			if v, err = look(); err != nil {
				return v, err
			}
		}
		s.mu.Lock()
		for g := s.group; g != nil && g.batch.Bytes() >= groupBytes; g = s.group {
			s.mu.Unlock()
			_ = s.await(g) // its submitters get the error; a caller that relies on it finds the epoch changed
			s.mu.Lock()
		}
		if look == nil || s.prunes == v.prunes {
			return v, nil
		}
		s.mu.Unlock() // a parent may be gone
	}
}

// headerRoom is memory for the header of a record, except for lists. A journal or a group owns it,
// since a one-key commit has some eight records.
type headerRoom [2*object.DigestSize + 16]byte

// add adds o with its content to a batch.
func (r *headerRoom) add(b *segment.Batch, o *op, content []byte) {
	b.Add(o.kind, o.appendHeader(r[:0]), content)
}

// add adds records that have no content to the batch, and to ops.
func (g *group) add(ops, more []op) []op {
	for i := range more {
		g.header.add(g.batch, &more[i], nil)
	}
	return append(ops, more...)
}

// epochNow returns a number that changes with every failed group. A caller that has looked at
// records which are not durable yet compares it before it relies on them (I5).
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

// await returns when g is done. The first waiter to get the append turn writes the group for all.
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
	case <-g.done: // written by the previous holder of the turn
	default:
		s.gather(g)
		s.appendGroup()
	}
	s.appendTurn.Give()
	<-g.done
	return g.err
}

// gather waits for callers that are about to join the group. Callers that the previous group has
// just released are runnable but have not reached Lock yet: gather yields the processor to them
// first.
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

// awaitJoiner waits until a caller has joined or given up, and reports false when that takes longer
// than groupDelay.
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

// appendGroup writes the collected group. The caller holds the append turn.
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

// appendTaken writes a group that is closed to joiners. The caller holds the append turn.
func (s *Store) appendTaken(g *group) {
	s.mu.Lock()
	a, err := s.beginAppendLocked(), s.poisoned
	s.mu.Unlock()

	var done segment.Appended
	if err == nil {
		if done, err = s.log.Main().Append(g.batch); err != nil {
			err = fmt.Errorf("append to the page's log: %w", err)
		}
	}

	s.mu.Lock()
	s.appending = nil
	if err != nil {
		s.noteFailureLocked(err)
		failed := s.failLocked(g, err)
		s.endAppendLocked(a)
		s.mu.Unlock()
		s.tellFailed(failed)
		return
	}
	defer s.mu.Unlock()
	defer s.endAppendLocked(a)
	s.over.settleLocked(g.parts, done)
	for _, c := range g.commits {
		s.heads = withCommit(s.heads, c)
	}
	for _, cs := range [][]*commit.Commit{g.commits, g.ahead} {
		for _, c := range cs {
			delete(s.unsettled, c.ID)
			for _, seen := range s.parents {
				for _, p := range c.Parents {
					seen.ids[p] = true
				}
			}
		}
	}
	s.heads = withoutCommits(s.heads, g.inner)
	if len(g.commits)+len(g.inner) > 0 {
		s.headsChanged.tell()
	}
	if g.news {
		s.syncChanged.tell()
	}
	s.counters.groups.Add(1)
	s.counters.commits.Add(uint64(len(g.commits) + len(g.ahead)))
	close(g.done)
	s.wantFoldLocked()
}

// beginAppendLocked records an append in flight, and a number below that of its batch (see
// foldLimit).
func (s *Store) beginAppendLocked() *appender {
	a := new(appender)
	s.appenders[a] = s.log.Complete()
	return a
}

// endAppendLocked records that a batch is in the overlay, or has failed.
func (s *Store) endAppendLocked(a *appender) {
	delete(s.appenders, a)
	s.appended.Broadcast()
}

// failLocked fails g and everything that is chained on it: the group collected meanwhile, and every
// journal that is open now (I5). It returns the groups for tellFailed, which must follow without
// mu.
func (s *Store) failLocked(g *group, err error) (failed []*group) {
	s.epoch++
	s.failure = err
	failed = []*group{g}
	if s.group != nil {
		failed = append(failed, s.group)
		s.group = nil
	}
	for _, g := range failed {
		for _, ops := range g.parts {
			s.over.hideLocked(ops)
		}
		for _, cs := range [][]*commit.Commit{g.commits, g.ahead} {
			for _, c := range cs {
				delete(s.unsettled, c.ID)
			}
		}
		g.err = err
	}
	s.chained = append(s.chained[:0:0], s.heads...)
	return failed
}

// tellFailed notifies the waiters of failed groups, once the log holds nothing of them. The caller
// holds the append turn.
func (s *Store) tellFailed(groups []*group) {
	var journals []*Journal
	for _, g := range groups {
		journals = append(journals, g.journals...)
	}
	if slices.ContainsFunc(journals, func(j *Journal) bool { return len(j.spans) > 0 }) {
		s.counters.wastes.Add(1)
	}
	s.takeBack(journals...)
	for _, g := range groups {
		close(g.done)
	}
}

// noteFailureLocked makes the page read-only when the log has become so.
func (s *Store) noteFailureLocked(err error) {
	if s.poisoned == nil && errors.Is(err, base.ErrReadOnly) {
		s.poisoned = fmt.Errorf("page: %w", err)
		s.folded.tell() // for callers that wait for room
	}
}

func (s *Store) noteFailure(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteFailureLocked(err)
}

// holdAppends waits for the appends in flight, blocks later ones, and folds what is durable. The
// caller holds the fold turn.
func (s *Store) holdAppends(ctx context.Context) (release func(), err error) {
	if err := s.appendTurn.Take(ctx); err != nil {
		return nil, err
	}
	s.appendGroup()
	s.mu.Lock()
	s.held = true
	for len(s.appenders) > 0 {
		s.appended.Wait()
	}
	s.mu.Unlock()
	release = func() {
		s.letAppends()
		s.appendTurn.Give()
	}
	if err := s.foldAll(ctx); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// letAppends lets blocked appends continue.
func (s *Store) letAppends() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = false
	s.appended.Broadcast()
}

// appendAloneOps writes the records that build returns under mu as a batch of their own, if there
// are any. The caller holds the append turn, and has called holdAppends or appendGroup.
func (s *Store) appendAloneOps(build func() []op) error {
	s.mu.Lock()
	var ops []op
	err := s.writableLocked()
	if err == nil {
		ops = build()
	}
	if len(ops) == 0 {
		s.mu.Unlock()
		return err
	}
	g := newGroup()
	for i := range ops {
		g.header.add(g.batch, &ops[i], nil)
	}
	g.parts = [][]op{ops} // the very records that readers see, so that a failure can hide them
	s.appending = g
	s.mu.Unlock()
	s.appendTaken(g)
	return g.err
}
