package ingest

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// maxHeaderBytes bounds the header of a checkpoint: some 1.5 million commits. Of each commit 50
// bytes are held, the rest goes to a temporary file.
const maxHeaderBytes = 256 << 20

// MetadataAhead is the type of the row that is there while a part of the history of a checkpoint is
// here, ahead of its heads: the number of the checkpoint (8). When it is not adopted after all, the
// commits that are here count when the log brings them.
const MetadataAhead = "ahead"

// MetadataAheadBeside is that of the row that is there while a part of the history comes that
// TakeHistory takes: the number of the entry behind the page's position (8), which needs it. When
// it is not taken after all, what is here counts when that entry brings it.
const MetadataAheadBeside = "aheadBeside"

// Adopt takes over the checkpoint of a number, and returns the position behind it, from which Apply
// goes on. The page has read less of the log than the checkpoint stands for; usually nothing.
// Commits that it has of its own stay: they are not synced.
//
// The heads come with their trees and their EAGER values, other commits as a part of history whose
// trees BuildTree makes. It is one batch of storage, behind what is said in the comment of the
// package, and behind the history, when that is long. Adopt blocks for the bucket and the disk;
// memory does not depend on the number of entries of the trees, and takes 50 bytes for each commit.
//
// Errors: an *EntryError for a checkpoint or pack that is bad; base.ErrInvalid for a page that has
// read more; those of the bucket (base.ErrNotFound when it is not there), of the disk and of ctx.
func (p *Page) Adopt(ctx context.Context, number uint64) (at format.Position, res Result, err error) {
	r, err := p.readRows(ctx)
	if err != nil {
		return format.Position{}, Result{}, err
	}
	name := p.o.Names.Checkpoint(number)
	if r.position.Number > 0 && (r.position.Number >= number || r.position.Bucket != p.bucketID()) {
		return format.Position{}, Result{}, fmt.Errorf("adopt %s at position %d: %w", name, r.position.Number, base.ErrInvalid)
	}
	s := p.begin(r)
	defer s.end()
	a := &adoption{s: s, number: number, name: name}
	defer func() { err = cmp.Or(err, a.close()) }()
	p.o.Progress.Begin(0, 0)
	if err := a.read(ctx); err != nil {
		return format.Position{}, Result{}, nameFault(name, err)
	}
	if err := a.values(ctx); err != nil {
		return format.Position{}, Result{}, nameFault(name, err)
	}
	if r.position.Number > 0 { // what it has read since may not be in the bucket any more
		if err := s.unsync(ctx, a.known()); err != nil {
			return format.Position{}, Result{}, nameFault(name, err)
		}
	}
	if err := a.history(ctx); err != nil {
		return format.Position{}, Result{}, nameFault(name, err)
	}
	s.rows.position, s.rows.since = a.c.At, 0
	if a.h.Len() > 0 && !a.created.IsZero() {
		s.rows.server = a.created
	}
	if err := s.submit(ctx, append(s.rows.metadata(), a.row(), storage.Metadata{Type: MetadataAdopted, Value: []byte{1}}, a.packsRow(), storage.Metadata{Type: MetadataAhead})); err != nil {
		return format.Position{}, Result{}, fmt.Errorf("adopt %s: %w", name, err)
	}
	if err := a.settleHeads(ctx); err != nil {
		return format.Position{}, Result{}, fmt.Errorf("adopt %s: %w", name, err)
	}
	p.o.Progress.Settle()
	return a.c.At, s.res, nil
}

// TakeHistory takes over the commits of the checkpoint of a number, with what else Adopt takes for
// them, if a wanted one is among them; found reports that. The page may have read any part of the
// log: its position, tags, and what else the log says stay as they are. Devices that make a lost
// bucket whole again bring commits in this way whose trees they do not have. Memory and batches are
// those of Adopt: who ends between them has commits that are no heads yet, and takes the rest with
// the next call.
//
// Errors: those of Adopt.
func (p *Page) TakeHistory(ctx context.Context, number uint64, wanted commit.ID) (res Result, found bool, err error) {
	_, res, err = p.takeHistory(ctx, number, &wanted)
	if errors.Is(err, errNotWanted) {
		return Result{}, false, nil
	}
	return res, err == nil, err
}

