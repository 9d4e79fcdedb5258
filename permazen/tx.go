package permazen

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/layout"
	"github.com/ledgerd/ledger/permazen/schema"
)

// Tx reads and changes objects. Every method can fail with base.ErrCorrupt for damaged rows, with
// errors of the store or of ctx, and with the errors that its comment names. Methods that write
// fail with base.ErrReadOnly in a Tx of View.
//
// Values have the Go types of encoding.Builtin. References are ObjID, enums string, null is nil.
type Tx struct {
	db     *DB
	r      ordered.Reader
	w      ordered.Writer // nil in a view
	tables *layout.Tables
	schema *layout.Schema

	last     ObjID // the object used last, and its type
	lastType *layout.Type
}

// Tables returns the schemas of the database.
func (tx *Tx) Tables() *layout.Tables { return tx.tables }

// Schema returns the schema of the transaction.
func (tx *Tx) Schema() *layout.Schema { return tx.schema }

func (tx *Tx) writable() error {
	if tx.w == nil {
		return fmt.Errorf("change a view: %w", base.ErrReadOnly)
	}
	return nil
}

// typeNamed returns the type with a name in the schema of the transaction.
func (tx *Tx) typeNamed(name string) (*layout.Type, error) {
	if t := tx.schema.Named(name); t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("type %.100q: %w", name, ErrNoType)
}

// use returns the type of an object in the schema of the transaction. It migrates an object of
// another schema.
func (tx *Tx) use(ctx context.Context, id ObjID) (*layout.Type, error) {
	if tx.lastType != nil && id == tx.last {
		return tx.lastType, nil
	}
	t, err := tx.tables.ReadMeta(ctx, tx.r, id)
	if err != nil {
		return nil, err
	}
	if t == nil {
		return nil, fmt.Errorf("object %s: %w", id, ErrNoObject)
	}
	if t.Schema.Index != tx.schema.Index {
		if t, err = tx.migrate(ctx, id, t); err != nil {
			return nil, err
		}
	}
	tx.last, tx.lastType = id, t
	return t, nil
}

// forget clears the cached object after a deletion.
func (tx *Tx) forget() { tx.lastType = nil }

// Exists reports whether an object exists.
func (tx *Tx) Exists(ctx context.Context, id ObjID) (bool, error) {
	t, err := tx.tables.ReadMeta(ctx, tx.r, id)
	return t != nil, err
}

// TypeName returns the name of an object's type. Errors: ErrNoObject, ErrNoType.
func (tx *Tx) TypeName(ctx context.Context, id ObjID) (string, error) {
	t, err := tx.use(ctx, id)
	if err != nil {
		return "", err
	}
	return t.Model.Name, nil
}

// Create makes an object of a type with a new id. Errors: ErrNoType.
func (tx *Tx) Create(ctx context.Context, typeName string) (ObjID, error) {
	id, err := tx.newID(ctx, typeName)
	if err != nil {
		return ObjID{}, fmt.Errorf("create an object: %w", err)
	}
	t, err := tx.typeNamed(typeName)
	if err != nil {
		return ObjID{}, fmt.Errorf("create an object: %w", err)
	}
	return id, tx.insert(ctx, layout.NewObject(id, t))
}

// CreateID creates an object with the given id and reports whether the id was free. Errors:
// ErrNoType.
func (tx *Tx) CreateID(ctx context.Context, id ObjID) (bool, error) {
	if err := tx.writable(); err != nil {
		return false, err
	}
	t := tx.schema.Type(id.Type())
	if t == nil {
		return false, fmt.Errorf("create object %s: %w", id, ErrNoType)
	}
	if there, err := tx.Exists(ctx, id); there || err != nil {
		return false, err
	}
	return true, tx.insert(ctx, layout.NewObject(id, t))
}

// newID returns an unused id.
func (tx *Tx) newID(ctx context.Context, typeName string) (ObjID, error) {
	if err := tx.writable(); err != nil {
		return ObjID{}, err
	}
	t, err := tx.typeNamed(typeName)
	if err != nil {
		return ObjID{}, err
	}
	for {
		var id ObjID
		n := copy(id[:], encoding.AppendUint(nil, t.ID))
		if _, err := io.ReadFull(tx.db.o.Random, id[n:]); err != nil {
			return ObjID{}, fmt.Errorf("draw an object id: %w", err)
		}
		if _, err := tx.r.Get(ctx, id[:]); errors.Is(err, base.ErrNotFound) {
			return id, nil
		} else if err != nil {
			return ObjID{}, err
		}
	}
}

// insert writes a new object.
func (tx *Tx) insert(ctx context.Context, o *layout.Object) (err error) {
	o.Each(func(key, value []byte) {
		if err == nil {
			err = tx.w.Put(ctx, key, value)
		}
	})
	if err != nil {
		return fmt.Errorf("write object %s: %w", o.ID, err)
	}
	tx.last, tx.lastType = o.ID, o.Type
	return nil
}

// RemoveSchemas removes the schemas that no object has, except the schema of the transaction. It
// also removes storage ids that no schema uses any more. It returns the number of removed schemas.
func (tx *Tx) RemoveSchemas(ctx context.Context) (int, error) {
	if err := tx.writable(); err != nil {
		return 0, err
	}
	unused := map[uint32]bool{}
	for index := range tx.tables.Schemas {
		if index == tx.schema.Index {
			continue
		}
		used, err := tx.tables.HasObjects(ctx, tx.r, index)
		if err != nil {
			return 0, fmt.Errorf("remove schemas: %w", err)
		}
		if !used {
			unused[index] = true
		}
	}
	if len(unused) == 0 {
		return 0, nil
	}
	tables, err := tx.tables.Without(func(s *layout.Schema) bool { return unused[s.Index] })
	if err == nil {
		err = tables.Write(ctx, tx.w, tx.tables)
	}
	if err != nil {
		return 0, fmt.Errorf("remove schemas: %w", err)
	}
	tx.tables, tx.schema = tables, tables.Schemas[tx.schema.Index]
	tx.forget()
	return len(unused), nil
}

// checkValue encodes a value for a field and checks references. Errors: base.ErrInvalid,
// ErrBadReference.
func (tx *Tx) checkValue(ctx context.Context, f *layout.Field, v any) ([]byte, error) {
	b, err := f.Codec.Append(nil, v)
	if err != nil {
		return nil, fmt.Errorf("field %s: %w", f.Name(), err)
	}
	if f.Model.Kind != schema.Reference || v == nil {
		return b, nil
	}
	if id, ok := v.(ObjID); ok {
		err = tx.checkTarget(ctx, f, id)
	}
	if err != nil {
		return nil, fmt.Errorf("field %s: %w", f.Name(), err)
	}
	return b, nil
}

// checkTarget refuses a reference that the field does not allow.
func (tx *Tx) checkTarget(ctx context.Context, f *layout.Field, id ObjID) error {
	if !f.MayRefer(id) {
		return fmt.Errorf("object %s is of another type: %w", id, ErrBadReference)
	}
	if f.Model.AllowDeleted {
		return nil
	}
	there, err := tx.Exists(ctx, id)
	if err == nil && !there {
		err = fmt.Errorf("object %s does not exist: %w", id, ErrBadReference)
	}
	return err
}
