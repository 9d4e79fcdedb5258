package wire

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// version is the first byte of whatever this package encodes.
const version = 1

// checkVersion verifies a version byte.
func checkVersion(where string, v byte) error {
	if v > version {
		return &base.FormatError{What: where, Found: uint64(v), Supported: version}
	}
	if v < version {
		return corrupt(where, fmt.Errorf("format version %d", v))
	}
	return nil
}

// corrupt returns the error for bytes that no encoder writes.
func corrupt(where string, err error) error { return &base.CorruptError{Where: where, Err: err} }

// invalid returns the error for a value that cannot be encoded.
func invalid(what string, err error) error {
	if errors.Is(err, base.ErrTooLarge) {
		return fmt.Errorf("encode %s: %w", what, err)
	}
	return fmt.Errorf("encode %s: %v: %w", what, err, base.ErrInvalid)
}

// decoder reads fields from the front of b. Its first error stays, and zero values follow it.
// Slices that it returns borrow b.
type decoder struct {
	where string
	b     []byte
	err   error
}

// decode returns a decoder of b that stands behind the version byte.
func decode(where string, b []byte) *decoder {
	d := &decoder{where: where, b: b}
	if v := d.byte(); d.err == nil {
		d.err = checkVersion(where, v)
	}
	return d
}

func (d *decoder) failf(format string, args ...any) {
	if d.err == nil {
		d.err = corrupt(d.where, fmt.Errorf(format, args...))
	}
}

// end returns the first error, or one for bytes that are left.
func (d *decoder) end() error {
	if len(d.b) > 0 {
		d.failf("%d bytes behind the end", len(d.b))
	}
	return d.err
}

// bytes reads n bytes, without capacity beyond them.
func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.failf("a field of %d bytes, and %d are left", n, len(d.b))
	}
	if d.err != nil {
		return nil
	}
	out := d.b[:n:n]
	d.b = d.b[n:]
	return out
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// flags reads a byte that has no other bits than those of known.
func (d *decoder) flags(known byte) byte {
	f := d.byte()
	if f&^known != 0 {
		d.failf("flags %#02x, known are %#02x", f, known)
	}
	return f
}

// uvarint reads a number from least to most in its shortest form.
func (d *decoder) uvarint(what string, least, most uint64) uint64 {
	if d.err != nil {
		return 0
	}
	v, n := binary.Uvarint(d.b)
	if n <= 0 || n > 1 && d.b[n-1] == 0 {
		d.failf("%s is no number in its shortest form", what)
		return 0
	}
	if v < least || v > most {
		d.failf("%s is %d, not %d to %d", what, v, least, most)
		return 0
	}
	d.b = d.b[n:]
	return v
}

// uint64 reads 8 bytes, big-endian.
func (d *decoder) uint64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

// count reads the length of a list whose members have at least each bytes, so that what is left
// bounds it.
func (d *decoder) count(what string, least uint64, each int) int {
	n := d.uvarint("number of "+what, least, 1<<62)
	if n > uint64(len(d.b)/each) {
		d.failf("%d %s in %d bytes", n, what, len(d.b))
		return 0
	}
	return int(n)
}

// sized reads a length from least to most, and as many bytes.
func (d *decoder) sized(what string, least, most uint64) []byte {
	return d.bytes(d.uvarint("length of "+what, least, most))
}

func (d *decoder) id() (id epoch.ID) {
	copy(id[:], d.bytes(uint64(len(id))))
	return id
}

func (d *decoder) hash() (h epoch.Hash) {
	copy(h[:], d.bytes(uint64(len(h))))
	return h
}

func (d *decoder) commitID() (id commit.ID) {
	copy(id[:], d.bytes(uint64(len(id))))
	if id.IsZero() {
		d.failf("id of a commit is zero")
	}
	return id
}

func (d *decoder) digest() (g object.Digest) {
	copy(g[:], d.bytes(uint64(len(g))))
	if !g.Valid() {
		d.failf("a digest has the kind %d", g[0])
	}
	return g
}

// commits reads a set of commits of which there are at least so many.
func (d *decoder) commits(least uint64) epoch.Set {
	n := d.uvarint("number of commits", least, uint64(len(d.b)/8))
	if d.err != nil || n == 0 {
		return nil
	}
	set := make(epoch.Set, n)
	for i := range set {
		set[i] = epoch.Commit(d.uint64())
		if set[i] == 0 || i > 0 && set[i-1] >= set[i] {
			d.failf("commits are not ascending, or one is zero")
			return nil
		}
	}
	return set
}

func appendSized[T string | []byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func appendCommits(b []byte, set epoch.Set) []byte {
	b = binary.AppendUvarint(b, uint64(len(set)))
	for _, c := range set {
		b = binary.BigEndian.AppendUint64(b, uint64(c))
	}
	return b
}

// checkCommits returns what is wrong with a set of commits.
func checkCommits(set epoch.Set) error {
	for i, c := range set {
		if c == 0 || i > 0 && set[i-1] >= c {
			return errors.New("commits are not ascending, or one is zero")
		}
	}
	return nil
}
