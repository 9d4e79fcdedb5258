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

// version is the first byte of every encoding of this package.
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

// coder writes fields one after the other, or reads them from the front of b: one description, with
// the bounds of the fields, serves both. Writing does not change the fields, which others may read
// concurrently. The first error stays, and zero values follow it. Slices that are read borrow b.
type coder struct {
	where   string
	b       []byte // the bytes written, or left to read
	reading bool
	before  *Commit // the last one of the stream, nil before the first
	err     error
}

// encode returns a coder that has written the version byte.
func encode(where string) *coder { return &coder{where: where, b: []byte{version}} }

// decode returns a coder of b that has read the version byte.
func decode(where string, b []byte) *coder {
	c := &coder{where: where, b: b, reading: true}
	var v byte
	if c.byte(&v); c.err == nil {
		c.err = checkVersion(where, v)
	}
	return c
}

func (c *coder) failf(format string, args ...any) {
	switch err := fmt.Errorf(format, args...); {
	case c.err != nil:
	case c.reading:
		c.err = corrupt(c.where, err)
	default:
		c.err = invalid(c.where, err)
	}
}

// refuse fails if bad is true.
func (c *coder) refuse(bad bool, format string, args ...any) {
	if bad {
		c.failf(format, args...)
	}
}

// end returns the first error, or one if bytes are left.
func (c *coder) end() error {
	c.refuse(len(c.b) > 0, "%d bytes behind the end", len(c.b))
	return c.err
}

// bytes reads n bytes, without capacity beyond them.
func (c *coder) bytes(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.failf("a field of %d bytes, and %d are left", n, len(c.b))
	}
	if c.err != nil {
		return nil
	}
	out := c.b[:n:n]
	c.b = c.b[n:]
	return out
}

// byte codes one byte.
func (c *coder) byte(v *byte) {
	if !c.reading {
		c.b = append(c.b, *v)
		return
	}
	*v = 0
	if b := c.bytes(1); b != nil {
		*v = b[0]
	}
}

// flags codes a byte with no other bits than those of known.
func (c *coder) flags(v *byte, known byte) {
	if c.byte(v); *v&^known != 0 {
		c.failf("flags %#02x, known are %#02x", *v, known)
	}
}

// bit returns flag if set is true, else 0.
func bit(set bool, flag byte) byte {
	if set {
		return flag
	}
	return 0
}

// fixed codes as many bytes as the slices have.
func (c *coder) fixed(all ...[]byte) {
	for _, b := range all {
		if !c.reading {
			c.b = append(c.b, b...)
		} else if n := copy(b, c.bytes(uint64(len(b)))); n < len(b) {
			clear(b)
		}
	}
}

// rest codes everything up to the end.
func (c *coder) rest(b *[]byte) {
	if !c.reading {
		c.b = append(c.b, *b...)
		return
	}
	*b, c.b = c.b, nil
}

// number codes a number from least to most in its shortest form.
func (c *coder) number(v *uint64, what string, least, most uint64) {
	if c.reading {
		*v = c.uvarint(what, least, most)
		return
	}
	c.within(what, *v, least, most)
	c.b = binary.AppendUvarint(c.b, *v)
}

// within fails unless v is from least to most.
func (c *coder) within(what string, v, least, most uint64) bool {
	ok := v >= least && v <= most
	if !ok {
		c.failf("%s is %d, not %d to %d", what, v, least, most)
	}
	return ok
}

// number is coder.number for a field of another type.
func number[T ~uint32 | ~int64](c *coder, v *T, what string, least, most uint64) {
	x := uint64(*v)
	if c.number(&x, what, least, most); c.reading {
		*v = T(x)
	}
}

// uvarint reads a number from least to most in its shortest form.
func (c *coder) uvarint(what string, least, most uint64) uint64 {
	if c.err != nil {
		return 0
	}
	v, n := binary.Uvarint(c.b)
	if n <= 0 || n > 1 && c.b[n-1] == 0 {
		c.failf("%s is no number in its shortest form", what)
		return 0
	}
	if !c.within(what, v, least, most) {
		return 0
	}
	c.b = c.b[n:]
	return v
}

// count reads the length of a list whose members have at least each bytes. So the remaining bytes
// bound it.
func (c *coder) count(what string, least uint64, each int) int {
	n := c.uvarint("number of "+what, least, 1<<62)
	if n > uint64(len(c.b)/each) {
		c.failf("%d %s in %d bytes", n, what, len(c.b))
		return 0
	}
	return int(n)
}

// sized codes a length from least to most, and as many bytes.
func (c *coder) sized(b *[]byte, what string, least, most uint64) {
	n := uint64(len(*b))
	if c.number(&n, what, least, most); c.reading {
		*b = c.bytes(n)
		return
	}
	c.b = append(c.b, *b...)
}

// ids codes ids, none of which is zero.
func (c *coder) ids(all ...*epoch.ID) {
	for _, id := range all {
		if c.fixed(id[:]); *id == (epoch.ID{}) {
			c.failf("id of an epoch or object is zero")
		}
	}
}

func (c *coder) commitID(id *commit.ID) {
	if c.fixed(id[:]); id.IsZero() {
		c.failf("id of a commit is zero")
	}
}

func (c *coder) digest(g *object.Digest) {
	if c.fixed(g[:]); !g.Valid() {
		c.failf("a digest has the kind %d", g[0])
	}
}

// commits codes a set of least to most commits.
func (c *coder) commits(set *epoch.Set, least, most uint64) {
	n := uint64(len(*set))
	if c.reading {
		most = min(most, uint64(len(c.b)/8))
	}
	if c.number(&n, "number of commits", least, most); c.reading && n > 0 {
		*set = make(epoch.Set, n)
	}
	for i, id := range *set {
		if !c.reading {
			c.b = binary.BigEndian.AppendUint64(c.b, uint64(id))
		} else if b := c.bytes(8); b != nil {
			(*set)[i] = epoch.Commit(binary.BigEndian.Uint64(b))
		}
	}
	if err := checkCommits(*set); err != nil {
		c.failf("%w", err)
	}
}

func appendSized[T string | []byte](b []byte, v T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

// checkCommits returns an error for a set that is not ascending or has a zero.
func checkCommits(set epoch.Set) error {
	for i, c := range set {
		if c == 0 || i > 0 && set[i-1] >= c {
			return errors.New("commits are not ascending, or one is zero")
		}
	}
	return nil
}
