package layout

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/permazen/encoding"
)

// FormatVersion is the only supported version of the format.
const FormatVersion = 1

// Second bytes of keys that begin with 0x00.
const (
	metaFormat  = 0x00
	metaSchema  = 0x01
	metaStorage = 0x02
	metaObjects = 0x80
	metaUser    = 0xff
)

// CounterBytes is the length of a counter's value.
const CounterBytes = 8

// IDBytes is the length of an object id.
const IDBytes = len(encoding.ObjID{})

// FormatKey returns the key of the format version.
func FormatKey() []byte { return []byte("\x00\x00Permazen\x00") }

// FormatValue returns the value of the format version.
func FormatValue() []byte { return []byte{FormatVersion} }

// SchemaKey returns the key of the schema with an index.
func SchemaKey(index uint32) []byte { return encoding.AppendUint([]byte{0, metaSchema}, index) }

// StorageKey returns the key of a storage id.
func StorageKey(id uint32) []byte { return encoding.AppendUint([]byte{0, metaStorage}, id) }

// ObjectsPrefix returns the prefix of one schema's keys in the schema index. The id of an object
// follows it.
func ObjectsPrefix(index uint32) []byte { return encoding.AppendUint([]byte{0, metaObjects}, index) }

// Prefixes of the tables and of the app's rows.
var (
	SchemaTable  = [2]byte{0, metaSchema}
	StorageTable = [2]byte{0, metaStorage}
	ObjectsTable = [2]byte{0, metaObjects}
	UserRows     = [2]byte{0, metaUser}
)

// MetaValue returns the value of an object's first row.
func MetaValue(schema uint32) []byte { return encoding.AppendUint(nil, schema) }

// ParseMeta decodes the value of an object's first row. flags is 0 when the value has no flags.
// Errors: base.ErrCorrupt.
func ParseMeta(value []byte) (schema uint32, flags byte, err error) {
	schema, n, err := encoding.StrictUint(value)
	switch {
	case err != nil:
	case schema == 0 || len(value) > n+1:
		err = fmt.Errorf("first row of an object has %d bytes for schema %d: %w", len(value), schema, base.ErrCorrupt)
	case len(value) == n+1:
		flags = value[n]
	}
	return schema, flags, err
}

// CounterValue returns the value of a counter's row.
func CounterValue(n int64) []byte {
	return binary.BigEndian.AppendUint64(make([]byte, 0, CounterBytes), uint64(n))
}

// ParseCounter decodes the value of a counter's row. Errors: base.ErrCorrupt.
func ParseCounter(value []byte) (int64, error) {
	if len(value) != CounterBytes {
		return 0, fmt.Errorf("counter has %d bytes, want %d: %w", len(value), CounterBytes, base.ErrCorrupt)
	}
	return int64(binary.BigEndian.Uint64(value)), nil
}

// CheckLength refuses a length that list indexes cannot express. Errors: base.ErrTooLarge.
func CheckLength(n int) error {
	if n > math.MaxInt32 {
		return fmt.Errorf("list has %d elements: %w", n, base.ErrTooLarge)
	}
	return nil
}

func isNotFound(err error) bool { return errors.Is(err, base.ErrNotFound) }
