package storage

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// Compaction leaves records out, or writes others in their place, such that a fold of the whole log
// gives the rows that it gave before. What decides is these rows, which reflect every batch that is
// rewritten, and one number:
//
//	C1  What stores a piece or node stays if its row points to it. Else it was deleted or dropped,
//	    or another record stored the piece before: then it only says that its journal uses the
//	    piece, or that a node is used, which it may have brought back.
//	C2  A record that takes something away (a deletion, a burial, a drop, the pruning of a commit,
//	    the removal of metadata, the commit of a journal, as far as that ends the state of a
//	    transient piece) stays until nothing older is left that it is about. That is so when each
//	    other segment begins behind it, or was made by a compaction that knew of it and kept
//	    nothing that was taken away, such as a base: killBefore is the least number for which it
//	    is not. Deletions, and what prunes commits, also stay while their piece or commit is there
//	    again. They go, too, when the whole log has nothing that they are about, which is looked
//	    for when they are many (see staleNames).
//	C3  Journals that are no more are not named: a piece of one that was committed belongs to
//	    journal 0, so that it is local unless it has a place, and so does the use of a piece, if
//	    that does not follow from what stores it.
//	C4  Places of pieces, and what takes them away, stay as long as the piece has a row: whether a
//	    drop had an effect depends on them.
//	C5  Commits stay if they have a row. Their parents, which are no heads because of them, are
//	    listed in a summary if they are still here.
//	C6  A record about a tag stays unless a later one in the same replacement sets the tag anew,
//	    whatever it was.
//
// With C1, pieces and nodes can be gone that records in other segments need which are garbage
// themselves: differences, and nodes in parts. A fold from the beginning passes over those (see
// lacks): their deletion comes later in the log.

// judgement decides which records of some segments are live. The caller holds the fold turn all the
// time, so that the rows do not change.
type judgement struct {
	s          *Store
	inputs     map[uint32]bool
	killBefore uint64            // see C2: records that take away may go up to this number
	lastTag    map[string]uint64 // number of the last batch in the inputs that sets the tag; nil while that is being found out
	used       map[uint64]bool   // numbers of pieces for which a use of journal 0 was written
	keepsDead  bool              // what is kept holds references again when the log is folded without what took it away
	stale      *staleNames       // nil: not known
	deletions  int64             // bytes of deletions that stay of what is not there
	bases      map[uint64]bool   // numbers of dead nodes: whether the inputs have all that needs them
}

// verdict is what becomes of a record.
type verdict struct {
	o     *op
	as    segment.Record
	keep  bool
	whole bool // a difference that is to be written whole
	free  bool // a base that can go when the differences among the inputs are whole
}

// batch returns what becomes of the records of a batch.
func (k *judgement) batch(info segment.BatchInfo, recs []segment.Record) (out []verdict, err error) {
	ops := make([]op, len(recs))
	for i, r := range recs {
		if ops[i], err = parseRecord(r); err != nil {
			return nil, err
		}
		ops[i].number = info.Number
	}
	err = k.s.viewOnce(func(tx index.Tx) error {
		out = make([]verdict, 0, len(recs)+1)
		summary := op{kind: recSummary, sync: &syncOp{}}
		for i := range ops {
			v := verdict{o: &ops[i], as: recs[i]}
			if err := k.record(tx, &v, &summary); err != nil {
				return err
			}
			if v.keep {
				out = append(out, v)
			}
		}
		for ids := summary.sync.ids; len(ids) > maxRecordEntries; ids = summary.sync.ids {
			some := op{kind: recSummary, sync: &syncOp{ids: ids[:maxRecordEntries]}}
			out = append(out, verdict{o: &some, keep: true, as: segment.Record{Kind: recSummary, Payload: some.appendHeader(nil)}})
			summary.sync.ids = ids[maxRecordEntries:]
		}
		if summary.journal > 0 || len(summary.sync.ids) > 0 {
			out = append(out, verdict{o: &summary, keep: true, as: segment.Record{Kind: recSummary, Payload: summary.appendHeader(nil)}})
		}
		return nil
	})
	return out, err
}

