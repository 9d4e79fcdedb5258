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
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/segment"
)

// A group is taken by the log when nobody is about to join it, when it has groupCommits commits or
// groupBytes bytes, or when nobody has joined for groupDelay: with many writers one sync serves
// many commits, a single writer never waits, and one whose Update takes its time does not hold up
// the others.
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
	header   headerRoom
	parts    [][]op
	commits  []*commit.Commit
	ahead    []*commit.Commit // that change no heads
	inner    []commit.ID      // those of them that are no heads
	news     bool             // there is something to upload in it
	journals []*Journal       // that were submitted with it: what they rely on is wanted until it is durable
	done     chan struct{}    // closed when the batch is durable or has failed
	err      error            // valid once done is closed
}

// committing is how commits get into the log.
type committing struct {
	turn       token         // the page's write turn
	joiners    atomic.Int32  // callers between Lock and Submit, who are about to join the group
	joined     chan struct{} // told when joiners may have become fewer or the group greater
	appendTurn token         // who holds it appends a group

	group     *group               // guarded by mu; being collected, nil when there is none
	appending *group               // guarded by mu; being appended, nil when there is none
	chained   []*commit.Commit     // guarded by mu; heads including commits that are not durable yet
	unsettled map[commit.ID]*group // guarded by mu; commits that are not durable yet, and what they wait for
	appenders map[*appender]uint64 // guarded by mu; appends that are under way, see foldLimit
	held      bool                 // guarded by mu; bulk segments are not appended to, see holdAppends
	appended  sync.Cond            // of mu; appenders have become fewer, or held has ended
	epoch     uint64               // guarded by mu; counts failed groups
	failure   error                // guarded by mu; of the newest failed group
}

// appender marks a call of Append on the log whose batch is not in the overlay yet.
type appender struct{ _ byte }

func newGroup() *group { return &group{batch: segment.NewBatch(), done: make(chan struct{})} }

// Pending is a submission on its way to the disk.
type Pending struct {
	s *Store
	g *group
}

// Wait returns nil once the submission is durable, or the error with which it failed; then nothing
// of it is there. It takes no context: a batch is not abandoned half way, and the wait is bounded
// by the disk. Every Pending must be waited for, since those who wait do the writing.
func (p *Pending) Wait() error { return p.s.await(p.g) }

// Submit hands the commits and the new pieces in j, which may be nil, to the next batch. From then
// on NewestHead and later submissions see the commits; readers see them when they are durable. The
// commits come parents first, and the parents of each are submitted or durable. j must not be used
// afterwards. When an append to the disk failed since j was made, Submit returns that failure,
// because the commits may rely on what was lost (I5). Commits that the page has already are passed
// over, with the explanations of j about them. ctx bounds the wait for a fold that has fallen
// behind.
func (s *Store) Submit(ctx context.Context, j *Journal, cs ...*commit.Commit) (*Pending, error) {
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
			if j == nil {
				return ops
			}
			return g.add(ops, j.explanationsOf(commitsOf(fresh)))
		},
	})
}

// submission is what one caller adds to a group. All of it is in one batch.
type submission struct {
	journal *Journal // goes first, if not nil; it is over when the submission is in a group
	room    int      // about how many records add makes
	// look, if not nil, finds out what the page has that the records rely on. It is called without
	// mu, and again when commits were pruned meanwhile.
	look func() (viewed, error)
	// check, if not nil, refuses the submission. It is called under mu.
	check func() error
	// add adds records to the batch of g, and to ops, which it returns. It is called under mu.
	add func(g *group, ops []op) []op
	// late says that readers see the records when they are durable, not before.
	late bool
}

// viewed says as of when a caller has looked at what is not durable yet: the submission fails when
// a group has failed since (I5), and the caller looks again when commits were pruned since.
type viewed struct{ epoch, prunes uint64 }

// ready waits until the page takes more, and writes what is too large for one batch with cs. j may
// be nil.
func (s *Store) ready(ctx context.Context, j *Journal, cs []*commit.Commit) error {
	if err := s.waitRoom(ctx); err != nil || j == nil {
		return err
	}
	return j.prepare(ctx, cs)
}

