package outgoing

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// MetadataRefs is the type of the row that keeps the packs of the last checkpoint written here; see
// the package's comment.
const MetadataRefs = "packrefs"

const (
	rowVersion = 1
	// maxRefs bounds the row of the last checkpoint's packs. The bucket is asked about more.
	maxRefs = 32 << 10
	// condemnedTogether is how many pieces lose their place in one batch.
	condemnedTogether = 8 << 10
)

// pending are objects in packs/ that no entry has named yet.
type pending struct {
	packs []pendingPack
	diffs []pendingDiff
}

type pendingPack struct {
	ref    format.PackRef
	sample object.Digest // of its pieces
}

// diffKey says what a diff leads to, and from where.
type diffKey struct {
	explanation bool
	commit      commit.ID
	base        format.Base
}

type pendingDiff struct {
	key   diffKey
	id    format.ID
	bytes uint64 // of plaintext
}

// row returns the metadata row.
func (p *pending) row() storage.Metadata {
	m := storage.Metadata{Type: format.MetadataPacks}
	if len(p.packs) > 0 || len(p.diffs) > 0 {
		m.Value = p.encode()
	}
	return m
}

func (p *pending) encode() []byte {
	b := binary.AppendUvarint([]byte{rowVersion}, uint64(len(p.packs)))
	for i := range p.packs {
		b = appendRef(b, &p.packs[i].ref)
		b = append(b, p.packs[i].sample[:]...)
	}
	b = binary.AppendUvarint(b, uint64(len(p.diffs)))
	for i := range p.diffs {
		d := &p.diffs[i]
		b = append(b, boolByte(d.key.explanation))
		b = append(b, d.key.commit[:]...)
		b = append(b, boolByte(!d.key.base.Empty))
		if !d.key.base.Empty {
			b = append(b, d.key.base.Commit[:]...)
		}
		b = append(b, d.id[:]...)
		b = binary.AppendUvarint(b, d.bytes)
	}
	return b
}

