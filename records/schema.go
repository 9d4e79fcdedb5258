package records

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger"
)

// schema is the row N 0x00 "m", as JSON: the version of the values, and for each index the version
// of its function. The rows of an index that it does not list, or lists with another version, count
// for nothing.
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
		panic(err) // of numbers and strings
	}
	return b
}

// readSchema reports whether the rows have the schema of c, and returns another one.
func (c *Collection[T]) readSchema(ctx context.Context, r reader) (s schema, same bool, err error) {
	row, err := r.Get(ctx, c.row(rowSchema))
	if errors.Is(err, ledger.ErrNotFound) {
		return s, false, nil
	}
	if err != nil {
		return s, false, fmt.Errorf("read the versions of indexes: %w", err)
	}
	if bytes.Equal(row, c.own) {
		return schema{}, true, nil
	}
	if json.Unmarshal(row, &s) != nil { // it is made again from the records
		return schema{}, false, nil
	}
	return s, false, nil
}

// prepare makes the index rows what the declared indexes say.
func (c *Collection[T]) prepare(ctx context.Context) error {
	var stale bool
	err := c.page.View(ctx, func(s *ledger.Snapshot) error {
		found, same, err := c.readSchema(ctx, s)
		if err == nil && !same && found.Version > c.o.Version {
			err = fmt.Errorf("version %d, known is %d: %w", found.Version, c.o.Version, ErrNewer)
		}
		stale = !same
		return err
	})
	if err != nil || !stale {
		return err
	}
	_, err = c.page.Update(ctx, func(tx *ledger.Tx) error { return c.In(tx).reindexIfStale(ctx) })
	return err
}

// isFresh reports whether the index rows are those of the declared indexes. Of a transaction it is
// enough to know that of what the transaction is based on, since only reindex changes the schema.
func (v *View[T]) isFresh(ctx context.Context) (bool, error) {
	if at := v.c.fresh.Load(); at != nil && *at == v.at {
		return true, nil
	}
	_, same, err := v.c.readSchema(ctx, v.r)
	if same && v.whole {
		v.c.fresh.Store(&v.at)
	}
	return same, err
}

// reindexIfStale makes all index rows again where another program has left them otherwise: one with
// other indexes, or an older one that merged.
func (t *Tx[T]) reindexIfStale(ctx context.Context) error {
	fresh, err := t.isFresh(ctx)
	if err != nil || fresh {
		return err
	}
	return t.c.reindex(ctx, t.tx)
}

// rows is where reindex reads and writes.
type rows interface {
	reader
	writer
	DeleteRange(ctx context.Context, from, to []byte) error
}

// reindex makes all index rows again. Records that cannot be read have none.
func (c *Collection[T]) reindex(ctx context.Context, tx rows) error {
	from, to := c.row(rowIndex), c.row(rowIndex+1)
	if err := tx.DeleteRange(ctx, from, to); err != nil {
		return fmt.Errorf("remove index rows: %w", err)
	}
	prefix := c.row(rowRecord)
	for e, err := range tx.Scan(ctx, ledger.ScanOptions{Prefix: prefix}) {
		if err != nil {
			return fmt.Errorf("make index rows: %w", err)
		}
		id := string(e.Key[len(prefix):])
		row, err := e.Value(ctx)
		if err != nil {
			return fmt.Errorf("make index rows: %w", err)
		}
		v, err := c.decode(row)
		if err != nil {
			continue
		}
		keys, err := c.keys(v)
		if err != nil {
			return c.explain("index", id, err)
		}
		if err := c.moveKeys(ctx, tx, id, nil, keys); err != nil {
			return c.explain("index", id, err)
		}
	}
	if err := tx.Put(ctx, c.row(rowSchema), c.own); err != nil {
		return fmt.Errorf("write the versions of indexes: %w", err)
	}
	return nil
}

// MigrateAll puts all records again that an older Version has written, in one transaction, and
// returns how many there were. Errors: those of Options.Migrate, with the id of the record; as Put.
func (c *Collection[T]) MigrateAll(ctx context.Context) (n int, err error) {
	_, err = c.page.Update(ctx, func(tx *ledger.Tx) error {
		n = 0
		prefix := c.row(rowRecord)
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
		return c.reindex(ctx, tx)
	})
	return n, err
}