// takeHistory is TakeHistory, without a wanted commit when that is nil. It returns what the
// checkpoint has of the history.
func (p *Page) takeHistory(ctx context.Context, number uint64, wanted *commit.ID) (k *knownHistory, res Result, err error) {
	name := p.o.Names.Checkpoint(number)
	s := p.begin(rows{})
	defer s.end()
	a := &adoption{s: s, number: number, name: name, beside: true, wanted: wanted}
	defer func() { err = cmp.Or(err, a.close()) }()
	err = a.read(ctx)
	if err == nil {
		err = a.values(ctx)
	}
	if err == nil {
		err = a.history(ctx)
	}
	if err != nil {
		return nil, Result{}, nameFault(name, err)
	}
	m := []storage.Metadata{{Type: MetadataAdopted, Value: []byte{1}}}
	if a.ahead {
		m = append(m, storage.Metadata{Type: MetadataAheadBeside})
	}
	err = s.submit(ctx, m)
	if err == nil {
		err = a.settleHeads(ctx)
	}
	if err != nil {
		return nil, Result{}, fmt.Errorf("take history from %s: %w", name, err)
	}
	return a.known(), s.res, nil
}

// errNotWanted says that a checkpoint does not have the wanted commit.
var errNotWanted = errors.New("the commit is not in the checkpoint")

// adoption is a checkpoint that is being taken over.
type adoption struct {
	s       *step
	number  uint64
	name    string
	c       *format.Checkpoint // without commits
	h       *format.History
	spool   *commitSpool              // has the commits, once open was called
	special map[uint32]*commit.Commit // those with trees, and those with tags
	size    int64                     // of the object
	created time.Time
	skipped []bool                 // commits that are below such as are here, and were given up here; nil: none
	inner   []bool                 // commits that are kept because of tags, since what was built on them was given up
	outside map[commit.ID]struct{} // parents that are here, and not in the checkpoint
	bare    bool                   // the page has no commits
	ahead   bool                   // the commits that are no heads come ahead
	beside  bool                   // the page has read the log; see TakeHistory
	wanted  *commit.ID
}

// row returns the metadata row of the checkpoint.
func (a *adoption) row() storage.Metadata {
	b := binary.BigEndian.AppendUint64(nil, a.number)
	b = binary.BigEndian.AppendUint64(b, 0)
	return storage.Metadata{Type: format.MetadataCheckpoint, Value: binary.BigEndian.AppendUint64(b, uint64(a.size))}
}

// packsRow returns the row of the packs whose places come with the checkpoint.
func (a *adoption) packsRow() storage.Metadata {
	return storage.Metadata{Type: format.MetadataAdoptedPacks, Value: format.EncodePacks(a.c.Packs)}
}

// adopted reports whether the places of a pack came with the checkpoint with which the page began:
// an entry that announces it says nothing new.
func (s *step) adopted(ctx context.Context, id format.ID) (bool, error) {
	if s.adoptedPacks == nil {
		b, err := s.p.o.Store.Metadata(ctx, format.MetadataAdoptedPacks)
		if err != nil {
			return false, fmt.Errorf("read the packs of the checkpoint: %w", err)
		}
		packs, err := format.ParsePacks(b)
		if err != nil {
			return false, fmt.Errorf("read the packs of the checkpoint: %w", err)
		}
		s.adoptedPacks = map[format.ID]struct{}{}
		for i := range packs {
			s.adoptedPacks[packs[i].ID] = struct{}{}
		}
	}
	_, ok := s.adoptedPacks[id]
	return ok, nil
}