func boolByte(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func appendRef(b []byte, r *format.PackRef) []byte {
	b = append(b, r.ID[:]...)
	b = binary.AppendUvarint(b, r.Bytes)
	b = binary.AppendUvarint(b, uint64(r.Pieces))
	return append(b, boolByte(r.Eager))
}

// rowReader reads rows of this package. After bad is set all its methods return zero values.
type rowReader struct {
	row string
	b   []byte
	bad bool
}

func newRowReader(row string, b []byte) (*rowReader, error) {
	if b[0] != rowVersion {
		return nil, &base.FormatError{What: "row " + row, Found: uint64(b[0]), Supported: rowVersion}
	}
	return &rowReader{row: row, b: b[1:]}, nil
}

func (r *rowReader) end() error {
	if r.bad || len(r.b) > 0 {
		return &base.CorruptError{Where: "page.db row sync_metadata/", Key: r.row, Got: "bad value"}
	}
	return nil
}

func (r *rowReader) take(n int) []byte {
	if r.bad || len(r.b) < n {
		r.bad = true
		return make([]byte, n)
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *rowReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 || n > 1 && r.b[n-1] == 0 {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *rowReader) bool() bool {
	v := r.take(1)[0]
	r.bad = r.bad || v > 1
	return v == 1
}

// count reads the length of a list whose items have at least min bytes.
func (r *rowReader) count(min int) int {
	n := r.uvarint()
	if n > uint64(len(r.b)/min) {
		r.bad = true
	}
	if r.bad {
		return 0
	}
	return int(n)
}

func (r *rowReader) ref() format.PackRef {
	ref := format.PackRef{ID: format.ID(r.take(16)), Bytes: r.uvarint()}
	n := r.uvarint()
	r.bad = r.bad || n > format.MaxPackPieces || ref.Bytes > format.MaxPackObjectBytes
	ref.Pieces, ref.Eager = uint32(n), r.bool()
	return ref
}

// parsePending reads what encode wrote; nil stands for no row.
func parsePending(b []byte) (pending, error) {
	var p pending
	if len(b) == 0 {
		return p, nil
	}
	r, err := newRowReader(format.MetadataPacks, b)
	if err != nil {
		return p, err
	}
	for range r.count(16 + 3 + object.DigestSize) {
		p.packs = append(p.packs, pendingPack{r.ref(), object.Digest(r.take(object.DigestSize))})
	}
	for range r.count(1 + commit.IDSize + 1 + 16 + 1) {
		d := pendingDiff{key: diffKey{explanation: r.bool(), commit: commit.ID(r.take(commit.IDSize))}}
		if d.key.base.Empty = !r.bool(); !d.key.base.Empty {
			d.key.base.Commit = commit.ID(r.take(commit.IDSize))
		}
		d.id, d.bytes = format.ID(r.take(16)), r.uvarint()
		r.bad = r.bad || d.bytes > format.MaxDiffBytes
		p.diffs = append(p.diffs, d)
	}
	return p, r.end()
}

func encodeRefs(refs []format.PackRef) []byte {
	b := binary.AppendUvarint([]byte{rowVersion}, uint64(len(refs)))
	for i := range refs {
		b = appendRef(b, &refs[i])
	}
	return b
}

func parseRefs(b []byte) ([]format.PackRef, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r, err := newRowReader(MetadataRefs, b)
	if err != nil {
		return nil, err
	}
	var refs []format.PackRef
	for range r.count(16 + 3) {
		refs = append(refs, r.ref())
	}
	return refs, r.end()
}

// refs returns what a body announces.
func (p *pending) refs() []format.PackRef {
	var refs []format.PackRef
	for i := range p.packs {
		refs = append(refs, p.packs[i].ref)
	}
	return refs
}

func (p *pending) announces(id format.ID) bool {
	return slices.ContainsFunc(p.packs, func(q pendingPack) bool { return q.ref.ID == id })
}

// diff returns the object that was uploaded for key.
func (p *pending) diff(key diffKey) (pendingDiff, bool) {
	i := slices.IndexFunc(p.diffs, func(d pendingDiff) bool { return d.key == key })
	if i < 0 {
		return pendingDiff{}, false
	}
	return p.diffs[i], true
}

// pendingDiffOf returns the object that was uploaded for the diff of a commit, from whatever base.
func (p *Page) pendingDiffOf(id commit.ID) (pendingDiff, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.IndexFunc(p.pending.diffs, func(d pendingDiff) bool { return d.key.commit == id && !d.key.explanation })
	if i < 0 {
		return pendingDiff{}, false
	}
	return p.pending.diffs[i], true
}

// pendingDiffs is how many diffs wait for their commits.
func (p *Page) pendingDiffs() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.pending.diffs)
}

// settled returns what is left of p once an entry with the body counts.
func (p *pending) settled(b *format.Body) pending {
	announced := map[format.ID]bool{}
	for i := range b.Packs {
		announced[b.Packs[i].ID] = true
	}
	sent := map[commit.ID]bool{}
	for i := range b.Commits {
		sent[b.Commits[i].Commit.ID] = true
	}
	var rest pending
	for _, q := range p.packs {
		if !announced[q.ref.ID] {
			rest.packs = append(rest.packs, q)
		}
	}
	for _, d := range p.diffs {
		if !sent[d.key.commit] {
			rest.diffs = append(rest.diffs, d)
		}
	}
	return rest
}

// Announced takes what an entry of this device's own brings out of the value of the row of packs,
// for an entry that was appended by a process that ended before it knew. It returns the new value,
// nil for none, and which packs of the entry stood in the row: their places are recorded. row is
// not retained. Errors: *base.CorruptError, *base.FormatError.
func Announced(row []byte, b *format.Body) (value []byte, recorded []format.ID, err error) {
	p, err := parsePending(row)
	if err != nil {
		return nil, nil, err
	}
	for i := range b.Packs {
		if id := b.Packs[i].ID; p.announces(id) {
			recorded = append(recorded, id)
		}
	}
	rest := p.settled(b)
	return rest.row().Value, recorded, nil
}

// loadPending reads the row anew: a change of the bucket may have removed it, and an entry may have
// condemned what it lists. unsynced are the commits for which diffs are kept.
func (p *Page) loadPending(ctx context.Context, unsynced []commit.ID) error {
	v, err := p.o.Store.Metadata(ctx, format.MetadataPacks)
	if err != nil {
		return fmt.Errorf("read row of packs: %w", err)
	}
	read, err := parsePending(v)
	if err != nil {
		return fmt.Errorf("read row of packs: %w", err)
	}
	if len(read.diffs) > 0 {
		wanted := make(map[commit.ID]bool, len(unsynced))
		for _, id := range unsynced {
			wanted[id] = true
		}
		read.diffs = slices.DeleteFunc(read.diffs, func(d pendingDiff) bool { return !wanted[d.key.commit] })
	}
	if read.packs, err = p.placed(ctx, read.packs); err != nil {
		return err
	}
	if read.packs, err = p.there(ctx, read); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending = read
	return nil
}

// Doubt makes the next call look whether the packs that no entry has named yet are still in the
// bucket. It is to be called after an error, and when the last call is long ago: the bucket may be
// in an older state since. Those of an earlier life of the process are always looked for.
func (p *Page) Doubt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sure = nil
}

