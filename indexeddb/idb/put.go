package idb

import (
	"bytes"
	"context"
	"errors"
	"math"
	"slices"

	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// wrapBytes is the length above which Chromium stores a serialized value in an external object.
const wrapBytes = 64 << 10

// lastKey is the greatest key from a generator.
const lastKey = 1 << 53

// put is the state of a Put or Add.
type put struct {
	op    string
	v     value.Value
	blobs []Blob
	// key is the primary key; zero means that the generator makes it.
	key         indexeddb.Key
	noOverwrite bool

	serialized []byte
	objects    []indexeddb.ExternalObject
}

// prepare encodes the value.
func (p *put) prepare() (err error) {
	p.objects = make([]indexeddb.ExternalObject, len(p.blobs))
	for i, b := range p.blobs {
		if b.err != nil {
			return newError(ErrDataClone, p.op, "%w", b.err)
		}
		if p.objects[i] = b.external(); p.objects[i].Size < 0 || b.from == nil && b.Content == nil && b.Size > 0 {
			return newError(ErrDataClone, p.op, "blob %d has %d bytes and no content", i, b.Size)
		}
	}
	if _, wrapped := p.v.(*value.Wrapped); wrapped {
		return newError(ErrDataClone, p.op, "a value of the type %T", p.v)
	}
	if p.serialized, err = value.EncodeFor(p.v, len(p.blobs)); err != nil {
		return newError(ErrDataClone, p.op, "%w", err)
	}
	return nil
}

// Put stores a value under its key, replaces an existing record, and returns the key. In an object
// store without key path, key is the primary key, as Key accepts it. key is nil in other object
// stores, and when the generator makes the key. blobs holds the content of the Blobs, FileLists and
// Handles in the value; these refer to it by Index.
//
// Put does not change v: reads insert a generated key.
//
// Errors: ErrReadOnly in a read-only transaction; ErrData for a key that is invalid, missing, or
// given besides a key path; ErrDataClone for an invalid value; ErrConstraint when another record
// has the same key in a unique index, or the key generator is exhausted; ErrInvalidState,
// ErrTransactionInactive, ErrUnknown and ErrQuotaExceeded. Tx lists those that abort the
// transaction.
func (s *ObjectStore) Put(ctx context.Context, v value.Value, key any, blobs ...Blob) (indexeddb.Key, error) {
	return s.putOrAdd(ctx, &put{op: "put", v: v, blobs: blobs}, key)
}

// Add is Put for a new key. Errors: as Put, and ErrConstraint when a record has the key already.
func (s *ObjectStore) Add(ctx context.Context, v value.Value, key any, blobs ...Blob) (indexeddb.Key, error) {
	return s.putOrAdd(ctx, &put{op: "add", v: v, blobs: blobs, noOverwrite: true}, key)
}

// change begins a request that writes.
func (s *ObjectStore) change(op string) error {
	if err := s.enter(op); err != nil {
		return err
	}
	if s.tx.mode == ReadOnly {
		return newError(ErrReadOnly, op, "")
	}
	return nil
}

func (s *ObjectStore) putOrAdd(ctx context.Context, p *put, key any) (none indexeddb.Key, err error) {
	if err := s.change(p.op); err != nil {
		return none, err
	}
	inline := s.meta.KeyPath.Type != indexeddb.NoKeyPath
	switch {
	case inline && key != nil:
		return none, newError(ErrData, p.op, "a key for an object store with a key path")
	case !inline && key == nil && !s.meta.AutoIncrement:
		return none, newError(ErrData, p.op, "without a key")
	case key != nil:
		var ok bool
		if p.key, ok = toKey(key, 0); !ok {
			return none, newError(ErrData, p.op, "a value of the type %T that is no key", key)
		}
	}
	if err := p.prepare(); err != nil {
		return none, err
	}
	if inline {
		if err := s.extract(p); err != nil {
			return none, err
		}
	}
	return s.put(ctx, p)
}

// extract reads the key from the value, if it contains one.
func (s *ObjectStore) extract(p *put) error {
	path := s.meta.KeyPath
	if path.Type == indexeddb.StringKeyPath && s.meta.AutoIncrement {
		if _, there := indexeddb.At(p.v, path.Paths[0], p.objects); !there {
			if !indexeddb.Injectable(p.v, path.Paths[0]) {
				return newError(ErrData, p.op, "a key cannot be put into the value")
			}
			return nil
		}
	}
	var ok bool
	if p.key, ok = path.Key(p.v, p.objects); !ok {
		return newError(ErrData, p.op, "the value has no valid key")
	}
	return nil
}

// put stores a record. A failure changes nothing, unless it marks the transaction as broken.
func (s *ObjectStore) put(ctx context.Context, p *put) (none indexeddb.Key, err error) {
	tx := s.tx
	generator, v := int64(0), p.v
	if s.meta.AutoIncrement {
		if generator, err = s.generator(ctx); err != nil {
			return none, tx.fail(p.op, err, false)
		}
	}
	switch {
	case p.key.IsZero() && generator > lastKey:
		return none, tx.fail(p.op, newError(ErrConstraint, p.op, "the key generator is at its end"), false)
	case p.key.IsZero():
		p.key, _ = indexeddb.NumberKey(float64(generator))
		generator++
		if s.meta.Injects() && len(s.meta.Indexes) > 0 {
			if v, err = value.Decode(p.serialized); err != nil { // a copy, to insert the key
				return none, newError(ErrDataClone, p.op, "%w", err)
			}
			v, _ = indexeddb.Inject(v, s.meta.KeyPath.Paths[0], p.key) // cannot fail: extract has checked the path
		}
	case s.meta.AutoIncrement && p.key.Type() == indexeddb.KeyNumber && p.key.Number() >= float64(generator):
		generator = int64(math.Min(math.Floor(p.key.Number()), lastKey)) + 1
	}
	old, found, err := s.get(ctx, p.key)
	if err != nil {
		return none, tx.fail(p.op, err, false)
	}
	if found && p.noOverwrite {
		return none, tx.fail(p.op, newError(ErrConstraint, p.op, "a record has the key"), false)
	}
	part := p.key.AppendPagePart(nil)
	rows, err := s.newIndexRows(ctx, p, v, part)
	if err != nil {
		return none, tx.fail(p.op, err, false)
	}
	var oldRows [][]byte
	var oldObjects []indexeddb.ExternalObject
	if found {
		if oldRows, oldObjects, err = s.oldRows(ctx, old); err != nil {
			return none, tx.fail(p.op, err, false)
		}
	}
	s.meta.LastVersion++
	s.counts = true
	if err := s.write(ctx, p, part, oldObjects); err != nil {
		return none, tx.fail(p.op, err, true)
	}
	if err := s.replaceRows(ctx, oldRows, rows); err != nil {
		return none, tx.fail(p.op, err, true)
	}
	if s.meta.AutoIncrement {
		s.meta.KeyGenerator = generator
	}
	return p.key, nil
}

// replaceRows writes new index rows and deletes old ones. It skips rows that are in both lists.
func (s *ObjectStore) replaceRows(ctx context.Context, old [][]byte, rows []ordered.Row) error {
	had := make(map[string]bool, len(old))
	for _, row := range old {
		had[string(row)] = true
	}
	for _, row := range rows {
		if had[string(row.Key)] {
			delete(had, string(row.Key))
			continue
		}
		if err := s.tx.w.Put(ctx, row.Key, row.Value); err != nil {
			return err
		}
	}
	for row := range had {
		if err := s.tx.w.Delete(ctx, []byte(row)); err != nil {
			return err
		}
	}
	return nil
}

// generator returns the next key. Old data lack it in the metadata.
func (s *ObjectStore) generator(ctx context.Context) (int64, error) {
	if s.meta.KeyGenerator > 0 {
		return s.meta.KeyGenerator, nil
	}
	dates, _ := indexeddb.DateKey(math.Inf(-1)) // sorts after all numbers
	c, err := s.walk(ctx, "find the greatest key", KeyRange{Upper: dates, UpperOpen: true}, Prev, true)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	if c.Done() || c.PrimaryKey().Number() < 1 {
		return 1, nil
	}
	return int64(math.Min(math.Floor(c.PrimaryKey().Number()), lastKey)) + 1, nil
}

// newIndexRows returns the index rows of a record. It checks the unique indexes.
func (s *ObjectStore) newIndexRows(ctx context.Context, p *put, v value.Value, part []byte) (rows []ordered.Row, err error) {
	for _, x := range s.indexes {
		if x.deleted {
			continue
		}
		for _, k := range x.meta.Keys(v, p.objects) {
			if x.meta.Unique {
				taken, err := x.taken(ctx, k, part)
				if err != nil {
					return nil, err
				}
				if taken {
					return nil, newError(ErrConstraint, p.op, "another record has the same key in the unique index %.100q", x.meta.Name)
				}
			}
			row := x.row()
			row.Key, row.Primary = k, p.key
			key, pageValue := indexeddb.PageRow(row, nil)
			rows = append(rows, ordered.Row{Key: key, Value: pageValue})
		}
	}
	return rows, nil
}

// oldRows returns the keys of the index rows of a stored record, and its external objects,
// including one that contains the value.
func (s *ObjectStore) oldRows(ctx context.Context, r stored) (rows [][]byte, objects []indexeddb.ExternalObject, err error) {
	if objects, err = s.externals(ctx, r.part); err != nil || len(s.meta.Indexes) == 0 {
		return nil, objects, err
	}
	v, visible, err := s.decode(ctx, &r)
	unknown := errors.Is(err, base.ErrUnsupported) || errors.Is(err, base.ErrTooLarge)
	if err != nil && !unknown {
		return nil, nil, err
	}
	for _, x := range s.indexes {
		switch {
		case x.deleted:
		case unknown:
			if rows, err = x.rowsOf(ctx, rows, r.part); err != nil {
				return nil, nil, err
			}
		default:
			for _, k := range x.meta.Keys(v, visible) {
				row, _ := x.rowKey(k, r.part)
				rows = append(rows, row)
			}
		}
	}
	return rows, objects, nil
}

// rowsOf appends the keys of all index rows of a record whose value cannot be decoded. It reads the
// whole index.
func (x *Index) rowsOf(ctx context.Context, rows [][]byte, part []byte) ([][]byte, error) {
	rg := ordered.Prefix(x.prefix)
	rg.KeysOnly = true
	it := x.store.tx.r.Iter(rg)
	for it.Next(ctx) {
		_, rest, _, err := indexeddb.CutPagePart(it.Key()[len(x.prefix):])
		if err != nil {
			return nil, errors.Join(err, it.Close())
		}
		if bytes.Equal(rest, part) {
			rows = append(rows, bytes.Clone(it.Key()))
		}
	}
	return rows, errors.Join(it.Err(), it.Close())
}

// write writes the rows of a record, except index rows. old lists its previous external objects.
func (s *ObjectStore) write(ctx context.Context, p *put, part []byte, old []indexeddb.ExternalObject) error {
	tx := s.tx
	serialized := p.serialized
	if err := s.writeContents(ctx, p, part); err != nil {
		return err
	}
	if len(serialized) > wrapBytes {
		w := &value.Wrapped{Size: int64(len(serialized)), Index: len(p.objects)}
		if err := tx.w.Put(ctx, s.contentKey(part, w.Index), serialized); err != nil {
			return err
		}
		p.objects = append(p.objects, indexeddb.ExternalObject{Type: indexeddb.ObjectBlob, MediaType: indexeddb.WrapperMediaType, Size: w.Size})
		var err error
		if serialized, err = value.Encode(w); err != nil {
			return err
		}
	}
	for i := range p.objects {
		if p.objects[i].Type != indexeddb.ObjectHandle {
			p.objects[i].Number = tx.meta.NextBlob
			tx.meta.NextBlob++
			tx.counts = true
		}
	}
	for i := len(p.objects); i < len(old); i++ {
		if err := tx.w.Delete(ctx, s.contentKey(part, i)); err != nil {
			return err
		}
	}
	row := indexeddb.Row{Kind: indexeddb.KindExternal, Database: tx.meta.ID, Store: s.meta.ID, Primary: p.key}
	if len(p.objects) > 0 {
		if err := tx.putRow(ctx, row, indexeddb.AppendExternalObjects(nil, p.objects)); err != nil {
			return err
		}
	} else if len(old) > 0 {
		if err := tx.w.Delete(ctx, append(slices.Clone(s.external), part...)); err != nil {
			return err
		}
	}
	row.Kind = indexeddb.KindRecord
	return tx.putRow(ctx, row, indexeddb.AppendRecord(nil, s.meta.LastVersion, serialized))
}

// writeContents streams the blobs. It opens all of them before the first write, because they may
// belong to the record that is replaced.
func (s *ObjectStore) writeContents(ctx context.Context, p *put, part []byte) (err error) {
	for i := range p.blobs {
		if p.blobs[i].from == nil || p.objects[i].Type == indexeddb.ObjectHandle {
			continue
		}
		content, end, openErr := p.blobs[i].open(ctx)
		if openErr != nil {
			return openErr
		}
		defer func() { err = errors.Join(err, end()) }()
		p.blobs[i].Content = content
	}
	for i, b := range p.blobs {
		key := s.contentKey(part, i)
		if p.objects[i].Type == indexeddb.ObjectHandle || p.objects[i].Size == 0 {
			if err := s.tx.w.Delete(ctx, key); err != nil {
				return err
			}
			continue
		}
		if err := s.tx.w.PutReader(ctx, key, b.Content, p.objects[i].Size); err != nil {
			return err
		}
	}
	return nil
}

// Delete deletes the records that match query, which must not be nil. Errors: ErrReadOnly, ErrData,
// ErrInvalidState, ErrTransactionInactive, ErrUnknown.
func (s *ObjectStore) Delete(ctx context.Context, query any) error {
	const op = "delete records"
	if err := s.change(op); err != nil {
		return err
	}
	rg, err := needRange(query, op)
	if err != nil {
		return err
	}
	return s.deleteIn(ctx, op, rg)
}

func (s *ObjectStore) deleteIn(ctx context.Context, op string, rg KeyRange) error {
	c, err := s.walk(ctx, op, rg, Next, false)
	if err != nil {
		return err
	}
	defer c.Close()
	changed := false
	for !c.Done() {
		r, err := c.stored(ctx)
		if err == nil {
			changed = true
			err = s.deleteRecord(ctx, r)
		}
		if err == nil {
			err = c.next(ctx)
		}
		if err != nil {
			return s.tx.fail(op, err, changed)
		}
	}
	return nil
}

// deleteRecord deletes all rows of a record.
func (s *ObjectStore) deleteRecord(ctx context.Context, r stored) error {
	rows, objects, err := s.oldRows(ctx, r)
	if err != nil {
		return err
	}
	for i := range objects {
		rows = append(rows, s.contentKey(r.part, i))
	}
	if len(objects) > 0 {
		rows = append(rows, append(slices.Clone(s.external), r.part...))
	}
	for _, row := range append(rows, append(slices.Clone(s.records), r.part...)) {
		if err := s.tx.w.Delete(ctx, row); err != nil {
			return err
		}
	}
	return nil
}

// Clear deletes all records. The key generator keeps its number. Errors: ErrReadOnly,
// ErrInvalidState, ErrTransactionInactive, ErrUnknown.
func (s *ObjectStore) Clear(ctx context.Context) error {
	const op = "clear an object store"
	if err := s.change(op); err != nil {
		return err
	}
	prefix := indexeddb.PageStore(s.tx.meta.ID, s.meta.ID)
	if err := s.tx.w.DeleteRange(ctx, prefix, ordered.PrefixEnd(prefix)); err != nil {
		return s.tx.fail(op, err, true)
	}
	return nil
}
