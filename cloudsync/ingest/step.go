package ingest

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// step is one batch of storage while it is made. It is the source and sink of the trees that are
// built for it, and counts their nodes.
type step struct {
	p    *Page
	j    *storage.Journal
	b    storage.SyncBatch
	rows rows
	res  Result
	// commits are those that the batch brings, with trees, and taken those of them that the present
	// entry brings.
	commits, taken map[commit.ID]*commit.Commit
	// mine are pieces that the journal holds in memory, and pieces whose places are in b.
	mine map[object.Digest]mine
	// values checks that values are here.
	values values
	bytes  int  // of the entries in the batch
	small  bool // the batch may take more entries
	fill   bool // pieces of which something is known keep what they have
	// present is the body that is being taken, nil for a checkpoint; relied says that what it
	// relies on has been read.
	present *format.Body
	at      int // the commit of it whose tree is being made
	relied  bool
	// untaken are packs that present announces and whose tables were not read: what it knows of
	// their places it may have collected since.
	untaken []format.ID
	// adoptedPacks are those of the row format.MetadataAdoptedPacks, nil when it has not been read.
	adoptedPacks map[format.ID]struct{}
	// shallow says that history was given up here, once that was asked.
	shallow, asked bool
	// anew is the checkpoint of an entry that begins the log anew, nil when there is none.
	anew *knownHistory
	// unplaced says that the batch takes the places of pieces that are needed and gone there; see
	// MetadataUnplaced.
	unplaced bool
}

// mine is what a step knows of a piece and the page does not yet.
type mine struct {
	bytes uint32
	held  bool
}

func (p *Page) begin(r rows) *step {
	s := &step{p: p, j: p.o.Store.NewJournal(), rows: r, commits: map[commit.ID]*commit.Commit{}, taken: map[commit.ID]*commit.Commit{}, mine: map[object.Digest]mine{}, small: true}
	s.values.s = s
	return s
}

// end gives up what was not submitted.
func (s *step) end() { s.j.Rollback() }

// submit makes the batch durable, with the given metadata.
func (s *step) submit(ctx context.Context, m []storage.Metadata) error {
	if s.b.Metadata = m; s.unplaced {
		s.b.Metadata = append(s.b.Metadata, storage.Metadata{Type: MetadataUnplaced, Value: []byte{1}})
	}
	pending, err := s.p.o.Store.SubmitSync(ctx, s.j, &s.b)
	if err != nil {
		return err
	}
	return pending.Wait()
}

// entry takes an entry into the batch.
func (s *step) entry(ctx context.Context, e *format.Entry) error {
	if e.Number != s.rows.position.Number+1 {
		return bad("entry %d behind entry %d", e.Number, s.rows.position.Number)
	}
	if e.Previous != s.rows.position.Hash {
		return bad("another entry before it than the one that was read")
	}
	clear(s.taken)
	if err := s.lookShallow(ctx); err != nil {
		return err
	}
	s.present, s.relied, s.untaken = e.Body, false, s.untaken[:0]
	s.rows.lacks = s.rows.lacks || e.Body.Lacks
	own := s.p.isOwn(e.Body)
	recorded, err := s.announced(e.Body, own)
	if err != nil {
		return err
	}
	fresh, err := s.brings(ctx, e.Body)
	if err != nil {
		return err
	}
	if err := s.pieces(ctx, e); err != nil {
		return err
	}
	for _, ref := range e.Body.Packs {
		known := slices.Contains(recorded, ref.ID) // its places were recorded when it was uploaded
		if !known && !ref.Eager {
			if known, err = s.adopted(ctx, ref.ID); err != nil {
				return err
			}
		}
		if known {
			s.untaken = append(s.untaken, ref.ID)
			continue
		}
		if err := s.pack(ctx, ref, fresh && ref.Eager); err != nil {
			return err
		}
	}
	if err := s.bodyCommits(ctx, e.Body); err != nil {
		return err
	}
	if err := s.explanations(ctx, e.Body); err != nil {
		return err
	}
	if err := s.tags(ctx, e.Body, own, s.shallow); err != nil {
		return err
	}
	if err := s.condemn(ctx, e); err != nil {
		return err
	}
	if e.Body.Renewed {
		if err := s.renew(ctx, s.anew); err != nil {
			return err
		}
	}
	s.settle(e)
	return nil
}

