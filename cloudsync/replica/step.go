package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// step is one batch of storage under construction. It is the source and the sink of trees built for
// it.
type step struct {
	p    *Page
	j    *storage.Journal
	b    storage.SyncBatch
	next *State
	// commits are those that the batch adds with their trees.
	commits map[commit.ID]*commit.Commit
	// mine are pieces that the journal holds in memory, and pieces whose places are in b.
	mine   map[object.Digest]mine
	values values
	// missing are pieces that may be missing, in addition to those of next.
	missing map[object.Digest]bool
	// resolved says that all places that count were recorded.
	resolved bool
	// unsynced are the commits here that the log lacks. giveUp are those that the log has given up.
	unsynced, giveUp map[commit.ID]bool
}

// mine is the step's record of a piece that the page does not have yet.
type mine struct {
	bytes uint32
	held  bool
}

// begin begins a step. The caller ends it.
func (p *Page) begin(ctx context.Context) (*step, error) {
	s := &step{
		p: p, j: p.o.Store.NewJournal(), next: p.state.Next(), commits: map[commit.ID]*commit.Commit{},
		mine: map[object.Digest]mine{}, missing: map[object.Digest]bool{}, unsynced: map[commit.ID]bool{}, giveUp: map[commit.ID]bool{},
	}
	s.values.s = s
	ids, err := p.o.Store.Unsynced(ctx)
	if err != nil {
		s.end()
		return nil, fmt.Errorf("list what is unsynced: %w", err)
	}
	for _, id := range ids {
		s.unsynced[id] = true
	}
	for _, id := range p.state.GiveUp {
		s.giveUp[id] = true
	}
	return s, nil
}

// end discards what was not submitted.
func (s *step) end() {
	s.j.Rollback()
	s.p.shared.Store(s.p.state)
}

// submit makes the step durable.
func (s *step) submit(ctx context.Context) error {
	s.settleMissing()
	if len(s.next.Missing) > 0 {
		s.b.Metadata = append(s.b.Metadata, storage.Metadata{Type: storage.MetadataLacks, Value: []byte{1}})
	}
	return s.p.write(ctx, s.j, &s.b, s.next)
}

// settleMissing removes pieces that have a place now from State.Missing.
func (s *step) settleMissing() {
	var left map[object.Digest]bool
	for _, p := range s.b.Places {
		if !s.next.Missing[p.Digest] {
			continue
		}
		if left == nil {
			left = maps.Clone(s.next.Missing)
		}
		delete(left, p.Digest)
	}
	if left != nil {
		s.next.Missing = left
	}
}

// publish makes packs of the step visible to the Fetcher.
func (s *step) publish() {
	c := *s.next
	s.p.shared.Store(&c)
}

// orphan returns a commit of State.Near, nil if it is not here. It caches them: every step reads
// them all.
func (p *Page) orphan(ctx context.Context, id epoch.Commit) (*commit.Commit, error) {
	if c := p.orphans[id]; c != nil {
		return c, nil
	}
	cs, err := p.load(ctx, epoch.Set{id})
	if err != nil || len(cs) == 0 {
		return nil, err
	}
	if p.orphans == nil || len(p.orphans) > 2*len(p.state.Near) {
		p.orphans = map[epoch.Commit]*commit.Commit{}
	}
	p.orphans[id] = cs[0]
	return cs[0], nil
}

// rejoin returns near with the present parents of commits that were in the log without them until
// now, and whether it changed. fresh reports the commits that the step adds to the log.
func (s *step) rejoin(ctx context.Context, near map[epoch.Commit]epoch.Set, fresh func(commit.ID) bool) (now map[epoch.Commit]epoch.Set, changed bool, err error) {
	now = maps.Clone(near)
	for id := range s.p.state.Near {
		c, err := s.p.orphan(ctx, id)
		if err != nil {
			return nil, false, err
		}
		if c == nil || !slices.ContainsFunc(c.Parents, fresh) {
			continue
		}
		lacks := false
		for _, parent := range c.Parents {
			if fresh(parent) {
				if set, ok := now[id]; ok {
					now[id], changed = set.Union(epoch.Set{short(parent)}), true
				}
				continue
			}
			_, err := s.p.o.Store.Commit(ctx, parent)
			if lacks = lacks || isPruned(err); err != nil && !isPruned(err) {
				return nil, false, fmt.Errorf("read commit %s: %w", parent.Short(), err)
			}
		}
		if !lacks {
			delete(now, id)
			changed = true
		}
	}
	return now, changed, nil
}

