package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/checkpoint"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// State is what a page knows of its log beside what storage has: see the package's comment. A State
// that a page has is not changed: Next gives one that may be, with the set methods alone.
type State struct {
	At epoch.Position
	// Bucket is the id of the bucket in which At is.
	Bucket seal.ID
	// Entries counts those that were applied in this epoch, and Bytes what they and the packs that
	// they name have, as stored. A cut is due when they are many.
	Entries, Bytes uint64
	// EntryTime is when the last entry was created that was applied.
	EntryTime epoch.Time

	// Header is that of the epoch's checkpoint, nil where it has none. Its tags are left out.
	Header *checkpoint.Header
	// Manifest are the packs of the checkpoint, dropped ones included, in the order of
	// wire.Compare.
	Manifest []wire.Pack
	// Announced are the packs that entries of the epoch have announced, by their numbers.
	Announced map[uint64][]wire.Pack
	// Retention is what the log says, with the entries.
	Retention wire.Retention
	// Near are the nearest ancestors that are here of commits of which a parent was given up,
	// synced or not. They may be commits of GiveUp.
	Near map[epoch.Commit]epoch.Set
	// Gone are all commits of which the page ever learned that they were given up, in parts of
	// which the later ones are shorter: see addGone.
	Gone []epoch.Set
	// Send are those of Gone that the log does not list. They go up with the next body.
	Send epoch.Set
	// GiveUp are commits that the log has given up and that storage still has. None is a head.
	GiveUp []commit.ID
	// Placed says where long differences of commits stand that entries of the epoch have brought.
	Placed map[epoch.Commit]wire.Commit
	// Pending is what was uploaded into the epoch and no entry names yet.
	Pending Pending
	// From are the heads of the epoch's checkpoint: what is not below them came with entries. Left
	// are commits that entries of the epoch give up.
	From, Left epoch.Set
	// Missing are pieces that the log says nobody has sent, as far as they are not here.
	Missing map[object.Digest]bool
	// Head is that of the entry at the position, nil where none was applied in the epoch.
	Head []byte
	// Devices are those that have put commits into the log.
	Devices map[seal.ID]Known
	// Tombstone is the object of the epoch that deleted the page.
	Tombstone []byte

	index map[epoch.ID]int // of Manifest
	dirty map[string]bool
}

// Pending are packs that were uploaded for the next body.
type Pending struct {
	Packs []wire.Pack
	// Sent are packs that were announced ahead of the commits for which they were uploaded.
	Sent []epoch.ID
}

// The types of the rows of sync_metadata in which State stands. A value longer than a row may be
// goes on in rows of the same type with /1, /2 and so on.
const (
	rowPosition  = "position"
	rowHeader    = "checkpoint"
	rowManifest  = "manifest"
	rowAnnounced = "announced" // with /{number of the entry, 16 hex digits}
	rowRetention = "retention"
	rowNear      = storage.MetadataGivenUp + "-near"
	rowGone      = storage.MetadataGivenUp // with /{number of the part}
	rowSend      = "send"
	rowGiveUp    = "giveup"
	rowPlaced    = "placed"
	rowPending   = "pending"
	rowMissing   = "missing"
	rowFrom      = "from"
	rowLeft      = "left"
	rowTombstone = "tombstone"
	rowHead      = "head"
)

// maxRowBytes is how much of a value stands in one row.
const maxRowBytes = 1 << 20

// Next returns a copy of which parts may be set.
func (s *State) Next() *State {
	n := *s
	n.dirty = map[string]bool{}
	return &n
}

func (s *State) touch(row string) {
	if s.dirty == nil {
		s.dirty = map[string]bool{}
	}
	s.dirty[row] = true
}

func (s *State) setHeader(h *checkpoint.Header) {
	if h != nil {
		c := *h
		c.Tags = nil
		h = &c
	}
	s.Header = h
	s.touch(rowHeader)
}

func (s *State) setRetention(r wire.Retention)            { s.Retention = r; s.touch(rowRetention) }
func (s *State) setNear(m map[epoch.Commit]epoch.Set)     { s.Near = m; s.touch(rowNear) }
func (s *State) setSend(g epoch.Set)                      { s.Send = g; s.touch(rowSend) }
func (s *State) setGiveUp(ids []commit.ID)                { s.GiveUp = ids; s.touch(rowGiveUp) }
func (s *State) setPlaced(m map[epoch.Commit]wire.Commit) { s.Placed = m; s.touch(rowPlaced) }
func (s *State) setPending(p Pending)                     { s.Pending = p; s.touch(rowPending) }
func (s *State) setMissing(m map[object.Digest]bool)      { s.Missing = m; s.touch(rowMissing) }
func (s *State) setFrom(g epoch.Set)                      { s.From = g; s.touch(rowFrom) }
func (s *State) setLeft(g epoch.Set)                      { s.Left = g; s.touch(rowLeft) }
func (s *State) setTombstone(b []byte)                    { s.Tombstone = b; s.touch(rowTombstone) }
func (s *State) setHead(b []byte)                         { s.Head = b; s.touch(rowHead) }

