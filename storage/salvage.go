package storage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// SalvageOptions say how Salvage goes about it.
type SalvageOptions struct {
	// DryRun says that nothing is changed: the report says what would be.
	DryRun bool
	// Resync are types of metadata that are removed if batches are gone of which nobody knows any
	// more what was in them: so that sync reads anew what the bucket has.
	Resync []string
	// Again says that the bucket has the page: commits that build on what is gone are given up if
	// it is not known all that is gone, since they come again with what they build on. What only
	// this device has of them stays as a new commit.
	Again bool
}

// SalvageReport says what was damaged in a log and what has become of it.
type SalvageReport struct {
	// Damage are the damaged parts, by segment and offset. With none nothing was done, and the rest
	// is empty.
	Damage []segment.Damage
	// Restored counts records that were written anew from page.db: commits, tags, statuses, places
	// and metadata.
	Restored int
	// Pieces are pieces of values that are not here any more and that something refers to. Those
	// with Placed set are in the bucket.
	Pieces []LostPiece
	// Trees are commits of which a part of the tree is not here any more, newest first.
	Trees []LostTree
	// Explanations are merges whose explanations are gone.
	Explanations []commit.ID
	// Again counts commits that were given up since they come again (see SalvageOptions).
	Again int
	// Commits are those that are gone though others, or tags, name them. Tags are the names of tags
	// that are gone for that.
	Commits []commit.ID
	Tags    []string
	// Unknown says that there were batches of which nobody knows any more what was in them.
	Unknown bool
	// More says that a list is longer than is told.
	More bool
}

// LostTree is a commit of which a part of the tree is not here any more. Unsynced says that the
// bucket does not have the commit.
type LostTree struct {
	Commit   commit.ID
	Unsynced bool
}

// LostPiece is a piece of a value that is not here any more. Key and Commit are one place where the
// value stands, the newest.
type LostPiece struct {
	Digest object.Digest
	Placed bool
	Commit commit.ID
	Key    []byte
}

// Salvage repairs the log of a page that nobody has open. What is whole stays, byte for byte. Of
// damaged batches it keeps each record that proves itself; commits, tags, statuses, places and
// metadata come from page.db, as far as that reflects them. All of that goes to one new segment
// that takes the place of the damaged ones in one step, so that a crash leaves the page as it was
// or repaired; the damaged bytes are set aside in torn/. What could not be saved is marked: pieces
// in the bucket can be fetched, commits with holes in their trees count as treeless, so that
// BuildTree of package cloudsync mends them, and what is gone for good is told. A page that was
// repaired passes Check.
//
// page.db is made anew by the next Open. Errors: base.ErrNotFound for a page that is not there,
// base.ErrUnsupported, those of the disk and of ctx.
func Salvage(ctx context.Context, o Options, so SalvageOptions) (report *SalvageReport, err error) {
	o = o.withDefaults()
	if _, err := o.FS.Stat(o.Dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = base.ErrNotFound
		}
		return nil, fmt.Errorf("repair page %x: %w", o.Page, err)
	}
	v := &salvage{o: o, so: so, report: &SalvageReport{}, kept: map[uint64][]segment.Record{}}
	if err := v.run(ctx); err != nil {
		return nil, fmt.Errorf("repair page %x: %w", o.Page, err)
	}
	return v.report, nil
}

// salvage is one call of Salvage.
type salvage struct {
	o      Options
	so     SalvageOptions
	report *SalvageReport
	log    *segment.Salvage
	s      *Store // reads records of the damaged log
	old    *oldIndex

	kept     map[uint64][]segment.Record   // what stays of damaged batches, without payloads, by number
	useless  map[segment.Place]bool        // records of nodes in whole batches that cannot be made any more: were they to stay, they might be one day, and places would depend on when
	explains map[commit.ID][]segment.Place // records of explanations in whole batches
	known    map[commit.ID]bool            // commits that whole batches name
	restored []op                          // from the old index
	at       uint64                        // number of the batch to which they go
	slot     bool                          // that is a damaged one
	final    []op                          // that mark what is gone
	prune    []op                          // each in a batch of its own
}

