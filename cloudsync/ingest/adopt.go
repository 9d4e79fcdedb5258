package ingest

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// maxHeaderBytes bounds the header of a checkpoint, which is held: some 300 000 commits.
const maxHeaderBytes = 64 << 20

// Adopt takes over the checkpoint of a number, and returns the position behind it, from which Apply goes on. The page has read less of the log than the checkpoint stands for;
// usually nothing. Commits that it has of its own stay: they are not synced.
//
// The heads come with their trees and their EAGER values, other commits as a part of history whose trees BuildTree makes. It is one batch of storage, behind what is said in the
// comment of the package. Adopt blocks for the bucket and the disk; memory does not depend on the number of entries of the trees.
//
// Errors: an *EntryError for a checkpoint or pack that is bad; base.ErrInvalid for a page that has read more; those of the bucket (base.ErrNotFound when it is not there), of the disk
// and of ctx.
func (p *Page) Adopt(ctx context.Context, number uint64) (format.Position, Result, error) {
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
	if err := a.read(ctx); err != nil {
		return format.Position{}, Result{}, nameFault(name, err)
	}
	if err := a.values(ctx); err != nil {
		return format.Position{}, Result{}, nameFault(name, err)
	}
	if r.position.Number > 0 { // what it has read since may not be in the bucket any more
		if err := s.unsync(ctx, a.c); err != nil {
			return format.Position{}, Result{}, nameFault(name, err)
		}
	}
	s.rows.position, s.rows.since = a.c.At, 0
	if len(a.c.Commits) > 0 && !a.created.IsZero() {
		s.rows.server = a.created
	}
	if err := s.submit(ctx, append(s.rows.metadata(), a.row(), storage.Metadata{Type: MetadataAdopted, Value: []byte{1}}, a.packsRow())); err != nil {
		return format.Position{}, Result{}, fmt.Errorf("adopt %s: %w", name, err)
	}
	return a.c.At, s.res, nil
}

// TakeHistory takes over the commits of the checkpoint of a number, with what else Adopt takes for them, if a wanted one is among them; found reports that. The page may have read any part of the log: its position, tags, and
// what else the log says stay as they are. Devices that make a lost bucket whole again bring commits in this way whose trees they do not have.
//
// Errors: those of Adopt.
func (p *Page) TakeHistory(ctx context.Context, number uint64, wanted commit.ID) (res Result, found bool, err error) {
	_, res, err = p.takeHistory(ctx, number, &wanted)
	if errors.Is(err, errNotWanted) {
		return Result{}, false, nil
	}
	return res, err == nil, err
}

// takeHistory is TakeHistory, without a wanted commit when that is nil. It returns the header of the checkpoint.
func (p *Page) takeHistory(ctx context.Context, number uint64, wanted *commit.ID) (*format.Checkpoint, Result, error) {
	name := p.o.Names.Checkpoint(number)
	s := p.begin(rows{})
	defer s.end()
	a := &adoption{s: s, number: number, name: name, beside: true, wanted: wanted}
	err := a.read(ctx)
	if err == nil {
		err = a.values(ctx)
	}
	if err != nil {
		return nil, Result{}, nameFault(name, err)
	}
	if err := s.submit(ctx, []storage.Metadata{{Type: MetadataAdopted, Value: []byte{1}}}); err != nil {
		return nil, Result{}, fmt.Errorf("take history from %s: %w", name, err)
	}
	return a.c, s.res, nil
}

// errNotWanted says that a checkpoint does not have the wanted commit.
var errNotWanted = errors.New("the commit is not in the checkpoint")