// record decides about one record.
func (k *judgement) record(tx index.Tx, v *verdict, summary *op) error {
	o := v.o
	journal := o.journal
	err := k.decide(tx, v, summary)
	// The greatest number of a journal is known by the records that name it: it must not be given
	// again.
	if names := v.keep && v.o.journal == journal; journal == k.s.state.journal && !names {
		summary.journal = max(summary.journal, journal)
	}
	return err
}

func (k *judgement) decide(tx index.Tx, v *verdict, summary *op) (err error) {
	o := v.o
	killed := o.number <= k.killBefore
	switch o.kind {
	case recPiece:
		return k.piece(tx, v)
	case recUse:
		return k.use(tx, v)
	case recNode, recDelta:
		return k.node(tx, v)
	case recSplitNode:
		row, _, err := readObjectRow(tx, &o.digest)
		v.keep = row.held
		return err
	case recCommit:
		k.commit(tx, v, summary)
	case recJournal:
		v.keep = !killed
	case recSummary:
		o.sync.ids = slices.DeleteFunc(o.sync.ids, func(id commit.ID) bool { return !k.hasCommit(tx, id) })
		v.keep = len(o.sync.ids) > 0 || o.journal == k.s.state.journal
		v.rewrite()
	case recTag, recTagReceived, recTagSynced:
		v.keep = o.number >= k.lastTag[o.tag.name]
	case recExplain:
		row := tx.Bucket(bucketConflicts).Get(o.merge[:])
		v.keep = row != nil && bytes.Equal(row, conflictRow(*o.merge, &o.digest))
	case recStatus:
		k.status(tx, v)
	case recMetadata:
		row := tx.Bucket(bucketMetadata).Get([]byte(o.sync.typ))
		if o.sync.removed {
			v.keep = row == nil && (!killed || staysForgotten(o.sync.typ))
		} else {
			v.keep = row != nil && bytes.Equal(row, metadataRow(o.sync.typ, o.sync.value))
		}
	case recPlaces, recUnplaced, recDropped, recDeleted, recBuried:
		return k.pieces(tx, v, killed)
	case recPruned:
		o.sync.ids = slices.DeleteFunc(o.sync.ids, func(id commit.ID) bool {
			return (killed || k.stale.takesNothing(id[:], o.number)) && !k.hasCommit(tx, id)
		})
		v.keep = len(o.sync.ids) > 0
		v.rewrite()
	case recForgotten, recAbandoned:
		v.keep = true
	default:
		return fmt.Errorf("compact a record of kind %d at %s: %w", o.kind, placeString(o.place), base.ErrUnsupported)
	}
	return nil
}

// rewrite makes the record say what its op says now.
func (v *verdict) rewrite() {
	if v.keep {
		v.as = segment.Record{Kind: v.o.kind, Payload: append(v.o.appendHeader(nil), v.o.content...)}
	}
}

// piece decides about a record that stores a piece (C1, C3).
func (k *judgement) piece(tx index.Tx, v *verdict) error {
	o := v.o
	row, _, err := readObjectRow(tx, &o.digest)
	if err != nil {
		return err
	}
	if o.digest.Kind().IsNode() {
		v.keep = row.held && row.place == o.place
		return nil
	}
	here := row.held && row.place == o.place
	// What a dropped index piece refers to is known by the record that stored it.
	if v.keep = here || o.digest.Kind().IsIndex() && row.number != 0 && !row.held; !v.keep {
		o.kind, o.content = recUse, nil
		return k.use(tx, v)
	}
	k.keepsDead = k.keepsDead || !here
	if o.journal != 0 && k.settled(tx, o.journal, row.number) && (!here || k.hasStatus(tx, row.number)) {
		o.journal = 0
		v.rewrite()
	}
	return nil
}

// settled reports whether a piece is not transient in a journal any more.
func (k *judgement) settled(tx index.Tx, journal, number uint64) bool {
	return !hasKey(tx.Bucket(bucketTransient), transientKey(journal, number))
}

// hasStatus reports whether a piece is local or synced: some journal that stores or uses it was
// committed, or it was fetched.
func (k *judgement) hasStatus(tx index.Tx, number uint64) bool {
	key := appendNumber(nil, number)
	return hasKey(tx.Bucket(bucketLocal), key) || hasKey(tx.Bucket(bucketCloud), key)
}

