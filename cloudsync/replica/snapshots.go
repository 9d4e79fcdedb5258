package replica

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/spool"
	"github.com/ledgerd/ledger/object"
)

// snapshots makes the header lead to the trees of the heads: the main chain to that of the newest
// head, and one snapshot from there to each of the others.
func (e *proposing) snapshots(ctx context.Context) error {
	chain := mainChain(e.h.Snapshots)
	if e.erase || e.shown != nil {
		chain = nil
	}
	var heads []*commit.Commit
	for _, c := range slices.Backward(e.heads) {
		if c.Root != btree.EmptyRoot {
			heads = append(heads, c)
		}
	}
	e.h.Snapshots = nil
	if len(heads) == 0 {
		return nil
	}
	chain, err := e.extend(ctx, chain, heads[0].Root)
	if err != nil {
		return fmt.Errorf("write a snapshot: %w", err)
	}
	whole := int64(chain[len(chain)-1].Whole)
	led := map[object.Digest]bool{}
	for _, s := range chain {
		led[s.To] = true
	}
	for _, c := range heads[1:] {
		if led[c.Root] {
			continue
		}
		led[c.Root] = true
		d := &delta{from: e.p.tree(heads[0].Root), to: e.p.tree(c.Root)}
		if err := e.p.uploadDiff(ctx, e.x.ID, d, false); err != nil {
			return fmt.Errorf("write a snapshot: %w", err)
		}
		chain = append(chain, wire.Snapshot{
			From: heads[0].Root, To: c.Root, Diff: *d.place, Values: uint64(d.tally.puts), Whole: uint64(max(0, whole+d.tally.grown)),
		})
	}
	for i := range chain {
		chain[i].Order = uint32(i)
	}
	e.h.Snapshots = chain
	return nil
}

// mainChain returns the snapshots that lead from the empty tree, each from the one before.
func mainChain(all []wire.Snapshot) (chain []wire.Snapshot) {
	var at object.Digest
	for _, s := range all {
		if s.From == at {
			chain = append(chain, s)
			at = s.To
		}
	}
	return chain
}

// extend makes a chain lead to a tree. The new snapshot may absorb some of the last ones.
func (e *proposing) extend(ctx context.Context, chain []wire.Snapshot, to object.Digest) ([]wire.Snapshot, error) {
	if i := slices.IndexFunc(chain, func(s wire.Snapshot) bool { return s.To == to }); i >= 0 {
		return chain[:i+1], nil
	}
	w := e.p.newDiffWriter(e.x.ID, false)
	defer w.close()
	s := wire.Snapshot{To: to}
	rest, puts, err := e.lengthen(ctx, chain, &s, w)
	if err == nil && rest == 0 { // a snapshot from the empty tree needs no removals
		var t tally
		_, t, err = e.p.encodeDiff(ctx, e.p.tree(btree.EmptyRoot), e.p.tree(to), w)
		puts = t.puts
	}
	if err != nil {
		return nil, err
	}
	place, err := w.finish(ctx)
	if err != nil {
		return nil, err
	}
	if s.Diff, s.Values = *place, uint64(puts); rest == 0 {
		s.Whole = place.Bytes
	}
	return append(slices.Clip(chain[:rest]), s), nil
}

// lengthen writes the snapshot that leads from a chain to the tree of s, together with the
// snapshots that it absorbs, and returns how many stay and how many keys get a value. If none
// stays, it writes nothing.
func (e *proposing) lengthen(ctx context.Context, chain []wire.Snapshot, s *wire.Snapshot, w io.Writer) (rest int, puts int64, err error) {
	if len(chain) == 0 {
		return 0, 0, nil
	}
	last := &chain[len(chain)-1]
	if held, err := e.holds(ctx, last.To); err != nil || !held {
		return 0, 0, err
	}
	fresh := spool.New(e.p.o.Store.TempDir(), "diff-*", spillBytes)
	defer fresh.Close()
	out := bufio.NewWriter(fresh)
	bytes, t, err := e.p.encodeDiff(ctx, e.p.tree(last.To), e.p.tree(s.To), out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		return 0, 0, err
	}
	s.Whole = uint64(max(0, int64(last.Whole)+t.grown))
	if rest = kept(chain, bytes, s.Whole); rest == 0 {
		return 0, 0, nil
	}
	r, err := fresh.Reader()
	if err != nil {
		return 0, 0, err
	}
	s.From = chain[rest-1].To
	puts, err = e.compose(ctx, chain[rest:], wire.ReadChanges(r, bytes), w)
	return rest, puts, err
}

// kept returns how many snapshots of a chain stay when one of fresh bytes follows them; whole is
// the length of the whole page. Together they have at most 3/2 of the page, since a new device
// reads them all.
func kept(chain []wire.Snapshot, fresh, whole uint64) int {
	var lengths []uint64
	all := fresh
	for _, s := range slices.Backward(chain) {
		lengths = append(lengths, s.Diff.Bytes)
		all += s.Diff.Bytes
	}
	if all > whole/2*3 {
		return 0
	}
	return len(chain) - wire.MergeRuns(lengths, fresh)
}

// holds reports whether the tree of the last snapshot is here: it is the tree of a head of the
// checkpoint.
func (e *proposing) holds(ctx context.Context, root object.Digest) (bool, error) {
	cs, err := e.p.load(ctx, e.p.state.From)
	if err != nil {
		return false, err
	}
	for _, c := range cs {
		if c.Root != root {
			continue
		}
		if held, err := e.p.o.Store.TreeHeld(ctx, c); err != nil || held {
			return held, err
		}
	}
	return false, nil
}

// compose writes snapshots and the changes of last as one. It returns how many keys get a value.
func (e *proposing) compose(ctx context.Context, chain []wire.Snapshot, last iter.Seq2[btree.Change, error], w io.Writer) (puts int64, err error) {
	var all []iter.Seq2[btree.Change, error]
	for i := range chain {
		all = append(all, e.p.changes(ctx, &wire.Diff{Place: &chain[i].Diff}))
	}
	cw := wire.NewChangeWriter(w)
	for c, err := range composed(append(all, last)) {
		if err == nil {
			err = cw.Write(&c)
		}
		if err != nil {
			return 0, err
		}
		if !c.Delete {
			puts++
		}
	}
	return puts, nil
}

// Content returns the bytes of all keys and values of a commit, without LAZY values.
func (p *Page) Content(ctx context.Context, c *commit.Commit) (bytes uint64, err error) {
	for d, err := range btree.Diff(ctx, p.tree(btree.EmptyRoot), p.tree(c.Root), nil) {
		if err != nil {
			return 0, err
		}
		if bytes += uint64(len(d.Key)); d.Right.Priority == object.Eager {
			bytes += d.Right.Size
		}
	}
	return bytes, nil
}