// announced takes what an own entry announces out of the row of packs, and returns the packs whose
// places are known.
func (s *step) announced(b *format.Body, own bool) ([]format.ID, error) {
	if !own || s.rows.packs == nil || s.p.o.Announced == nil {
		return nil, nil
	}
	value, recorded, err := s.p.o.Announced(s.rows.packs, b)
	if err != nil {
		return nil, fmt.Errorf("read the packs that are not announced: %w", err)
	}
	s.rows.packs, s.rows.changed = value, true
	return recorded, nil
}

// retain notes what the bucket says of its retention.
func (s *step) retain(r format.Retention) {
	s.res.Retention = &r
	s.rows.retention = &format.RetentionRow{Retention: r, Bucket: s.p.bucketID()}
}

// settle counts an entry that is good.
func (s *step) settle(e *format.Entry) {
	s.bytes += e.Stored
	s.res.Bytes += int64(e.Stored)
	s.res.GivenUp = append(s.res.GivenUp, e.Body.GivenUp...)
	if e.Body.Retention != nil {
		s.retain(*e.Body.Retention)
	}
	s.rows.position.Number, s.rows.position.Hash = e.Number, e.Hash
	s.rows.since += uint64(e.Stored) + e.Body.Elsewhere()
	if len(e.Body.Commits) > 0 && !e.Created.IsZero() {
		s.rows.server = e.Created
	}
}

// find returns a commit that is here or comes with the batch. here says which. It returns nil when
// there is none; the error matches base.ErrGone for one that was given up here, and for the parent
// of one that is here.
func (s *step) find(ctx context.Context, id commit.ID) (c *commit.Commit, here bool, err error) {
	c, here, err = s.seek(ctx, id)
	if c != nil || err != nil {
		return c, here, err
	}
	gone, err := s.p.wasGivenUp(ctx, id)
	if err == nil && gone {
		err = fmt.Errorf("commit %s was given up here: %w", id, base.ErrGone)
	}
	return nil, false, err
}

// seek is find for a commit that comes back when it was given up here, unless one that is here is
// built on it: it has a tag now.
func (s *step) seek(ctx context.Context, id commit.ID) (c *commit.Commit, here bool, err error) {
	if c, ok := s.commits[id]; ok {
		return c, false, nil
	}
	c, err = s.p.o.Store.Commit(ctx, id)
	if errors.Is(err, base.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("look for commit %s: %w", id, err)
	}
	return c, true, nil
}

// brings reports whether a body has a commit that is not here.
func (s *step) brings(ctx context.Context, b *format.Body) (bool, error) {
	for i := range b.Commits {
		c, here, err := s.find(ctx, b.Commits[i].Commit.ID)
		if errors.Is(err, base.ErrGone) {
			continue
		}
		if err != nil || c == nil || !here {
			return err == nil, err
		}
	}
	return false, nil
}

func (s *step) bodyCommits(ctx context.Context, b *format.Body) error {
	past, err := s.superseded(ctx, b)
	if err != nil {
		return err
	}
	for i := range b.Commits {
		cc := &b.Commits[i]
		s.at = i
		taken := false
		if !past[cc.Commit.ID] {
			if taken, err = s.commit(ctx, cc, b.Shallow || s.shallow); err != nil {
				return fmt.Errorf("commit %s: %w", cc.Commit.ID, err)
			}
		}
		if s.p.pass(cc.Commit, !taken && !cc.Past); !taken {
			s.cover(cc.Commit)
		}
	}
	return s.headed()
}

// headed verifies that the page has a head when the batch is durable: what the log is past is none.
func (s *step) headed() error {
	heads := s.p.o.Store.Heads()
	if len(heads) > 1 || !heads[0].IsFirst() || len(s.b.Commits) == 0 {
		return nil
	}
	if slices.ContainsFunc(s.b.Commits, func(r storage.ReceivedCommit) bool { return !r.Inner }) {
		return nil
	}
	return bad("all commits of a page are such that the log is past")
}

// cover has the parents of a commit that stays given up count as no heads: what is here stands for
// it, and so for them. One of them may have come alone, in an entry before.
func (s *step) cover(c *commit.Commit) {
	heads := slices.Concat(s.p.o.Store.Heads(), s.p.o.Store.ChainedHeads())
	for _, id := range c.Parents {
		_, fresh := s.commits[id]
		if fresh || slices.ContainsFunc(heads, func(h *commit.Commit) bool { return h.ID == id }) {
			s.b.Inner = append(s.b.Inner, id)
		}
	}
}

