package keyspace

import (
	"bytes"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
)

// Scheme is a way to write namespaces and a key as a row. There is at least one namespace, the
// outermost first. LengthPrefixed, Hex and Escaped implement it.
type Scheme interface {
	// Encode returns the row of key in ns, in memory of its own. Errors: base.ErrInvalid when ns is
	// empty or its depth does not fit the scheme; base.ErrTooLarge when a name is longer than the
	// scheme allows.
	Encode(ns [][]byte, key []byte) ([]byte, error)
	// Append appends the row of key in ns to dst, which must not overlap with them. It allocates
	// only when dst is too short. Errors are those of Encode; dst is then returned unchanged.
	Append(dst []byte, ns [][]byte, key []byte) ([]byte, error)
	// Decode splits a row. ns and key may share memory with row. A byte string that Encode does not
	// write gives a *base.CorruptError.
	Decode(row []byte) (ns [][]byte, key []byte, err error)
	// Prefix returns the common beginning of all rows directly in ns. When Properties.DirectRange
	// is false, rows of namespaces below ns begin with it too, and a scan must skip them (use In).
	// Errors are those of Encode.
	Prefix(ns [][]byte) ([]byte, error)
	// Subtree returns the range of all rows in ns and below it: from is the first possible row, to
	// the first one past the range, nil when there is none. Errors are those of Encode.
	Subtree(ns [][]byte) (from, to []byte, err error)
	// Properties returns the properties of the scheme.
	Properties() Properties
}

// Properties are the properties of a scheme; the package comment defines them.
type Properties struct {
	AnyBytes       bool // K1; false: names have a greatest length
	Injective      bool // K2
	KeyOrder       bool // K3
	NamespaceOrder bool // K4
	Nesting        bool // K5
	MixedDepth     bool // namespaces of different depths may share a store
	DirectRange    bool // the rows that begin with Prefix are exactly those directly in the namespace
}

// PrefixEnd returns the first byte string after all that begin with prefix; nil when there is none,
// because prefix is empty or all 0xff. It returns memory of its own.
func PrefixEnd(prefix []byte) []byte { return base.PrefixEnd(prefix) }

// In reports whether row is directly in ns. A row that s does not write is in none. It is for scans
// by Prefix when Properties.DirectRange is false.
func In(s Scheme, ns [][]byte, row []byte) bool {
	got, _, err := s.Decode(row)
	if err != nil || len(got) != len(ns) {
		return false
	}
	for i := range ns {
		if !bytes.Equal(got[i], ns[i]) {
			return false
		}
	}
	return true
}

func errNoNamespace() error {
	return fmt.Errorf("encode key: no namespace: %w", base.ErrInvalid)
}

// malformed returns the error for a row that no encoder writes. It contains no byte of the row.
func malformed(want, got string, args ...any) error {
	return &base.CorruptError{Where: "key", Want: want, Got: fmt.Sprintf(got, args...)}
}