// cover makes commits count as no heads that were given up, or on which commits stand that were
// not. It precedes submit in each step that does more than add commits above those that are here.
func (s *step) cover(ctx context.Context) error {
	received := make([]*commit.Commit, len(s.b.Commits))
	for i := range s.b.Commits {
		received[i] = s.b.Commits[i].Commit
	}
	g, err := s.p.graphOf(ctx, s.next, received)
	if err != nil {
		return err
	}
	heads := g.Reduce(g.Set().Without(setOf(s.next.GiveUp))).Heads().Without(s.next.Gone)
	for i := range s.b.Commits {
		r := &s.b.Commits[i]
		r.Inner = !heads.Has(short(r.Commit.ID))
	}
	for id, c := range s.p.headsHere() {
		if _, known := g.Index(id); known && !heads.Has(id) { // a commit made meanwhile stays a head
			s.b.Inner = append(s.b.Inner, c.ID)
		}
	}
	return nil
}

// giveThemUp gives up commits, except those given up before. back reports the commits of these that
// are restored.
func (s *step) giveThemUp(ids []commit.ID, back func(commit.ID) bool) {
	s.next.GiveUp = slices.DeleteFunc(slices.Clone(s.next.GiveUp), back)
	for _, id := range ids {
		if s.giveUp[id] {
			continue
		}
		s.next.GiveUp = append(s.next.GiveUp, id)
		if s.unsynced[id] {
			s.b.Synced = append(s.b.Synced, id)
		}
	}
}

// find returns a commit that is here or in the batch, nil if there is none. A pruned commit is not
// found.
func (s *step) find(ctx context.Context, id commit.ID) (c *commit.Commit, here bool, err error) {
	if c, ok := s.commits[id]; ok {
		return c, false, nil
	}
	c, err = s.p.o.Store.Commit(ctx, id)
	if errors.Is(err, base.ErrNotFound) || errors.Is(err, base.ErrGone) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("look for commit %s: %w", id, err)
	}
	return c, true, nil
}

// inLog returns a commit of the log or of the batch, nil if there is none.
func (s *step) inLog(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	c, here, err := s.find(ctx, id)
	if err != nil || here && (s.unsynced[id] || s.giveUp[id]) {
		return nil, err
	}
	return c, nil
}

// pieceState is the state of a piece. bytes is its length, negative if unknown.
type pieceState struct {
	held, placed bool
	bytes        int64
}

// look returns the state of a piece in the page and the step.
func (s *step) look(d object.Digest) (pieceState, error) {
	m, ok := s.mine[d]
	if ok && m.held {
		return pieceState{held: true, placed: true, bytes: int64(m.bytes)}, nil
	}
	p, err := s.p.o.Store.PieceState(d)
	if err != nil {
		return pieceState{}, fmt.Errorf("look for piece %s: %w", d, err)
	}
	st := pieceState{held: p.Held, placed: p.Synced || ok, bytes: -1}
	if ok {
		st.bytes = int64(m.bytes)
	} else if p.Synced {
		st.bytes = int64(p.Place.Bytes)
	}
	return st, nil
}

// mayLack reports whether a piece may be neither here nor in the bucket.
func (s *step) mayLack(d object.Digest) bool { return s.missing[d] || s.next.Missing[d] }

// aheadPlaces is how many places become durable before a step.
const aheadPlaces = 8192

// place records the place of a piece, none if it is zero. held says that the journal has the piece.
func (s *step) place(ctx context.Context, p storage.PlacedPiece, held bool) error {
	s.mine[p.Digest] = mine{bytes: p.Place.Bytes, held: held || s.mine[p.Digest].held}
	if p.Place.Pack != (epoch.ID{}) || p.Place.Entry != 0 {
		s.b.Places = append(s.b.Places, p)
	}
	if len(s.mine) < aheadPlaces {
		return nil
	}
	return s.flushPlaces(ctx)
}