// superseded returns the commits of a body that are not here, and on which nothing in it builds but
// what was given up here: another device, which had not given them up, sends them again. They would
// be heads, as their children stay given up, and what was deleted since would come back.
func (s *step) superseded(ctx context.Context, b *format.Body) (map[commit.ID]bool, error) {
	past, children, living := map[commit.ID]bool{}, map[commit.ID]bool{}, map[commit.ID]bool{} // of which there are children in the body; of which there are some that are taken
	for i := len(b.Commits) - 1; i >= 0; i-- {
		c := b.Commits[i].Commit
		find := s.find
		if b.Commits[i].Past {
			find = s.seek
		}
		known, _, err := find(ctx, c.ID)
		gone := errors.Is(err, base.ErrGone)
		if err != nil && !gone {
			return nil, err
		}
		past[c.ID] = known == nil && !gone && children[c.ID] && !living[c.ID]
		for _, id := range c.Parents {
			children[id] = true
			living[id] = living[id] || !gone && !past[c.ID]
		}
	}
	return past, nil
}

// commit takes a commit with its tree. What retention has given up here stays given up: then it
// reports false. shallow says that parents may be given up elsewhere.
func (s *step) commit(ctx context.Context, cc *format.CommitChange, shallow bool) (taken bool, err error) {
	c, err := reparse(cc.Commit)
	if err != nil {
		return false, err
	}
	find := s.find
	if cc.Past {
		find = s.seek
	}
	known, here, err := find(ctx, c.ID)
	if errors.Is(err, base.ErrGone) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	if known != nil && (!here || s.rows.ahead == 0) { // else it may have come ahead, without its tree
		if here {
			s.b.Synced = append(s.b.Synced, c.ID)
		}
		return true, nil
	}
	if err := s.parents(ctx, c, shallow); err != nil {
		return false, err
	}
	from, err := s.root(ctx, cc.Base)
	if err != nil {
		return false, err
	}
	root, err := s.apply(ctx, from, cc.Diff)
	if err != nil {
		return false, err
	}
	if root != c.Root {
		return false, bad("the diff leads to the tree %s, the commit has %s", root, c.Root)
	}
	s.commits[c.ID], s.taken[c.ID] = c, c
	s.b.Commits = append(s.b.Commits, storage.ReceivedCommit{Commit: c, Shallow: shallow, Inner: cc.Past, Anew: known != nil})
	s.res.Commits++
	return true, nil
}

// reparse proves that a commit is what its canonical bytes say, and that its id is theirs.
func reparse(c *commit.Commit) (*commit.Commit, error) {
	again, err := commit.Parse(c.Encode())
	if errors.Is(err, base.ErrUnsupported) {
		return nil, err
	}
	if err != nil {
		return nil, &fault{err: err}
	}
	if again.ID != c.ID {
		return nil, bad("its bytes have the id %s", again.ID)
	}
	if again.IsFirst() {
		return nil, bad("the first commit of a page is implied")
	}
	return again, nil
}

// parents verifies what follows from the parents of a commit, all of which must be here or given
// up: here, or, with shallow, elsewhere.
func (s *step) parents(ctx context.Context, c *commit.Commit, shallow bool) error {
	return s.parentsBy(ctx, c, shallow, func(ctx context.Context, id commit.ID) (*commit.Commit, error) {
		p, _, err := s.find(ctx, id)
		return p, err
	})
}

// parentsBy is parents with another way to find them.
func (s *step) parentsBy(ctx context.Context, c *commit.Commit, shallow bool, find func(context.Context, commit.ID) (*commit.Commit, error)) error {
	ps := make([]*commit.Commit, 0, len(c.Parents))
	for _, id := range c.Parents {
		p, err := find(ctx, id)
		switch {
		case errors.Is(err, base.ErrGone), err == nil && p == nil && shallow:
			continue
		case err != nil:
			return err
		case p == nil:
			return unknown("parent", id)
		case p.Generation >= c.Generation:
			return bad("generation %d with a parent's %d", c.Generation, p.Generation)
		}
		ps = append(ps, p)
	}
	if len(ps) < len(c.Parents) {
		return nil
	}
	if err := commit.CheckParents(c, ps); err != nil {
		return &fault{err: err}
	}
	return nil
}