func (v *salvage) run(ctx context.Context) (err error) {
	v.old = openOldIndex(v.o)
	defer func() { err = errors.Join(err, v.old.close()) }()
	so := v.o.segmentOptions()
	if v.log, err = segment.OpenSalvage(ctx, so, v.old.position(), provesItself); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.log.Close()) }()
	if v.report.Damage = v.log.Damage(); len(v.report.Damage) == 0 {
		if v.so.DryRun {
			return nil
		}
		return v.log.Replace(ctx, nil, nil)
	}
	v.s = &Store{o: v.o, log: v.log.Log(), cache: NewNodeCache(4 << 20), cacheSalt: nextSalt.Add(1) * 0x9e3779b97f4a7c15, over: newOverlay(), numbers: &numberCache{},
		foldTxRows: foldTxRows, maxTouches: maxTouches, minDeletions: minDeletions}
	if err := v.findKnown(ctx); err != nil {
		return err
	}
	if v.old != nil {
		if err := v.fold(ctx, v.old.st.position.Number, v.compareOld); err != nil {
			return err
		}
	}
	v.useless, v.explains = map[segment.Place]bool{}, map[commit.ID][]segment.Place{}
	v.s.absent = func(o *op) {
		if o.place.Length > 0 {
			v.useless[o.place] = true
		}
	}
	if err := v.fold(ctx, 0, func(b *rebuilder) error { return v.survey(ctx, b) }); err != nil || v.so.DryRun {
		return err
	}
	for place := range v.useless {
		if err := v.log.Rewrite(place.Segment); err != nil {
			return err
		}
	}
	return v.replace(ctx)
}

// provesItself reports whether a record of a whole batch is what it says.
func provesItself(r segment.Record) bool {
	o, err := parseRecord(r)
	if err != nil {
		return errors.Is(err, base.ErrUnsupported) // the next open says so
	}
	return o.kind != recPiece && o.kind != recNode || o.digest.Verify(o.content) == nil
}

// findKnown finds out which commits whole batches name, and whether something is gone of which
// nobody knows.
func (v *salvage) findKnown(ctx context.Context) error {
	v.known = map[commit.ID]bool{}
	for _, d := range v.report.Damage {
		if !v.old.reflects(d) {
			v.report.Unknown = true
		} else if d.Number != 0 && d.Number <= v.old.st.position.Number && d.Number > v.at {
			v.at, v.slot = d.Number, true
		}
	}
	if v.old != nil { // all that is gone came no later than this
		if free := v.log.Free(v.old.st.position.Number); free > v.at {
			v.at, v.slot = free, false
		}
	}
	return v.log.Each(ctx, func(p segment.Part) error {
		if p.Damaged {
			return nil
		}
		for _, r := range p.Records {
			if r.Kind != recCommit && r.Kind != recTag && r.Kind != recTagReceived {
				continue
			}
			o, err := parseRecord(r)
			if err != nil {
				return err
			}
			if o.commit != nil {
				for _, id := range o.commit.Parents {
					v.known[id] = true
				}
			} else if !o.tag.deleted {
				v.known[o.tag.id] = true
			}
		}
		return nil
	})
}

// errEnoughBatches ends a fold.
var errEnoughBatches = errors.New("enough batches")

// fold folds what is left of the log into an empty index, up to a number if that is not 0, and
// calls then with it. The restored records are in it once there are such.
func (v *salvage) fold(ctx context.Context, upTo uint64, then func(*rebuilder) error) error {
	db, remove, err := v.s.scratchIndex()
	if err != nil {
		return err
	}
	defer remove()
	err = v.foldTo(ctx, db, upTo, then)
	return errors.Join(err, db.Close())
}

func (v *salvage) foldTo(ctx context.Context, db index.DB, upTo uint64, then func(*rebuilder) error) error {
	st, err := initIndex(db, v.o.Page)
	if err != nil {
		return err
	}
	b := newRebuilder(v.s, db, &st)
	waiting := len(v.restored) > 0
	err = v.log.Each(ctx, func(p segment.Part) error {
		if upTo > 0 && p.Info.Number > upTo {
			return errEnoughBatches
		}
		if waiting && !v.slot && v.at > 0 && p.Info.Number > v.at {
			waiting = false
			if err := b.add(ctx, slices.Clone(v.restored), freeBatch(v.at)); err != nil {
				return err
			}
		}
		ops, err := v.ops(ctx, b, p)
		if err != nil {
			return err
		}
		if waiting && v.slot && p.Damaged && p.Info.Number == v.at {
			waiting = false
			ops = append(ops, v.restored...)
		}
		if p.Damaged && len(ops) == 0 {
			return nil
		}
		return b.add(ctx, ops, p.Info)
	})
	if err == nil && waiting {
		err = b.add(ctx, slices.Clone(v.restored), freeBatch(v.log.Last()+1))
	}
	if err != nil && !errors.Is(err, errEnoughBatches) {
		return err
	}
	if err := b.flush(ctx); err != nil {
		return err
	}
	return then(b)
}

