package storage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// indexing is the index and its rebuilds.
type indexing struct {
	indexMu sync.RWMutex  // held for writing while the index is replaced
	index   index.DB      // guarded by indexMu
	rebuilt bool          // guarded by indexMu; at most once while open
	indexes atomic.Uint64 // counts indexes begun: the numbers of one mean nothing in another
}

// RebuildIndex rebuilds the index from the log, unless that was done since the page was opened, or
// the log is damaged. It reports whether it did so. It blocks while the log is read, and holds up
// all readers.
func (s *Store) RebuildIndex(reason string) bool { return s.reindex(reason) }

// reindex rebuilds a damaged index from the log, at most once while the page is open. It reports
// whether this call or a concurrent one did so.
func (s *Store) reindex(reason string) bool {
	if s.log == nil {
		return false
	}
	s.foldTurn.Wait()
	defer s.foldTurn.Give()
	return s.reindexInTurn(context.Background(), reason)
}

// reindexInTurn is reindex for a caller that holds the fold turn.
func (s *Store) reindexInTurn(ctx context.Context, reason string) bool {
	s.indexMu.Lock()
	defer s.indexMu.Unlock()
	if s.rebuilt || s.index == nil {
		return false
	}
	s.rebuilt = true
	if err := s.log.Verify(ctx, nil); err != nil { // the index records what a damaged log held: Salvage needs it
		s.o.Logger.Error("index cannot be made anew from a damaged log", "page", fmt.Sprintf("%x", s.o.Page), "reason", reason, "error", err)
		return false
	}
	if err := s.rebuild(ctx, reason, s.state.position.Number); err != nil {
		s.o.Logger.Error("index could not be made anew", "page", fmt.Sprintf("%x", s.o.Page), "error", err)
		return false
	}
	s.o.Logger.Warn("index made anew from the log", "page", fmt.Sprintf("%x", s.o.Page), "reason", reason)
	return true
}

// brokenIndex stands for an unusable index.
type brokenIndex struct{ err error }

func (b brokenIndex) View(func(index.Tx) error) error { return b.err }

func (b brokenIndex) Update(func(index.Tx) error) error { return b.err }

func (b brokenIndex) Close() error { return nil }

// rebuild fills an empty index with the batches up to a number. The caller holds the fold turn and
// indexMu.
func (s *Store) rebuild(ctx context.Context, reason string, upTo uint64) (err error) {
	defer func() {
		if err == nil {
			return
		}
		// The rows are incomplete: nothing may be read from them, or folded into them and then
		// trusted.
		if s.index != nil {
			err = errors.Join(err, s.index.Close())
		}
		s.index = brokenIndex{fmt.Errorf("index that could not be made anew: %w", err)}
	}()
	ctx = context.WithoutCancel(ctx) // half an index would fail all callers, not only this one
	if err := s.beginIndex(reason); err != nil {
		return err
	}
	st := s.state.clone()
	b := newRebuilder(s, s.index, &st)
	each := s.eachBatch(ctx, upTo)
	if err = b.survey(ctx, upTo, each); err == nil {
		err = each(func(info segment.BatchInfo, ops []op) error { return b.add(ctx, ops, info) })
	}
	if err == nil {
		err = b.end(ctx)
	}
	if err == nil {
		s.state = st
	}
	return err
}

// eachBatch returns an iterator over the records of the batches up to a number.
func (s *Store) eachBatch(ctx context.Context, upTo uint64) func(fn func(segment.BatchInfo, []op) error) error {
	return func(fn func(segment.BatchInfo, []op) error) error {
		return s.log.Verify(ctx, func(info segment.BatchInfo, records []segment.Record) error {
			if info.Number > upTo {
				return nil
			}
			ops, err := parseRecords(records, info)
			if err != nil {
				return err
			}
			return fn(info, ops)
		})
	}
}

// rebuilder folds batches into an index that has no readers yet.
type rebuilder struct {
	s     *Store
	db    index.DB
	st    *state
	parts [][]op
	// position is that of all batches, reflected of the flushed ones. The state row has position
	// only at the end: an unfinished index is of no use.
	position, reflected segment.Position
	rows                int

	waiting []nodeRecord // differences whose bases have not been found
	// baseRows yields the rows from which the index begins; nil for none or once they are in the
	// index. The records of batches up to baseUpTo count for pieces and nodes only.
	baseRows func(put func(family string, k, v []byte) error) error
	baseUpTo uint64
	rowsAt   []numberedPlace // of rows of checkpoints
	complete *op             // the end of the last checkpoint up to surveyUpTo

	surveyUpTo uint64
}

