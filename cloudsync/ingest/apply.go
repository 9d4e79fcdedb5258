package ingest

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// Entries share a batch of storage up to so many bytes and commits.
const (
	groupBytes   = 1 << 20
	groupCommits = 256
)

// rows are the metadata rows that an entry changes.
type rows struct {
	position format.Position
	since    uint64
	server   time.Time // zero: stays as it is
	packs    []byte    // value of the row of packs that are not announced
	changed  bool      // packs did
	adopted  bool      // see MetadataAdopted; not written
	lacks    bool      // values may have pieces that nobody has sent
	hadLacks bool      // that was known
	ahead    uint64    // the greater one of MetadataAhead and MetadataAheadBeside; 0 when there are no such rows

	retention *format.RetentionRow // nil: stays as it is
}

func (p *Page) readRows(ctx context.Context) (rows, error) {
	var r rows
	value, err := p.o.Store.Metadata(ctx, format.MetadataPosition)
	if err != nil {
		return r, fmt.Errorf("read the position: %w", err)
	}
	if value != nil {
		if r.position, err = format.ParsePosition(value); err != nil {
			return r, fmt.Errorf("read the position: %w", err)
		}
	}
	if value, err = p.o.Store.Metadata(ctx, format.MetadataSince); err != nil {
		return r, fmt.Errorf("read the length of the log: %w", err)
	}
	if len(value) == 8 {
		r.since = binary.BigEndian.Uint64(value)
	}
	if r.packs, err = p.o.Store.Metadata(ctx, format.MetadataPacks); err != nil {
		return r, fmt.Errorf("read the packs that are not announced: %w", err)
	}
	if value, err = p.o.Store.Metadata(ctx, MetadataAdopted); err != nil {
		return r, fmt.Errorf("read how the page began: %w", err)
	}
	r.adopted = value != nil
	if value, err = p.o.Store.Metadata(ctx, format.MetadataLacks); err != nil {
		return r, fmt.Errorf("read whether pieces are missing: %w", err)
	}
	r.lacks = value != nil
	r.hadLacks = r.lacks
	for _, typ := range []string{MetadataAhead, MetadataAheadBeside} {
		if value, err = p.o.Store.Metadata(ctx, typ); err != nil {
			return r, fmt.Errorf("read what has come ahead: %w", err)
		}
		if len(value) == 8 {
			r.ahead = max(r.ahead, binary.BigEndian.Uint64(value))
		}
	}
	return r, nil
}

// metadata returns the rows as they are to be written.
func (r *rows) metadata() []storage.Metadata {
	m := []storage.Metadata{
		{Type: format.MetadataPosition, Value: r.position.Encode()},
		{Type: format.MetadataSince, Value: binary.BigEndian.AppendUint64(nil, r.since)},
	}
	if !r.server.IsZero() {
		m = append(m, storage.Metadata{Type: format.MetadataServerTime, Value: binary.BigEndian.AppendUint64(nil, uint64(r.server.UnixNano()))})
	}
	if r.changed {
		m = append(m, storage.Metadata{Type: format.MetadataPacks, Value: r.packs})
	}
	if r.lacks && !r.hadLacks {
		m = append(m, storage.Metadata{Type: format.MetadataLacks, Value: []byte{1}})
	}
	if r.retention != nil {
		m = append(m, storage.Metadata{Type: format.MetadataRetention, Value: r.retention.Encode()})
	}
	if r.ahead > 0 && r.position.Number >= r.ahead {
		m = append(m, storage.Metadata{Type: MetadataAhead}, storage.Metadata{Type: MetadataAheadBeside})
	}
	return m
}

// Apply verifies entries and appends what they bring, in order, together with the position: an
// entry is one batch of storage, and small ones share one. The entries follow the page's position,
// and at is the position behind the last of them.
//
// When an entry is bad, or needs what is not to be had now, nothing of it is applied, while those
// before it are, and their position is durable. Commits that are here already, also such as were
// made here, are passed over: they count as synced. Apply blocks for the disk, and for the bucket
// where entries speak of packs.
//
// Errors: an *EntryError for an entry or pack that is bad; a *NeedsTreeError; a *NeedsPlacesError;
// base.ErrInvalid when the entries are not those behind the position; those of the bucket, of the
// disk and of ctx.
func (p *Page) Apply(ctx context.Context, entries []*format.Entry, at format.Position) (Result, error) {
	var res Result
	if len(entries) == 0 {
		return res, nil
	}
	last := entries[len(entries)-1]
	if at.Number != last.Number || at.Hash != last.Hash {
		return res, fmt.Errorf("apply entries up to %d with the position %d: %w", last.Number, at.Number, base.ErrInvalid)
	}
	r, err := p.readRows(ctx)
	if err != nil {
		return res, err
	}
	if at.Bucket != p.bucketID() || r.position.Number > 0 && r.position.Bucket != at.Bucket || entries[0].Number <= r.position.Number {
		return res, fmt.Errorf("apply entries from %d on at position %d: %w", entries[0].Number, r.position.Number, base.ErrInvalid)
	}
	r.position.Bucket = at.Bucket
	p.expect(entries)
	for len(entries) > 0 {
		n, done, err := p.applyGroup(ctx, entries, &r)
		res.add(done)
		if err != nil {
			return res, err
		}
		entries = entries[n:]
	}
	p.o.Progress.Settle()
	return res, nil
}

