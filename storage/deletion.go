package storage

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// doomed is a piece that is being removed from the index.
type doomed struct {
	digest  object.Digest
	row     objectRow
	targets []target
	keep    bool // its bytes stay: a later record that stores it may be skipped
}

// foldDeleted removes pieces to which nothing refers from the index, with the references that they
// hold. Other pieces stay: a deletion record applies to garbage only. A piece that the bucket has
// keeps its place. Nodes whose bytes differences need stay as bases. Its transactions are of
// bounded size.
func (s *Store) foldDeleted(ctx context.Context, db index.DB, from locator, st *state, parts [][]op) error {
	var gone []doomed
	known := map[object.Digest][]target{}
	_, anew := from.(*rebuilder)
	err := db.View(func(tx index.Tx) error {
		gone = gone[:0]
		for _, ops := range parts {
			for i := range ops {
				for _, d := range ops[i].sync.digests {
					row, ok, err := readObjectRow(tx, &d)
					if err != nil {
						return err
					}
					if ok && !referred(tx, row.number) {
						gone = append(gone, doomed{digest: d, row: row, keep: anew && d.Kind().IsNode()})
					}
				}
				for d, t := range ops[i].sync.known {
					known[d] = t
				}
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(gone, func(a, b doomed) int { return a.digest.Compare(b.digest) })
	gone = slices.CompactFunc(gone, func(a, b doomed) bool { return a.digest == b.digest })
	for i := range gone {
		g := &gone[i]
		t, ok := known[g.digest]
		if !ok && g.row.held {
			at := g.row.located()
			if t, err = s.targets(ctx, &g.digest, &at, from, nil); err != nil {
				return fmt.Errorf("fold deletion of %s: %w", g.digest.Short(), err)
			}
		}
		g.targets = t
	}
	d, most := deletion{}, s.rowsOfTx()
	for more := true; more; { // after a crash the repeated fold skips what was deleted
		n, weight := 0, 0
		for n < len(gone) && (n == 0 || weight < most) {
			weight += 1 + len(gone[n].targets)
			n++
		}
		freed := len(d.freed)
		more = n < len(gone)
		err = writeIndex(db, func(tx index.Tx) error {
			d.freed = d.freed[:freed]
			if err := d.run(tx, gone[:n]); err != nil || more {
				return err
			}
			return tx.Bucket(bucketState).Put(stateKey, st.encode())
		})
		if err != nil {
			return err
		}
		gone = gone[n:]
	}
	if _, live := from.(foldLocator); live {
		s.noteFreed(d.freed)
	}
	return nil
}

// maxFreed bounds what is reported to the collector. The collector finds the rest a cycle later.
const maxFreed = 1 << 16

// deletion removes pieces from the index within a transaction.
type deletion struct {
	freed []uint64 // destinations without references
}

func (d *deletion) run(tx index.Tx, gone []doomed) error {
	var refs []plannedRef
	for i := range gone {
		g := &gone[i]
		for j := range g.targets {
			row, ok, err := readObjectRow(tx, &g.targets[j].digest)
			if err != nil {
				return err
			}
			if ok {
				refs = append(refs, newRef(refKey{row.number, g.targets[j].typ}, g.row.number))
			}
		}
	}
	if err := d.unrefer(tx, refs); err != nil {
		return err
	}
	for i := range gone {
		if err := d.remove(tx, &gone[i]); err != nil {
			return err
		}
	}
	return nil
}

// unrefer removes references and records the destinations that they left.
func (d *deletion) unrefer(tx index.Tx, refs []plannedRef) error {
	slices.SortFunc(refs, compareRefs)
	last := uint64(0)
	for len(refs) > 0 {
		n := 1
		for n < len(refs) && blockOf(refs[n].dest()) == blockOf(refs[0].dest()) {
			n++
		}
		err := eachKey(tx, refs[:n], removeSources)
		if err != nil {
			return err
		}
		for _, r := range refs[:n] {
			if dest := r.dest(); dest != last && !referred(tx, dest) {
				d.freed = append(d.freed, dest)
			}
			last = r.dest()
		}
		refs = refs[n:]
	}
	return nil
}

// remove removes the rows of a piece, or keeps its bytes as a base.
func (d *deletion) remove(tx index.Tx, g *doomed) error {
	if !g.keep && !neededAsBase(tx, g.row.number) {
		return d.removeRows(tx, g)
	}
	if g.row.held && g.digest.Kind().IsNode() {
		g.row.held, g.row.dead = false, true
		return tx.Bucket(bucketObjects).Put(g.digest[:], g.row.append(nil))
	}
	return nil
}

func (d *deletion) removeRows(tx index.Tx, g *doomed) error {
	if isPlaced(tx, &g.digest, g.row.number) {
		return tx.Bucket(bucketObjects).Put(g.digest[:], (&objectRow{number: g.row.number}).append(nil))
	}
	k := appendNumber(nil, g.row.number)
	if err := tx.Bucket(bucketObjects).Delete(g.digest[:]); err != nil {
		return err
	}
	for _, b := range []string{bucketNumbers, bucketLocal} {
		if err := tx.Bucket(b).Delete(k); err != nil {
			return err
		}
	}
	if g.row.kind == recDelta && (g.row.held || g.row.dead) {
		d.freed = append(d.freed, g.row.base) // perhaps that was the last difference to it
		return dropBaseRef(tx, g.row.base, g.row.number)
	}
	return nil
}
