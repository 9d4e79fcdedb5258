package replica

import (
	"bytes"
	"context"
	"encoding/gob"
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

// State is the page's record of its log, in addition to storage: see the package's comment. A State
// in use is immutable: Next returns a copy whose parts may be replaced. Its slices and maps are
// never changed in place, so unchanged parts are identical.
type State struct {
	standing

	// Header is that of the epoch's checkpoint without its tags, nil if there is none.
	Header *checkpoint.Header
	// Manifest are the packs of the checkpoint, including dropped ones, in the order of
	// wire.Compare.
	Manifest []wire.Pack
	// Announced are the packs that entries of the epoch have announced.
	Announced []wire.Pack
	// Retention is that of the log, including its entries, unless Carried.
	Retention wire.Retention
	// Near are the nearest ancestors here of commits with a given-up parent, synced or not. The
	// ancestors may be commits of GiveUp.
	Near map[epoch.Commit]epoch.Set
	// Gone are all commits that the page ever learned were given up.
	Gone epoch.Set
	// Send are the commits of Gone that the log does not list. They go up with the next body.
	Send epoch.Set
	// GiveUp are given-up commits that storage still has. None is a head.
	GiveUp []commit.ID
	// Placed has the places of long differences that entries of the epoch have brought.
	Placed map[epoch.Commit]Placed
	// Pending is what was uploaded into the epoch and is named by no entry yet.
	Pending Pending
	// From are the heads of the epoch's checkpoint: later commits were added by entries. Left are
	// commits that entries of the epoch give up.
	From, Left epoch.Set
	// Missing are pieces that the log lists as missing, and that are not here.
	Missing map[object.Digest]bool
	// Devices are those that have put commits into the log.
	Devices map[seal.ID]Known

	index map[epoch.ID]int // of Manifest
}

// standing is the part of State that changes with every entry.
type standing struct {
	At epoch.Position
	// Bucket is the id of the bucket in which At is.
	Bucket seal.ID
	// Entries counts the entries applied in this epoch. Bytes is the stored length of these and of
	// the packs that they name. A cut is due when they are many.
	Entries, Bytes uint64
	// EntryTime is when the last applied entry was created.
	EntryTime epoch.Time
	// KeyIndex is the index of the data key of that entry, 0 if none was applied in the epoch.
	KeyIndex uint32
}

// Placed is the place of the difference that leads from the tree of Base to that of a commit.
type Placed struct {
	Base commit.ID // zero: the empty tree
	Diff wire.Place
}

// Pending are packs that were uploaded for the next body.
type Pending struct {
	Packs []wire.Pack
	// Sent are packs that were announced before the commits for which they were uploaded.
	Sent []epoch.ID
}

// The types of the rows of sync_metadata that hold State. A value that is too long for one row
// continues in rows of the same type with /1, /2 and so on.
const (
	rowPosition  = "position"
	rowHeader    = "checkpoint"
	rowManifest  = "manifest"
	rowAnnounced = "announced"
	rowRetention = "retention"
	rowNear      = storage.MetadataGivenUp + "-near"
	rowGone      = storage.MetadataGivenUp
	rowSend      = "send"
	rowGiveUp    = "giveup"
	rowPlaced    = "placed"
	rowPending   = "pending"
	rowMissing   = "missing"
	rowFrom      = "from"
	rowLeft      = "left"
)

// maxRowBytes is the greatest part of a value in one row.
const maxRowBytes = 1 << 20

// Next returns a copy whose parts may be replaced.
func (s *State) Next() *State {
	n := *s
	return &n
}

// Carried reports whether Retention is that of the page's former bucket, as long as the log has
// neither a checkpoint nor an entry.
func (s *State) Carried() bool {
	return s.Header == nil && s.Entries == 0 && s.Retention != wire.Retention{}
}

func (s *State) setHeader(h *checkpoint.Header) {
	if h != nil {
		c := *h
		c.Tags = nil
		h = &c
	}
	s.Header = h
}

func (s *State) setManifest(packs []wire.Pack) {
	s.Manifest = packs
	s.indexManifest()
}

func (s *State) indexManifest() {
	s.index = make(map[epoch.ID]int, len(s.Manifest))
	for i := range s.Manifest {
		s.index[s.Manifest[i].ID] = i
	}
}

// added returns m with the entries of another map, which take precedence.
func added[K comparable, V any](m, of map[K]V) map[K]V {
	if len(of) == 0 {
		return m
	}
	m = cloned(m)
	maps.Copy(m, of)
	return m
}

// cloned returns a copy of a map that may be changed.
func cloned[K comparable, V any](m map[K]V) map[K]V {
	if m == nil {
		return map[K]V{}
	}
	return maps.Clone(m)
}

// addGone adds given-up commits.
func (s *State) addGone(g epoch.Set) {
	if !g.Within(s.Gone) {
		s.Gone = s.Gone.Union(g)
	}
}

// wasGivenUp reports whether Gone has a commit.
func (s *State) wasGivenUp(c epoch.Commit) bool { return s.Gone.Has(c) }

// pack returns the record of a pack in the manifest, the entries or the pending packs.
func (s *State) pack(id epoch.ID) (wire.Pack, bool) {
	if i, ok := s.index[id]; ok {
		return s.Manifest[i], true
	}
	for _, packs := range [][]wire.Pack{s.Announced, s.Pending.Packs} {
		for _, p := range packs {
			if p.ID == id {
				return p, true
			}
		}
	}
	return wire.Pack{}, false
}

func badRow(row string, err error) error {
	return &base.CorruptError{Where: "page.db row sync_metadata/", Key: row, Err: err}
}

// changes returns the rows in which the State differs from old.
func (s *State) changes(old *State) (rows []storage.Metadata) {
	parts, before := s.parts(), old.parts()
	for _, row := range slices.Sorted(maps.Keys(parts)) {
		now, was := reflect.ValueOf(parts[row]).Elem(), reflect.ValueOf(before[row]).Elem()
		if old.At.Joined() && same(now, was) {
			continue // else the store may have rows of another bucket
		}
		rows = append(rows, splitRow(row, encode(now), encode(was))...)
	}
	return rows
}

// same reports whether two parts are identical; parts with equal content may be reported as
// different.
func same(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.Slice:
		return a.Len() == b.Len() && a.Pointer() == b.Pointer()
	case reflect.Map, reflect.Pointer:
		return a.Pointer() == b.Pointer()
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// splitRow returns the rows of a value, and removes rows that only the former value needed.
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

// parts returns the parts of a State, each of which is a row.
func (s *State) parts() map[string]any {
	return map[string]any{
		rowPosition: &s.standing, rowHeader: &s.Header, rowManifest: &s.Manifest, rowAnnounced: &s.Announced, rowRetention: &s.Retention, rowNear: &s.Near, rowGone: &s.Gone, rowSend: &s.Send,
		rowGiveUp: &s.GiveUp, rowPlaced: &s.Placed, rowPending: &s.Pending, rowMissing: &s.Missing, rowFrom: &s.From,
		rowLeft: &s.Left, rowDevices: &s.Devices,
	}
}

// rowVersion is the version of all rows, in their first byte.
const rowVersion = 9

// encode returns the value of a row, nil for an empty part.
func encode(part reflect.Value) []byte {
	if k := part.Kind(); part.IsZero() || (k == reflect.Map || k == reflect.Slice) && part.Len() == 0 {
		return nil
	}
	b := bytes.NewBuffer([]byte{rowVersion})
	if err := gob.NewEncoder(b).EncodeValue(part); err != nil {
		panic(err) // State has a type that is not encoded
	}
	return b.Bytes()
}

// readPart reads a row into a part of the State. It reports false if there is none.
func readPart(ctx context.Context, store *storage.Store, row string, part any) (bool, error) {
	b, err := readRow(ctx, store, row)
	if err != nil || b == nil {
		return false, err
	}
	if b[0] != rowVersion {
		return false, &base.FormatError{What: "what a page remembers of its bucket", Found: uint64(b[0]), Supported: rowVersion}
	}
	if err := gob.NewDecoder(bytes.NewReader(b[1:])).Decode(part); err != nil {
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
	s := &State{standing: standing{Bucket: bucket}}
	// Given-up commits stay recorded for good, for any bucket, as does the retention.
	for row, part := range map[string]any{rowNear: &s.Near, rowGone: &s.Gone, rowRetention: &s.Retention} {
		if _, err := readPart(ctx, store, row, part); err != nil {
			return nil, err
		}
	}
	if ok, err := readPart(ctx, store, rowPosition, &s.standing); err != nil || !ok {
		return s, err
	}
	for row, part := range s.parts() {
		if _, err := readPart(ctx, store, row, part); err != nil {
			return nil, err
		}
	}
	s.indexManifest()
	return s, nil
}