// freeBatch describes a batch that lies nowhere yet.
func freeBatch(number uint64) segment.BatchInfo {
	return segment.BatchInfo{Number: number, Segment: 1<<32 - 1, Start: emptyBytes, End: 2 * emptyBytes}
}

// ops returns the records of a batch, or those that stay of a damaged one.
func (v *salvage) ops(ctx context.Context, b *rebuilder, p segment.Part) ([]op, error) {
	if !p.Damaged {
		return v.parse(p.Records, p.Info)
	}
	recs, done := v.kept[p.Info.Number]
	if !done {
		if err := b.flush(ctx); err != nil {
			return nil, err
		}
		k := &keeping{v: v, b: b, mine: map[object.Digest]op{}, covered: v.old.reflects(segment.Damage{Segment: p.Info.Segment, End: p.Info.End})}
		kept, err := k.choose(ctx, p)
		if err != nil {
			return nil, err
		}
		v.kept[p.Info.Number] = kept
		recs = kept
	}
	full, err := v.load(recs)
	if err != nil {
		return nil, err
	}
	return v.parse(full, p.Info)
}

// parse parses records, and notes where explanations are.
func (v *salvage) parse(recs []segment.Record, info segment.BatchInfo) ([]op, error) {
	ops, err := parseRecords(recs, info)
	for i := range ops {
		if o := &ops[i]; o.kind == recExplain && v.explains != nil {
			v.explains[*o.merge] = append(v.explains[*o.merge], o.place)
		}
	}
	return ops, err
}

// load reads the payloads of records that are kept.
func (v *salvage) load(recs []segment.Record) ([]segment.Record, error) {
	out := slices.Clone(recs)
	for i := range out {
		var err error
		if out[i].Payload, err = v.log.Log().Read(out[i].Place, nil); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// keeping decides which records of one damaged batch stay.
type keeping struct {
	v       *salvage
	b       *rebuilder
	mine    map[object.Digest]op // that stay and store something
	covered bool                 // by the old index: what proves nothing by itself comes from there
}

// locate and base find what stays of the batch, and what the log has before it.
func (k *keeping) locate(d *object.Digest) (located, bool, error) {
	if o, ok := k.mine[*d]; ok {
		return o.located(), true, nil
	}
	return k.b.locate(d)
}

func (k *keeping) base(d *object.Digest) (located, bool, error) {
	if l, ok, err := k.locate(d); ok || err != nil {
		return l, ok, err
	}
	return k.b.base(d)
}

func (k *keeping) choose(ctx context.Context, p segment.Part) ([]segment.Record, error) {
	type candidate struct {
		rec segment.Record
		o   op
	}
	var all []candidate
	seen := map[segment.Place]bool{}
	bad := false // a record is damaged that proves itself: nothing else needs to be
	take := func(r segment.Record) {
		o, err := parseRecord(r)
		if err != nil || seen[r.Place] {
			bad = bad || err != nil
			return
		}
		if o.kind == recPiece || o.kind == recNode {
			if o.digest.Verify(o.content) != nil {
				bad = true
				return
			}
		}
		seen[r.Place] = true
		all = append(all, candidate{segment.Record{Kind: r.Kind, Place: r.Place}, o})
	}
	for _, r := range p.Records {
		take(r)
	}
	for _, r := range k.v.old.within(p.Info) {
		if payload, err := k.v.log.Log().Read(r.Place, nil); err == nil {
			r.Payload = payload
			take(r)
		}
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.rec.Place.Offset, b.rec.Place.Offset) })
	var out []segment.Record
	for i := range all {
		c := &all[i]
		ok, err := k.keep(ctx, &c.o, bad)
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		if c.o.stored() {
			o := c.o
			o.content = slices.Clone(o.content)
			k.mine[o.digest] = o
		}
		out = append(out, c.rec)
	}
	return out, nil
}

