package records

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"weak"

	"github.com/ledgerd/ledger"
)

// The mark of a collection is the row N 0x00 "m" nonce. Its value records the indexes with which
// the index rows were made. Each transaction that changes records gives the mark another nonce. So
// when both sides changed records, a merge by a program without the collection's rule leaves two
// marks, or none. Index rows are then ignored until they are rebuilt.
//
// schema is the value of a mark, as JSON: the version of the values, and the version of each index
// function.
type schema struct {
	Version uint32            `json:"version"`
	Indexes map[string]uint32 `json:"indexes,omitempty"`
}

func (c *Collection[T]) schema() schema {
	s := schema{Version: c.o.Version}
	for _, x := range c.o.Indexes {
		if s.Indexes == nil {
			s.Indexes = map[string]uint32{}
		}
		s.Indexes[x.Name] = x.Version
	}
	return s
}

func (s schema) row() []byte {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // impossible for numbers and strings
	}
	return b
}

// marks is the state of a collection's marks on a page.
type marks struct {
	rows [][]byte // their keys
	// version is the greatest version of values; indexed reports that there are index rows.
	version uint32
	indexed bool
	// own reports that there is one mark, and that it has the schema of the collection.
	own bool
}

func (c *Collection[T]) readMarks(ctx context.Context, r ledger.Reader) (m marks, err error) {
	for e, err := range r.Scan(ctx, ledger.ScanOptions{Prefix: c.row(rowMark, nil)}) {
		var row []byte
		if err == nil {
			row, err = e.Value(ctx)
		}
		if err != nil {
			return m, fmt.Errorf("read the mark: %w", err)
		}
		var s schema
		_ = json.Unmarshal(row, &s) // damage counts as empty: rows are rebuilt
		m.rows, m.version, m.indexed = append(m.rows, e.Key), max(m.version, s.Version), m.indexed || len(s.Indexes) > 0
		m.own = len(m.rows) == 1 && bytes.Equal(row, c.own)
	}
	return m, nil
}

// setMark replaces the marks in old by one mark.
func (c *Collection[T]) setMark(ctx context.Context, tx *ledger.Tx, old marks, nonce []byte) error {
	for _, row := range old.rows {
		if err := tx.Delete(ctx, row); err != nil {
			return fmt.Errorf("remove a mark: %w", err)
		}
	}
	if err := tx.Put(ctx, c.row(rowMark, nonce), c.own); err != nil {
		return fmt.Errorf("write the mark: %w", err)
	}
	return nil
}

// newNonce returns a random nonce.
func newNonce() []byte {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // it never fails
	return b
}

// prepare rebuilds the index rows when they do not match the declared indexes.
func (c *Collection[T]) prepare(ctx context.Context) error {
	var found marks
	err := c.page.View(ctx, func(s *ledger.Snapshot) (err error) {
		found, err = c.readMarks(ctx, s.Reader)
		return err
	})
	if err == nil && found.version > c.o.Version {
		err = fmt.Errorf("version %d, known is %d: %w", found.version, c.o.Version, ErrNewer)
	}
	if err != nil || found.own {
		return err
	}
	_, err = c.page.Update(ctx, func(tx *ledger.Tx) error { return c.In(tx).mark(ctx) })
	return err
}

// isFresh reports whether the index rows match the records by the declared indexes.
func (v *View[T]) isFresh(ctx context.Context) (bool, error) {
	f := v.c.fresh.Load()
	if f != nil && v.tx != nil && f.tx.Value() == v.tx {
		return true, nil
	}
	known := freshness{at: v.at()}
	if f != nil && *f == known {
		return true, nil // also for the base of a transaction: Put and Delete keep the rows fresh
	}
	m, err := v.c.readMarks(ctx, v.r)
	if m.own && err == nil && v.tx == nil {
		v.c.fresh.Store(&known)
	}
	return m.own, err
}

// mark gives the transaction its own mark before its first change. It rebuilds index rows that do
// not match the declared indexes.
func (t *Tx[T]) mark(ctx context.Context) error {
	if f := t.c.fresh.Load(); f != nil && f.tx.Value() == t.tx {
		return nil
	}
	found, err := t.c.readMarks(ctx, t.tx.Reader)
	switch {
	case err != nil:
	case !found.own:
		err = t.c.reindex(ctx, t.tx, newNonce())
	case len(t.c.o.Indexes) > 0:
		err = t.c.setMark(ctx, t.tx, found, newNonce())
	}
	if err == nil {
		t.c.fresh.Store(&freshness{tx: weak.Make(t.tx)})
	}
	return err
}

// reindex rebuilds all index rows, with a new mark. Unreadable records, and keys that are too long,
// get none. The mark of an empty collection has no nonce, so that all devices begin with the same
// mark.
func (c *Collection[T]) reindex(ctx context.Context, tx *ledger.Tx, nonce []byte) error {
	old, err := c.readMarks(ctx, tx.Reader)
	if err != nil {
		return err
	}
	from, to := c.row(rowIndex, nil), c.row(rowIndex+1, nil)
	if err := tx.DeleteRange(ctx, from, to); err != nil {
		return fmt.Errorf("remove index rows: %w", err)
	}
	prefix, empty := c.row(rowRecord, nil), true
	for e, err := range tx.Scan(ctx, ledger.ScanOptions{Prefix: prefix}) {
		if err != nil {
			return fmt.Errorf("make index rows: %w", err)
		}
		empty = false
		id := string(e.Key[len(prefix):])
		row, err := e.Value(ctx)
		if err != nil {
			return fmt.Errorf("make index rows: %w", err)
		}
		v, err := c.decode(row)
		if err != nil {
			continue
		}
		rows, _ := c.indexed(id, v)
		if err := c.moveRows(ctx, tx, nil, rows); err != nil {
			return c.explain("index", id, err)
		}
	}
	if empty {
		nonce = nil
	}
	return c.setMark(ctx, tx, old, nonce)
}

// MigrateAll rewrites all records of an older Version in one transaction, and returns their number.
// Errors: those of Options.Migrate, with the id of the record; as Put.
func (c *Collection[T]) MigrateAll(ctx context.Context) (n int, err error) {
	_, err = c.page.Update(ctx, func(tx *ledger.Tx) error {
		n = 0
		prefix := c.row(rowRecord, nil)
		for e, err := range tx.Scan(ctx, ledger.ScanOptions{Prefix: prefix}) {
			if err != nil {
				return err
			}
			id := string(e.Key[len(prefix):])
			row, err := e.Value(ctx)
			if err != nil {
				return c.explain("migrate", id, err)
			}
			if !c.isOlder(row) {
				continue
			}
			v, err := c.decode(row)
			if err != nil {
				return c.explain("migrate", id, err)
			}
			if row, err = c.encode(v); err != nil {
				return c.explain("migrate", id, err)
			}
			if err := tx.Put(ctx, c.PageKey(id), row); err != nil {
				return c.explain("migrate", id, err)
			}
			n++
		}
		if n == 0 {
			return nil
		}
		return c.reindex(ctx, tx, newNonce())
	})
	return n, err
}
