package replica_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/checkpoint"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// byHand is a page whose bodies and checkpoints are written here, as plainly as the format allows.
type byHand struct {
	*replica.Page
	d *member
}

// upload makes packs of pieces in the directory of an epoch.
func (d *member) upload(ctx context.Context, e epoch.ID, ds []object.Digest, eager func(object.Digest) bool) ([]wire.Pack, error) {
	u := pack.NewUploader(ctx, pack.UploadOptions{Bucket: d.bucket, Sealer: d.sealer, Names: d.names, Epoch: e})
	defer u.Close()
	for _, digest := range ds {
		content, err := d.store.Piece(ctx, digest)
		if err != nil {
			return nil, err
		}
		if err := u.Add(digest, content, eager(digest), true); err != nil {
			return nil, err
		}
	}
	packs, err := u.Finish()
	slices.SortFunc(packs, func(a, b wire.Pack) int { return wire.Compare(&a, &b) })
	return packs, err
}

// local returns the pieces that have to be sent, and those that commits need and nobody has.
func (d *member) local(ctx context.Context) (held, lost []object.Digest, err error) {
	err = d.store.LocalPieces(ctx, func(p object.Digest) error {
		held = append(held, p)
		return nil
	})
	if err == nil {
		err = d.store.MissingPieces(ctx, func(p object.Digest) error {
			lost = append(lost, p)
			return nil
		})
	}
	slices.SortFunc(held, object.Digest.Compare)
	slices.SortFunc(lost, object.Digest.Compare)
	return held, lost, err
}

// bodyByHand writes the next body, nil for none.
func (d *member) bodyByHand(ctx context.Context) (*wire.EntryBody, error) {
	h, s := d.history(), d.page.State()
	held, lost, err := d.local(ctx)
	if err != nil {
		return nil, err
	}
	tags, err := d.store.UnsyncedTags(ctx)
	if err != nil {
		return nil, err
	}
	tags = slices.DeleteFunc(tags, func(t storage.TagChange) bool { // of commits that the log gave up
		_, ok := h.commits[short(t.Commit)]
		return !t.Removed && (!ok || h.giveUp.Has(short(t.Commit)))
	})
	lost = slices.DeleteFunc(lost, func(p object.Digest) bool { return s.Missing[p] })
	if len(h.unsynced) == 0 && len(tags) == 0 && len(s.Send) == 0 && d.retain == nil && len(held) == 0 {
		return nil, nil
	}
	e := s.At.Epoch
	var up []object.Digest
	inline := slices.DeleteFunc(slices.Clone(held), func(p object.Digest) bool {
		if d.random.IntN(4) < d.packed {
			up = append(up, p)
			return true
		}
		return false
	})
	packs, err := d.upload(ctx, e, up, func(object.Digest) bool { return d.random.IntN(2) == 0 })
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	w := wire.NewWriter(&b, wire.Body)
	d.must(w.Write(&wire.Size{}))
	for _, c := range s.Send {
		d.must(w.Write(&wire.Gone{Commit: c}))
	}
	for i := range packs {
		d.must(w.Write(&packs[i]))
	}
	for _, p := range inline {
		content, err := d.store.Piece(ctx, p)
		if err != nil {
			return nil, err
		}
		d.must(w.WriteCompressed(&wire.Piece{Digest: p, Content: content}))
	}
	for _, p := range lost {
		d.must(w.Write(&wire.Missing{Piece: p}))
	}
	d.commits(w, h, h.unsynced, h.graph.Set().Without(h.giveUp))
	for _, t := range tags {
		d.must(w.Write(&wire.Tag{Name: t.Name, Commit: t.Commit}))
	}
	if d.retain != nil {
		d.must(w.Write(d.retain))
		d.retain = nil
	}
	if d.long {
		id := d.fleet.id()
		_, hash, err := d.object(ctx, d.names.Pack(e, id), d.names.LongBodyLabel(e, id), b.Bytes())
		return wire.LongBody(id, hash), err
	}
	return wire.InlineBody(b.Bytes(), w.Parts()), nil
}

