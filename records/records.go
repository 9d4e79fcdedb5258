package records

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"weak"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/rules"
)

// Limits in bytes: MaxNameBytes for the name of a collection or index, MaxIDBytes for the id of a
// record, and MaxIndexKeyBytes for the key of an index row.
const (
	MaxNameBytes     = 64
	MaxIDBytes       = 512
	MaxIndexKeyBytes = 1024
)

// Errors in addition to those of package ledger, which are returned wrapped.
var (
	// ErrUnique reports a Put that would give two records the same key of a unique index. It
	// matches ledger.ErrConflict.
	ErrUnique = fmt.Errorf("another record has this key of a unique index: %w", ledger.ErrConflict)
	// ErrNewer reports a record that was written by a newer version of the app. It matches
	// ledger.ErrUnsupported.
	ErrNewer = fmt.Errorf("a newer version of the app has written it: %w", ledger.ErrUnsupported)
)

// Codec encodes and decodes values. Equal values must have equal bytes, on all devices. Its methods
// are called concurrently, also by background merges. Unmarshal must neither change nor retain b.
type Codec[T any] interface {
	Marshal(v *T) ([]byte, error)
	Unmarshal(b []byte, v *T) error
}

// JSON is the Codec of package encoding/json.
type JSON[T any] struct{}

// Marshal implements Codec.
func (JSON[T]) Marshal(v *T) ([]byte, error) { return json.Marshal(v) }

// Unmarshal implements Codec.
func (JSON[T]) Unmarshal(b []byte, v *T) error { return json.Unmarshal(b, v) }

// Index is a function that gives a record the keys by which it is found.
type Index[T any] struct {
	// Name is 1 to MaxNameBytes of UTF-8 without 0x00.
	Name string
	// Unique forbids two records with the same key.
	Unique bool
	// Version must be raised when Keys returns other keys than before for a record.
	Version uint32
	// Keys returns the keys of a record, as made by Key: none, or several, each at most
	// MaxIndexKeyBytes. It must depend on v alone, and neither change nor retain it.
	Keys func(v *T) [][]byte
}

// Options configure a collection.
type Options[T any] struct {
	// Codec is JSON when nil.
	Codec Codec[T]
	// Indexes are the indexes of the collection. Open makes the rows of an index that is new or has
	// another Version, and removes the rows of an index that is no longer declared.
	Indexes []Index[T]
	// Version is the version of the values. Raise it when the codec cannot read older values
	// correctly.
	Version uint32
	// Migrate converts a record of an older Version. It is called at each read of such a record
	// until the record is put again: see MigrateAll. Nil: the codec reads older records.
	Migrate func(version uint32, b []byte) (*T, error)
}

// Collection is a namespace of typed records on a page. It may be used concurrently.
type Collection[T any] struct {
	page   *ledger.Page
	name   string
	prefix []byte // of all rows
	o      Options[T]
	merge  merger // of the fields of a value
	own    []byte // the value of the mark
	// behind are the row prefixes of the indexes.
	behind [][]byte
	fresh  atomic.Pointer[freshness]
}