// submit adds a submission to the group that is being collected: this is the one way there. The
// caller has called ready.
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
	g := s.groupLocked() // also when there is nothing to add: it is durable after what it was made on
	var ops []op
	if j := u.journal; j != nil {
		ops = j.moveLocked(g, u.room)
		g.journals = append(g.journals, j)
	}
	ops = u.add(g, ops)
	g.parts = append(g.parts, ops)
	if !u.late {
		s.over.showLocked(ops)
	}
	return &Pending{s: s, g: g}, nil
}

// parted parts commits into those that the page does not have and those that it has, and says as of
// when. It fails when the parent of one is neither among them nor known. Those that were received
// may come again after they were pruned, and their parents may have been. Equal transactions on one
// base, at one time, make one commit.
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
		if received || !slices.ContainsFunc(c.Parents, isHead) { // else it is new: no head has children made here
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

// lockForSubmit takes mu when there is room for one more in the group, and what look has found
// still holds. Otherwise it helps the group to the disk first, or looks again. look may be nil.
func (s *Store) lockForSubmit(look func() (viewed, error)) (v viewed, err error) {
	for {
		if look != nil {
			if v, err = look(); err != nil {
				return v, err
			}
		}
		s.mu.Lock()
		for g := s.group; g != nil && (g.batch.Bytes() >= maxGroupBytes || g.batch.Len() >= maxGroupRecords); g = s.group {
			s.mu.Unlock()
			_ = s.await(g) // those who submitted it are told; who relies on it finds the epoch changed
			s.mu.Lock()
		}
		if look == nil || s.prunes == v.prunes {
			return v, nil
		}
		s.mu.Unlock() // a parent may be gone
	}
}

func (s *Store) groupLocked() *group {
	if s.group == nil {
		s.group = newGroup()
	}
	return s.group
}

// headerRoom is memory for what precedes the content of a record, but for lists. It belongs to a
// journal or a group, since a one-key commit has some eight records.
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

// epochNow returns what changes with every failed group. Who has looked at what is not durable yet
// compares it when he relies on that (I5).
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

// await returns when g is done. Whoever gets the append turn first writes the group for all of
// them.
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

// gather lets those who are about to join come in. Those whom the group before has just let go are
// runnable but have not come to Lock yet: they get the processor first.
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

// awaitJoiner waits until somebody has joined or given up, and reports false when that takes longer
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

// appendTaken writes a group that nobody joins any more. The caller holds the append turn.
func (s *Store) appendTaken(g *group) {
	s.mu.Lock()
	if err := s.poisoned; err != nil {
		s.appending = nil
		failed := s.failLocked(g, err)
		s.mu.Unlock()
		s.tellFailed(failed)
		return
	}
	a := s.beginAppendLocked()
	s.mu.Unlock()

	done, err := s.log.Main().Append(g.batch)

	s.mu.Lock()
	s.appending = nil
	if err != nil {
		s.noteFailureLocked(err)
		failed := s.failLocked(g, fmt.Errorf("append to the page's log: %w", err))
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

// beginAppendLocked marks that a batch is being appended whose number is greater than what it notes
// (see foldLimit).
func (s *Store) beginAppendLocked() *appender {
	a := new(appender)
	s.appenders[a] = s.log.Complete()
	return a
}

// endAppendLocked says that a batch is in the overlay, or has failed.
func (s *Store) endAppendLocked(a *appender) {
	delete(s.appenders, a)
	s.appended.Broadcast()
}

// failLocked fails g and everything that is chained on it: the group that was collected meanwhile,
// and every journal that is open now (I5). It returns the groups for tellFailed, which must follow
// without mu.
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

// tellFailed tells those who wait for groups that failed, once the log has nothing of them any
// more. The caller holds the append turn.
func (s *Store) tellFailed(groups []*group) {
	var journals []*Journal
	for _, g := range groups {
		journals = append(journals, g.journals...)
	}
	if slices.ContainsFunc(journals, func(j *Journal) bool { return j.used }) {
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
		s.folded.tell() // for who waits for room
	}
}

func (s *Store) noteFailure(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noteFailureLocked(err)
}

// holdAppends waits for appends that are under way and holds up those that follow, and folds what
// is durable. The caller holds the fold turn.
func (s *Store) holdAppends(ctx context.Context) (release func(), err error) {
	if err := s.appendTurn.take(ctx); err != nil {
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
		s.appendTurn.release()
	}
	if err := s.foldAll(ctx); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// letAppends ends what held has begun.
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
	g.news = ops[0].kind == recForgotten
	s.appending = g
	s.mu.Unlock()
	s.appendTaken(g)
	return g.err
}