// open opens the object and reads its header. The stream goes on with the diffs of the heads. The
// caller closes what it returns, and the adoption.
func (a *adoption) open(ctx context.Context, p *Page) (*seal.Stream, io.Closer, error) {
	o, err := p.o.Bucket.Get(ctx, a.name, 0, -1)
	if err != nil {
		return nil, nil, err
	}
	a.size, a.created = o.Size, o.Created
	a.spool = newCommitSpool(p.o.Store.TempDir(), p.bounds.spool)
	st, err := p.o.Sealer.NewStream(o.Body, p.o.Names.CheckpointLabel(a.number))
	if err == nil {
		a.c, a.h, err = format.StreamCheckpoint(st, maxHeaderBytes, a.spool.add)
	}
	if err == nil {
		err = a.c.CheckAt(p.bucketID(), a.number)
	}
	if err != nil {
		return nil, nil, errors.Join(badObject("", err), o.Body.Close())
	}
	if err := a.load(ctx); err != nil {
		return nil, nil, errors.Join(err, o.Body.Close())
	}
	return st, o.Body, nil
}

// close removes what was kept beside memory.
func (a *adoption) close() error {
	if a.spool == nil {
		return nil
	}
	return a.spool.Close()
}

// load reads the commits that come with trees and those that have tags.
func (a *adoption) load(ctx context.Context) error {
	a.special = map[uint32]*commit.Commit{}
	for _, list := range [][]uint32{a.c.Heads, a.c.Trees} {
		for _, i := range list {
			a.special[i] = nil
		}
	}
	for _, t := range a.c.Tags {
		if i, ok := a.h.Find(t.Commit); ok {
			a.special[uint32(i)] = nil
		}
	}
	return a.each(ctx, func(i int, c *commit.Commit) error {
		if _, ok := a.special[uint32(i)]; ok {
			a.special[uint32(i)] = c
		}
		return nil
	})
}

// each calls fn with each commit.
func (a *adoption) each(ctx context.Context, fn func(i int, c *commit.Commit) error) error {
	return a.spool.each(func(i int, c *commit.Commit) error {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		return fn(i, c)
	})
}

// read reads the object: what it says of commits, and the trees of the heads.
func (a *adoption) read(ctx context.Context) error {
	st, body, err := a.open(ctx, a.s.p)
	if err != nil {
		return err
	}
	defer body.Close()
	if a.wanted != nil {
		if _, ok := a.h.Find(*a.wanted); !ok {
			return errNotWanted
		}
	}
	if err := a.commits(ctx); err != nil {
		return err
	}
	if _, err := a.tree(ctx, st, a.trees()-1); err != nil {
		return err
	}
	if err := (&diffReader{name: a.name, stream: st}).proveStream(); err != nil {
		return err
	}
	a.s.res.Bytes += a.size
	return nil
}

// commits verifies the commits and which of them are heads.
func (a *adoption) commits(ctx context.Context) error {
	s := a.s
	hs := s.p.o.Store.Heads()
	a.bare = len(hs) == 1 && hs[0].IsFirst()
	here, err := a.skip(ctx)
	if err != nil {
		return err
	}
	if err := a.islands(); err != nil {
		return err
	}
	if !a.beside {
		clear(s.p.passed)
		for _, i := range a.c.Heads {
			s.p.pass(a.special[i], a.skips(int(i)))
		}
	}
	err = a.each(ctx, func(i int, c *commit.Commit) error {
		if a.skips(i) {
			return nil
		}
		if err := s.parentsBy(ctx, c, true, a.parent); err != nil {
			return fmt.Errorf("commit %s: %w", c.ID, err)
		}
		if !here[i] {
			s.res.Commits++
		}
		return nil
	})
	if err != nil {
		return err
	}
	for i, c := range a.special {
		if !a.skips(int(i)) {
			s.commits[c.ID] = c
		}
	}
	return nil
}

