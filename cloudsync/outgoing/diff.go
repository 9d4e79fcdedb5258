package outgoing

import (
	"context"
	"fmt"
	"io"
	"iter"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// reuseAge is how old, by the bucket's clock, an uploaded diff may be that no entry has named:
// collecting the garbage of the bucket leaves alone what is younger.
const reuseAge = 24 * time.Hour

// tally says what a diff brings besides keys.
type tally struct {
	eager, lazy bool   // there are values of this priority that are objects
	valueBytes  uint64 // of these values, pieces that are held elsewhere too included
	puts        int64  // keys that get a value
	inline      int64  // bytes of values that stand with their keys
	plain       bool   // there are keys that must not be compressed
}

// add counts a change. plain is Options.Plain.
func (t *tally) add(c *format.Change, plain func(key []byte) bool) {
	t.plain = t.plain || plain != nil && plain(c.Key)
	if c.Removed {
		return
	}
	t.puts++
	switch {
	case c.Object.IsZero():
		t.inline += int64(len(c.Inline))
		return
	case c.Priority == object.Lazy:
		t.lazy = true
	default:
		t.eager = true
	}
	t.valueBytes += c.Size
}

// delta is a diff with where it leads from and to.
type delta struct {
	from, to btree.Tree
	diff     format.Diff
	tally    tally
}

func (p *Page) tree(root object.Digest) btree.Tree {
	return btree.Tree{Page: p.o.Store.Page(), Source: p.o.Store, Root: root}
}

// changeOf says what a difference is in a diff. It borrows from d.
func changeOf(d *btree.DiffEntry, c *format.Change) {
	*c = format.Change{Key: d.Key, Removed: !d.HasRight}
	switch e := &d.Right; {
	case c.Removed:
	case e.Inline:
		c.Inline = e.Value
	default:
		c.Object, c.Size, c.Priority = e.Digest, e.Size, e.Priority
	}
}

// encode writes the diff of two trees to w.
func (p *Page) encode(ctx context.Context, from, to btree.Tree, w io.Writer) (bytes uint64, t tally, err error) {
	cw := format.NewChangeWriter(w)
	var c format.Change
	for d, err := range btree.Diff(ctx, from, to, nil) {
		if err != nil {
			return 0, t, fmt.Errorf("compare trees: %w", err)
		}
		changeOf(&d, &c)
		t.add(&c, p.o.Plain)
		if err := cw.Write(&c); err != nil {
			return 0, t, err
		}
	}
	return uint64(cw.Bytes()), t, nil
}

// runner encodes one of the diffs that a commit can have, change by change, and keeps it as long as
// it may stand in a body.
type runner struct {
	base format.Base
	from btree.Tree
	next func() (btree.DiffEntry, error, bool)
	stop func()

	w     *format.ChangeWriter
	kept  []byte
	long  bool // kept is not all
	tally tally
	plain func(key []byte) bool
}

func (p *Page) newRunner(ctx context.Context, b format.Base, from, to btree.Tree) *runner {
	r := &runner{base: b, from: from, plain: p.o.Plain}
	r.next, r.stop = iter.Pull2(btree.Diff(ctx, from, to, nil))
	r.w = format.NewChangeWriter(r)
	return r
}

// Write implements io.Writer for the encoded changes.
func (r *runner) Write(b []byte) (int, error) {
	if r.long = r.long || len(r.kept)+len(b) > format.InlineBytes; r.long {
		r.kept = nil
	} else {
		r.kept = append(r.kept, b...)
	}
	return len(b), nil
}

// step encodes the next change. more is false at the end.
func (r *runner) step() (more bool, err error) {
	d, err, ok := r.next()
	if err != nil {
		return false, fmt.Errorf("compare trees: %w", err)
	}
	if !ok {
		return false, nil
	}
	var c format.Change
	changeOf(&d, &c)
	r.tally.add(&c, r.plain)
	return true, r.w.Write(&c)
}

// run encodes until the end, or until the diff is too long for a body and there is nothing to
// compare it with.
func run(rs []*runner) (*runner, error) {
	for {
		shortest := rs[0]
		for _, r := range rs[1:] {
			if r.w.Bytes() < shortest.w.Bytes() {
				shortest = r
			}
		}
		more, err := shortest.step()
		if err != nil || !more || len(rs) == 1 && shortest.long {
			return shortest, err
		}
	}
}

// commitDelta makes the diff of a commit: the shortest one of those that from allows, with as many
// times the work of that as there are; one that is too long for a body is made once more while it
// is uploaded.
func (p *Page) commitDelta(ctx context.Context, c *commit.Commit, from *bases) (format.Base, *delta, error) {
	if held, err := p.o.Store.TreeHeld(ctx, c); err != nil || !held {
		if err == nil {
			err = base.ErrNeedsFetch
		}
		return format.Base{}, nil, fmt.Errorf("look at the tree of commit %s: %w", c.ID.Short(), err)
	}
	candidates, err := from.of(ctx, c)
	if err != nil {
		return format.Base{}, nil, err
	}
	to := p.tree(c.Root)
	var rs []*runner
	for _, k := range candidates {
		r := p.newRunner(ctx, k.base, k.tree, to)
		defer r.stop()
		rs = append(rs, r)
	}
	r, err := run(rs)
	if err != nil {
		return format.Base{}, nil, fmt.Errorf("diff of commit %s: %w", c.ID.Short(), err)
	}
	d := &delta{from: r.from, to: to, diff: format.Diff{Inline: r.kept}, tally: r.tally}
	if r.long {
		d, err = p.uploadDelta(ctx, diffKey{commit: c.ID, base: r.base}, r.from, to)
	}
	if err != nil {
		return format.Base{}, nil, fmt.Errorf("diff of commit %s: %w", c.ID.Short(), err)
	}
	return r.base, d, nil
}

// explanationDelta makes the diff of the explanation of a merge.
func (p *Page) explanationDelta(ctx context.Context, merge commit.ID, root object.Digest) (*delta, error) {
	from, to := p.tree(btree.EmptyRoot), p.tree(root)
	r := p.newRunner(ctx, format.Base{Empty: true}, from, to)
	defer r.stop()
	if _, err := run([]*runner{r}); err != nil {
		return nil, fmt.Errorf("explanation of commit %s: %w", merge.Short(), err)
	}
	if !r.long {
		return &delta{from: from, to: to, diff: format.Diff{Inline: r.kept}, tally: r.tally}, nil
	}
	d, err := p.uploadDelta(ctx, diffKey{explanation: true, commit: merge, base: r.base}, from, to)
	if err != nil {
		return nil, fmt.Errorf("explanation of commit %s: %w", merge.Short(), err)
	}
	return d, nil
}

// uploadDelta makes a diff an object of its own in packs/, and records it, so that it need not be
// uploaded again.
func (p *Page) uploadDelta(ctx context.Context, key diffKey, from, to btree.Tree) (d *delta, err error) {
	d = &delta{from: from, to: to}
	if q, ok := p.uploadedDiff(ctx, key); ok {
		d.diff = format.Diff{Pack: q.id, Bytes: q.bytes}
		_, d.tally, err = p.encode(ctx, from, to, io.Discard)
		return d, err
	}
	s := p.spill()
	defer func() {
		if cerr := s.Close(); err == nil {
			err = cerr
		}
	}()
	id := p.o.NewID()
	w, err := p.o.Sealer.NewWriter(s, p.o.Names.DiffLabel(id), p.o.Plain == nil)
	if err != nil {
		return nil, fmt.Errorf("seal diff: %w", err)
	}
	d.diff.Pack = id
	if d.diff.Bytes, d.tally, err = p.encode(ctx, from, to, w); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("seal diff: %w", err)
	}
	if err := putSpilled(ctx, p.o.Bucket, p.o.Names.Pack(id), s); err != nil {
		return nil, err
	}
	return d, p.record(ctx, nil, func(q *pending) {
		q.diffs = append(q.diffs, pendingDiff{key: key, id: id, bytes: d.diff.Bytes})
	})
}