// use decides about the use of a piece by a journal (C3).
func (k *judgement) use(tx index.Tx, v *verdict) error {
	o := v.o
	v.keep = false
	row, _, err := readObjectRow(tx, &o.digest)
	if err != nil || row.number == 0 || o.journal == 0 && v.as.Kind == recPiece {
		return err
	}
	if o.digest.Kind().IsNode() {
		v.keep = row.held
		return nil
	}
	if o.journal != 0 && !k.settled(tx, o.journal, row.number) {
		v.keep = true
		v.rewrite()
		return nil
	}
	if !hasKey(tx.Bucket(bucketLocal), appendNumber(nil, row.number)) || k.used[row.number] {
		return nil
	}
	if follows, err := k.localByItself(tx, &row); err != nil || follows {
		return err
	}
	k.used[row.number] = true
	o.journal, v.keep = 0, true
	v.rewrite()
	return nil
}

// localByItself reports whether what stores a local piece says, or will say when it is rewritten
// now, that it is of journal 0.
func (k *judgement) localByItself(tx index.Tx, row *objectRow) (bool, error) {
	if !row.held {
		return false, nil
	}
	head, err := k.s.log.Read(segment.Place{Segment: row.place.Segment, Offset: row.place.Offset, Length: min(row.place.Length, 10)}, nil)
	if err != nil {
		return false, err
	}
	j, n := uvarint(head)
	if n <= 0 {
		return false, &base.CorruptError{Where: placeString(row.place), Got: "no piece"}
	}
	return j == 0 || k.inputs[row.place.Segment] && k.settled(tx, j, row.number), nil
}

// node decides about a tree node (C1). A difference to a base that is dead otherwise is written
// whole.
func (k *judgement) node(tx index.Tx, v *verdict) error {
	o := v.o
	row, _, err := readObjectRow(tx, &o.digest)
	if err != nil {
		return err
	}
	v.keep = (row.held || row.dead) && row.place == o.place
	if !v.keep && row.held { // it may be held because of this record, having been dead before
		v.o = &op{kind: recUse, digest: o.digest, number: o.number}
		v.keep = true
		v.rewrite()
		return nil
	}
	switch {
	case !v.keep:
	case row.dead:
		k.keepsDead = true
		v.free, err = k.frees(tx, row.number)
	case o.kind == recDelta:
		var base objectRow
		base, _, err = readObjectRow(tx, o.base)
		v.whole = base.dead
	}
	return err
}

// frees reports whether all differences to a base are among the inputs: then it can go when they
// have been written whole. One that has none left waits for the collector, and is written as often
// as its segment is.
func (k *judgement) frees(tx index.Tx, base uint64) (bool, error) {
	if free, ok := k.bases[base]; ok {
		return free, nil
	}
	k.bases[base] = false // should the rows be damaged and run in a circle
	sources, err := objectSources(tx, base, refBase)
	if err != nil || len(sources) == 0 {
		return false, err
	}
	for i := range sources {
		row, _, err := readObjectRow(tx, &sources[i])
		if err != nil {
			return false, err
		}
		free := k.inputs[row.place.Segment] && (row.held || row.dead)
		if free && row.dead {
			free, err = k.frees(tx, row.number)
		}
		if err != nil || !free {
			return false, err
		}
	}
	k.bases[base] = true
	return true, nil
}

func (k *judgement) hasCommit(tx index.Tx, id commit.ID) bool {
	return id == commit.First().ID || tx.Bucket(bucketCommits).Get(id[:]) != nil
}

// commit decides about a commit (C5).
func (k *judgement) commit(tx index.Tx, v *verdict, summary *op) {
	c := v.o.commit
	if v.keep = k.hasCommit(tx, c.ID); v.keep {
		return
	}
	for _, p := range c.Parents {
		if k.hasCommit(tx, p) && !slices.Contains(summary.sync.ids, p) {
			summary.sync.ids = append(summary.sync.ids, p)
		}
	}
}

// status leaves statuses out that are not so any more, and those of commits that are gone.
func (k *judgement) status(tx index.Tx, v *verdict) {
	y := v.o.sync
	y.ids = slices.DeleteFunc(y.ids, func(id commit.ID) bool {
		if tx.Bucket(bucketCommits).Get(id[:]) == nil {
			return true
		}
		unsynced := hasKey(tx.Bucket(bucketUnsynced), id[:])
		return y.status == statusSynced && unsynced || y.status == statusUnsynced && !unsynced
	})
	v.keep = len(y.ids) > 0
	v.rewrite()
}

