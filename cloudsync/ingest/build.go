package ingest

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// errEnough ends a reading of the history.
var errEnough = errors.New("enough of the history")

// Past is what the bucket has of a page's past.
type Past struct {
	// Entries gives the entries behind a position, in order, up to that of the page. It returns the
	// error of yield.
	Entries func(from format.Position, yield func(*format.Entry) error) error
	// Checkpoints are the numbers of the checkpoints that are there, ascending. A tree is built
	// from the last of them that allows it.
	Checkpoints []uint64
}

// maxStarts bounds how many checkpoints are tried.
const maxStarts = 8

// BuildTree makes the tree of a treeless commit from what the log brings: from the newest
// checkpoint before the commit, or from the first entry on. The log is read from there, up to three
// times. A tree that is here is left as it is. Only the wanted tree is stored, and places of values
// of it that were not known. Values whose places nobody knows any more do not keep the tree from
// being built.
//
// It blocks for the disk and the bucket, and holds 16 bytes for each commit in the log that it
// reads, the header of a checkpoint, and what one step of a tree takes. Errors: base.ErrNotFound
// for a commit that is not here, base.ErrGone when the past does not lead to it, an *EntryError,
// those of log, of the disk and of ctx.
func (p *Page) BuildTree(ctx context.Context, id commit.ID, log Past) error {
	c, err := p.o.Store.Commit(ctx, id)
	if err != nil {
		return fmt.Errorf("build the tree of commit %s: %w", id, err)
	}
	held, err := p.treeHeld(ctx, c)
	if err != nil || held {
		return err
	}
	b := &builder{p: p, target: c, log: log}
	if err := b.build(ctx); err != nil {
		var entry *EntryError
		if errors.As(err, &entry) {
			return err
		}
		return fmt.Errorf("build the tree of commit %s: %w", id, err)
	}
	return nil
}

func (p *Page) treeHeld(ctx context.Context, c *commit.Commit) (bool, error) {
	if c.Root == btree.EmptyRoot {
		return true, nil
	}
	held, err := p.o.Store.TreeHeld(ctx, c)
	if err != nil {
		return false, fmt.Errorf("look for the tree of commit %s: %w", c.ID, err)
	}
	return held, nil
}

// builder builds one tree from the log.
type builder struct {
	p      *Page
	target *commit.Commit
	log    Past
	// start is the checkpoint with which it begins, nil for the first entry; head is which of its
	// heads the first diff leads from, -1: none.
	start *start
	head  int
	// chain are the commits whose diffs lead to the target, last first, by the first 8 bytes of
	// their ids.
	chain []uint64
	from  object.Digest // root of the tree, which is here, that the first diff of the chain leads from
	s     *step         // has the trees that are built on the way
	root  object.Digest // of the tree that has been built so far
	put   int           // bytes of nodes in s
	least int           // bytes of nodes of the last tree that was copied
	gone  map[format.ID]struct{}
	read  map[format.ID]struct{} // packs of which the places were taken
	below uint64                 // entries that are condemned
	// lenient passes over packs that cannot be read: values that stand there do not keep a tree
	// from being built.
	lenient bool
}

// start is a checkpoint, without its trees.
type start struct {
	at    format.Position
	name  string
	packs []format.PackRef
	heads map[uint64]int // and other commits that it has trees of, by the first 8 bytes of their ids
}

// position returns where the log is read from.
func (s *start) position() format.Position {
	if s == nil {
		return format.Position{}
	}
	return s.at
}

func prefix(id commit.ID) uint64 { return binary.BigEndian.Uint64(id[:8]) }

func (b *builder) build(ctx context.Context) error {
	last := b.p.begin(rows{})
	defer last.end()
	if err := b.buildIn(ctx, last); err != nil {
		return err
	}
	if err := b.places(ctx, last); err != nil {
		return err
	}
	last.b.Commits = []storage.ReceivedCommit{{Commit: b.target}}
	return last.submit(ctx, nil)
}

// buildIn makes the tree in a step. When the past does not lead to it, or something in it is
// damaged, the commit may have been sent once more, behind a checkpoint that has it without its
// tree: a device that made the bucket whole again does so.
func (b *builder) buildIn(ctx context.Context, last *step) error {
	err := b.tryIn(ctx, last, false)
	if err == nil || !noUse(err) {
		return err
	}
	if again := b.tryIn(ctx, last, true); again == nil || !noUse(again) {
		return again
	}
	return err
}

