package replica

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
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

// maxSnapshots is how many snapshots a chain may have where they cannot be merged.
const maxSnapshots = 32

// extend makes a chain lead to a tree. The new snapshot may replace some of the last ones, if the
// tree from which they lead is here.
func (e *proposing) extend(ctx context.Context, chain []wire.Snapshot, to object.Digest) ([]wire.Snapshot, error) {
	if i := slices.IndexFunc(chain, func(s wire.Snapshot) bool { return s.To == to }); i >= 0 {
		return chain[:i+1], nil
	}
	held, err := e.p.heldRoots(ctx, chain)
	if err != nil {
		return nil, err
	}
	from := func(n int) object.Digest { // behind n snapshots of the chain
		if n == 0 {
			return object.Digest{}
		}
		return chain[n-1].To
	}
	if !held[from(len(chain))] {
		chain = nil
	}
	bytes, t, err := e.p.encodeDiff(ctx, e.p.tree(treeOf(from(len(chain)))), e.p.tree(to), io.Discard)
	if err != nil {
		return nil, err
	}
	whole := int64(bytes)
	if len(chain) > 0 {
		whole = max(0, int64(chain[len(chain)-1].Whole)+t.grown)
	}
	rest := kept(chain, bytes, uint64(whole))
	if !held[from(rest)] {
		if rest = len(chain); rest >= maxSnapshots {
			rest = 0
		}
	}
	d := &delta{from: e.p.tree(treeOf(from(rest))), to: e.p.tree(to)}
	if err := e.p.uploadDiff(ctx, e.x.ID, d, false); err != nil {
		return nil, err
	}
	if rest == 0 {
		whole = int64(d.bytes)
	}
	s := wire.Snapshot{From: from(rest), To: to, Diff: *d.place, Values: uint64(d.tally.puts), Whole: uint64(whole)}
	return append(slices.Clip(chain[:rest]), s), nil
}

// treeOf returns the root of a tree that a snapshot names.
func treeOf(root object.Digest) object.Digest {
	if root.IsZero() {
		return btree.EmptyRoot
	}
	return root
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