// parent is step.find for the parent of a commit of the checkpoint. Of one that is in the
// checkpoint it gives what is compared with a child.
func (a *adoption) parent(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	i, ok := a.h.Find(id)
	if ok && !a.skips(i) {
		return &commit.Commit{ID: id, Generation: a.h.Generation(i)}, nil
	}
	c, _, err := a.s.find(ctx, id)
	if err == nil && c != nil && !ok && !c.IsFirst() {
		if a.outside == nil {
			a.outside = map[commit.ID]struct{}{}
		}
		a.outside[id] = struct{}{}
	}
	return c, err
}

func (a *adoption) skips(i int) bool { return a.skipped != nil && a.skipped[i] }

// islands verifies that what has no child and is no head is kept because of a tag: what was built
// on it was given up. That heads have no child reading has proved.
func (a *adoption) islands() error {
	a.inner = make([]bool, a.h.Len())
	for i, is := range a.h.IsParent() {
		a.inner[i] = !is
	}
	for _, i := range a.c.Heads {
		a.inner[i] = false
	}
	for i, inner := range a.inner {
		if !inner {
			continue
		}
		c := a.special[uint32(i)]
		if c == nil || !slices.ContainsFunc(a.c.Tags, func(t format.TagChange) bool { return t.Commit == c.ID }) {
			return bad("commit %d of %d has no child, no tag, and is no head", i, a.h.Len())
		}
	}
	return nil
}

// treeOf returns the commit to which the diff of a number leads, and the length of that diff: first
// those of heads, then those of other commits.
func (a *adoption) treeOf(i int) (*commit.Commit, uint64) {
	if n := len(a.c.Heads); i >= n {
		return a.special[a.c.Trees[i-n]], a.c.TreeBytes[i-n]
	}
	return a.special[a.c.Heads[i]], a.c.DiffBytes[i]
}

// trees returns how many commits come with trees.
func (a *adoption) trees() int { return len(a.c.Heads) + len(a.c.Trees) }

// skip finds the commits that are not here though what is built on them is: they were given up
// here, and stay so. It returns which are here.
func (a *adoption) skip(ctx context.Context) (here []bool, err error) {
	here, gone := make([]bool, a.h.Len()), make([]bool, a.h.Len())
	tagged := make(map[commit.ID]bool, len(a.c.Tags))
	for _, t := range a.c.Tags {
		tagged[t.Commit] = true
	}
	err = a.each(ctx, func(i int, c *commit.Commit) error {
		find := a.s.find
		if tagged[c.ID] {
			find = a.s.seek
		}
		known, _, err := find(ctx, c.ID)
		if err != nil && !errors.Is(err, base.ErrGone) {
			return err
		}
		here[i], gone[i] = known != nil, err != nil
		return nil
	})
	if err != nil {
		return nil, err
	}
	below := make([]bool, a.h.Len())
	for i := a.h.Len() - 1; i >= 0; i-- {
		if !here[i] && (below[i] || gone[i]) {
			if a.skipped == nil {
				a.skipped = make([]bool, a.h.Len())
			}
			a.skipped[i] = true
		}
		if !here[i] && !below[i] && !gone[i] {
			continue
		}
		for _, p := range a.h.Parents(i) {
			below[p] = true
		}
	}
	return here, nil
}

// knownHistory is what a checkpoint has of a page's history.
type knownHistory struct {
	h         *format.History
	outside   map[commit.ID]struct{} // parents that are here, and not in the checkpoint
	retention format.Retention
}

func (a *adoption) known() *knownHistory { return &knownHistory{a.h, a.outside, a.c.Retention} }