// flushPlaces makes the places of the step durable before the step, and with them the pieces in the
// journal.
func (s *step) flushPlaces(ctx context.Context) error {
	if len(s.mine) == 0 {
		return nil
	}
	if err := s.j.Flush(ctx); err != nil {
		return err
	}
	s.settleMissing()
	if len(s.b.Places) > 0 {
		if err := s.p.submitAlone(ctx, &storage.SyncBatch{Places: s.b.Places}); err != nil {
			return fmt.Errorf("record %d places: %w", len(s.b.Places), err)
		}
	}
	s.b.Places = nil
	clear(s.mine)
	return nil
}

// submitAlone makes a batch durable that is true by itself.
func (p *Page) submitAlone(ctx context.Context, b *storage.SyncBatch) error {
	return submit(ctx, p.o.Store, nil, b)
}

// submit makes a batch durable, with the content of a journal, if any.
func submit(ctx context.Context, store *storage.Store, j *storage.Journal, b *storage.SyncBatch) error {
	pending, err := store.SubmitSync(ctx, j, b)
	if err != nil {
		return err
	}
	return pending.Wait()
}

// checkPiece verifies the form of a piece whose content matches its digest.
func checkPiece(d object.Digest, content []byte) error {
	if !d.Valid() || d.Kind().IsNode() {
		return bad("piece %s is none of a value", d)
	}
	if len(content) > limits.MaxPieceBytes {
		return bad("piece %s of %d bytes", d, len(content))
	}
	if _, err := split.Children(d, content); err != nil {
		return indexFault(d, err)
	}
	return nil
}

// piece applies a piece of a body.
func (s *step) piece(ctx context.Context, x *wire.Piece, at storage.CloudPlace) error {
	if err := checkPiece(x.Digest, x.Content); err != nil {
		return err
	}
	if err := s.j.PutPiece(ctx, x.Digest, x.Content); err != nil {
		return err
	}
	at.Bytes = uint32(len(x.Content))
	return s.place(ctx, storage.PlacedPiece{Digest: x.Digest, Place: at}, true)
}

// pack applies a pack: all its pieces, or only their places and the index pieces of LAZY values. It
// records the places unless local is set.
func (s *step) pack(ctx context.Context, w *wire.Pack, whole, local bool) error {
	if w.Pieces == 0 { // a difference
		return nil
	}
	name := s.p.o.Names.Pack(w.Epoch, w.ID)
	open := pack.Open
	if whole {
		open = pack.OpenWhole
	}
	r, err := open(ctx, s.p.o.Bucket, s.p.o.Sealer, s.p.o.Names, *w)
	if err != nil {
		return badObject(name, fmt.Errorf("read pack: %w", err))
	}
	defer r.Close()
	var disk error
	var places []storage.PlacedPiece
	held := 0 // the pieces that are read precede the others
	err = r.Each(ctx, func(p storage.PlacedPiece, content []byte) error {
		if local {
			p.Place = storage.CloudPlace{Bytes: p.Place.Bytes}
		}
		if places = append(places, p); content == nil {
			return nil
		}
		held++
		if err := checkPiece(p.Digest, content); err != nil {
			return err
		}
		disk = s.j.PutPiece(ctx, p.Digest, content)
		return disk
	})
	if disk != nil {
		return disk
	}
	if err != nil {
		return badObject(name, fmt.Errorf("read pack: %w", err))
	}
	for i, p := range places { // proved, now that the last piece has been read
		if err := s.place(ctx, p, i < held); err != nil {
			return err
		}
	}
	if whole {
		s.p.o.Down.Advance(0, int64(w.Bytes))
	}
	return nil
}

// want is the want of applyDiffs.
func (s *step) want(ctx context.Context) func(*fb.Entry) error {
	return func(e *fb.Entry) error { return s.values.want(ctx, e.Digest, e.Size, e.Priority) }
}

// Node implements btree.Source.
func (s *step) Node(ctx context.Context, d object.Digest) (*fb.Node, error) { return s.j.Node(ctx, d) }

// PutNode implements btree.Sink.
func (s *step) PutNode(ctx context.Context, n btree.NewNode) error { return s.j.PutNode(ctx, n) }

// PutPiece implements btree.Sink.
func (s *step) PutPiece(ctx context.Context, d object.Digest, content []byte) error {
	return s.j.PutPiece(ctx, d, content)
}