// numberedPlace is the place of a record and the number of its batch.
type numberedPlace struct {
	number uint64
	place  segment.Place
}

func newRebuilder(s *Store, db index.DB, st *state) *rebuilder {
	return &rebuilder{s: s, db: db, st: st}
}

func (b *rebuilder) add(ctx context.Context, ops []op, info segment.BatchInfo) error {
	if b.baseRows != nil {
		if info.Number > b.baseUpTo {
			if err := b.restore(ctx); err != nil {
				return err
			}
		} else {
			ops = contentOnly(ops)
		}
	}
	alone := deletes([][]op{ops})
	if alone && len(b.parts) > 0 {
		if err := b.flush(ctx); err != nil {
			return err
		}
	}
	b.position.Add(info)
	b.parts = append(b.parts, ops)
	b.rows += len(ops)
	if b.rows < b.s.o.FoldRows && !alone {
		return nil
	}
	return b.flush(ctx)
}

func (b *rebuilder) flush(ctx context.Context) error {
	if err := b.s.foldInto(ctx, b.db, b, b.st, &b.reflected, b.parts); err != nil {
		return err
	}
	b.parts, b.rows, b.reflected = nil, 0, b.position.Clone()
	return nil
}

// end ends the rebuild.
func (b *rebuilder) end(ctx context.Context) error {
	if b.baseRows != nil {
		if err := b.restore(ctx); err != nil {
			return err
		}
	}
	if err := b.flush(ctx); err != nil {
		return err
	}
	b.st.position = b.position.Clone()
	return writeState(b.db, b.st)
}

// contentOnly returns the records that store pieces and nodes, of a batch before a checkpoint.
func contentOnly(ops []op) (out []op) {
	for _, o := range ops {
		if o.stored() {
			out = append(out, o)
		}
	}
	return out
}

// restore writes the rows of the base into the index.
func (b *rebuilder) restore(ctx context.Context) error {
	if err := b.flush(ctx); err != nil {
		return err
	}
	rows := b.baseRows
	b.baseRows = nil
	type row struct {
		family string
		k, v   []byte
	}
	err := writeIndex(b.db, func(tx index.Tx) error { return dropHeads(tx, b.st, []commit.ID{commit.First().ID}) })
	if err != nil {
		return err
	}
	var some []row
	flush := func() error {
		err := writeIndex(b.db, func(tx index.Tx) error {
			r := restoring{tx, b.st}
			for _, w := range some {
				if err := r.put(w.family, w.k, w.v); err != nil {
					return err
				}
			}
			return nil
		})
		some = some[:0]
		return err
	}
	err = rows(func(family string, k, v []byte) error {
		if some = append(some, row{family, bytes.Clone(k), bytes.Clone(v)}); len(some) < max(1, b.s.foldTxRows/4) {
			return nil
		}
		return flush()
	})
	if err == nil {
		err = flush()
	}
	if err != nil {
		return fmt.Errorf("restore rows as of batch %d: %w", b.baseUpTo, err)
	}
	return nil
}

// nodeRecord is a record that stores a node.
type nodeRecord struct {
	digest, base object.Digest
	kind         byte
	place        segment.Place
}

// survey finds all nodes of the log, and the last checkpoint; other nodes are gone. Copies that
// compaction has made are in the log after the records that rely on them. So nodes first get rows
// as bases to which nothing else refers, whole nodes before differences. A checkpoint in a batch
// above a number does not count.
func (b *rebuilder) survey(ctx context.Context, upTo uint64, each func(func(segment.BatchInfo, []op) error) error) error {
	b.surveyUpTo = upTo
	var some []nodeRecord
	err := each(func(info segment.BatchInfo, ops []op) error {
		some = append(some, b.nodesOf(info, ops)...)
		if len(some) < b.s.foldTxRows {
			return ctx.Err()
		}
		err := b.noteNodes(some)
		some = some[:0]
		return err
	})
	if err == nil {
		err = b.noteNodes(some)
	}
	if err == nil {
		err = b.settleWaiting()
	}
	if err == nil && b.complete != nil && b.baseRows == nil {
		b.useCheckpoint(b.complete)
	}
	return err
}