// history puts the commits into the step. When they are many, those that are no heads go ahead of
// it, a part at a time: the heads of the page change with the step, all at once.
func (a *adoption) history(ctx context.Context) error {
	s := a.s
	trees, heads := map[uint32]bool{}, map[uint32]bool{}
	for _, i := range slices.Concat(a.c.Heads, a.c.Trees) {
		trees[i] = true
	}
	for _, i := range a.c.Heads {
		heads[i] = true
	}
	if a.skipped != nil {
		s.b.Inner = a.coveredHeads()
	}
	if a.h.Len() <= s.p.bounds.ahead && a.spool.Size() <= aheadBytes {
		return a.each(ctx, func(i int, c *commit.Commit) error {
			if !a.skips(i) {
				k := uint32(i)
				s.b.Commits = append(s.b.Commits, storage.ReceivedCommit{Commit: c, Treeless: !trees[k], Shallow: true, Inner: a.inner[i], Anew: heads[k]})
			}
			return nil
		})
	}
	a.ahead = true
	if err := a.historyAhead(ctx, heads); err != nil {
		return err
	}
	for _, list := range [][]uint32{a.c.Trees, a.c.Heads} {
		for _, i := range list {
			if !a.skips(int(i)) {
				s.b.Commits = append(s.b.Commits, storage.ReceivedCommit{Commit: a.special[i], Shallow: true, Anew: heads[i]})
			}
		}
	}
	return nil
}

// aheadBytes is how long commits may be that go into one batch.
const aheadBytes = 4 << 20

