package format

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// formatVersion is the version of every encoding of this package: its first byte.
const formatVersion = 1

// corrupt returns the error for bytes of where that nobody writes.
func corrupt(where string, err error) error { return &base.CorruptError{Where: where, Err: err} }

// invalid returns the error for a value of what that cannot be encoded.
func invalid(what string, err error) error {
	if errors.Is(err, base.ErrTooLarge) {
		return fmt.Errorf("encode %s: %w", what, err)
	}
	return fmt.Errorf("encode %s: %v: %w", what, err, base.ErrInvalid)
}

// decoder reads canonical bytes front to back. Its first error sticks, and from then on it gives
// zero values. What it gives borrows from the input.
type decoder struct {
	where string
	b     []byte
	at    int
	err   error
}

// decode returns a decoder of b that stands behind the version byte.
func decode(where string, b []byte) *decoder {
	d := &decoder{where: where, b: b}
	d.err = checkVersion(where, d.byte())
	return d
}

// checkVersion verifies a version byte.
func checkVersion(where string, version byte) error {
	if version > formatVersion {
		return &base.FormatError{What: where, Found: uint64(version), Supported: formatVersion}
	}
	if version < formatVersion {
		return corrupt(where, fmt.Errorf("format version %d", version))
	}
	return nil
}

func (d *decoder) failf(format string, args ...any) {
	if d.err == nil {
		d.err = corrupt(d.where, fmt.Errorf(format, args...))
	}
}

// left returns how many bytes are not read yet.
func (d *decoder) left() int { return len(d.b) - d.at }

// end reports the first error, or bytes that are left.
func (d *decoder) end() error {
	if d.left() > 0 {
		d.failf("%d bytes behind the end", d.left())
	}
	return d.err
}

// bytes reads n bytes. The slice has no capacity beyond them.
func (d *decoder) bytes(n uint64) []byte {
	if n > uint64(d.left()) {
		d.failf("%d bytes at %d, and %d are left", n, d.at, d.left())
	}
	if d.err != nil {
		return nil
	}
	from := d.at
	d.at += int(n)
	return d.b[from:d.at:d.at]
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// uvarint reads a number from least to most in its shortest form.
func (d *decoder) uvarint(what string, least, most uint64) uint64 {
	if d.err != nil {
		return 0
	}
	v, n := shortUvarint(d.b[d.at:])
	if n == 0 {
		d.failf("%s at %d is no number in its shortest form", what, d.at)
		return 0
	}
	if v < least || v > most {
		d.failf("%s is %d, not %d to %d", what, v, least, most)
		return 0
	}
	d.at += n
	return v
}

// shortUvarint reads a uvarint in its shortest form; n is 0 when there is none.
func shortUvarint(b []byte) (v uint64, n int) {
	v, n = binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, 0
	}
	return v, n
}

// count reads the length of a list whose members have at least each bytes, so that what is left
// bounds it.
func (d *decoder) count(what string, least uint64, each int) int {
	n := d.uvarint("number of "+what, least, 1<<62)
	if n > uint64(d.left()/each) {
		d.failf("%d %s in %d bytes", n, what, d.left())
		return 0
	}
	return int(n)
}

// lengthAndBytes reads a length from least to most, and as many bytes.
func (d *decoder) lengthAndBytes(what string, least, most uint64) []byte {
	return d.bytes(d.uvarint("length of "+what, least, most))
}

func (d *decoder) id() (id ID) { copy(id[:], d.bytes(uint64(len(id)))); return id }

func (d *decoder) digest() (g object.Digest) { copy(g[:], d.bytes(uint64(len(g)))); return g }

func appendLengthAndBytes[T string | []byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}
