package storage

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/turn"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// foldTxRows is the weight that one transaction of a fold writes (see step). Its rows are sorted
// and lie in a part of the key space, so that the memory and the dirty pages of a transaction stay
// bounded for an index of any size.
const foldTxRows = 4096

// folding is the state of the index against the log.
type folding struct {
	foldTurn   turn.Lock
	state      state            // guarded by foldTurn
	tried      segment.Position // guarded by foldTurn; target of the last fold: the index may hold rows of it
	freed      []uint64         // guarded by foldTurn; destinations that deletions freed, for the collector
	foldTxRows int              // guarded by foldTurn; rows of one transaction
	foldWanted chan struct{}
	unfolded   error // guarded by mu; why the last background fold had no room, else nil
}

func newFolding() folding {
	return folding{foldTurn: turn.New(), foldTxRows: foldTxRows, foldWanted: make(chan struct{}, 1)}
}

// Fold brings the index up to date with what is durable. It waits for the disk. Errors match
// base.ErrReadOnly, base.ErrClosed, or are those of the disk; after an error the log is still
// complete.
func (s *Store) Fold(ctx context.Context) error {
	return s.foldWhile(ctx, func() bool { return true })
}

// foldWhile is Fold that stops early once worth returns false: a small fold writes nearly as many
// pages as one of many more rows.
func (s *Store) foldWhile(ctx context.Context, worth func() bool) error {
	if !s.foldable() {
		return fmt.Errorf("fold: %w", base.ErrReadOnly)
	}
	if err := s.foldTurn.Take(ctx); err != nil {
		return fmt.Errorf("wait for a fold: %w", err)
	}
	defer s.foldTurn.Give()
	for {
		more, err := s.foldSome(ctx, s.foldLimit())
		if err != nil && errors.Is(err, base.ErrCorrupt) && s.reindexInTurn(ctx, err.Error()) {
			continue
		}
		if err != nil {
			return err
		}
		if !more || !worth() {
			s.keepReserve()
			return nil
		}
	}
}

// foldLocator finds nodes for a fold. The fold holds the fold turn, so it cannot wait for a rebuild
// of the index.
type foldLocator struct{ s *Store }

// locate returns the place of a node that is held at the position up to which the log was folded,
// or of the first record after that. With dead it also finds a node whose bytes stay as a base
// only.
//
// A pending record may delete a node of the index, and a later record may store that node again, as
// a difference to a node that a record between the two stores as a difference to it. Nodes held at
// one point of the log have no such circle, so the row in the index counts.
func (f foldLocator) locate(d *object.Digest, dead bool) (l located, ok bool, err error) {
	o, stored, touched := f.s.over.look(d)
	if stored && !touched {
		return o.located(), true, nil
	}
	err = f.s.viewOnce(func(tx index.Tx) error {
		l, ok = located{}, false
		row, has, err := readObjectRow(tx, d)
		switch {
		case err != nil || !has || !row.held && !(dead && row.dead):
			return err
		case stored && !reflects(&f.s.state.position, row.place): // left by an unfinished fold
			return nil
		}
		l, err = locatedRow(tx, &row)
		ok = err == nil
		return err
	})
	if err == nil && !ok && stored {
		return o.located(), true, nil
	}
	return l, ok, err
}

// foldable reports whether the index may be written.
func (s *Store) foldable() bool { return !s.o.ReadOnly }

// foldLimit returns a number up to which every batch is either in the overlay or has failed. An
// append that has returned, but whose records are not in the overlay yet, has a number above the
// one that its appender noted.
func (s *Store) foldLimit() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.log.Complete()
	for _, noted := range s.appenders {
		n = min(n, noted)
	}
	return n
}

// foldSome folds pending batches with numbers up to limit, at most about FoldRows rows, and reports
// whether more are pending. The caller holds the fold turn.
func (s *Store) foldSome(ctx context.Context, limit uint64) (more bool, err error) {
	batches := s.over.upTo(limit, s.o.FoldRows)
	if len(batches) == 0 {
		return false, nil
	}
	st := s.state.clone()
	parts := make([][]op, 0, len(batches))
	for _, b := range batches {
		parts = append(parts, b.parts...)
		st.position.Add(b.info)
	}
	s.tried = st.position.Clone()
	s.indexMu.RLock()
	db := s.index
	s.indexMu.RUnlock()
	if db == nil {
		return false, fmt.Errorf("fold: %w", base.ErrClosed)
	}
	if err := s.foldInto(ctx, db, foldLocator{s}, &st, &s.state.position, parts); err != nil {
		s.state.next = max(s.state.next, st.next)
		return false, err
	}
	s.state = st
	s.over.drop(len(batches))
	s.counters.folds.Add(1)
	s.mu.Lock()
	s.folded.tell()
	s.mu.Unlock()
	return st.position.Number < limit, nil
}