// pieces decides about a record that lists pieces (C2, C4).
func (k *judgement) pieces(tx index.Tx, v *verdict, killed bool) (err error) {
	o := v.o
	gone := func(d *object.Digest) bool {
		row, ok, rerr := readObjectRow(tx, d)
		if rerr != nil {
			err = rerr
		}
		switch {
		case o.kind == recDeleted, o.kind == recBuried:
			if ok {
				return false
			}
			goes := killed || k.stale.takesNothing(d[:], o.number)
			if !goes {
				k.deletions += object.DigestSize
			}
			return goes
		case o.kind == recDropped && ok:
			return killed && !d.Kind().IsIndex()
		}
		return !ok || row.number == 0
	}
	o.sync.places = slices.DeleteFunc(o.sync.places, func(p PlacedPiece) bool { return gone(&p.Digest) })
	o.sync.digests = slices.DeleteFunc(o.sync.digests, func(d object.Digest) bool { return gone(&d) })
	v.keep = len(o.sync.places)+len(o.sync.digests) > 0
	v.rewrite()
	return err
}

// maxWholeBytes bounds the records of a batch into which nodes are written whole. Differences stay
// when there are more.
const maxWholeBytes = segment.MaxBatchBytes / 2

// write adds what is live to a batch.
func (k *judgement) write(ctx context.Context, info segment.BatchInfo, recs []segment.Record, out *segment.Batch) error {
	verdicts, err := k.batch(info, recs)
	if err != nil {
		return err
	}
	for i := range verdicts {
		v := &verdicts[i]
		if v.whole && out.Bytes() < maxWholeBytes {
			n, err := k.s.loadNode(ctx, v.o.digest, foldLocator{k.s}, 0)
			if err != nil {
				return fmt.Errorf("write node %s whole: %w", v.o.digest.Short(), err)
			}
			o := op{kind: recNode, digest: v.o.digest, content: n.Bytes()}
			v.o = &o
			v.rewrite()
		}
		out.Add(v.as.Kind, v.as.Payload)
	}
	return nil
}

// replays reports whether what is folded may be from a log from which garbage was compacted away
// that other garbage needs.
func (s *Store) replays(from locator) (bool, error) {
	switch f := from.(type) {
	case *rebuilder:
		return s.log.Compacted()
	case foldLocator:
		if f.s.replaying {
			return s.log.Compacted()
		}
	}
	return false, nil
}

// lacks reports whether a record stores a node that cannot be made because something that it needs
// was compacted away.
func (s *Store) lacks(o *op, from locator) (bool, error) {
	if o.kind != recDelta && o.kind != recSplitNode {
		return false, nil
	}
	if replays, err := s.replays(from); err != nil || !replays {
		return false, err
	}
	if o.kind == recSplitNode {
		return s.lacksPart(&o.digest, from)
	}
	d := *o.base
	for range maxReadDepth {
		l, ok, err := from.base(&d)
		if err != nil || !ok {
			return !ok, err
		}
		if l.kind != recDelta {
			return false, nil
		}
		d = l.base
	}
	return false, nil
}

// lacksPart reports whether a part of a node was compacted away that is stored in several.
func (s *Store) lacksPart(d *object.Digest, from locator) (bool, error) {
	if replays, err := s.replays(from); err != nil || !replays {
		return false, err
	}
	return s.partMissing(d, from, 0)
}

func (s *Store) partMissing(d *object.Digest, from locator, depth int) (bool, error) {
	l, ok, err := from.locate(d)
	if err != nil || !ok || !d.Kind().IsIndex() || depth > maxIndexDepth {
		return !ok, err
	}
	content, err := s.content(d, &l)
	if err != nil {
		return false, err
	}
	children, err := split.Children(*d, content)
	if err != nil {
		return false, err
	}
	for i := range children {
		if missing, err := s.partMissing(&children[i], from, depth+1); err != nil || missing {
			return missing, err
		}
	}
	return false, nil
}