// commits writes some commits of a history of which keep stay.
func (d *member) commits(w *wire.Writer, h history, of, keep epoch.Set) {
	var cs []*commit.Commit
	reduced := h.graph.Reduce(keep)
	for _, id := range of {
		cs = append(cs, h.commits[id])
	}
	slices.SortFunc(cs, func(a, b *commit.Commit) int {
		return wire.Compare(&wire.Commit{Commit: a}, &wire.Commit{Commit: b})
	})
	for _, c := range cs {
		d.must(w.Write(d.record(h, reduced, keep, c)))
	}
}

// record returns a commit with the difference from the tree of its nearest ancestor.
func (d *member) record(h history, reduced epoch.Graph, keep epoch.Set, c *commit.Commit) *wire.Commit {
	ctx := context.Background()
	i, _ := reduced.Index(short(c.ID))
	r := &wire.Commit{Commit: c}
	for _, p := range c.Parents {
		if p != commit.First().ID && !keep.Has(short(p)) {
			r.Near = reduced[i].Near
		}
	}
	if _, ok := d.page.State().Near[short(c.ID)]; ok {
		r.Near = reduced[i].Near
	}
	if r.Near != nil || reduced[i].Near == nil && len(c.Parents) > 0 && c.Parents[0] != commit.First().ID {
		if r.Near = reduced[i].Near; r.Near == nil {
			r.Near = epoch.Set{}
		}
	}
	held, err := d.store.TreeHeld(ctx, c)
	d.must(err)
	if !held {
		err := d.page.BuildTrees(ctx, []commit.ID{c.ID})
		if errors.Is(err, base.ErrGone) || errors.Is(err, base.ErrCorrupt) {
			r.Treeless = true
			return r
		}
		d.must(err)
	}
	from := btree.EmptyRoot
	heads := d.logState().Heads()
	for _, n := range reduced[i].Near {
		b := h.commits[n]
		if !h.unsynced.Has(n) && !heads.Has(n) {
			continue
		}
		if held, err := d.store.TreeHeld(ctx, b); err == nil && held {
			from, r.Base = b.Root, b.ID
			break
		}
	}
	r.Diff.Inline = d.diff(from, c.Root)
	return r
}

// object stores an object, and returns the length of its stream.
func (d *member) object(ctx context.Context, name string, l seal.Label, content []byte) (stored uint64, hash epoch.Hash, err error) {
	var b bytes.Buffer
	w := d.sealer.NewWriter(&b, l, true, nil)
	_, err = w.Write(content)
	d.must(err)
	d.must(w.Close())
	return uint64(seal.StreamBytes(int64(b.Len()))), sha256.Sum256(b.Bytes()), d.bucket.PutIfAbsent(ctx, name, int64(b.Len()), bytes.NewReader(b.Bytes()))
}

// Propose implements pagelog.Page.
func (p byHand) Propose(ctx context.Context, x *epoch.Proposal, seen epoch.Looked) error {
	d, s := p.d, p.State()
	st := d.logState()
	tags, err := d.store.Tags(ctx)
	if err != nil {
		return err
	}
	for name, id := range tags {
		st.Tags = append(st.Tags, epoch.Tag{Name: name, Commit: short(id)})
	}
	var next epoch.State
	if x.Kind == epoch.Renewal {
		next = st.Renewal(x.Erased, nil, nil)
	} else {
		keep := st.Keep(s.EntryTime, d.erase.Without(st.Heads()))
		next = st.Reduced(keep, nil)
		x.Erased = d.erase.Without(st.Heads())
	}
	c := &proposal{d: d, ctx: ctx, x: x, s: s, h: &checkpoint.Header{}, next: next, runs: checkpoint.New(checkpoint.Options{Bucket: d.bucket, Sealer: d.sealer, Names: d.names, NewID: d.fleet.id})}
	if s.Header != nil && x.Kind == epoch.Cut {
		*c.h = *s.Header
		c.h.Runs = slices.Clone(s.Header.Runs)
		c.h.Snapshots = slices.Clone(s.Header.Snapshots)
	}
	c.h.Base, c.h.Retention = wire.Base{Number: x.Base, Hash: x.BaseHash}, s.Retention
	for _, write := range []func() error{c.gone, c.commits, c.packs, c.snapshots} {
		if err := write(); err != nil {
			return err
		}
	}
	for name, id := range tags {
		if next.Kept.Set().Has(short(id)) {
			c.h.Tags = append(c.h.Tags, wire.Tag{Name: name, Commit: id})
		}
	}
	slices.SortFunc(c.h.Tags, func(a, b wire.Tag) int { return wire.Compare(&a, &b) })
	err = c.runs.Put(ctx, x, c.h)
	return err
}

