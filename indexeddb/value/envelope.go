package value

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/klauspost/compress/snappy"

	"github.com/ledgerd/ledger/internal/base"
)

// Bytes of the envelopes.
const (
	tagVersion = 0xff
	tagTrailer = 0xfe
	// wrapVersion is a Blink version that no value has. It marks a wrapped value; the kind of
	// wrapping follows.
	wrapVersion  = 17
	wrapBlob     = 1
	wrapSnappy   = 2
	trailerBytes = 12
	// tagInterfaces begins a trailer. trailerAt is the offset of the reference to the trailer that
	// Encode writes.
	tagInterfaces = 0xa0
	trailerAt     = 3
	// hostTag begins host objects, and so references to external objects.
	hostTag = '\\'
)

// The supported versions. From trailerVersion on, Blink writes a reference to a trailer.
const (
	minBlink, maxBlink = 16, 21
	trailerVersion     = 21
	minV8, maxV8       = 13, 16
)

// MaxBytes is the greatest length of a serialized value that Decode accepts, after decompression.
const MaxBytes = 512 << 20

// Decode decodes a serialized value, which may be compressed. When the value is in an external
// object, Decode returns a *Wrapped, and the caller then decodes the content of that object. The
// result shares no memory with b. Errors: base.ErrCorrupt, base.ErrUnsupported for unknown versions
// and tags, base.ErrTooLarge.
func Decode(b []byte) (Value, error) { return DecodeBounded(b, MaxBytes) }

// DecodeBounded is Decode for values of at most maxBytes after decompression.
func DecodeBounded(b []byte, maxBytes int) (Value, error) {
	switch w, err := Unwrap(b); {
	case err != nil:
		return nil, err
	case w != nil:
		return w, nil
	}
	if len(b) >= 3 && b[0] == tagVersion && b[1] == wrapVersion && b[2] == wrapSnappy {
		raw, err := decompress(b[3:], maxBytes)
		if err != nil {
			return nil, err
		}
		b = raw
	}
	if len(b) > maxBytes {
		return nil, tooLarge(len(b), maxBytes)
	}
	d := decoders.Get().(*decoder)
	defer d.free()
	d.b = b
	if err := d.envelope(); err != nil {
		return nil, err
	}
	v := d.value(0)
	if d.err == nil && d.at < len(d.b) {
		d.corrupt("%d bytes behind it", len(d.b)-d.at)
	}
	if d.err != nil {
		return nil, d.err
	}
	return v, nil
}

// MayRefer reports whether the serialized value b may refer to external objects. The result false
// is certain.
func MayRefer(b []byte) bool {
	return bytes.IndexByte(b, hostTag) >= 0 || len(b) >= 2 && b[0] == tagVersion && b[1] == wrapVersion
}

func tooLarge(n, limit int) error {
	return fmt.Errorf("decode a value of %d bytes, limit %d: %w", n, limit, base.ErrTooLarge)
}

// Unwrap returns the reference to the external object that contains the value, or nil when b is the
// value itself. Errors: base.ErrCorrupt.
func Unwrap(b []byte) (*Wrapped, error) {
	if len(b) < 3 || b[0] != tagVersion || b[1] != wrapVersion || b[2] != wrapBlob {
		return nil, nil
	}
	b = b[3:]
	size, n := binary.Uvarint(b)
	if n <= 0 || size > 1<<32 {
		return nil, corruptValue("wrapped without a size")
	}
	index, m := binary.Uvarint(b[n:])
	if m <= 0 || index > 1<<31 || n+m != len(b) {
		return nil, corruptValue("wrapped without an index")
	}
	return &Wrapped{Size: int64(size), Index: int(index)}, nil
}

func decompress(b []byte, maxBytes int) ([]byte, error) {
	n, err := snappy.DecodedLen(b)
	if err != nil || n > 32*len(b)+64 { // the greatest compression of snappy is a factor of some 21
		return nil, corruptValue("its compressed form is malformed")
	}
	if n > maxBytes {
		return nil, tooLarge(n, maxBytes)
	}
	raw, err := snappy.Decode(nil, b)
	if err != nil {
		return nil, corruptValue("its compressed form is malformed")
	}
	return raw, nil
}

// envelope reads both versions. It cuts off the trailer, a list of interfaces that is not needed.
func (d *decoder) envelope() error {
	blink := d.version("Blink", minBlink, maxBlink)
	if blink >= trailerVersion && d.err == nil {
		if len(d.b) < d.at+1+trailerBytes || d.b[d.at] != tagTrailer {
			d.corrupt("no reference to a trailer")
			return d.err
		}
		offset, size := binary.BigEndian.Uint64(d.b[d.at+1:]), binary.BigEndian.Uint32(d.b[d.at+9:])
		d.at += 1 + trailerBytes
		switch end := uint64(len(d.b)); {
		case offset == 0 && size == 0:
		case offset < uint64(d.at) || offset > end || uint64(size) != end-offset:
			d.corrupt("a trailer that is elsewhere")
		default:
			d.b = d.b[:offset]
		}
	}
	d.v8 = d.version("V8", minV8, maxV8)
	return d.err
}

func (d *decoder) version(what string, least, most uint32) uint32 {
	if d.byte() != tagVersion {
		d.unsupported("it has no version of %s", what)
		return 0
	}
	v := d.uint32()
	if d.err == nil && (v < least || v > most) {
		d.err = fmt.Errorf("decode a value: %w", &base.FormatError{What: "serialization of " + what, Found: uint64(v), Supported: uint64(most)})
	}
	return v
}

func corruptValue(got string, args ...any) error {
	return &base.CorruptError{Where: "serialized value", Got: fmt.Sprintf(got, args...)}
}