// tryIn is buildIn once. again says to begin with checkpoints that have the commit without its
// tree.
func (b *builder) tryIn(ctx context.Context, last *step, again bool) error {
	if err := b.planFromNewest(ctx, again); err != nil {
		return err
	}
	b.put, b.least = 0, 0
	b.s = b.p.begin(rows{})
	defer func() { b.s.end() }()
	b.root = b.from
	if b.head >= 0 {
		if err := b.headTree(ctx); err != nil {
			return nameFault(b.start.name, err)
		}
	}
	if err := b.follow(ctx); err != nil {
		return err
	}
	root, err := b.copyTo(ctx, last)
	if err == nil && root != b.target.Root && !b.target.Root.IsZero() {
		err = fmt.Errorf("the tree %s was built, the commit has %s: %w", root, b.target.Root, base.ErrGone)
	}
	b.root = root
	return err
}

// planFromNewest plans with the newest checkpoint from which a chain leads to the target, at last
// with none. again: see tryIn.
func (b *builder) planFromNewest(ctx context.Context, again bool) error {
	for i := len(b.log.Checkpoints) - 1; i >= max(0, len(b.log.Checkpoints)-maxStarts); i-- {
		st, within, err := b.readStart(ctx, b.log.Checkpoints[i])
		if err == nil && within == again {
			b.start = st
			if err = b.plan(ctx); err == nil {
				return nil
			}
		}
		// A conflict: the log lost the entry of the checkpoint, and has another one in its place.
		if err != nil && !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrNotFound) && !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrConflict) {
			return err
		}
	}
	if b.start = nil; again {
		return base.ErrGone
	}
	return b.plan(ctx)
}

// readStart reads the header of a checkpoint. within says that the target is before it, and none of
// its heads.
func (b *builder) readStart(ctx context.Context, number uint64) (st *start, within bool, err error) {
	a := &adoption{number: number, name: b.p.o.Names.Checkpoint(number)}
	defer func() { err = cmp.Or(err, a.close()) }()
	_, closer, err := a.open(ctx, b.p)
	if err != nil {
		return nil, false, err
	}
	if err := closer.Close(); err != nil {
		return nil, false, err
	}
	st = &start{at: a.c.At, name: a.name, packs: a.c.Packs, heads: map[uint64]int{}}
	for i := range a.trees() {
		c, _ := a.treeOf(i)
		st.heads[prefix(c.ID)] = i
	}
	if _, ok := st.heads[prefix(b.target.ID)]; ok {
		return st, false, nil
	}
	_, within = a.h.Find(b.target.ID)
	return st, within, nil
}

// headTree makes the tree of a head of the checkpoint.
func (b *builder) headTree(ctx context.Context) (err error) {
	a := &adoption{s: b.s, number: b.start.at.Number, name: b.start.name}
	defer func() { err = cmp.Or(err, a.close()) }()
	st, closer, err := a.open(ctx, b.p)
	if err != nil {
		return err
	}
	defer closer.Close()
	b.root, err = a.tree(ctx, st, b.head)
	return err
}