// foldInto writes the rows of the records, and st with them. reflected is the position of the index
// before the fold. After an error the index may hold some of the rows but its position is
// unchanged, so that the fold can be repeated.
func (s *Store) foldInto(
	ctx context.Context, db index.DB, from locator, st *state, reflected *segment.Position, parts [][]op,
) error {
	if deletes(parts) {
		return s.foldDeleted(ctx, db, from, st, parts)
	}
	p := newPlan(s, from, db, st.next, reflected)
	if err := p.add(ctx, parts); err != nil {
		return err
	}
	return p.write(ctx, st)
}

// noteFreed records numbers for the collector.
func (s *Store) noteFreed(numbers []uint64) {
	s.freed = append(s.freed, numbers[:min(len(numbers), maxFreed-min(len(s.freed), maxFreed))]...)
}

// write writes the plan to the index. A small plan takes one transaction. A large one first writes
// the rows of objects and references in transactions of their own. Numbers are first of all, so
// that none is given twice (I6), and the state is last (I4).
func (p *plan) write(ctx context.Context, st *state) error {
	firstNew := st.next
	st.next = p.next
	w := &planWriter{ctx: ctx, db: p.db, most: p.s.rowsOfTx(), next: p.next}
	w.addNumbers(p, firstNew)
	w.addObjects(p, firstNew)
	w.addPlaces(p)
	w.addRefs(p, firstNew)
	w.addStatuses(p)
	if w.err != nil {
		return w.err
	}
	return w.finish(func(tx index.Tx) error {
		for i := range p.history {
			if err := p.history[i].apply(tx, st); err != nil {
				return err
			}
		}
		return tx.Bucket(bucketState).Put(stateKey, st.encode())
	})
}

// reserveNumbers records that numbers below next have been given, so that a fold repeated after a
// crash gives none of them to another digest (I6). Some may then stand for nothing, for ever.
func reserveNumbers(db index.DB, next uint64) error {
	return writeIndex(db, func(tx index.Tx) error {
		b := tx.Bucket(bucketState)
		st, err := parseState(bytes.Clone(b.Get(stateKey)))
		if err != nil {
			return err
		}
		st.next = max(st.next, next)
		return b.Put(stateKey, st.encode())
	})
}

// planWriter runs steps, each of which writes about one row, in as few transactions as bounded
// memory allows. It holds only the steps of the next transaction.
type planWriter struct {
	ctx    context.Context
	db     index.DB
	next   uint64 // below it numbers are reserved before the first transaction
	steps  []step
	weight int   // of steps
	most   int   // weight of the steps of one transaction
	ahead  bool  // a transaction was written
	err    error // of a transaction; then nothing more is written
}

// step writes about one row. Its weight is the share of the index that a transaction keeps in
// memory for the step.
type step struct {
	run    func(index.Tx) error
	weight int
}

func (w *planWriter) add(run func(index.Tx) error) { w.addWeight(1, run) }

func (w *planWriter) addWeight(weight int, run func(index.Tx) error) {
	if len(w.steps) > 0 && w.weight+weight > w.most {
		w.flush()
	}
	if w.err == nil {
		w.steps, w.weight = append(w.steps, step{run, weight}), w.weight+weight
	}
}

// flush writes the steps collected so far.
func (w *planWriter) flush() {
	if w.err = w.ctx.Err(); w.err != nil {
		w.err = fmt.Errorf("fold: %w", w.err)
		return
	}
	if !w.ahead {
		w.err = reserveNumbers(w.db, w.next)
	}
	if w.err == nil {
		w.err = runSteps(w.db, w.steps)
	}
	clear(w.steps)
	w.steps, w.weight, w.ahead = w.steps[:0], 0, true
}

// finish writes the remaining steps together with last.
func (w *planWriter) finish(last func(index.Tx) error) error {
	return runSteps(w.db, append(w.steps, step{last, 1}))
}

// spreadFill is the fill factor of pages that a fold splits in families where its rows are spread
// all over. So many rows arrive for one page at once that half pages would stay half empty.
const spreadFill = 0.85

var spreadFamilies = []string{bucketCommits, bucketUnsynced, bucketObjects, bucketRefs}

// writeIndex runs one step in a transaction.
func writeIndex(db index.DB, run func(index.Tx) error) error { return runSteps(db, []step{{run, 1}}) }

// writeState writes the state row.
func writeState(db index.DB, st *state) error {
	return writeIndex(db, func(tx index.Tx) error { return tx.Bucket(bucketState).Put(stateKey, st.encode()) })
}