// proposal is a checkpoint that is being written.
type proposal struct {
	d    *member
	ctx  context.Context
	x    *epoch.Proposal
	s    *replica.State
	h    *checkpoint.Header
	next epoch.State
	runs *checkpoint.Store
}

func all[T wire.Record](rs []T) iter.Seq2[wire.Record, error] {
	return func(yield func(wire.Record, error) bool) {
		for _, r := range rs {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func (c *proposal) add(kind wire.RunKind, fresh iter.Seq2[wire.Record, error], stays func(wire.Record) bool) error {
	_, err := c.runs.Add(c.ctx, c.x.ID, c.h, kind, fresh, false, stays)
	return err
}

func (c *proposal) gone() error {
	before, err := c.runs.Gone(c.ctx, c.h)
	if err != nil {
		return err
	}
	var rs []*wire.Gone
	for _, g := range c.next.Gone.Without(before) {
		rs = append(rs, &wire.Gone{Commit: g})
	}
	return c.add(wire.GivenUp, all(rs), nil)
}

func (c *proposal) commits() error {
	before := map[epoch.Commit]*wire.Commit{}
	err := c.runs.Each(c.ctx, c.h, wire.Commits, func(r wire.Record) error {
		w := r.(*wire.Commit)
		before[short(w.Commit.ID)] = w
		return nil
	})
	if err != nil {
		return err
	}
	h := c.d.history()
	h.graph = c.d.logState().Kept
	keep := c.next.Kept.Set()
	var rs []*wire.Commit
	for _, n := range c.next.Kept {
		b := before[n.ID]
		if b != nil && (b.Base.IsZero() || keep.Has(short(b.Base))) && (fmt.Sprint(b.Near) == fmt.Sprint(n.Near) || b.Near == nil && c.whole(b.Commit, keep)) {
			continue
		}
		rs = append(rs, c.d.record(h, c.next.Kept, keep, h.commits[n.ID]))
	}
	slices.SortFunc(rs, func(a, b *wire.Commit) int { return wire.Compare(a, b) })
	return c.add(wire.Commits, all(rs), func(r wire.Record) bool {
		return keep.Has(short(r.(*wire.Commit).Commit.ID))
	})
}

func (c *proposal) whole(of *commit.Commit, keep epoch.Set) bool {
	return !slices.ContainsFunc(of.Parents, func(id commit.ID) bool { return id != commit.First().ID && !keep.Has(short(id)) })
}

// packs writes the manifest: all packs that are there, and new ones with what stood elsewhere.
func (c *proposal) packs() error {
	d := c.d
	named, fresh := slices.Clone(c.s.Manifest), map[epoch.ID]bool{}
	for _, p := range c.s.Announced {
		named, fresh[p.ID] = append(named, p), true
	}
	there := map[epoch.ID]bool{}
	for i := range named {
		p := &named[i]
		if there[p.ID] = true; c.x.Kind == epoch.Renewal {
			there[p.ID] = d.exists(c.ctx, d.names.Pack(p.Epoch, p.ID))
		}
	}
	moved, err := d.store.PlacedIn(c.ctx, func(at storage.CloudPlace) bool { return at.Entry != 0 || !there[at.Pack] })
	if err != nil {
		return err
	}
	local, _, err := d.local(c.ctx)
	if err != nil {
		return err
	}
	var up []object.Digest
	var lost []*wire.Missing
	for _, p := range moved {
		st, err := d.store.PieceState(p.Digest)
		if err != nil {
			return err
		}
		if !st.Held && p.Place.Entry != 0 {
			if _, err := d.fetcher.FetchAll(c.ctx, []object.Digest{p.Digest}); err == nil {
				st.Held = true
			} else if !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrCorrupt) {
				return err
			}
		}
		if st.Held {
			up = append(up, p.Digest)
		} else {
			lost = append(lost, &wire.Missing{Piece: p.Digest})
		}
	}
	if c.x.Kind == epoch.Renewal {
		up = append(up, local...)
	}
	for p := range c.s.Missing {
		lost = append(lost, &wire.Missing{Piece: p})
	}
	slices.SortFunc(up, object.Digest.Compare)
	up = slices.Compact(up)
	made, err := d.upload(c.ctx, c.x.ID, up, func(object.Digest) bool { return d.random.IntN(2) == 0 })
	if err != nil {
		return err
	}
	var rs []*wire.Pack
	for i := range named {
		p := &named[i]
		switch {
		case there[p.ID] && (fresh[p.ID] || c.x.Kind == epoch.Renewal):
			rs = append(rs, p)
		case !there[p.ID]:
			p.Dropped, p.Since = true, 0
			rs = append(rs, p)
		}
	}
	for i := range made {
		rs = append(rs, &made[i])
	}
	slices.SortFunc(rs, func(a, b *wire.Pack) int { return wire.Compare(a, b) })
	if err := c.add(wire.Packs, all(rs), nil); err != nil {
		return err
	}
	slices.SortFunc(lost, func(a, b *wire.Missing) int { return wire.Compare(a, b) })
	lost = slices.CompactFunc(lost, func(a, b *wire.Missing) bool { return a.Piece == b.Piece })
	c.h.Runs = slices.DeleteFunc(c.h.Runs, func(r wire.Run) bool { return r.Kind == wire.NotStored })
	return c.add(wire.NotStored, all(lost), nil)
}

func (d *member) exists(ctx context.Context, name string) bool {
	o, err := d.bucket.Get(ctx, name, 0, 1)
	if err == nil {
		o.Body.Close()
	}
	return err == nil
}

// snapshots writes the way to the trees of the heads.
func (c *proposal) snapshots() error {
	if c.x.Kind == epoch.Renewal || len(c.h.Snapshots) > 4 {
		c.h.Snapshots = nil
	}
	h := c.d.history()
	for _, id := range c.next.Heads() {
		to := h.commits[id].Root
		if to == btree.EmptyRoot || slices.ContainsFunc(c.h.Snapshots, func(n wire.Snapshot) bool { return n.To == to }) {
			continue
		}
		n := wire.Snapshot{Order: uint32(len(c.h.Snapshots)), To: to}
		root := btree.EmptyRoot
		if k := len(c.h.Snapshots); k > 0 {
			last := c.h.Snapshots[k-1].To
			for _, o := range h.commits {
				held, err := c.d.store.TreeHeld(c.ctx, o)
				if err == nil && held && o.Root == last {
					n.From, root = last, last
				}
			}
		}
		diff, object := c.d.diff(root, to), c.d.fleet.id()
		if len(diff) == 0 {
			continue
		}
		stored, _, err := c.d.object(c.ctx, c.d.names.Pack(c.x.ID, object), c.d.names.DiffLabel(c.x.ID, object), diff)
		if err != nil {
			return err
		}
		n.Diff = wire.Place{Epoch: c.x.ID, Pack: object, Stored: stored, Bytes: uint64(len(diff))}
		c.h.Snapshots = append(c.h.Snapshots, n)
	}
	return nil
}