// uploadedDiff returns the object that an earlier attempt uploaded, if it is still there and nobody
// can take it for garbage.
func (p *Page) uploadedDiff(ctx context.Context, key diffKey) (pendingDiff, bool) {
	p.mu.Lock()
	q, ok := p.pending.diff(key)
	p.mu.Unlock()
	if !ok {
		return q, false
	}
	_, age, err := look(ctx, p.o.Bucket, p.o.Names.Pack(q.id))
	return q, err == nil && age < reuseAge
}

// record makes a change of the row of packs durable, with places.
func (p *Page) record(ctx context.Context, places []storage.PlacedPiece, change func(q *pending)) error {
	p.mu.Lock()
	next := pending{packs: append([]pendingPack(nil), p.pending.packs...), diffs: append([]pendingDiff(nil), p.pending.diffs...)}
	p.mu.Unlock()
	change(&next)
	b := &storage.SyncBatch{Places: places, Metadata: []storage.Metadata{next.row()}}
	// What is in the bucket is worth to be known, also when the caller has given up: the wait is
	// bounded by the disk.
	wait, err := p.o.Store.SubmitSync(context.WithoutCancel(ctx), nil, b)
	if err == nil {
		err = wait.Wait()
	}
	if err != nil {
		return fmt.Errorf("record what was uploaded: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = next
	return nil
}