// uploadedNow notes that a pack is in the bucket.
func (p *Page) uploadedNow(id format.ID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sure == nil {
		p.sure = map[format.ID]bool{}
	}
	p.sure[id] = true
}

// there returns the packs of q that are in the bucket, as they were uploaded; it asks about those
// only that were not uploaded since the last doubt. What stood in the others is local again,
// durably, with the index pieces of all packs of q, which may list such (I2).
func (p *Page) there(ctx context.Context, q pending) ([]pendingPack, error) {
	p.mu.Lock()
	var ask []format.PackRef
	for i := range q.packs {
		if ref := q.packs[i].ref; !p.sure[ref.ID] {
			ask = append(ask, ref)
		}
	}
	p.mu.Unlock()
	absent := make([]bool, len(ask))
	err := each(ctx, len(ask), func(ctx context.Context, i int) error {
		name := p.o.Names.Pack(ask[i].ID)
		size, _, err := look(ctx, p.o.Bucket, name)
		absent[i] = errors.Is(err, base.ErrNotFound) || err == nil && uint64(size) != ask[i].Bytes
		if err != nil && !absent[i] {
			return fmt.Errorf("look for pack %s: %w", name, err)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	lost := map[format.ID]bool{}
	for i := range ask {
		if absent[i] {
			lost[ask[i].ID] = true
		}
	}
	if len(lost) > 0 {
		if err := p.lose(ctx, &q, lost); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sure = make(map[format.ID]bool, len(q.packs))
	for i := range q.packs {
		p.sure[q.packs[i].ref.ID] = true
	}
	return q.packs, nil
}

// lose takes packs out of q and of its row, and the places of what stood in them.
func (p *Page) lose(ctx context.Context, q *pending, lost map[format.ID]bool) error {
	waiting := map[format.ID]bool{}
	for i := range q.packs {
		waiting[q.packs[i].ref.ID] = true
	}
	placed, err := p.o.Store.PlacedIn(ctx, func(c storage.CloudPlace) bool { return waiting[c.Pack] })
	if err != nil {
		return fmt.Errorf("look at the pieces of packs that are gone: %w", err)
	}
	q.packs = slices.DeleteFunc(q.packs, func(k pendingPack) bool { return lost[k.ref.ID] })
	var condemned []object.Digest
	for i := range placed {
		if lost[placed[i].Place.Pack] || placed[i].Digest.Kind().IsIndex() {
			condemned = append(condemned, placed[i].Digest)
		}
	}
	p.lookLocal = true // what a checkpoint has moved belongs to no unsynced commit
	// The row comes last: packs that stand in it without pieces are passed over.
	for some := range slices.Chunk(condemned, condemnedTogether) {
		if err := p.submit(ctx, &storage.SyncBatch{Condemned: some}); err != nil {
			return fmt.Errorf("take the places of %d pieces in packs that are gone: %w", len(condemned), err)
		}
	}
	if err := p.submit(ctx, &storage.SyncBatch{Metadata: []storage.Metadata{q.row()}}); err != nil {
		return fmt.Errorf("forget packs that are gone: %w", err)
	}
	return nil
}

// submit makes a batch durable.
func (p *Page) submit(ctx context.Context, b *storage.SyncBatch) error {
	pending, err := p.o.Store.SubmitSync(ctx, nil, b)
	if err != nil {
		return err
	}
	return pending.Wait()
}

// placed returns those of packs in which pieces still stand. Others were condemned, or all their
// pieces have later places: nobody needs to hear of them.
func (p *Page) placed(ctx context.Context, packs []pendingPack) ([]pendingPack, error) {
	doubtful := map[format.ID]bool{}
	for _, q := range packs {
		st, err := p.o.Store.PieceState(q.sample)
		if err != nil {
			return nil, fmt.Errorf("look at the pieces of pack %x: %w", q.ref.ID, err)
		}
		if !st.Synced || format.ID(st.Place.Pack) != q.ref.ID {
			doubtful[q.ref.ID] = true
		}
	}
	if len(doubtful) == 0 {
		return packs, nil
	}
	found, err := p.o.Store.PlacedIn(ctx, func(c storage.CloudPlace) bool { return doubtful[c.Pack] })
	if err != nil {
		return nil, fmt.Errorf("look at the pieces of packs: %w", err)
	}
	for i := range found {
		delete(doubtful, found[i].Place.Pack)
	}
	return slices.DeleteFunc(packs, func(q pendingPack) bool { return doubtful[q.ref.ID] }), nil
}