// historyAhead makes commits that are no heads durable, ahead of the step, and notes for it which
// heads of the page have children there.
func (a *adoption) historyAhead(ctx context.Context, heads map[uint32]bool) error {
	s := a.s
	row, err := a.aheadRow(ctx)
	if err != nil {
		return err
	}
	batch, bytes := storage.SyncBatch{Metadata: []storage.Metadata{row}}, 0
	flush := func() error {
		if len(batch.Commits) == 0 {
			return nil
		}
		pending, err := s.p.o.Store.SubmitSync(ctx, nil, &batch)
		if err == nil {
			err = pending.Wait()
		}
		batch, bytes = storage.SyncBatch{}, 0
		return err
	}
	err = a.each(ctx, func(i int, c *commit.Commit) error {
		if a.skips(i) || heads[uint32(i)] {
			return nil
		}
		batch.Commits = append(batch.Commits, storage.ReceivedCommit{Commit: c, Treeless: true, Shallow: true, Ahead: true})
		if bytes += len(c.Encode()); len(batch.Commits) < s.p.bounds.ahead && bytes < aheadBytes {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return fmt.Errorf("take over the history: %w", err)
	}
	s.b.Inner = a.coveredHeads()
	return nil
}

// aheadRow returns the row that is there until the heads have come, too.
func (a *adoption) aheadRow(ctx context.Context) (storage.Metadata, error) {
	row := storage.Metadata{Type: MetadataAhead, Value: binary.BigEndian.AppendUint64(nil, a.number)}
	if !a.beside {
		return row, nil
	}
	r, err := a.s.p.readRows(ctx)
	row.Type, row.Value = MetadataAheadBeside, binary.BigEndian.AppendUint64(nil, r.position.Number+1)
	return row, err
}

// coveredHeads returns the heads of the page on which commits of the checkpoint are built: merges
// that were made here, too, while they were ahead.
func (a *adoption) coveredHeads() (ids []commit.ID) {
	store, isParent := a.s.p.o.Store, a.h.IsParent()
	for _, c := range slices.Concat(store.Heads(), store.ChainedHeads()) {
		i, in := a.h.Find(c.ID)
		_, outside := a.outside[c.ID]
		if (in && isParent[i] || outside) && !slices.Contains(ids, c.ID) {
			ids = append(ids, c.ID)
		}
	}
	return ids
}

// settleHeads looks once more for such heads when the step is durable: one may have come in the
// very moment before.
func (a *adoption) settleHeads(ctx context.Context) error {
	if !a.ahead {
		return nil
	}
	ids := a.coveredHeads()
	if len(ids) == 0 {
		return nil
	}
	pending, err := a.s.p.o.Store.SubmitSync(ctx, nil, &storage.SyncBatch{Inner: ids})
	if err != nil {
		return err
	}
	return pending.Wait()
}

// tree builds the trees of the heads up to last from the diffs in st, and returns the root of that.
func (a *adoption) tree(ctx context.Context, st *seal.Stream, last int) (root object.Digest, err error) {
	s := a.s
	var first object.Digest
	for i := range last + 1 {
		c, bytes := a.treeOf(i)
		r := &diffReader{ChangeReader: format.NewChangeReader(st, int64(bytes)), name: a.name}
		if i == 0 {
			root, err = btree.Build(ctx, s.p.page, s, puts(r))
			first = root
		} else {
			root, err = s.tree(first).Apply(ctx, s, changes(r, nil))
		}
		if err != nil {
			return root, treeError(err)
		}
		if root != c.Root {
			return root, bad("the diff of commit %s leads to the tree %s, it has %s", c.ID, root, c.Root)
		}
		s.p.o.Progress.Expect(r.puts, 0)
	}
	return root, nil
}

// puts yields the entries of a diff from the empty tree.
func puts(r *diffReader) func(yield func(fb.Entry, error) bool) {
	return func(yield func(fb.Entry, error) bool) {
		for change, err := range changes(r, nil) {
			if err == nil && change.Delete {
				err = bad("a diff from the empty tree that removes a key")
			}
			if !yield(change.Entry, err) || err != nil {
				return
			}
		}
	}
}

// values takes the packs, and verifies that the values of the heads are here or can come; then tags
// and what is condemned.
func (a *adoption) values(ctx context.Context) error {
	s := a.s
	s.rows.lacks = s.rows.lacks || a.c.Lacks
	parts := a.c.Partial
	for i := range a.c.Packs {
		if a.c.Packs[i].Eager {
			s.p.o.Progress.Expect(0, int64(a.c.Packs[i].Bytes))
		}
	}
	for _, ref := range a.c.Packs { // in the order of parts
		var part *format.PartialPack
		if len(parts) > 0 && parts[0].ID == ref.ID {
			part, parts = &parts[0], parts[1:]
		}
		if err := a.pack(ctx, ref, part); err != nil {
			return err
		}
	}
	for i := range a.trees() {
		from := btree.EmptyRoot
		if i > 0 {
			from = a.special[a.c.Heads[0]].Root
		}
		c, _ := a.treeOf(i)
		for d, err := range btree.Diff(ctx, s.tree(from), s.tree(c.Root), nil) {
			if err == nil && d.HasRight && !d.Right.Inline {
				err = s.values.want(ctx, d.Right.Digest, d.Right.Size, d.Right.Priority)
			}
			s.p.o.Progress.Advance(1, 0)
			if err != nil {
				return err
			}
		}
	}
	if err := s.values.settle(ctx); err != nil || a.beside {
		return err
	}
	if err := s.tags(ctx, &format.Body{Tags: a.c.Tags}, false, a.skipped != nil); err != nil {
		return err
	}
	s.retain(a.c.Retention)
	for i := range a.c.Condemned {
		s.res.Condemned = true
		if err := s.condemnPlaces(ctx, &a.c.Condemned[i]); err != nil {
			return err
		}
	}
	return nil
}

// pack takes a pack, of which part says what is read, nil: all. A page that has content may hold
// all of it.
func (a *adoption) pack(ctx context.Context, ref format.PackRef, part *format.PartialPack) error {
	s := a.s
	take := func() error {
		if part == nil {
			return s.pack(ctx, ref, ref.Eager)
		}
		return s.packPart(ctx, ref, part)
	}
	if a.bare || !ref.Eager {
		return take()
	}
	name := s.p.o.Names.Pack(ref.ID)
	places, err := s.packPlaces(ctx, ref)
	if err != nil {
		return badPack(name, err)
	}
	for _, p := range places {
		if part != nil && !part.Has(p.Place.Block) {
			continue
		}
		st, err := s.look(p.Digest)
		if err != nil {
			return err
		}
		if !st.held {
			return take()
		}
	}
	return s.takePlaces(ctx, places, false)
}

// proveStream returns nil when nothing is left in the stream, and the object is whole.
func (r *diffReader) proveStream() error {
	if err := r.proveEnd(); !errors.Is(err, io.EOF) || isFault(err) {
		return err
	}
	return nil
}
