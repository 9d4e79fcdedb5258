package metabase

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ledgerd/ledger/internal/base"
)

// field is a field of a message, with a number and a value that is a varint or bytes.
type field struct {
	number protowire.Number
	kind   protowire.Type
	varint uint64
	bytes  []byte
}

// want returns an error unless the field has the given wire type.
func (f *field) want(kind protowire.Type) error {
	if f.kind != kind {
		return fmt.Errorf("field %d has wire type %d, want %d: %w", f.number, f.kind, kind, base.ErrCorrupt)
	}
	return nil
}

// text sets s to the field, which must be UTF-8.
func (f *field) text(s *string) error {
	if err := f.want(protowire.BytesType); err != nil {
		return err
	}
	if !utf8.Valid(f.bytes) {
		return fmt.Errorf("field %d is not UTF-8: %w", f.number, base.ErrCorrupt)
	}
	*s = string(f.bytes)
	return nil
}

// uint32 sets n to the field. Like other decoders of the format, it cuts off the higher bits.
func (f *field) uint32(n *uint32) error {
	*n = uint32(f.varint)
	return f.want(protowire.VarintType)
}

func (f *field) uint64(n *uint64) error {
	*n = f.varint
	return f.want(protowire.VarintType)
}

// blob sets b to the field. b shares memory with the message.
func (f *field) blob(b *[]byte) error {
	*b = f.bytes
	return f.want(protowire.BytesType)
}

// message sets b to the field, or appends it to b: the format joins a message in several fields. b
// shares memory with a message in one field.
func (f *field) message(b *[]byte) error {
	if len(*b) > 0 {
		*b = append(append(make([]byte, 0, len(*b)+len(f.bytes)), *b...), f.bytes...)
	} else {
		*b = f.bytes
	}
	return f.want(protowire.BytesType)
}

// fields calls fn for each field of a message, also for unknown fields. It refuses groups and does
// not recurse, so nesting costs nothing. Errors: base.ErrCorrupt, those of fn.
func fields(msg []byte, fn func(*field) error) error {
	for len(msg) > 0 {
		number, kind, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return fmt.Errorf("field without a tag: %w: %w", protowire.ParseError(n), base.ErrCorrupt)
		}
		f := field{number: number, kind: kind}
		msg = msg[n:]
		switch kind {
		case protowire.VarintType:
			f.varint, n = protowire.ConsumeVarint(msg)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(msg)
		case protowire.Fixed32Type:
			_, n = protowire.ConsumeFixed32(msg)
		case protowire.Fixed64Type:
			_, n = protowire.ConsumeFixed64(msg)
		default:
			return fmt.Errorf("field %d is a group: %w", number, base.ErrCorrupt)
		}
		if n < 0 {
			return fmt.Errorf("field %d: %w: %w", number, protowire.ParseError(n), base.ErrCorrupt)
		}
		msg = msg[n:]
		if err := fn(&f); err != nil {
			return err
		}
	}
	return nil
}

// inner returns the bytes of one field of a message, or nil when the field is absent.
func inner(msg []byte, number protowire.Number) (b []byte, err error) {
	err = fields(msg, func(f *field) error {
		if f.number == number {
			return f.blob(&b)
		}
		return nil
	})
	return b, err
}

// innerID returns the id in a message of type ObjectID or ContainerID. An empty message gives the
// zero id.
func innerID(msg []byte) (ID, error) {
	b, err := inner(msg, 1)
	if err != nil || len(b) == 0 {
		return ID{}, err
	}
	id, ok := idOf(b)
	if !ok {
		return id, fmt.Errorf("id of %d bytes: %w", len(b), base.ErrCorrupt)
	}
	return id, nil
}

// appendBytes appends a field unless b is empty.
func appendBytes(msg []byte, number protowire.Number, b []byte) []byte {
	if len(b) == 0 {
		return msg
	}
	return protowire.AppendBytes(protowire.AppendTag(msg, number, protowire.BytesType), b)
}

// appendUint appends a field unless it is 0.
func appendUint(msg []byte, number protowire.Number, n uint64) []byte {
	if n == 0 {
		return msg
	}
	return protowire.AppendVarint(protowire.AppendTag(msg, number, protowire.VarintType), n)
}

// appendID appends a field that is a message with an id, unless the id is zero.
func appendID(msg []byte, number protowire.Number, id ID) []byte {
	if id.IsZero() {
		return msg
	}
	return appendBytes(msg, number, appendBytes(nil, 1, id[:]))
}
