package storage

import (
	"bytes"
	"cmp"
	"errors"
	"io/fs"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// oldIndex is page.db as it was before the log was damaged: it knows what was in batches that
// cannot be read any more. Nil stands for none that is of use.
type oldIndex struct {
	db     index.DB
	st     state
	memory bool
}

// openOldIndex opens page.db for reading, if it is whole enough.
func openOldIndex(o Options) *oldIndex {
	o.ReadOnly = true
	db, err := (&Store{o: o}).openIndexFile(index.Options{ReadOnly: true})
	if err != nil {
		return nil // it is missing, or damaged itself
	}
	x := &oldIndex{db: db, memory: o.MemoryIndex != nil}
	st, err := readState(db)
	if err != nil || st == nil || st.page != o.Page || st.position.Number == 0 {
		_ = x.close() // nothing was written
		return nil
	}
	x.st = *st
	return x
}

func (x *oldIndex) close() error {
	if x == nil || x.db == nil || x.memory {
		return nil
	}
	db := x.db
	x.db = nil
	if err := db.Close(); err != nil && !errors.Is(err, base.ErrClosed) && !errors.Is(err, fs.ErrClosed) {
		return err
	}
	return nil
}

func (x *oldIndex) position() *segment.Position {
	if x == nil {
		return nil
	}
	return &x.st.position
}

// reflects reports whether all that lay in a part of a segment is in the index.
func (x *oldIndex) reflects(d segment.Damage) bool {
	if x == nil {
		return false
	}
	for _, e := range x.st.position.Ends {
		if e.Segment == d.Segment {
			return d.End <= e.Offset
		}
	}
	return false
}

// had reports whether the page held a piece.
func (x *oldIndex) had(d *object.Digest) (held bool) {
	if x == nil {
		return false
	}
	err := x.db.View(func(tx index.Tx) error {
		row, _, err := readObjectRow(tx, d)
		held = row.held
		return err
	})
	return err == nil && held
}

// within returns the records of pieces and nodes that lay in a part of a segment.
func (x *oldIndex) within(info segment.BatchInfo) (recs []segment.Record) {
	if x == nil {
		return nil
	}
	// What a damaged page of the index has is passed over: these are only places where to look.
	_ = x.db.View(func(tx index.Tx) error {
		for _, v := range rowsOf(tx, bucketObjects) {
			row, ok := parseObjectRow(v)
			if ok && (row.held || row.dead) && row.place.Segment == info.Segment && row.place.Offset >= info.Start && row.place.Offset < info.End {
				recs = append(recs, segment.Record{Kind: row.kind, Place: row.place})
			}
		}
		return nil
	})
	slices.SortFunc(recs, func(a, b segment.Record) int { return cmp.Compare(a.Place.Offset, b.Place.Offset) })
	return recs
}

// oldRows compares the old index with what is left of the log, up to where the old one goes.
type oldRows struct {
	v          *salvage
	have, want index.Tx
	whole      bool // every row of the old index could be read
	add        []op // what the log lacks
	take       []op // what the log has too much, because what took it away is gone
	summary    []commit.ID
	prune      []commit.ID
	children   map[commit.ID][]commit.ID
}

// compareOld notes which records bring the index of what is left to what the old one says.
func (v *salvage) compareOld(b *rebuilder) error {
	r := &oldRows{v: v, whole: true, children: map[commit.ID][]commit.ID{}}
	var inner error
	err := v.old.db.View(func(have index.Tx) error {
		return b.db.View(func(want index.Tx) error {
			r.have, r.want = have, want
			inner = r.run()
			return inner
		})
	})
	if inner != nil {
		return inner
	}
	if err != nil { // pages of the old index are damaged: what is not in it says nothing
		r.whole = false
	}
	v.restored = append(v.restored, r.add...)
	if r.whole {
		v.restored = append(v.restored, r.take...)
		r.addPruned()
	}
	v.final = idOps(v.final, recSummary, r.summary) // behind all commits
	v.report.Restored = len(v.restored)
	return nil
}

func (r *oldRows) run() error {
	r.commits()
	r.statuses()
	r.explanations()
	r.tags()
	r.metadata()
	return r.pieces()
}

// commits restores commits, parents before children.
func (r *oldRows) commits() {
	var missing []*commit.Commit
	for k, v := range rowsOf(r.have, bucketCommits) {
		c, err := parseCommitRow(k, v)
		if err != nil {
			r.whole = false
			continue
		}
		if r.want.Bucket(bucketCommits).Get(k) == nil {
			missing = append(missing, c)
		}
	}
	slices.SortFunc(missing, func(a, b *commit.Commit) int {
		return cmp.Or(cmp.Compare(a.Generation, b.Generation), a.ID.Compare(b.ID))
	})
	heads, sure := r.heads()
	for _, c := range missing {
		o := op{kind: recCommit, commit: c, origin: originBucket}
		treeless := hasKey(r.have.Bucket(bucketTreeless), c.ID[:])
		switch {
		case hasKey(r.have.Bucket(bucketUnsynced), c.ID[:]):
			o.origin = originLocal
		case treeless:
			o.origin = originTreeless
		}
		r.add = append(r.add, o)
		if treeless && o.origin == originLocal {
			r.add = statusOps(r.add, statusHoles, []commit.ID{c.ID})
		}
		if sure && !heads[c.ID] {
			r.summary = append(r.summary, c.ID)
		}
	}
	if !sure {
		r.whole = false
		return
	}
	for k := range rowsOf(r.want, bucketHeads) {
		if id := commit.ID(k); !heads[id] && id != commit.First().ID {
			r.summary = append(r.summary, id)
		}
	}
}

// heads returns the heads of the old index, and whether they agree with their checksum.
func (r *oldRows) heads() (heads map[commit.ID]bool, sure bool) {
	heads, sum := map[commit.ID]bool{}, state{}
	for k := range rowsOf(r.have, bucketHeads) {
		if len(k) != commit.IDSize {
			return nil, false
		}
		heads[commit.ID(k)] = true
		sum.addHead(commit.ID(k))
	}
	return heads, sum.nHeads == r.v.old.st.nHeads && sum.heads == r.v.old.st.heads
}

// statuses restores those of commits that are in both, and finds commits that were pruned.
func (r *oldRows) statuses() {
	var synced, unsynced, treed, holes []commit.ID
	for k, v := range rowsOf(r.want, bucketCommits) {
		c, err := parseCommitRow(k, v)
		if err != nil {
			continue // it was folded just now
		}
		if r.have.Bucket(bucketCommits).Get(k) == nil {
			r.prune = append(r.prune, c.ID)
			continue
		}
		for _, p := range c.Parents {
			r.children[p] = append(r.children[p], c.ID)
		}
		was, is := hasKey(r.have.Bucket(bucketUnsynced), k), hasKey(r.want.Bucket(bucketUnsynced), k)
		switch {
		case was && !is:
			unsynced = append(unsynced, c.ID)
		case !was && is:
			synced = append(synced, c.ID)
		}
		was, is = hasKey(r.have.Bucket(bucketTreeless), k), hasKey(r.want.Bucket(bucketTreeless), k)
		switch {
		case was && !is:
			holes = append(holes, c.ID)
		case !was && is:
			treed = append(treed, c.ID)
		}
	}
	r.add = statusOps(statusOps(r.add, statusUnsynced, unsynced), statusHoles, holes)
	r.take = statusOps(statusOps(r.take, statusSynced, synced), statusTree, treed)
}

// addPruned prunes what was pruned.
func (r *oldRows) addPruned() {
	for _, id := range r.prune {
		children := r.children[id]
		r.v.prune = append(r.v.prune, op{kind: recPruned, sync: &syncOp{ids: []commit.ID{id}, children: children[:min(len(children), maxPrunedChildren)]}})
	}
}

func (r *oldRows) explanations() {
	for k, v := range rowsOf(r.have, bucketConflicts) {
		root, err := parseConflictRow(k, v)
		if err != nil {
			r.whole = false
			continue
		}
		if id := commit.ID(k); r.want.Bucket(bucketConflicts).Get(k) == nil && r.have.Bucket(bucketCommits).Get(k) != nil {
			r.add = append(r.add, op{kind: recExplain, merge: &id, digest: root})
		}
	}
}

// tags restores tags with whether their changes are unsynced.
func (r *oldRows) tags() {
	names := map[string]bool{}
	for _, tx := range []index.Tx{r.have, r.want} {
		for _, b := range []string{bucketTags, bucketNewTags} {
			for k := range rowsOf(tx, b) {
				names[string(k)] = true
			}
		}
	}
	for name := range names {
		k := []byte(name)
		tag, news := r.have.Bucket(bucketTags).Get(k), r.have.Bucket(bucketNewTags).Get(k)
		if bytes.Equal(tag, r.want.Bucket(bucketTags).Get(k)) && bytes.Equal(news, r.want.Bucket(bucketNewTags).Get(k)) {
			continue
		}
		t := &tagChange{name: name, deleted: tag == nil}
		if tag != nil {
			id, err := parseTagRow(name, tag)
			if err != nil {
				r.whole = false
				continue
			}
			t.id = id
		}
		ops := []op{{kind: recTag, tag: t}}
		if news == nil {
			ops = append(ops, op{kind: recTagSynced, tag: t})
		}
		if tag == nil {
			r.take = append(r.take, ops...)
		} else {
			r.add = append(r.add, ops...)
		}
	}
}

func (r *oldRows) metadata() {
	have, want := r.have.Bucket(bucketMetadata), r.want.Bucket(bucketMetadata)
	for k, v := range rowsWith(have, nil) {
		if bytes.Equal(v, want.Get(k)) {
			continue
		}
		value, err := parseMetadataRow(string(k), v)
		if err != nil {
			r.whole = false
			continue
		}
		r.add = append(r.add, op{kind: recMetadata, sync: &syncOp{typ: string(k), value: append([]byte{}, value...)}})
	}
	for k := range rowsWith(want, nil) {
		if have.Get(k) == nil {
			r.take = append(r.take, op{kind: recMetadata, sync: &syncOp{typ: string(k), removed: true}})
		}
	}
}

// pieces restores the places and statuses of pieces of values.
func (r *oldRows) pieces() error {
	var places []PlacedPiece
	var unplaced, dropped []object.Digest
	for k, v := range rowsOf(r.have, bucketObjects) {
		d, ok := digestOf(k)
		row, good := parseObjectRow(v)
		if !ok || !good {
			r.whole = false
			continue
		}
		if d.Kind().IsNode() {
			continue
		}
		place, placed, err := readCloudRow(r.have, &d, row.number)
		if err != nil {
			r.whole = false
			continue
		}
		st, now, err := readPieceState(r.want, &d, nil)
		if err != nil {
			return err
		}
		local := hasKey(r.have.Bucket(bucketLocal), appendNumber(nil, row.number))
		isLocal := now.number != 0 && hasKey(r.want.Bucket(bucketLocal), appendNumber(nil, now.number))
		switch {
		case placed && (!st.placed || st.place != place):
			places = append(places, PlacedPiece{Digest: d, Place: place})
		case !placed && st.placed:
			unplaced = append(unplaced, d)
		case local && !isLocal && st.held:
			r.add = append(r.add, op{kind: recUse, digest: d})
		}
		if placed && !row.held && st.held {
			dropped = append(dropped, d)
		}
	}
	slices.SortFunc(places, func(a, b PlacedPiece) int {
		return cmp.Or(bytes.Compare(a.Place.Pack[:], b.Place.Pack[:]), cmp.Compare(a.Place.Entry, b.Place.Entry), cmp.Compare(a.Place.KeyIndex, b.Place.KeyIndex), a.Digest.Compare(b.Digest))
	})
	r.add = placeOps(r.add, places)
	r.take = digestOps(digestOps(r.take, recUnplaced, unplaced), recDropped, dropped)
	return nil
}
