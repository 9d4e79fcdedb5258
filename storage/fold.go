package storage

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// foldTxRows is the weight of what one transaction of a fold writes (see step): sorted rows of a
// part of the key space, so that the memory and the dirty pages of a transaction stay bounded
// however large the index is.
const foldTxRows = 4096

// folding is how far the index reflects the log.
type folding struct {
	foldTurn   token
	state      state            // guarded by foldTurn
	tried      segment.Position // guarded by foldTurn; what the last fold was about to reflect: the index may hold rows of it
	freed      []uint64         // guarded by foldTurn; destinations that deletions have left, for the collector
	foldTxRows int              // guarded by foldTurn; rows of one transaction
	maxTouches int              // pieces that sync may touch in one batch and one fold; see maxTouches
	foldWanted chan struct{}
	unfolded   error // guarded by mu; why the last fold in the background had no room, else nil
}

func newFolding() folding {
	return folding{
		foldTurn: newToken(), foldTxRows: foldTxRows, maxTouches: maxTouches,
		foldWanted: make(chan struct{}, 1),
	}
}

// Fold brings the index up to date with what is durable. It waits for the disk. Errors match
// base.ErrReadOnly, base.ErrClosed, or are those of the disk; after one the log still has
// everything.
func (s *Store) Fold(ctx context.Context) error {
	return s.foldWhile(ctx, func() bool { return true })
}