// expect tells of what entries bring. What a diff in an object of its own puts is not known yet.
func (p *Page) expect(entries []*format.Entry) {
	var values, bytes int64
	expect := func(d *format.Diff) {
		bytes += diffBytes(d)
		if d.Pack != (format.ID{}) {
			return
		}
		for r := format.ChangesOf(d.Inline); ; {
			c, err := r.Next()
			if err != nil {
				return // who applies it reports that
			}
			if !c.Removed {
				values++
			}
		}
	}
	for _, e := range entries {
		for i := range e.Body.Packs {
			if ref := &e.Body.Packs[i]; ref.Eager {
				bytes += int64(ref.Bytes)
			}
		}
		for i := range e.Body.Commits {
			expect(&e.Body.Commits[i].Diff)
		}
		for i := range e.Body.Explanations {
			expect(&e.Body.Explanations[i].Diff)
		}
	}
	p.o.Progress.Begin(values, bytes)
}

// applyGroup applies the first entries, as many as share a batch, and returns how many. With an
// error, those before the one that has it have been applied.
func (p *Page) applyGroup(ctx context.Context, entries []*format.Entry, r *rows) (int, Result, error) {
	var taken Result
	var anew *knownHistory
	if entries[0].Body.Renewed {
		var err error
		if anew, taken, err = p.beginsAnew(ctx, entries[0].Number); err != nil {
			return 0, Result{}, err
		}
		r.adopted = true // places that it tells of, others tell too
	}
	s := p.begin(*r)
	defer s.end()
	s.res, s.anew = taken, anew
	n := 0
	for n < len(entries) && (n == 0 || s.small && p.isSmall(entries[n])) {
		e := entries[n]
		if err := s.entry(ctx, e); err != nil {
			err = nameFault(p.o.Names.Entry(e.Number), err)
			if n == 0 {
				return 0, Result{}, err
			}
			// The batch has something of the bad entry by now. Those before it are made anew.
			s.end()
			done, res, again := p.applyGroup(ctx, entries[:n], r)
			if again != nil {
				err = again
			}
			return done, res, err
		}
		n++
		s.small = s.small && p.isSmall(e) && s.bytes < groupBytes && len(s.b.Commits) < groupCommits
	}
	if err := s.submit(ctx, s.rows.metadata()); err != nil {
		return 0, Result{}, fmt.Errorf("apply entries %d to %d: %w", entries[0].Number, entries[n-1].Number, err)
	}
	s.rows.server, s.rows.changed, s.rows.hadLacks, s.rows.retention = time.Time{}, false, s.rows.lacks, nil
	if s.rows.position.Number >= s.rows.ahead {
		s.rows.ahead = 0
	}
	*r = s.rows
	return n, s.res, nil
}

// isSmall reports whether an entry may share a batch with others: it has all that it brings in its
// body. An own one with tags may not: storage takes changes of others before own ones that are
// synced, and those of later entries count after them.
func (p *Page) isSmall(e *format.Entry) bool {
	b := e.Body
	if len(b.Packs) > 0 || b.Condemned != nil || b.Renewed || e.Stored > groupBytes || len(b.Tags) > 0 && p.isOwn(b) {
		return false
	}
	for i := range b.Commits {
		if b.Commits[i].Diff.Pack != (format.ID{}) {
			return false
		}
	}
	for i := range b.Explanations {
		if b.Explanations[i].Diff.Pack != (format.ID{}) {
			return false
		}
	}
	return true
}

// isOwn reports whether a body was made by this device.
func (p *Page) isOwn(b *format.Body) bool { return b.Device != (format.ID{}) && b.Device == p.o.Device }