// nodesOf returns the records of a batch that store nodes, and records those of checkpoints.
func (b *rebuilder) nodesOf(info segment.BatchInfo, ops []op) (nodes []nodeRecord) {
	for i := range ops {
		switch o := &ops[i]; {
		case o.kind == recRows:
			b.rowsAt = append(b.rowsAt, numberedPlace{info.Number, o.place})
		case o.kind == recComplete && o.number <= b.surveyUpTo && (b.complete == nil || b.complete.number < o.number):
			b.complete = o
		case o.kind == recNode || o.kind == recDelta:
			r := nodeRecord{digest: o.digest, kind: o.kind, place: o.place}
			if o.base != nil {
				r.base = *o.base
			}
			nodes = append(nodes, r)
		}
	}
	return nodes
}

// settleWaiting gives rows to waiting differences until no more of their bases are found.
func (b *rebuilder) settleWaiting() error {
	for before := -1; before != len(b.waiting) && len(b.waiting) > 0; {
		before = len(b.waiting)
		waiting := b.waiting
		b.waiting = nil
		for len(waiting) > 0 {
			n := min(len(waiting), b.s.foldTxRows)
			if err := b.noteNodes(waiting[:n]); err != nil {
				return err
			}
			waiting = waiting[n:]
		}
	}
	return nil
}

// useCheckpoint begins the index from a checkpoint.
func (b *rebuilder) useCheckpoint(end *op) {
	c := end.sync.checkpoint
	b.baseUpTo = c.upTo
	b.baseRows = func(put func(string, []byte, []byte) error) error {
		for _, r := range b.rowsAt {
			if r.number < c.first || r.number > end.number {
				continue
			}
			p, err := b.s.log.Read(r.place, nil)
			if err != nil {
				return err
			}
			if ok, err := eachRowOf(p, put); err != nil || !ok {
				return cmp.Or(err, error(&base.CorruptError{Where: placeString(r.place), Got: "bad rows of a checkpoint"}))
			}
		}
		return nil
	}
}

// noteNodes gives rows to nodes without one. A difference waits while its base has no row.
func (b *rebuilder) noteNodes(some []nodeRecord) error {
	slices.SortStableFunc(some, func(a, c nodeRecord) int {
		return cmp.Or(cmp.Compare(isDelta(a.kind), isDelta(c.kind)), a.digest.Compare(c.digest))
	})
	return writeIndex(b.db, func(tx index.Tx) error {
		for left := some; len(left) > 0; {
			var wait []nodeRecord
			for i := range left {
				done, err := b.noteNode(tx, &left[i])
				if err != nil {
					return err
				}
				if !done {
					wait = append(wait, left[i])
				}
			}
			if len(wait) == len(left) {
				b.waiting = append(b.waiting, wait...)
				break
			}
			left = wait
		}
		return tx.Bucket(bucketState).Put(stateKey, b.st.encode())
	})
}

func isDelta(kind byte) int {
	if kind == recDelta {
		return 1
	}
	return 0
}

func (b *rebuilder) noteNode(tx index.Tx, r *nodeRecord) (done bool, err error) {
	row, ok, err := readObjectRow(tx, &r.digest)
	if err != nil || ok && (row.held || row.dead) {
		return true, err
	}
	next := objectRow{dead: true, kind: r.kind, place: r.place}
	if r.kind == recDelta {
		to, _, err := readObjectRow(tx, &r.base)
		if err != nil || !to.held && !to.dead || to.depth >= maxReadDepth-1 {
			return false, err
		}
		next.base, next.depth = to.number, to.depth+1
	}
	if next.number, err = (restoring{tx, b.st}).number(&r.digest); err != nil {
		return false, err
	}
	if err := tx.Bucket(bucketObjects).Put(r.digest[:], next.append(nil)); err != nil || r.kind != recDelta {
		return true, err
	}
	sum, err := addSources(tx.Bucket(bucketRefs), refKey{next.base, refBase}, []uint64{next.number})
	if err != nil {
		return true, err
	}
	return true, addSum(tx, blockOf(next.base), sum)
}

// lacks reports whether a record stores a node that cannot be built because something it needs is
// gone.
func (b *rebuilder) lacks(o *op) (bool, error) {
	if o.kind != recNode && o.kind != recDelta {
		return false, nil
	}
	_, ok, err := b.locate(&o.digest, false)
	return !ok, err
}

// locate finds pieces and nodes by the rows. Nodes are where survey has found them, held or not.
func (b *rebuilder) locate(d *object.Digest, dead bool) (l located, ok bool, err error) {
	err = b.db.View(func(tx index.Tx) (err error) {
		l, ok, err = locateIn(tx, d, dead || d.Kind().IsNode())
		return err
	})
	return l, ok, err
}