// Open returns the collection with a name of 1 to MaxNameBytes of UTF-8 without 0x00, and gives the
// page its merge rule. Heads may be merged before that: see MergeRule. When the declared indexes
// have changed, or a program without the rule has merged, it rebuilds index rows in one transaction
// that reads all records. In a new collection it writes the row "m": a new device that syncs before
// its first Open has that row already. Otherwise Open writes nothing. o may be nil. Errors:
// ledger.ErrInvalid for invalid names or tags, or tags that do not fit T; ErrNewer when the
// collection has a newer Version; those of Page.Update.
func Open[T any](ctx context.Context, page *ledger.Page, name string, o *Options[T]) (*Collection[T], error) {
	c, err := newCollection(name, o)
	if err == nil {
		c.page = page
		page.SetMergeRules(c.rule())
		err = c.prepare(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("open collection %q: %w", name, err)
	}
	return c, nil
}

// MergeRule returns the merge rule of the collection that Open returns for the same name and o. An
// app returns it from ledger.Options.MergeRules for each page with the collection. So the rule
// holds from the opening of the repository on: background sync may merge a page before the app
// opens it, and opening a page begins to merge its heads. Errors: as Open, for name and o.
func MergeRule[T any](name string, o *Options[T]) (ledger.MergeRule, error) {
	c, err := newCollection(name, o)
	if err != nil {
		return ledger.MergeRule{}, fmt.Errorf("merge rule of collection %q: %w", name, err)
	}
	return c.rule(), nil
}

// newCollection returns a collection without a page.
func newCollection[T any](name string, o *Options[T]) (*Collection[T], error) {
	c := &Collection[T]{name: name, prefix: append([]byte(name), 0)}
	if o != nil {
		c.o = *o
	}
	if c.o.Codec == nil {
		c.o.Codec = JSON[T]{}
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	c.own = c.schema().row()
	for _, x := range c.o.Indexes {
		c.behind = append(c.behind, c.indexRows(x.Name))
	}
	return c, nil
}

func (c *Collection[T]) rule() ledger.MergeRule {
	return ledger.MergeRule{Prefix: c.prefix, Strategy: rules.Grouped(&strategy[T]{c})}
}

// check verifies names and the type.
func (c *Collection[T]) check() (err error) {
	if err := checkName(c.name); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, x := range c.o.Indexes {
		if err := checkName(x.Name); err != nil {
			return fmt.Errorf("index: %w", err)
		}
		if x.Keys == nil || seen[x.Name] {
			return fmt.Errorf("index %q has no function, or is declared twice: %w", x.Name, ledger.ErrInvalid)
		}
		seen[x.Name] = true
	}
	c.merge, err = mergerOf(reflect.TypeFor[T](), "")
	return err
}

func checkName(name string) error {
	if name == "" || len(name) > MaxNameBytes || strings.ContainsRune(name, 0) || strings.ToValidUTF8(name, "") != name {
		return fmt.Errorf("name %q is no UTF-8 of 1 to %d bytes without 0x00: %w", name, MaxNameBytes, ledger.ErrInvalid)
	}
	return nil
}

// Name returns the name of the collection.
func (c *Collection[T]) Name() string { return c.name }

// The kinds of rows, after the prefix.
const (
	rowMark   = 'm'
	rowRecord = 'r'
	rowIndex  = 'i'
)

// row returns the key of a row; without rest, the prefix of all rows of a kind.
func (c *Collection[T]) row(kind byte, rest []byte) []byte {
	b := make([]byte, 0, len(c.prefix)+1+len(rest))
	return append(append(append(b, c.prefix...), kind), rest...)
}

// PageKey returns the page's key of a record: Page.Why, Page.Conflicts and Watch report the record
// under this key. The slice belongs to the caller.
func (c *Collection[T]) PageKey(id string) []byte { return c.row(rowRecord, []byte(id)) }

// IDOf returns the id of the record that the page stores under key, and false for other keys.
func (c *Collection[T]) IDOf(key []byte) (id string, ok bool) {
	b, ok := bytes.CutPrefix(key, c.row(rowRecord, nil))
	return string(b), ok && checkID(string(b)) == nil
}

// indexRows returns the prefix of the rows of an index.
func (c *Collection[T]) indexRows(index string) []byte {
	return appendText(c.row(rowIndex, nil), []byte(index))
}

func checkID(id string) error {
	if id == "" || len(id) > MaxIDBytes {
		return fmt.Errorf("id of %d bytes, not 1 to %d: %w", len(id), MaxIDBytes, ledger.ErrInvalid)
	}
	return nil
}

// indexed returns the index rows of the record id with value v, which may be nil: sorted, without
// duplicates. Keys that are invalid or too long get no row; err reports the first one. Put refuses
// them. A stored record can have them when its index functions have changed since.
func (c *Collection[T]) indexed(id string, v *T) (rows [][]byte, err error) {
	if v == nil {
		return nil, nil
	}
	rows = make([][]byte, 0, len(c.o.Indexes))
	b := make([]byte, 0, 64*len(c.o.Indexes)) // most rows fit
	for i := range c.o.Indexes {
		x := &c.o.Indexes[i]
		for _, k := range x.Keys(v) {
			if !mayStore(k) {
				err = cmp.Or(err, fmt.Errorf("key of %d bytes of index %q is not one of Key, of at most %d: %w", len(k), x.Name, MaxIndexKeyBytes, ledger.ErrInvalid))
				continue
			}
			at := len(b)
			b = append(appendText(append(b, c.behind[i]...), k), id...)
			rows = append(rows, b[at:len(b):len(b)])
		}
	}
	slices.SortFunc(rows, bytes.Compare)
	return slices.CompactFunc(rows, bytes.Equal), err
}

// encode returns the row of a value.
func (c *Collection[T]) encode(v *T) ([]byte, error) {
	b, err := c.o.Codec.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	row := make([]byte, 0, binary.MaxVarintLen32+len(b))
	return append(binary.AppendUvarint(row, uint64(c.o.Version)), b...), nil
}

// decode returns the value of a row.
func (c *Collection[T]) decode(row []byte) (*T, error) {
	version, n := binary.Uvarint(row)
	if n <= 0 || version > 1<<32-1 {
		return nil, fmt.Errorf("decode: no version: %w", ledger.ErrCorrupt)
	}
	if version > uint64(c.o.Version) {
		return nil, fmt.Errorf("decode version %d, known is %d: %w", version, c.o.Version, ErrNewer)
	}
	if version < uint64(c.o.Version) && c.o.Migrate != nil {
		v, err := c.o.Migrate(uint32(version), row[n:])
		if err == nil && v == nil {
			err = errors.New("no value")
		}
		if err != nil {
			return nil, fmt.Errorf("migrate from version %d: %w", version, err)
		}
		return v, nil
	}
	v := new(T)
	if err := c.o.Codec.Unmarshal(row[n:], v); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return v, nil
}

// get returns the value of a record, or ledger.ErrNotFound.
func (c *Collection[T]) get(ctx context.Context, r ledger.Reader, id string) (v *T, err error) {
	var row []byte
	if err = checkID(id); err == nil {
		row, err = r.Get(ctx, c.PageKey(id))
	}
	if err == nil {
		v, err = c.decode(row)
	}
	if err != nil {
		return nil, c.explain("get", id, err)
	}
	return v, nil
}

func (c *Collection[T]) explain(what, id string, err error) error {
	return fmt.Errorf("%s record %q of collection %q: %w", what, id, c.name, err)
}

// Get returns the present state of a record. It belongs to the caller. Errors: ledger.ErrNotFound;
// ledger.ErrInvalid for an invalid id; ErrNewer; those of the codec and of Page.View.
func (c *Collection[T]) Get(ctx context.Context, id string) (v *T, err error) {
	err = c.page.View(ctx, func(s *ledger.Snapshot) (err error) {
		v, err = c.get(ctx, s.Reader, id)
		return err
	})
	return v, err
}

// Put writes a record with its index rows, in a transaction of its own. v is not retained. Errors:
// ErrUnique; ledger.ErrInvalid for invalid ids, and for keys that are too long or not made by Key;
// those of the codec and of Page.Update.
func (c *Collection[T]) Put(ctx context.Context, id string, v *T) error {
	_, err := c.page.Update(ctx, func(tx *ledger.Tx) error { return c.In(tx).Put(ctx, id, v) })
	return err
}

// Delete removes a record, if it exists, in a transaction of its own. Errors: ledger.ErrInvalid;
// those of Page.Update.
func (c *Collection[T]) Delete(ctx context.Context, id string) error {
	_, err := c.page.Update(ctx, func(tx *ledger.Tx) error { return c.In(tx).Delete(ctx, id) })
	return err
}

// At returns the collection in a snapshot of its page.
func (c *Collection[T]) At(s *ledger.Snapshot) *View[T] {
	return &View[T]{c: c, r: s.Reader, snap: s}
}

// View is one state of a collection. The snapshot or transaction limits concurrent use.
type View[T any] struct {
	c    *Collection[T]
	r    ledger.Reader
	snap *ledger.Snapshot // nil in a transaction
	tx   *ledger.Tx       // nil in a snapshot
}

// at returns the commit of the snapshot, or the base of the transaction.
func (v *View[T]) at() ledger.CommitID {
	if v.tx != nil {
		return v.tx.Base().ID
	}
	return v.snap.Commit().ID
}

// Get is Collection.Get on the state of the view.
func (v *View[T]) Get(ctx context.Context, id string) (*T, error) { return v.c.get(ctx, v.r, id) }

// In returns the collection within a transaction of its page.
func (c *Collection[T]) In(tx *ledger.Tx) *Tx[T] {
	return &Tx[T]{View[T]{c: c, r: tx.Reader, tx: tx}}
}

// freshness is a commit, or a transaction with its own mark, in which the index rows match the
// records by the declared indexes. The weak pointer lets the transaction be freed.
type freshness struct {
	at ledger.CommitID
	tx weak.Pointer[ledger.Tx]
}

// Tx is a collection within a transaction, and shows its changes. One transaction can change
// several collections of a page.
type Tx[T any] struct {
	View[T]
}

// Put is Collection.Put within the transaction.
func (t *Tx[T]) Put(ctx context.Context, id string, v *T) error {
	if err := t.put(ctx, id, v); err != nil {
		return t.c.explain("put", id, err)
	}
	return nil
}

func (t *Tx[T]) put(ctx context.Context, id string, v *T) error {
	if v == nil {
		return fmt.Errorf("no value: %w", ledger.ErrInvalid)
	}
	if err := checkID(id); err != nil {
		return err
	}
	key := t.c.PageKey(id)
	row, err := t.c.encode(v)
	if err != nil {
		return err
	}
	now, err := t.c.indexed(id, v)
	if err != nil {
		return err
	}
	found, old, err := t.present(ctx, id, key)
	if err != nil || found != nil && bytes.Equal(found, row) {
		return err
	}
	if err := t.mark(ctx); err != nil {
		return err
	}
	if err := t.checkUnique(ctx, id, old, now); err != nil {
		return err
	}
	if err := t.c.moveRows(ctx, t.tx, old, now); err != nil {
		return err
	}
	return t.tx.Put(ctx, key, row)
}

// present returns the row stored under the record's key, and the record's index rows. Without
// indexes it reads nothing.
func (t *Tx[T]) present(ctx context.Context, id string, key []byte) (row []byte, indexed [][]byte, err error) {
	if len(t.c.o.Indexes) == 0 {
		return nil, nil, nil
	}
	row, err = t.tx.Get(ctx, key)
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	v, err := t.c.decode(row)
	if err != nil {
		return nil, nil, err
	}
	indexed, _ = t.c.indexed(id, v)
	return row, indexed, nil
}

// checkUnique verifies that no other record has one of the keys that rows add to old in a unique
// index. A key that a merge has given to two records is no reason to refuse other changes of them.
func (t *Tx[T]) checkUnique(ctx context.Context, id string, old, rows [][]byte) error {
	for i := range t.c.o.Indexes {
		if x := &t.c.o.Indexes[i]; x.Unique {
			for _, row := range rows {
				if !bytes.HasPrefix(row, t.c.behind[i]) || contains(old, row) {
					continue
				}
				key := row[:len(row)-len(id)]
				found, err := t.tx.Seek(ctx, key)
				if errors.Is(err, ledger.ErrNotFound) {
					continue
				}
				if err != nil {
					return err
				}
				if other, same := bytes.CutPrefix(found, key); same {
					return fmt.Errorf("index %q, record %q: %w", x.Name, other, ErrUnique)
				}
			}
		}
	}
	return nil
}

// moveRows changes the index rows of a record from old to now. Both lists are sorted.
func (c *Collection[T]) moveRows(ctx context.Context, tx *ledger.Tx, old, now [][]byte) error {
	for _, row := range old {
		if !contains(now, row) {
			if err := tx.Delete(ctx, row); err != nil {
				return err
			}
		}
	}
	for _, row := range now {
		if !contains(old, row) {
			if err := tx.Put(ctx, row, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

func contains(rows [][]byte, row []byte) bool {
	_, found := slices.BinarySearchFunc(rows, row, bytes.Compare)
	return found
}

// Delete is Collection.Delete within the transaction.
func (t *Tx[T]) Delete(ctx context.Context, id string) error {
	if err := t.delete(ctx, id); err != nil {
		return t.c.explain("delete", id, err)
	}
	return nil
}

func (t *Tx[T]) delete(ctx context.Context, id string) error {
	if err := checkID(id); err != nil {
		return err
	}
	key := t.c.PageKey(id)
	row, old, err := t.present(ctx, id, key)
	if err != nil || row == nil && len(t.c.o.Indexes) > 0 {
		return err
	}
	if err := t.mark(ctx); err != nil {
		return err
	}
	if err := t.c.moveRows(ctx, t.tx, old, nil); err != nil {
		return err
	}
	return t.tx.Delete(ctx, key)
}