// foldWhile is Fold that ends when less than what is durable is folded and going on is not worth
// it: a small fold writes nearly as many pages as one of many more rows.
func (s *Store) foldWhile(ctx context.Context, worth func() bool) error {
	if !s.foldable() {
		return fmt.Errorf("fold: %w", base.ErrReadOnly)
	}
	if err := s.foldTurn.take(ctx); err != nil {
		return fmt.Errorf("wait for a fold: %w", err)
	}
	defer s.foldTurn.release()
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

// foldLocator finds pieces for a fold, which holds the fold turn and so cannot wait for the index
// to be made anew.
type foldLocator struct{ s *Store }

// locate returns where a piece is that is held as far as the log was folded, or will be: by the
// first record behind that. With dead it also finds a node whose bytes stay as a base only.
//
// A pending record may delete a node that the index has, and a later one store it again, as a
// difference to one that a record between them stores as a difference to it. There are no such
// circles among what is held at one point of the log. So what the index has counts there.
func (f foldLocator) locate(d *object.Digest, dead bool) (l located, ok bool, err error) {
	o, stored, touched := f.s.over.look(d)
	if stored && !(d.Kind().IsNode() && touched) {
		return o.located(), true, nil
	}
	err = f.s.viewOnce(func(tx index.Tx) error {
		l, ok = located{}, false
		row, has, err := readObjectRow(tx, d)
		switch {
		case err != nil || !has || !row.held && !(dead && row.dead):
			return err
		case stored && !reflects(&f.s.state.position, row.place): // left by a fold that did not end
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
// append that has returned but whose records are not in the overlay yet has a number above what its
// appender noted.
func (s *Store) foldLimit() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.log.Complete()
	for _, noted := range s.appenders {
		n = min(n, noted)
	}
	return n
}

// foldSome folds pending batches with numbers up to limit, at most about FoldRows rows of them, and
// reports whether there is more. The caller holds the fold turn.
func (s *Store) foldSome(ctx context.Context, limit uint64) (more bool, err error) {
	batches := s.over.upTo(limit, s.o.FoldRows, s.maxTouches)
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

// foldInto writes the rows that the records bring, and st with them. reflected is what the index
// reflects until then. On an error the index may hold some of the rows but reflects what it did
// before: all of this can be done again.
func (s *Store) foldInto(
	ctx context.Context, db index.DB, from locator, st *state, reflected *segment.Position, parts [][]op,
) error {
	switch aloneKind(parts) {
	case recForgotten:
		return s.foldForgotten(ctx, db, st)
	case recDeleted:
		return s.foldDeleted(ctx, db, from, st, parts)
	}
	p := newPlan(s, from, db, st.next, reflected)
	if err := p.add(ctx, parts); err != nil {
		return err
	}
	st.journal = max(st.journal, p.journal)
	err := p.write(ctx, st)
	if _, anew := from.(*rebuilder); err == nil && !anew {
		s.noteFreed(p.freed)
	}
	return err
}

// noteFreed tells the collector of numbers.
func (s *Store) noteFreed(numbers []uint64) {
	s.freed = append(s.freed, numbers[:min(len(numbers), maxFreed-min(len(s.freed), maxFreed))]...)
}

// write brings the plan to the index. Small plans take one transaction. In large ones the rows of
// objects and references go ahead in transactions of their own; numbers come first of all, so that
// none is given twice (I6), and the state last (I4).
func (p *plan) write(ctx context.Context, st *state) error {
	firstNew := st.next
	st.next = p.next
	w := &planWriter{ctx: ctx, db: p.db, most: p.s.foldTxRows, next: p.next}
	w.addNumbers(p, firstNew)
	w.addObjects(p, firstNew)
	w.addCopies(p)
	w.addRefs(p, firstNew)
	w.addStatuses(p)
	if w.err != nil {
		return w.err
	}
	if err := p.settle(ctx); err != nil {
		return err
	}
	return w.finish(func(tx index.Tx) error {
		for i := range p.history {
			if err := p.history[i].apply(tx, st); err != nil {
				return err
			}
		}
		if err := p.writeTouched(tx); err != nil {
			return err
		}
		if w.clean {
			if err := tx.Bucket(bucketState).Delete(straysKey); err != nil {
				return err
			}
		}
		return tx.Bucket(bucketState).Put(stateKey, st.encode())
	})
}

// straysKey is a row of bucket state beside the state itself, with an empty value. It is there
// while a fold of several transactions has not ended, and for ever when one never has: then there
// may be numbers that stand for nothing.
var straysKey = []byte("strays")

// reserveNumbers notes that numbers below next have been given, so that a fold which is done again
// after a crash gives none of them to another digest (I6). first reports that no fold before was
// left in the midst.
func reserveNumbers(db index.DB, next uint64) (first bool, err error) {
	err = writeIndex(db, func(tx index.Tx) error {
		b := tx.Bucket(bucketState)
		st, err := parseState(bytes.Clone(b.Get(stateKey)))
		if err != nil {
			return err
		}
		if first = !hasKey(b, straysKey); first {
			if err := b.Put(straysKey, []byte{}); err != nil {
				return err
			}
		}
		st.next = max(st.next, next)
		return b.Put(stateKey, st.encode())
	})
	return first, err
}

// planWriter runs steps, each of which writes about one row, in as few transactions as bounded
// memory allows. It holds those of the next transaction only.
type planWriter struct {
	ctx    context.Context
	db     index.DB
	next   uint64 // below it numbers are reserved before the first transaction
	steps  []step
	weight int   // of steps
	most   int   // weight of the steps of one transaction
	ahead  bool  // a transaction was written
	clean  bool  // no fold before was left in the midst
	err    error // of a transaction; then nothing more is written
}

// step writes about one row. Its weight says how much of the index a transaction keeps in memory
// for it.
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

// flush writes the steps that have come.
func (w *planWriter) flush() {
	if w.err = w.ctx.Err(); w.err != nil {
		w.err = fmt.Errorf("fold: %w", w.err)
		return
	}
	if !w.ahead {
		w.clean, w.err = reserveNumbers(w.db, w.next)
	}
	if w.err == nil {
		w.err = runSteps(w.db, w.steps)
	}
	clear(w.steps)
	w.steps, w.weight, w.ahead = w.steps[:0], 0, true
}

// finish writes what is left together with last.
func (w *planWriter) finish(last func(index.Tx) error) error {
	return runSteps(w.db, append(w.steps, step{last, 1}))
}

// spreadFill is how full pages are made that a fold splits in families into which it puts rows all
// over: as many come to one page at once, halves would stay half empty.
const spreadFill = 0.85

var spreadFamilies = []string{bucketCommits, bucketUnsynced, bucketObjects, bucketRefs}

// writeIndex runs one step in a transaction.
func writeIndex(db index.DB, run func(index.Tx) error) error { return runSteps(db, []step{{run, 1}}) }

// writeInParts calls fn in one transaction after the other, until it says that there is no more.
func writeInParts(ctx context.Context, db index.DB, fn func(tx index.Tx) (more bool, err error)) error {
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("fold: %w", err)
		}
		err := writeIndex(db, func(tx index.Tx) (err error) {
			more, err = fn(tx)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// writeState writes the row that says what the index reflects.
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

// addObjects writes a row for each piece that is held and for each that was mentioned for the first
// time, in the order of their digests.
func (w *planWriter) addObjects(p *plan, firstNew uint64) {
	all := p.objects
	for i := range p.order { // behind those that are stored, which count
		all = append(all, plannedObject{digest: &p.order[i], number: firstNew + uint64(i)})
	}
	order := make([]uint32, len(all)) // in all, whose elements are larger and slower to sort
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int {
		return cmp.Or(all[a].digest.Compare(*all[b].digest), cmp.Compare(a, b))
	})
	var last *object.Digest
	for _, i := range order {
		o := &all[i]
		if last == nil || *last != *o.digest {
			w.addObject(p, o)
			p.addBase(o)
		}
		last = o.digest
	}
}

func (w *planWriter) addObject(p *plan, o *plannedObject) {
	w.addWeight(pieceWeight, func(tx index.Tx) error {
		row := o.row()
		if old := o.old; old != nil && old.kind == recDelta && row.kind != recDelta {
			if err := dropBaseRef(tx, old.base, old.number); err != nil {
				return err
			}
			p.freed = append(p.freed, old.base)
		}
		return tx.Bucket(bucketObjects).Put(o.digest[:], row.append(nil))
	})
}

// refsOfStep is how many destinations, of one block, one step writes references of: their sum is
// written once.
const refsOfStep = 64

// addRefs adds the references, by destination. What this plan has numbered has no rows yet.
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

func (w *planWriter) addStatuses(p *plan) {
	journals := make([]uint64, 0, len(p.transient))
	for j := range p.transient {
		journals = append(journals, j)
	}
	slices.Sort(journals)
	for _, j := range journals {
		for _, n := range p.transient[j] {
			w.add(func(tx index.Tx) error {
				return tx.Bucket(bucketTransient).Put(transientKey(j, n), nil)
			})
		}
	}
	slices.Sort(p.local)
	for _, n := range slices.Compact(p.local) {
		w.add(func(tx index.Tx) error { return putLocal(tx, n) })
	}
}

func putLocal(tx index.Tx, number uint64) error {
	k := appendNumber(nil, number)
	if tx.Bucket(bucketSynced).Get(k) != nil {
		return nil
	}
	return tx.Bucket(bucketLocal).Put(k, nil)
}

// settle makes the pieces local that earlier folds noted as transient pieces of journals that have
// been committed since, and forgets those of journals that are no more, in transactions of bounded
// size.
func (p *plan) settle(ctx context.Context) error {
	var noted []uint64
	committed := map[uint64]bool{}
	err := p.db.View(func(tx index.Tx) error {
		c := tx.Bucket(bucketTransient).Cursor()
		for i, j := range slices.Concat(p.abandoned, p.settled) {
			if hasPrefix(c, binary.BigEndian.AppendUint64(nil, j)) {
				noted, committed[j] = append(noted, j), i >= len(p.abandoned)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, j := range noted {
		err := writeInParts(ctx, p.db, func(tx index.Tx) (bool, error) { return p.settleJournal(tx, j, committed[j], p.s.foldTxRows) })
		if err != nil {
			return err
		}
	}
	return nil
}

// settleJournal forgets up to most transient pieces of a journal and reports whether there are
// more. Those of a committed one become local, but those that sync touches stay until writeTouched.
func (p *plan) settleJournal(tx index.Tx, journal uint64, committed bool, most int) (more bool, err error) {
	b, prefix := tx.Bucket(bucketTransient), binary.BigEndian.AppendUint64(nil, journal)
	var keys [][]byte
	for k := range rowsWith(b, prefix) {
		if len(k) != len(prefix)+numberSize {
			return false, badRow(bucketTransient, fmt.Sprintf("%x", k), "bad key")
		}
		if committed && p.skip[readNumber(k[len(prefix):])] {
			continue
		}
		if keys = append(keys, bytes.Clone(k)); len(keys) == most {
			break
		}
	}
	for _, k := range keys {
		if committed {
			if err := putLocal(tx, readNumber(k[len(prefix):])); err != nil {
				return false, err
			}
		}
		if err := b.Delete(k); err != nil {
			return false, err
		}
	}
	return len(keys) == most, nil
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
