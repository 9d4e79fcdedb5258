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
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
	"github.com/ledgerd/ledger/storage/segment"
)

// SalvageOptions control Salvage.
type SalvageOptions struct {
	// DryRun changes nothing: the report says what would be done.
	DryRun bool
	// Resync are types of metadata to remove if batches with unknown content are gone, so that sync
	// reads the bucket's content again.
	Resync []string
	// Again says that the bucket has the page. If not all losses are known, commits that build on
	// lost ones are given up, since they will be received again with their ancestors. Their content
	// that only this device has stays as a new commit.
	Again bool
}

// SalvageReport lists the damage of a log and its consequences.
type SalvageReport struct {
	// Damage are the damaged parts, by segment and offset. When there are none nothing was done,
	// and the rest is empty.
	Damage []segment.Damage
	// Restored counts rows taken from page.db: commits, tags, statuses, places and metadata.
	Restored int
	// Pieces are lost pieces of values that something refers to. Those with Placed set are in the
	// bucket.
	Pieces []LostPiece
	// Trees are commits whose trees lack a part, newest first.
	Trees []LostTree
	// Explanations are merges whose explanations are lost.
	Explanations []commit.ID
	// Again counts commits given up since they will be received again (see SalvageOptions).
	Again int
	// Commits are lost commits that other commits or tags name. Tags are the names of tags lost
	// with them.
	Commits []commit.ID
	Tags    []string
	// Unknown says that there were lost batches of unknown content.
	Unknown bool
	// More says that a list is truncated.
	More bool
}

// LostTree is a commit whose tree lacks a part. Unsynced says that the bucket does not have the
// commit.
type LostTree struct {
	Commit   commit.ID
	Unsynced bool
}

// LostPiece is a lost piece of a value. Key and Commit are the newest position of the value.
type LostPiece struct {
	Digest object.Digest
	Placed bool
	Commit commit.ID
	Key    []byte
}

// Salvage repairs the log of a page that is not open. Intact segments stay as they are. From
// damaged segments it copies forward each record that is verifiable by itself. Commits, tags,
// statuses, places and metadata are taken from page.db, up to its position, else from the last
// checkpoint, and then from intact later batches. They are written as a new checkpoint. Then the
// damaged segments are retired in one step, so that a crash leaves the page either as it was or
// repaired; the damaged bytes are set aside in torn/. Losses are marked: pieces in the bucket can
// be fetched, commits with holes in their trees count as treeless, so that BuildTree of package
// cloudsync mends them, and the report lists permanent losses. A repaired page passes Check.
//
// The next Open rebuilds page.db. Errors: base.ErrNotFound for a page that does not exist,
// base.ErrUnsupported, those of the disk and of ctx.
func Salvage(ctx context.Context, o Options, so SalvageOptions) (report *SalvageReport, err error) {
	o = o.withDefaults()
	if _, err := o.FS.Stat(o.Dir); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			err = base.ErrNotFound
		}
		return nil, fmt.Errorf("repair page %x: %w", o.Page, err)
	}
	v := &salvage{o: o, so: so, report: &SalvageReport{}}
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

	kept  map[uint64][]segment.Record // the remaining records of damaged batches, without payloads, by number
	known map[commit.ID]bool          // commits that intact batches name
	final []op                        // records that mark losses
	prune []op                        // each in a batch of its own
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
		return nil
	}
	v.s = &Store{o: v.o, log: v.log.Log(), cache: NewNodeCache(4 << 20), cacheSalt: newSalt(), folding: newFolding()}
	v.s.over = newOverlay(&v.s.mu)
	if err := v.findKnown(ctx); err != nil {
		return err
	}
	err = v.fold(ctx, v.old != nil)
	if err != nil && v.old != nil && errors.Is(err, base.ErrCorrupt) { // page.db is damaged, too
		err = v.fold(ctx, false)
	}
	return err
}

// provesItself reports whether a record of an intact batch has the content that it claims.
func provesItself(r segment.Record) bool {
	o, err := parseRecord(r)
	if err != nil {
		return errors.Is(err, base.ErrUnsupported) // the next open reports it
	}
	return o.kind != recPiece && o.kind != recNode || o.digest.Verify(o.content) == nil
}

// findKnown finds the commits that intact batches name, and whether anything of unknown content is
// lost.
func (v *salvage) findKnown(ctx context.Context) error {
	v.known = map[commit.ID]bool{}
	for _, d := range v.report.Damage {
		v.report.Unknown = v.report.Unknown || !v.old.reflects(d)
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
			} else if !o.tag.Removed {
				v.known[o.tag.Commit] = true
			}
		}
		return nil
	})
}