func (s *State) setManifest(packs []wire.Pack) {
	s.Manifest = packs
	s.indexManifest()
	s.touch(rowManifest)
}

func (s *State) indexManifest() {
	s.index = make(map[epoch.ID]int, len(s.Manifest))
	for i := range s.Manifest {
		s.index[s.Manifest[i].ID] = i
	}
}

func announcedRow(n uint64) string { return fmt.Sprintf("%s/%016x", rowAnnounced, n) }

// announce adds the packs of an entry.
func (s *State) announce(n uint64, packs []wire.Pack) {
	if len(packs) == 0 {
		return
	}
	m := cloned(s.Announced)
	m[n] = packs
	s.Announced = m
	s.touch(announcedRow(n))
}

// forgetAnnounced forgets the packs of all entries, as at the beginning of an epoch.
func (s *State) forgetAnnounced() {
	for n := range s.Announced {
		s.touch(announcedRow(n))
	}
	s.Announced = nil
}

// addNear adds nearest ancestors of commits.
func (s *State) addNear(of map[epoch.Commit]epoch.Set) {
	if len(of) > 0 {
		near := cloned(s.Near)
		maps.Copy(near, of)
		s.setNear(near)
	}
}

// cloned returns a copy of a map that can be changed.
func cloned[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

// addGone adds commits that were given up. Parts become one as the runs of a checkpoint do, so that
// little is written again.
func (s *State) addGone(g epoch.Set) {
	for _, part := range s.Gone {
		g = g.Without(part)
	}
	if len(g) == 0 {
		return
	}
	var lengths []uint64
	for _, part := range slices.Backward(s.Gone) {
		lengths = append(lengths, uint64(len(part)))
	}
	n := len(s.Gone) - wire.MergeRuns(lengths, uint64(len(g)))
	for i, part := range s.Gone[n:] {
		g = g.Union(part)
		s.touch(goneRow(n + i))
	}
	s.Gone = append(slices.Clone(s.Gone[:n]), g)
	s.touch(goneRow(n))
}

func goneRow(i int) string { return fmt.Sprintf("%s/%d", rowGone, i) }

// memory returns all of Gone.
func (s *State) memory() (all epoch.Set) {
	for _, part := range s.Gone {
		all = all.Union(part)
	}
	return all
}

// wasGivenUp reports whether Gone has a commit.
func (s *State) wasGivenUp(c epoch.Commit) bool {
	return slices.ContainsFunc(s.Gone, func(part epoch.Set) bool { return part.Has(c) })
}

// pack returns what the manifest or the entries say of a pack that counts.
func (s *State) pack(id epoch.ID) (wire.Pack, bool) {
	if i, ok := s.index[id]; ok && s.Manifest[i].Dropped == (epoch.ID{}) {
		return s.Manifest[i], true
	}
	for _, packs := range s.Announced {
		for _, p := range packs {
			if p.ID == id {
				return p, true
			}
		}
	}
	for _, p := range s.Pending.Packs {
		if p.ID == id {
			return p, true
		}
	}
	return wire.Pack{}, false
}

// positionRow is the value of rowPosition, its fields one behind the other and big-endian.
type positionRow struct {
	Version        uint8
	Bucket         seal.ID
	At             epoch.Position
	Entries, Bytes uint64
	EntryTime      epoch.Time
}

const positionVersion = 2

func (s *State) encodePosition() ([]byte, error) {
	return binary.Append(nil, binary.BigEndian, positionRow{positionVersion, s.Bucket, s.At, s.Entries, s.Bytes, s.EntryTime})
}

func (s *State) parsePosition(b []byte) error {
	var r positionRow
	if n, err := binary.Decode(b, binary.BigEndian, &r); err != nil || n != len(b) || r.Version != positionVersion {
		return badRow(rowPosition, errors.New("not a position"))
	}
	s.Bucket, s.At, s.Entries, s.Bytes, s.EntryTime = r.Bucket, r.At, r.Entries, r.Bytes, r.EntryTime
	return nil
}

func badRow(row string, err error) error {
	return &base.CorruptError{Where: "page.db row sync_metadata/", Key: row, Err: err}
}

// changes returns the rows in which the State differs from old.
func (s *State) changes(old *State) (rows []storage.Metadata, err error) {
	position, err := s.encodePosition()
	if err != nil {
		return nil, fmt.Errorf("encode row %s: %w", rowPosition, err)
	}
	rows = append(rows, storage.Metadata{Type: rowPosition, Value: position})
	for _, row := range slices.Sorted(maps.Keys(s.dirty)) {
		value, err := s.encode(row)
		if err != nil {
			return nil, fmt.Errorf("encode row %s: %w", row, err)
		}
		before, err := old.encode(row)
		if err != nil {
			return nil, fmt.Errorf("encode row %s: %w", row, err)
		}
		rows = append(rows, splitRow(row, value, before)...)
	}
	s.dirty = nil
	return rows, nil
}

// splitRow returns the rows of a value, and removes those that only the value before needed.
func splitRow(row string, value, before []byte) (rows []storage.Metadata) {
	for i := 0; i == 0 || i*maxRowBytes < max(len(value), len(before)); i++ {
		m := storage.Metadata{Type: partRow(row, i)}
		if from := i * maxRowBytes; from < len(value) {
			m.Value = value[from:min(len(value), from+maxRowBytes)]
		}
		rows = append(rows, m)
	}
	return rows
}

func partRow(row string, i int) string {
	if i == 0 {
		return row
	}
	return fmt.Sprintf("%s/part%d", row, i)
}

// parts are the parts of State that are rows, but for the position, Announced and Gone.
var parts = map[string]func(*State) any{
	rowHeader:    func(s *State) any { return &s.Header },
	rowManifest:  func(s *State) any { return &s.Manifest },
	rowRetention: func(s *State) any { return &s.Retention },
	rowNear:      func(s *State) any { return &s.Near },
	rowSend:      func(s *State) any { return &s.Send },
	rowGiveUp:    func(s *State) any { return &s.GiveUp },
	rowPlaced:    func(s *State) any { return &s.Placed },
	rowPending:   func(s *State) any { return &s.Pending },
	rowMissing:   func(s *State) any { return &s.Missing },
	rowFrom:      func(s *State) any { return &s.From },
	rowLeft:      func(s *State) any { return &s.Left },
	rowHead:      func(s *State) any { return &s.Head },
	rowDevices:   func(s *State) any { return &s.Devices },
	rowTombstone: func(s *State) any { return &s.Tombstone },
}

// part returns where the part of a State is that is a row.
func (s *State) part(row string) any {
	if of := parts[row]; of != nil {
		return of(s)
	}
	var n uint64
	if _, err := fmt.Sscanf(row, rowAnnounced+"/%016x", &n); err == nil {
		packs := s.Announced[n]
		return &packs
	}
	var gone epoch.Set
	if _, err := fmt.Sscanf(row, rowGone+"/%d", &n); err == nil && n < uint64(len(s.Gone)) {
		gone = s.Gone[n]
	}
	return &gone
}

// encode returns the value of a row, nil for none.
func (s *State) encode(row string) ([]byte, error) {
	part := s.part(row)
	if isEmpty(reflect.ValueOf(part).Elem()) {
		return nil, nil
	}
	return encodeGob(part)
}

// isEmpty reports whether nothing needs to be kept of a part.
func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Struct:
		for i := range v.NumField() {
			if !isEmpty(v.Field(i)) {
				return false
			}
		}
		return true
	}
	return v.IsZero()
}