func runSteps(db index.DB, steps []step) error {
	err := db.Update(func(tx index.Tx) error {
		for _, name := range spreadFamilies {
			tx.Bucket(name).SetFillPercent(spreadFill)
		}
		for _, s := range steps {
			if err := s.run(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write the index: %w", err)
	}
	return nil
}

func (w *planWriter) addNumbers(p *plan, first uint64) {
	for i := range p.order {
		n := first + uint64(i)
		w.add(func(tx index.Tx) error {
			b := tx.Bucket(bucketNumbers)
			b.SetFillPercent(1)
			return b.Put(appendNumber(nil, n), p.order[i][:])
		})
	}
}

// addObjects writes a row for each held piece and each digest mentioned for the first time, in the
// order of their digests.
func (w *planWriter) addObjects(p *plan, firstNew uint64) {
	all := p.objects
	for i := range p.order {
		all = append(all, plannedObject{digest: &p.order[i], number: firstNew + uint64(i)})
	}
	order := make([]uint32, len(all)) // in all, whose elements are larger and slower to sort
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int {
		return cmp.Or(all[a].digest.Compare(*all[b].digest), cmp.Compare(a, b))
	})
	var same []*plannedObject
	for i, n := range order {
		same = append(same, &all[n])
		if i+1 == len(order) || *all[order[i+1]].digest != *all[n].digest {
			w.addObject(p, same[0], rowOf(same))
			same = same[:0]
		}
	}
}

// addObject writes the row of an object, and notes that a difference needs its base, or that the
// status of a piece may change.
func (w *planWriter) addObject(p *plan, o *plannedObject, row objectRow) {
	if o.stored != nil && !o.digest.Kind().IsNode() {
		p.statuses = append(p.statuses, plannedStatus{o.number, row.held})
	}
	if row.held && row.kind == recDelta {
		p.refs = append(p.refs, newRef(refKey{row.base, refBase}, row.number))
	}
	w.addWeight(pieceWeight, func(tx index.Tx) error {
		if old := o.old; old != nil && old.kind == recDelta && (row.kind != recDelta || row.base != old.base) {
			if err := dropBaseRef(tx, old.base, old.number); err != nil {
				return err
			}
		}
		return tx.Bucket(bucketObjects).Put(o.digest[:], row.append(nil))
	})
}

// refsOfStep is the number of destinations, in one block, whose references one step writes: their
// sum is written once.
const refsOfStep = 64

// addRefs adds the references, by destination. Pieces numbered by this plan have no rows yet.
func (w *planWriter) addRefs(p *plan, firstNew uint64) {
	slices.SortFunc(p.refs, compareRefs)
	for refs := p.refs; len(refs) > 0; {
		n, keys := 1, 1
		for n < len(refs) && blockOf(refs[n].dest()) == blockOf(refs[0].dest()) {
			if refs[n].packed != refs[n-1].packed {
				if keys == refsOfStep {
					break
				}
				keys++
			}
			n++
		}
		some := refs[:n]
		refs = refs[n:]
		w.addWeight(keys, func(tx index.Tx) error {
			return eachKey(tx, some, func(b index.Bucket, k refKey, sources []uint64) (uint64, error) {
				if k.dest >= firstNew {
					return sumOf(k, sources), putSources(b, refPrefix(k.dest, k.typ), sources)
				}
				return addSources(b, k, sources)
			})
		})
	}
}

// addPlaces writes the places of pieces. The last record about a piece counts.
func (w *planWriter) addPlaces(p *plan) {
	slices.SortStableFunc(p.places, func(a, b plannedPlace) int { return cmp.Compare(a.number, b.number) })
	for i, l := range p.places {
		if i+1 < len(p.places) && p.places[i+1].number == l.number {
			continue
		}
		w.addWeight(pieceWeight, func(tx index.Tx) error {
			var row []byte
			if l.place != nil {
				row = cloudRow(l.digest, l.place)
			}
			return setRow(tx.Bucket(bucketCloud), appendNumber(nil, l.number), l.place != nil, row)
		})
	}
}

// addStatuses writes which pieces are local, once their objects and places are written.
func (w *planWriter) addStatuses(p *plan) {
	slices.SortStableFunc(p.statuses, func(a, b plannedStatus) int { return cmp.Compare(a.number, b.number) })
	for i, t := range p.statuses {
		if i+1 < len(p.statuses) && p.statuses[i+1].number == t.number {
			continue
		}
		w.add(func(tx index.Tx) error {
			k := appendNumber(nil, t.number)
			return setRow(tx.Bucket(bucketLocal), k, t.held && !hasKey(tx.Bucket(bucketCloud), k), nil)
		})
	}
}

type row struct {
	bucket     string
	key, value []byte
}

// foldAll folds what is durable. The caller holds the fold turn.
func (s *Store) foldAll(ctx context.Context) error {
	for {
		if more, err := s.foldSome(ctx, s.foldLimit()); err != nil || !more {
			return err
		}
	}
}