// fold builds the index of the rest of the log, beginning with the metadata of page.db if that is
// usable, finds the losses, and writes the repaired log.
func (v *salvage) fold(ctx context.Context, useOld bool) error {
	db, remove, err := v.s.scratchIndex()
	if err != nil {
		return err
	}
	defer remove()
	v.final, v.prune, v.kept = nil, nil, map[uint64][]segment.Record{}
	*v.report = SalvageReport{Damage: v.report.Damage, Unknown: v.report.Unknown}
	return errors.Join(v.foldInto(ctx, db, useOld), db.Close())
}

func (v *salvage) foldInto(ctx context.Context, db index.DB, useOld bool) error {
	st, err := initIndex(db, v.o.Identity)
	if err != nil {
		return err
	}
	b := newRebuilder(v.s, db, &st)
	each := func(skip bool, fn func(segment.BatchInfo, []op) error) error {
		return v.log.Each(ctx, func(p segment.Part) error {
			if p.Damaged == skip && skip {
				return nil
			}
			ops, err := v.ops(p)
			if err != nil || p.Damaged && len(ops) == 0 {
				return err
			}
			return fn(p.Info, ops)
		})
	}
	if useOld {
		b.baseUpTo = v.old.st.position.Number
		b.baseRows = func(put func(string, []byte, []byte) error) error {
			return v.old.rows(func(family string, k, v2 []byte) error {
				v.report.Restored++
				return put(family, k, v2)
			})
		}
	}
	// Records of damaged batches that only other records can verify are examined after those.
	if err := b.survey(ctx, v.log.Last(), func(fn func(segment.BatchInfo, []op) error) error { return each(true, fn) }); err != nil {
		return err
	}
	if err := v.log.Each(ctx, func(p segment.Part) error { return v.keepOf(ctx, b, p) }); err != nil {
		return err
	}
	if err := b.settleWaiting(); err != nil {
		return err
	}
	if b.baseRows == nil && len(b.rowsAt) > 0 { // the end of the checkpoint is damaged
		first := b.rowsAt[0].number
		b.useCheckpoint(&op{number: v.log.Last(), sync: &syncOp{checkpoint: checkpoint{upTo: first - 1, first: first}}})
	}
	if err := each(false, func(info segment.BatchInfo, ops []op) error { return b.add(ctx, ops, info) }); err != nil {
		return err
	}
	if err := b.end(ctx); err != nil {
		return err
	}
	if err := v.survey(ctx, b); err != nil {
		return err
	}
	if v.so.DryRun {
		return nil
	}
	if err := v.mark(ctx, b); err != nil {
		return err
	}
	// Nodes that cannot be built must not stay: they might become buildable one day, so that what
	// is held would depend on time.
	for i := range b.waiting {
		v.log.Leave(b.waiting[i].place.Segment)
	}
	return v.write(ctx, b)
}

// mark records the losses in the index.
func (v *salvage) mark(ctx context.Context, b *rebuilder) error {
	next := v.log.Last()
	batches := [][]op{v.final}
	for i := range v.prune {
		batches = append(batches, v.prune[i:i+1])
	}
	for _, ops := range batches {
		if next++; len(ops) == 0 {
			continue
		}
		info := segment.BatchInfo{Number: next, Segment: 1<<32 - 1, Start: emptyBytes, End: 2 * emptyBytes} // it has no real place
		if err := b.add(ctx, ops, info); err != nil {
			return err
		}
	}
	return b.flush(ctx)
}

// write copies the rest of damaged segments, writes a checkpoint, and retires the segments.
func (v *salvage) write(ctx context.Context, rebuilt *rebuilder) error {
	last := v.log.Last()
	if err := v.log.Begin(); err != nil {
		return err
	}
	stream := v.log.Log().Main()
	add := func(b *segment.Batch, _ []op) (uint64, error) {
		done, err := stream.Append(b)
		return done.Number, err
	}
	y := newCopying(func(d object.Digest) (*fb.Node, error) { return v.s.loadNode(ctx, d, rebuilt, 0) },
		func(b *segment.Batch, _ []op) error {
			_, err := add(b, nil)
			return err
		})
	err := rebuilt.db.View(func(tx index.Tx) error {
		err := v.log.Each(ctx, func(p segment.Part) (err error) {
			if !p.Leaves {
				return nil
			}
			recs := p.Records
			if p.Damaged {
				recs, err = v.load(v.kept[p.Info.Number])
			}
			for i := 0; err == nil && i < len(recs); i++ {
				err = v.copy(tx, y, recs[i])
			}
			return err
		})
		if err == nil {
			err = y.flush()
		}
		if err != nil {
			return err
		}
		return writeCheckpoint(tx, last, add)
	})
	if err == nil {
		err = v.log.End()
	}
	if err != nil {
		return fmt.Errorf("write what was salvaged: %w", err)
	}
	return v.removeOldIndex()
}