// plan finds the chain of diffs that leads to the target.
func (b *builder) plan(ctx context.Context) error {
	bases := map[uint64]uint64{} // 0: the empty tree
	b.gone, b.below, b.chain, b.head, b.from = map[format.ID]struct{}{}, 0, nil, -1, btree.EmptyRoot
	err := b.log.Entries(b.start.position(), func(e *format.Entry) error {
		for i := range e.Body.Commits {
			cc := &e.Body.Commits[i]
			if _, ok := bases[prefix(cc.Commit.ID)]; !ok {
				bases[prefix(cc.Commit.ID)] = 0
				if !cc.Base.Empty {
					bases[prefix(cc.Commit.ID)] = prefix(cc.Base.Commit)
				}
			}
		}
		b.noteCondemned(e)
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	for at := prefix(b.target.ID); at != 0 && at != prefix(commit.First().ID); {
		c, held, err := b.treeful(ctx, at)
		if err != nil {
			return err
		}
		if held {
			b.from = c.Root
			return nil
		}
		if b.start != nil {
			if i, ok := b.start.heads[at]; ok {
				b.head = i
				return nil
			}
		}
		next, ok := bases[at]
		if !ok || len(b.chain) > len(bases) {
			return fmt.Errorf("the log does not have commit %016x: %w", at, base.ErrGone)
		}
		b.chain = append(b.chain, at)
		at = next
	}
	return nil
}

// noteCondemned takes note of what an entry condemns.
func (b *builder) noteCondemned(e *format.Entry) {
	if c := e.Body.Condemned; c != nil {
		for _, id := range c.Packs {
			b.gone[id] = struct{}{}
		}
		b.below = max(b.below, c.Below)
	}
}

// treeful returns the commit whose id begins with the given bytes if it and its tree are here.
func (b *builder) treeful(ctx context.Context, at uint64) (*commit.Commit, bool, error) {
	ids, err := b.p.o.Store.FindCommits(ctx, binary.BigEndian.AppendUint64(nil, at), false, 1)
	if err != nil || len(ids) == 0 {
		return nil, false, err
	}
	c, err := b.p.o.Store.Commit(ctx, ids[0])
	if err != nil {
		return nil, false, err
	}
	held, err := b.p.treeHeld(ctx, c)
	return c, held, err
}

// follow applies the diffs of the chain.
func (b *builder) follow(ctx context.Context) error {
	if len(b.chain) == 0 {
		return nil
	}
	err := b.log.Entries(b.start.position(), func(e *format.Entry) error {
		for i := range e.Body.Commits {
			cc := &e.Body.Commits[i]
			if prefix(cc.Commit.ID) != b.chain[len(b.chain)-1] {
				continue
			}
			if err := b.step(ctx, cc); err != nil {
				return nameFault(b.p.o.Names.Entry(e.Number), fmt.Errorf("commit %s: %w", cc.Commit.ID, err))
			}
			if b.chain = b.chain[:len(b.chain)-1]; len(b.chain) == 0 {
				return errEnough
			}
		}
		return ctx.Err()
	})
	if len(b.chain) > 0 {
		if err == nil {
			err = base.ErrGone
		}
		return fmt.Errorf("read the log, of which %d diffs are missing: %w", len(b.chain), err)
	}
	return nil
}

// step applies one diff.
func (b *builder) step(ctx context.Context, cc *format.CommitChange) error {
	r, err := b.p.openDiff(ctx, &cc.Diff)
	if err != nil {
		return err
	}
	defer r.close()
	if b.root, err = b.s.tree(b.root).Apply(ctx, &countingSink{b.s, &b.put}, changes(r, nil)); err != nil {
		return treeError(err)
	}
	if b.root != cc.Commit.Root {
		return bad("the diff leads to the tree %s, the commit has %s", b.root, cc.Commit.Root)
	}
	if b.put < b.p.bounds.scratch || b.put < 2*b.least {
		return nil
	}
	// Most of what the journal has is of trees that are not wanted any more.
	next := b.p.begin(rows{})
	b.put = 0
	root, err := b.copyTo(ctx, next)
	if err == nil && root != b.root {
		err = fmt.Errorf("copy the tree %s and get %s: %w", b.root, root, base.ErrCorrupt)
	}
	if err != nil {
		next.end()
		return err
	}
	b.s.end()
	b.s, b.least = next, b.put
	return nil
}

// copyTo makes the present tree in another step, out of the tree that was here before, and returns
// its root.
func (b *builder) copyTo(ctx context.Context, to *step) (object.Digest, error) {
	source := btree.Tree{Page: b.p.page, Source: b.s, Root: b.from}
	target := source
	target.Root = b.root
	return to.tree(b.from).Apply(ctx, &countingSink{to, &b.put}, func(yield func(btree.Change, error) bool) {
		for d, err := range btree.Diff(ctx, source, target, nil) {
			change := btree.Change{Delete: !d.HasRight, Entry: d.Right}
			if !d.HasRight {
				change.Entry = fb.Entry{Key: d.Key}
			}
			if !yield(change, err) || err != nil {
				return
			}
		}
	})
}

// countingSink counts the bytes of nodes that a step gets.
type countingSink struct {
	*step
	put *int
}

// PutNode implements btree.Sink.
func (c *countingSink) PutNode(ctx context.Context, n btree.NewNode) error {
	*c.put += len(n.Content)
	return c.step.PutNode(ctx, n)
}

// places looks for values of the tree of which nobody here knows where they are, and when there are
// any, takes the places of all pieces that the checkpoint and the log behind it tell of and the
// page does not know; and if that was not enough, of those that all of the log tells of.
func (b *builder) places(ctx context.Context, s *step) error {
	missing, err := b.lacksPlaces(ctx, s)
	if err != nil || !missing {
		return err
	}
	b.lenient = true
	if b.start == nil {
		return b.placesFrom(ctx, s)
	}
	if err := b.placesFrom(ctx, s); err != nil {
		return err
	}
	if missing, err = b.lacksPlaces(ctx, s); err != nil || !missing {
		return err
	}
	return b.allPlaces(ctx, s)
}

// lacksPlaces reports whether there is a value of the tree of which nobody here knows where it is.
func (b *builder) lacksPlaces(ctx context.Context, s *step) (bool, error) {
	for d, err := range btree.Diff(ctx, s.tree(b.from), s.tree(b.target.Root), nil) {
		if err != nil {
			return false, err
		}
		if !d.HasRight || d.Right.Inline {
			continue
		}
		st, err := s.look(d.Right.Digest)
		if err != nil {
			return false, err
		}
		if !st.held && !st.placed {
			return true, nil
		}
	}
	return false, nil
}

// allPlaces takes the places of all pieces that all of the log tells of, as far as it is there.
func (b *builder) allPlaces(ctx context.Context, s *step) error {
	b.start, b.gone, b.below = nil, map[format.ID]struct{}{}, 0
	err := b.log.Entries(format.Position{}, func(e *format.Entry) error {
		b.noteCondemned(e)
		return ctx.Err()
	})
	if errors.Is(err, base.ErrGone) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	return b.placesFrom(ctx, s)
}

// placesFrom takes the places of pieces that the start and the log behind it tell of.
func (b *builder) placesFrom(ctx context.Context, s *step) error {
	s.fill = true
	if b.start != nil {
		for _, ref := range b.start.packs {
			if err := b.placesIn(ctx, s, ref); err != nil {
				return nameFault(b.start.name, err)
			}
		}
	}
	err := b.log.Entries(b.start.position(), func(e *format.Entry) error {
		if err := b.placesOf(ctx, s, e); err != nil {
			return nameFault(b.p.o.Names.Entry(e.Number), err)
		}
		return ctx.Err()
	})
	if err != nil {
		return fmt.Errorf("read the log: %w", err)
	}
	return nil
}

// placesIn takes the places of the pieces of a pack, unless it is gone.
func (b *builder) placesIn(ctx context.Context, s *step, ref format.PackRef) error {
	if _, ok := b.gone[ref.ID]; ok {
		return nil
	}
	err := s.pack(ctx, ref, false)
	if errors.Is(err, base.ErrNotFound) || b.lenient && isFault(err) {
		return nil
	}
	if err == nil {
		b.note(ref.ID)
	}
	return err
}

// placesRelied is placesIn for a pack of which an entry says no more than that it relies on it. It
// is read once.
func (b *builder) placesRelied(ctx context.Context, s *step, id format.ID) error {
	if _, ok := b.gone[id]; ok {
		return nil
	}
	if _, ok := b.read[id]; ok {
		return nil
	}
	places, err := s.packPlaces(ctx, format.PackRef{ID: id})
	if err == nil {
		err = s.takePlaces(ctx, places, false)
	} else if !errors.Is(err, base.ErrNotFound) {
		err = badPack(s.p.o.Names.Pack(id), err)
	}
	if err == nil || errors.Is(err, base.ErrNotFound) || b.lenient && isFault(err) {
		b.note(id)
		return nil
	}
	return err
}

// note remembers a pack of which the places were taken.
func (b *builder) note(id format.ID) {
	if b.read == nil {
		b.read = map[format.ID]struct{}{}
	}
	b.read[id] = struct{}{}
}

// placesOf takes the places of pieces that an entry tells of.
func (b *builder) placesOf(ctx context.Context, s *step, e *format.Entry) error {
	if e.Number >= b.below {
		for i := range e.Body.Pieces {
			if err := s.place(inlinePlace(e, i), false); err != nil {
				return err
			}
		}
	}
	for _, ref := range e.Body.Packs {
		if err := b.placesIn(ctx, s, ref); err != nil {
			return err
		}
	}
	for _, id := range e.Body.Relies { // the entry that announced it may be gone
		if err := b.placesRelied(ctx, s, id); err != nil {
			return err
		}
	}
	return nil
}
