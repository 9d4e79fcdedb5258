package layout

import (
	"bytes"
	"compress/zlib"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/schema"
)

// Stored returns the value of a schema's row.
func Stored(m *schema.Model) []byte {
	var b bytes.Buffer
	w, _ := zlib.NewWriterLevel(&b, zlib.BestCompression)
	_, _ = io.WriteString(w, m.XML()) // a write to a buffer does not fail
	_ = w.Close()
	return b.Bytes()
}

// ParseSchema decodes the value of a schema's row. Errors: base.ErrCorrupt, base.ErrInvalid,
// base.ErrTooLarge, base.ErrUnsupported.
func ParseSchema(value []byte) (*schema.Model, error) {
	r, err := zlib.NewReader(bytes.NewReader(value))
	if err != nil {
		return nil, fmt.Errorf("inflate a schema: %w: %w", err, base.ErrCorrupt)
	}
	document, err := io.ReadAll(io.LimitReader(r, schema.MaxXML+1))
	if err != nil {
		return nil, fmt.Errorf("inflate a schema: %w: %w", err, base.ErrCorrupt)
	}
	return schema.Parse(document)
}

// ParseNumber decodes the part of a key after the prefix of a table: one number above 0. Errors:
// base.ErrCorrupt.
func ParseNumber(rest []byte) (uint32, error) {
	n, size, err := encoding.StrictUint(rest)
	if err == nil && (n == 0 || size != len(rest)) {
		err = fmt.Errorf("key is not one number above 0: %w", base.ErrCorrupt)
	}
	return n, err
}

var text = mustText()

func mustText() *encoding.Encoding {
	e, err := encoding.Builtin(encoding.Prefix + "String")
	if err != nil {
		panic(err) // impossible: the encoding is built in
	}
	return e
}

// ParseSchemaID decodes the value of a storage id's row. Errors: base.ErrCorrupt.
func ParseSchemaID(value []byte) (string, error) {
	if n, err := text.Len(value); err != nil || n != len(value) {
		return "", fmt.Errorf("SchemaId is not one string: %w", base.ErrCorrupt)
	}
	v, err := text.Value(value)
	if err != nil {
		return "", err
	}
	s, ok := v.(string)
	if !ok {
		return "", fmt.Errorf("SchemaId is null: %w", base.ErrCorrupt)
	}
	return s, nil
}

// SchemaIDValue returns the value of a storage id's row.
func SchemaIDValue(id string) []byte {
	b, err := text.Append(nil, id)
	if err != nil {
		return nil // impossible: SchemaIds are ASCII
	}
	return b
}

// ErrUninitialized reports rows without a Permazen database.
var ErrUninitialized = fmt.Errorf("database is not initialized: %w", base.ErrNotFound)

// Load reads the tables. Errors: ErrUninitialized, base.ErrCorrupt, base.ErrInvalid,
// base.ErrUnsupported, those of r and of ctx.
func Load(ctx context.Context, r ordered.Reader) (*Tables, error) {
	raw, err := ReadRaw(ctx, r)
	if err != nil {
		return nil, err
	}
	return raw.Tables()
}

// Raw are the encoded rows of the tables. Equal Raws have equal tables.
type Raw struct{ format, rows []ordered.Row }

// maxTableRows bounds the rows that Load holds in memory.
const maxTableRows = 1 << 20

// ReadRaw reads the rows of the tables. Errors: base.ErrTooLarge, those of r and of ctx.
func ReadRaw(ctx context.Context, r ordered.Reader) (*Raw, error) {
	raw := &Raw{}
	key := FormatKey()
	value, err := r.Get(ctx, key)
	switch {
	case err == nil:
		raw.format = append(raw.format, ordered.Row{Key: key, Value: value})
	case !errors.Is(err, base.ErrNotFound):
		return nil, fmt.Errorf("read the format version: %w", err)
	}
	for row, err := range ordered.Rows(ctx, r, ordered.Range{Start: SchemaTable[:], End: []byte{0, metaStorage + 1}}) {
		if err != nil {
			return nil, fmt.Errorf("read the tables of schemas and storage ids: %w", err)
		}
		if raw.rows = append(raw.rows, row); len(raw.rows) > maxTableRows {
			return nil, fmt.Errorf("more than %d rows of schemas and storage ids: %w", maxTableRows, base.ErrTooLarge)
		}
	}
	return raw, nil
}

// Equal reports whether both have the same rows.
func (raw *Raw) Equal(o *Raw) bool {
	same := func(a, b ordered.Row) bool { return bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value) }
	return slices.EqualFunc(raw.format, o.format, same) && slices.EqualFunc(raw.rows, o.rows, same)
}

// Tables decodes the rows. Errors: as Load.
func (raw *Raw) Tables() (*Tables, error) {
	if len(raw.format) == 0 {
		return nil, ErrUninitialized
	}
	v, n, err := encoding.Uint(raw.format[0].Value)
	if err == nil && n != len(raw.format[0].Value) {
		err = base.ErrCorrupt
	}
	if err != nil {
		return nil, fmt.Errorf("read the format version: %w", err)
	}
	if v != FormatVersion {
		return nil, fmt.Errorf("format version is %d, want %d: %w", v, FormatVersion, base.ErrUnsupported)
	}
	schemas, ids := map[uint32]*Schema{}, map[string]uint32{}
	for _, row := range raw.rows {
		n, err := ParseNumber(row.Key[2:])
		if err != nil {
			return nil, fmt.Errorf("read the table row %x: %w", row.Key, err)
		}
		if row.Key[1] == metaSchema {
			m, err := ParseSchema(row.Value)
			if err != nil {
				return nil, fmt.Errorf("read schema %d: %w", n, err)
			}
			schemas[n] = &Schema{Index: n, Model: m, Stored: row.Value}
			continue
		}
		id, err := ParseSchemaID(row.Value)
		if err != nil {
			return nil, fmt.Errorf("read storage id %d: %w", n, err)
		}
		if other, ok := ids[id]; ok {
			return nil, fmt.Errorf("storage ids %d and %d are both %s: %w", other, n, id, base.ErrCorrupt)
		}
		ids[id] = n
	}
	return New(schemas, ids)
}