// copy copies the part of a record that the index needs.
func (v *salvage) copy(tx index.Tx, y *copying, r segment.Record) error {
	u := use{}
	var err error
	if u.o, err = parseRecord(r); err != nil || !u.o.stored() {
		return err
	}
	if err := u.judge(tx); err != nil {
		return err
	}
	return y.record(&u)
}

// ops returns the records of a batch, or the remaining ones of a damaged batch.
func (v *salvage) ops(p segment.Part) ([]op, error) {
	recs := p.Records
	if p.Damaged {
		var err error
		if recs, err = v.load(v.kept[p.Info.Number]); err != nil {
			return nil, err
		}
	}
	// A record of the place may be lost: the content stays.
	recs = slices.DeleteFunc(slices.Clone(recs), func(r segment.Record) bool { return r.Kind == recDropped })
	return parseRecords(recs, p.Info)
}

// keepOf finds the remaining records of a damaged batch.
func (v *salvage) keepOf(ctx context.Context, b *rebuilder, p segment.Part) error {
	if !p.Damaged {
		return nil
	}
	k := &keeping{v: v, b: b, mine: map[object.Digest]op{}, commits: map[commit.ID]bool{}, covered: v.old.reflects(segment.Damage{Segment: p.Info.Segment, End: p.Info.End})}
	kept, err := k.choose(ctx, p)
	if err != nil {
		return err
	}
	v.kept[p.Info.Number] = kept
	full, err := v.load(kept)
	if err != nil {
		return err
	}
	ops, err := parseRecords(full, p.Info)
	if err != nil {
		return err
	}
	return b.noteNodes(b.nodesOf(p.Info, ops))
}

// load reads the payloads of remaining records.
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
	mine    map[object.Digest]op // that stay and store nodes
	commits map[commit.ID]bool   // that stay
	covered bool                 // the old index covers the batch: it supplies what is not verifiable by itself
}

// locate finds the remaining nodes of the batch, and nodes that the log has before it.
func (k *keeping) locate(d *object.Digest, dead bool) (located, bool, error) {
	if o, ok := k.mine[*d]; ok {
		return o.located(), true, nil
	}
	return k.b.locate(d, dead)
}

func (k *keeping) choose(ctx context.Context, p segment.Part) ([]segment.Record, error) {
	type candidate struct {
		rec segment.Record
		o   op
	}
	var all []candidate
	seen := map[segment.Place]bool{}
	bad := false // a verifiable record is damaged, which explains the damage of the batch
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
		switch c.o.kind {
		case recNode, recDelta:
			o := c.o
			o.content = slices.Clone(o.content)
			k.mine[o.digest] = o
		case recCommit:
			k.commits[c.o.commit.ID] = true
		}
		out = append(out, c.rec)
	}
	return out, nil
}

// keep decides about one record. Pieces and whole nodes are verified already. explained says that
// the damage is in another record.
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
	case recCommit:
		if k.covered {
			return false, nil
		}
		if _, held, err := k.locate(&o.commit.Root, false); err != nil || !held && o.commit.Root != btree.EmptyRoot {
			return false, err
		}
		return explained || k.v.known[o.commit.ID], nil
	case recRows, recComplete:
		return explained, nil
	case recExplain:
		return explained && k.commits[*o.merge], nil
	case recTag, recTagReceived, recTagSynced, recPlaces, recUnplaced, recStatus, recMetadata:
		return explained && !k.covered, nil
	}
	return false, nil
}

// passDamage returns nil for an error that is only damage.
func passDamage(err error) error {
	if errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrNotFound) || errors.Is(err, base.ErrNeedsFetch) {
		return nil
	}
	return err
}

// removeOldIndex removes page.db, which points into what was retired.
func (v *salvage) removeOldIndex() error {
	if err := v.old.close(); err != nil {
		return err
	}
	if v.o.MemoryIndex != nil {
		return nil // Open rebuilds it
	}
	if err := os.Remove(filepath.Join(v.o.Dir, indexName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove page.db: %w", err)
	}
	return v.o.FS.SyncDir(v.o.Dir)
}