func encodeGob(v any) ([]byte, error) {
	var b bytes.Buffer
	err := gob.NewEncoder(&b).Encode(v)
	return b.Bytes(), err
}

// readPart reads a row into the part of a State. It reports false where there is none.
func readPart(ctx context.Context, store *storage.Store, row string, part any) (bool, error) {
	b, err := readRow(ctx, store, row)
	if err != nil || b == nil {
		return false, err
	}
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(part); err != nil {
		return false, badRow(row, err)
	}
	return true, nil
}

// readRow returns the value of a row, nil for none.
func readRow(ctx context.Context, store *storage.Store, row string) (all []byte, err error) {
	for i := 0; ; i++ {
		b, err := store.Metadata(ctx, partRow(row, i))
		if err != nil {
			return nil, fmt.Errorf("read row %s: %w", row, err)
		}
		if all = append(all, b...); len(b) < maxRowBytes {
			return all, nil
		}
	}
}

// loadState reads the rows of a store.
func loadState(ctx context.Context, store *storage.Store, bucket seal.ID) (*State, error) {
	s := &State{Bucket: bucket}
	// What was given up is known for good, whatever the bucket.
	if _, err := readPart(ctx, store, rowNear, &s.Near); err != nil {
		return nil, err
	}
	for i := 0; ; i++ {
		var g epoch.Set
		ok, err := readPart(ctx, store, goneRow(i), &g)
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		s.Gone = append(s.Gone, g)
	}
	b, err := readRow(ctx, store, rowPosition)
	if err != nil || b == nil {
		return s, err
	}
	if err := s.parsePosition(b); err != nil {
		return nil, err
	}
	for row, of := range parts {
		if _, err := readPart(ctx, store, row, of(s)); err != nil {
			return nil, err
		}
	}
	s.indexManifest()
	for n := s.At.Number - s.Entries + 1; n <= s.At.Number; n++ {
		var packs []wire.Pack
		ok, err := readPart(ctx, store, announcedRow(n), &packs)
		if err != nil {
			return nil, err
		}
		if ok {
			if s.Announced == nil {
				s.Announced = map[uint64][]wire.Pack{}
			}
			s.Announced[n] = packs
		}
	}
	return s, nil
}
