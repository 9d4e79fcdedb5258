package permazen

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/layout"
	"github.com/ledgerd/ledger/permazen/schema"
)

// Removal selects when Begin removes schemas that no object has.
type Removal uint8

// The times of removal.
const (
	// RemoveOnChange removes unused schemas when Begin adds a schema.
	RemoveOnChange Removal = iota
	// RemoveAlways removes them in each Begin. RemoveNever leaves them to Tx.RemoveSchemas.
	RemoveAlways
	RemoveNever
)

// Options configure a DB. The zero value and a nil pointer are the defaults.
type Options struct {
	// Random is the source of the bytes of new object ids. The default is crypto/rand.
	Random io.Reader
	// Removal selects when schemas that no object has are removed.
	Removal Removal
	// FixedSchema makes Begin refuse to add a schema to a database that has others.
	FixedSchema bool
	// Migrate is called after each migration of an object, to set values whose type changed. It may
	// use the transaction. Its error fails the call that uses the object.
	Migrate func(ctx context.Context, m *Migration) error
}

// DB is the schema and the options of a program for its databases. It is safe for concurrent use.
type DB struct {
	model *schema.Model
	o     Options

	mu     sync.Mutex
	raw    *layout.Raw // guarded by mu; the rows from which tables was made
	tables *layout.Tables
}

// New returns a DB with the schema m, which must not change afterwards. o may be nil. Errors: as
// schema.Model.Normalize.
func New(m *schema.Model, o *Options) (*DB, error) {
	if err := m.Normalize(); err != nil {
		return nil, fmt.Errorf("check the schema: %w", err)
	}
	db := &DB{model: m}
	if o != nil {
		db.o = *o
	}
	if db.o.Random == nil {
		db.o.Random = rand.Reader
	}
	return db, nil
}

// Model returns the schema. The caller must not change it.
func (db *DB) Model() *schema.Model { return db.model }

// load returns the tables in r. It decodes them again only when their rows have changed.
func (db *DB) load(ctx context.Context, r ordered.Reader) (*layout.Tables, error) {
	raw, err := layout.ReadRaw(ctx, r)
	if err != nil {
		return nil, err
	}
	db.mu.Lock()
	if db.raw != nil && db.raw.Equal(raw) {
		t := db.tables
		db.mu.Unlock()
		return t, nil
	}
	db.mu.Unlock()
	t, err := raw.Tables()
	if err != nil {
		return nil, err
	}
	db.mu.Lock()
	db.raw, db.tables = raw, t
	db.mu.Unlock()
	return t, nil
}

// Begin returns a transaction on w. It initializes an empty database and adds a new schema. Errors:
// base.ErrInvalid when w has other rows, base.ErrConflict when the schema is new and
// Options.FixedSchema is set, base.ErrCorrupt, base.ErrUnsupported, those of w and of ctx.
func (db *DB) Begin(ctx context.Context, w ordered.Writer) (*Tx, error) {
	old, err := db.load(ctx, w)
	if errors.Is(err, layout.ErrUninitialized) {
		old, err = nil, checkEmpty(ctx, w)
	}
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	base := old
	if base == nil {
		if base, err = layout.New(nil, map[string]uint32{}); err != nil {
			return nil, fmt.Errorf("begin: %w", err)
		}
	}
	tables, current, err := base.With(db.model)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	added := tables != base
	if added && db.o.FixedSchema && len(base.Schemas) > 0 {
		return nil, fmt.Errorf("begin: the schema is not in the database: %w", errFixed)
	}
	tx := &Tx{db: db, r: w, w: w, tables: tables, schema: current}
	if added {
		if err := tables.Write(ctx, w, old); err != nil {
			return nil, fmt.Errorf("begin: %w", err)
		}
	}
	if added && db.o.Removal == RemoveOnChange || db.o.Removal == RemoveAlways {
		if _, err := tx.RemoveSchemas(ctx); err != nil {
			return nil, fmt.Errorf("begin: %w", err)
		}
	}
	return tx, nil
}

var errFixed = fmt.Errorf("it may not be added: %w", base.ErrConflict)

// checkEmpty refuses rows that are no database, except rows of the app.
func checkEmpty(ctx context.Context, r ordered.Reader) error {
	user := layout.UserRows[:]
	for _, rg := range []ordered.Range{{End: user}, {Start: ordered.PrefixEnd(user)}} {
		rg.KeysOnly = true
		it := r.Iter(rg)
		found := it.Next(ctx)
		err := errors.Join(it.Err(), it.Close())
		if err != nil {
			return err
		}
		if found {
			return fmt.Errorf("there are rows that are no Permazen database: %w", base.ErrInvalid)
		}
	}
	return nil
}

// View returns a read-only transaction on r, such as a snapshot. It shows objects of other schemas
// as if they were migrated, without Options.Migrate. Errors: base.ErrCorrupt, base.ErrUnsupported,
// those of r and of ctx.
func (db *DB) View(ctx context.Context, r ordered.Reader) (*Tx, error) {
	tables, err := db.load(ctx, r)
	if errors.Is(err, layout.ErrUninitialized) {
		tables, err = layout.New(nil, map[string]uint32{})
	}
	if err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	with, current, err := tables.With(db.model)
	if err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	return &Tx{db: db, r: r, tables: with, schema: current}, nil
}