// adoption is a checkpoint that is being taken over.
type adoption struct {
	s       *step
	number  uint64
	name    string
	c       *format.Checkpoint
	size    int64 // of the object
	created time.Time
	skipped map[int]struct{} // commits that are below such as are here, and were given up here
	bare    bool             // the page has no commits
	beside  bool             // the page has read the log; see TakeHistory
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

// adopted reports whether the places of a pack came with the checkpoint with which the page began: an entry that announces it says nothing new.
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

// open opens the object and reads its header. The stream goes on with the diffs of the heads.
func (a *adoption) open(ctx context.Context, p *Page) (*seal.Stream, io.Closer, error) {
	o, err := p.o.Bucket.Get(ctx, a.name, 0, -1)
	if err != nil {
		return nil, nil, err
	}
	a.size, a.created = o.Size, o.Created
	st, err := p.o.Sealer.NewStream(o.Body, p.o.Names.CheckpointLabel(a.number))
	if err == nil {
		a.c, err = format.ReadCheckpoint(st, maxHeaderBytes)
	}
	if err == nil {
		err = a.c.CheckAt(p.bucketID(), a.number)
	}
	if err != nil {
		return nil, nil, errors.Join(badObject("", err), o.Body.Close())
	}
	return st, o.Body, nil
}

// read reads the object: what it says of commits, and the trees of the heads.
func (a *adoption) read(ctx context.Context) error {
	st, body, err := a.open(ctx, a.s.p)
	if err != nil {
		return err
	}
	defer body.Close()
	if a.wanted != nil && !slices.ContainsFunc(a.c.Commits, func(c *commit.Commit) bool { return c.ID == *a.wanted }) {
		return errNotWanted
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
	if err := a.skip(ctx); err != nil {
		return err
	}
	trees, heads := map[commit.ID]struct{}{}, map[commit.ID]struct{}{}
	for i := range a.trees() {
		c, _ := a.treeOf(i)
		trees[c.ID] = struct{}{}
		if i < len(a.c.Heads) {
			heads[c.ID] = struct{}{}
		}
	}
	for _, c := range a.c.Commits { // so that what has no child, and is no head, has lost what was built on it
		for _, p := range c.Parents {
			heads[p] = struct{}{}
		}
	}
	if err := a.checkIslands(heads); err != nil {
		return err
	}
	for i, unproved := range a.c.Commits {
		c, err := reparse(unproved)
		if _, skip := a.skipped[i]; skip && err == nil {
			a.c.Commits[i] = c
			continue
		}
		if err == nil {
			err = s.parents(ctx, c, true)
		}
		if err != nil {
			return fmt.Errorf("commit %s: %w", unproved.ID, err)
		}
		known, _, err := s.find(ctx, c.ID)
		if err != nil {
			return err
		}
		if known == nil {
			s.res.Commits++
		}
		s.commits[c.ID], a.c.Commits[i] = c, c // not to hold two of each
		_, tree := trees[c.ID]
		_, outer := heads[c.ID]
		s.b.Commits = append(s.b.Commits, storage.ReceivedCommit{Commit: c, Treeless: !tree, Shallow: true, Inner: !outer})
	}
	return nil
}

// checkIslands verifies that what has no child and is no head is kept because of a tag. That heads have no child reading has proved.
func (a *adoption) checkIslands(outer map[commit.ID]struct{}) error {
	for _, c := range a.c.Commits {
		if _, ok := outer[c.ID]; ok || slices.ContainsFunc(a.c.Tags, func(t format.TagChange) bool { return t.Commit == c.ID }) {
			continue
		}
		return bad("commit %s has no child, no tag, and is no head", c.ID)
	}
	return nil
}

// treeOf returns the commit to which the diff of a number leads, and the length of that diff: first those of heads, then those of other commits.
func (a *adoption) treeOf(i int) (*commit.Commit, uint64) {
	if n := len(a.c.Heads); i >= n {
		return a.c.Commits[a.c.Trees[i-n]], a.c.TreeBytes[i-n]
	}
	return a.c.Commits[a.c.Heads[i]], a.c.DiffBytes[i]
}

// trees returns how many commits come with trees.
func (a *adoption) trees() int { return len(a.c.Heads) + len(a.c.Trees) }

// skip finds the commits that are not here though what is built on them is: they were given up here, and stay so.
func (a *adoption) skip(ctx context.Context) error {
	a.skipped = map[int]struct{}{}
	below := map[commit.ID]struct{}{}
	for i := len(a.c.Commits) - 1; i >= 0; i-- {
		c := a.c.Commits[i]
		known, _, err := a.s.find(ctx, c.ID)
		if err != nil && !errors.Is(err, base.ErrGone) {
			return err
		}
		_, is := below[c.ID]
		if known == nil && (is || err != nil) {
			a.skipped[i] = struct{}{}
		}
		if known == nil && !is && err == nil {
			continue
		}
		for _, p := range c.Parents {
			below[p] = struct{}{}
		}
	}
	return nil
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

// values takes the packs, and verifies that the values of the heads are here or can come; then tags and what is condemned.
func (a *adoption) values(ctx context.Context) error {
	s := a.s
	s.rows.lacks = s.rows.lacks || a.c.Lacks
	parts := a.c.Partial
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
			from = a.c.Commits[a.c.Heads[0]].Root
		}
		c, _ := a.treeOf(i)
		for d, err := range btree.Diff(ctx, s.tree(from), s.tree(c.Root), nil) {
			if err == nil && d.HasRight && !d.Right.Inline {
				err = s.values.want(ctx, d.Right.Digest, d.Right.Size, d.Right.Priority)
			}
			if err != nil {
				return err
			}
		}
	}
	if err := s.values.settle(ctx); err != nil || a.beside {
		return err
	}
	if err := s.tags(ctx, &format.Body{Tags: a.c.Tags}, false, len(a.skipped) > 0); err != nil {
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

// pack takes a pack, of which part says what is read, nil: all. A page that has content may hold all of it.
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
	places, err := pack.ReadTable(ctx, s.p.o.Bucket, s.p.o.Sealer, s.p.o.Names, ref)
	if err != nil {
		return badPack(name, err)
	}
	for _, p := range places {
		if part != nil && !part.Has(p.Place.Frame) {
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