// keep decides about one record. What is stored as a piece or a whole node has proved itself.
// explained says that the damage is in another record.
func (k *keeping) keep(ctx context.Context, o *op, explained bool) (bool, error) {
	switch o.kind {
	case recPiece, recNode:
		return true, nil
	case recDelta:
		n, err := k.v.s.loadNode(ctx, *o.base, k, 1)
		if err != nil {
			return false, passDamage(err)
		}
		content, err := btree.ApplyDelta(n, o.content)
		return err == nil && o.digest.Verify(content) == nil, nil
	case recSplitNode:
		_, err := k.v.s.loadSplitNode(ctx, o.digest, k)
		return err == nil, passDamage(err)
	case recUse, recJournal:
		return true, nil // at worst, what is garbage stays
	case recCommit:
		if k.covered {
			return false, nil
		}
		if _, held, err := k.locate(&o.commit.Root); err != nil || !held && o.commit.Root != btree.EmptyRoot {
			return false, err
		}
		return explained || k.v.known[o.commit.ID], nil
	case recTag, recTagReceived, recTagSynced, recExplain, recPlaces, recUnplaced, recStatus, recMetadata:
		return explained && !k.covered, nil
	}
	return false, nil
}

// passDamage returns nil for what is only damage.
func passDamage(err error) error {
	if errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrNotFound) || errors.Is(err, base.ErrNeedsFetch) {
		return nil
	}
	return err
}

// maxRestoredBytes bounds what is written to one batch.
const maxRestoredBytes = 16 << 20

// replace writes the new segment.
func (v *salvage) replace(ctx context.Context) error {
	first := segment.NewBatch()
	rest := addOps(first, v.restored)
	here := v.restored[:len(v.restored)-len(rest)]
	var ahead []segment.Ahead
	next := v.log.Last() + 1
	append1 := func(b *segment.Batch) {
		ahead = append(ahead, segment.Ahead{Number: next, Batch: b})
		next++
	}
	if !v.slot && first.Len() > 0 {
		if v.at > 0 {
			ahead = append(ahead, segment.Ahead{Number: v.at, Batch: first})
		} else {
			append1(first)
		}
	}
	for rest = append(slices.Clone(rest), v.final...); len(rest) > 0; {
		b := segment.NewBatch()
		rest = addOps(b, rest)
		append1(b)
	}
	for i := range v.prune {
		b := segment.NewBatch()
		addOps(b, v.prune[i:i+1])
		append1(b)
	}
	append1(segment.NewBatch()) // the log goes on from here, whatever was lost at its end
	err := v.log.Replace(ctx, func(p segment.Part, out *segment.Batch) error {
		if !p.Damaged {
			for _, r := range p.Records {
				if !v.useless[r.Place] {
					out.Add(r.Kind, r.Payload)
				}
			}
			return nil
		}
		recs, err := v.load(v.kept[p.Info.Number])
		if err != nil {
			return err
		}
		for _, r := range recs {
			if !v.useless[r.Place] {
				out.Add(r.Kind, r.Payload)
			}
		}
		if v.slot && p.Info.Number == v.at {
			addOps(out, here)
		}
		return nil
	}, ahead)
	if err != nil {
		return err
	}
	return v.removeOldIndex()
}

// addOps adds records to a batch, and returns those for which there is no room.
func addOps(b *segment.Batch, ops []op) []op {
	for len(ops) > 0 && b.Bytes() < maxRestoredBytes && b.Len() < segment.MaxBatchRecords/2 {
		o := &ops[0]
		content := o.content
		if o.kind == recCommit {
			content = o.commit.Encode()
		}
		addRecord(b, o, content)
		ops = ops[1:]
	}
	return ops
}

// removeOldIndex removes page.db, which points into what was replaced.
func (v *salvage) removeOldIndex() error {
	if err := v.old.close(); err != nil {
		return err
	}
	if v.o.MemoryIndex != nil {
		return nil // Open finds out
	}
	if err := os.Remove(filepath.Join(v.o.Dir, indexName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove page.db: %w", err)
	}
	return v.o.FS.SyncDir(v.o.Dir)
}