// root returns the root of the tree from which a diff leads.
func (s *step) root(ctx context.Context, from format.Base) (object.Digest, error) {
	if from.Empty {
		return btree.EmptyRoot, nil
	}
	c, here, err := s.find(ctx, from.Commit)
	if errors.Is(err, base.ErrGone) || err == nil && c == nil {
		if i := s.inBody(from.Commit); i >= 0 { // it stays given up, and of its tree what is built on it
			return s.treeOf(ctx, i)
		}
		return s.borrow(ctx, from.Commit, err != nil)
	}
	if err != nil {
		return object.Digest{}, err
	}
	if here && c.Root != btree.EmptyRoot {
		held, err := s.p.o.Store.TreeHeld(ctx, c)
		if err != nil {
			return object.Digest{}, fmt.Errorf("look for the tree of commit %s: %w", c.ID, err)
		}
		if !held {
			return c.Root, s.treeFromBody(ctx, c)
		}
	}
	return c.Root, nil
}

// treeFromBody makes the tree of a commit that is known without it, from its diff in the entry that
// is being taken: no other entry up to here may have it. When that does not bring it, it is a
// *NeedsTreeError.
func (s *step) treeFromBody(ctx context.Context, c *commit.Commit) error {
	i := s.inBody(c.ID)
	if i < 0 {
		return &NeedsTreeError{Commit: c.ID}
	}
	if _, err := s.treeOf(ctx, i); err != nil {
		return err
	}
	s.commits[c.ID] = c
	s.b.Commits = append(s.b.Commits, storage.ReceivedCommit{Commit: c})
	return nil
}

// inBody returns the number of a commit that the present entry brings before the one whose tree is
// being made, -1 when it is none.
func (s *step) inBody(id commit.ID) int {
	if s.present == nil {
		return -1
	}
	return slices.IndexFunc(s.present.Commits[:min(s.at, len(s.present.Commits))], func(cc format.CommitChange) bool { return cc.Commit.ID == id })
}

// treeOf makes the tree of commit i of the present entry from its diff. Going from base to base
// comes to an end, since each stands before what builds on it.
func (s *step) treeOf(ctx context.Context, i int) (object.Digest, error) {
	cc := &s.present.Commits[i]
	defer func(at int) { s.at = at }(s.at)
	s.at = i
	from, err := s.root(ctx, cc.Base)
	if err != nil {
		return object.Digest{}, err
	}
	root, err := s.apply(ctx, from, cc.Diff)
	if err == nil && root != cc.Commit.Root {
		err = bad("the diff of commit %s leads to the tree %s, it has %s", cc.Commit.ID, root, cc.Commit.Root)
	}
	return root, err
}

// explanations takes the explanations of merges that the body brings.
func (s *step) explanations(ctx context.Context, b *format.Body) error {
	for i := range b.Explanations {
		x := &b.Explanations[i]
		if err := s.explanation(ctx, b, x); err != nil {
			return fmt.Errorf("explanation of commit %s: %w", x.Merge, err)
		}
	}
	return nil
}

func (s *step) explanation(ctx context.Context, b *format.Body, x *format.Explanation) error {
	merge := false
	for i := range b.Commits {
		merge = merge || b.Commits[i].Commit.ID == x.Merge && len(b.Commits[i].Commit.Parents) == 2
	}
	if !merge {
		return bad("it is no merge of this entry")
	}
	if x.Root == btree.EmptyRoot {
		return bad("it is empty")
	}
	if _, ok := s.taken[x.Merge]; !ok {
		return nil // the commit was here before: its first explanation counts
	}
	root, err := s.apply(ctx, btree.EmptyRoot, x.Diff)
	if err != nil {
		return err
	}
	if root != x.Root {
		return bad("the diff leads to the tree %s, not to %s", root, x.Root)
	}
	s.j.Explain(x.Merge, x.Root)
	return nil
}

// Node implements btree.Source.
func (s *step) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	s.res.NodesRead++
	return s.j.Node(ctx, d)
}

// PutNode implements btree.Sink.
func (s *step) PutNode(ctx context.Context, n btree.NewNode) error {
	s.res.Nodes++
	return s.j.PutNode(ctx, n)
}

// PutPiece implements btree.Sink.
func (s *step) PutPiece(ctx context.Context, d object.Digest, content []byte) error {
	return s.j.PutPiece(ctx, d, content)
}
