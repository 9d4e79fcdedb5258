package permazen

import (
	"fmt"
	"math/big"
	"net/netip"
	"reflect"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/schema"
)

// codec converts between values of a Go type and values of an encoding.
type codec struct {
	target reflect.Type // of a Ref
	to     func(reflect.Value) any
	from   func(any) reflect.Value
}

type targeted interface{ target() reflect.Type }

// goTypes maps Go types to their encodings. The encodings of Java's primitive types have no null.
var goTypes = map[reflect.Type]string{
	reflect.TypeFor[bool](): "boolean", reflect.TypeFor[int8](): "byte", reflect.TypeFor[int16](): "short",
	reflect.TypeFor[int32](): "int", reflect.TypeFor[int64](): "long", reflect.TypeFor[uint16](): "char",
	reflect.TypeFor[float32](): "float", reflect.TypeFor[float64](): "double", reflect.TypeFor[string](): "String",
	reflect.TypeFor[[]byte](): "byte[]", reflect.TypeFor[time.Time](): "Instant", reflect.TypeFor[*big.Int](): "BigInteger",
	reflect.TypeFor[encoding.Decimal](): "BigDecimal", reflect.TypeFor[encoding.BitSet](): "BitSet", reflect.TypeFor[encoding.UUID](): "UUID",
	reflect.TypeFor[netip.Addr](): "InetAddress", reflect.TypeFor[encoding.Duration](): "Duration",
	reflect.TypeFor[encoding.LocalDate](): "LocalDate", reflect.TypeFor[encoding.LocalTime](): "LocalTime",
	reflect.TypeFor[encoding.LocalDateTime](): "LocalDateTime", reflect.TypeFor[encoding.MonthDay](): "MonthDay",
	reflect.TypeFor[encoding.ZoneOffset](): "ZoneOffset", reflect.TypeFor[encoding.OffsetDateTime](): "OffsetDateTime",
	reflect.TypeFor[encoding.OffsetTime](): "OffsetTime", reflect.TypeFor[encoding.ZonedDateTime](): "ZonedDateTime",
	reflect.TypeFor[encoding.Period](): "Period", reflect.TypeFor[encoding.YearMonth](): "YearMonth", reflect.TypeFor[encoding.Year](): "Year",
}

// wrappers maps encodings without null to those with null.
var wrappers = map[string]string{
	"boolean": "Boolean", "byte": "Byte", "short": "Short", "int": "Integer", "long": "Long", "char": "Character", "float": "Float", "double": "Double",
}

// basicTypes maps kinds to the Go types into which values of these kinds are converted.
var basicTypes = map[reflect.Kind]reflect.Type{
	reflect.Bool: reflect.TypeFor[bool](), reflect.Int8: reflect.TypeFor[int8](), reflect.Int16: reflect.TypeFor[int16](),
	reflect.Int32: reflect.TypeFor[int32](), reflect.Int64: reflect.TypeFor[int64](), reflect.Int: reflect.TypeFor[int64](),
	reflect.Uint16: reflect.TypeFor[uint16](), reflect.Float32: reflect.TypeFor[float32](), reflect.Float64: reflect.TypeFor[float64](),
	reflect.String: reflect.TypeFor[string](),
}

// newCodec returns the schema and the conversion of a value of a Go type.
func newCodec(t reflect.Type, o words) (*schema.Field, codec, error) {
	pointer := t.Kind() == reflect.Pointer && goTypes[t] == ""
	inner := t
	if pointer {
		inner = t.Elem()
	}
	f, c, err := plainCodec(inner, o, pointer)
	if err != nil || !pointer {
		return f, c, err
	}
	return f, codec{
		to: func(v reflect.Value) any {
			if v.IsNil() {
				return nil
			}
			return c.exact(v.Elem())
		},
		from: func(v any) reflect.Value {
			if v == nil {
				return reflect.Zero(t)
			}
			p := reflect.New(inner)
			p.Elem().Set(c.from(v))
			return p
		},
	}, nil
}

// exact converts a value, but does not turn the zero value into null.
func (c codec) exact(v reflect.Value) any {
	if x := c.to(v); x != nil {
		return x
	}
	if basic := basicTypes[v.Kind()]; basic != nil && goTypes[v.Type()] == "" {
		return v.Convert(basic).Interface()
	}
	return v.Interface()
}

func plainCodec(t reflect.Type, o words, pointer bool) (*schema.Field, codec, error) {
	if t == reflect.TypeFor[ObjID]() || t.Implements(reflect.TypeFor[targeted]()) {
		return referenceCodec(t, o)
	}
	exact := t // the Go type of the encoding
	if goTypes[t] == "" && basicTypes[t.Kind()] != nil {
		exact = basicTypes[t.Kind()]
	}
	f := &schema.Field{Kind: schema.Simple, Indexed: o.index}
	name := o.encoding
	if name == "" {
		if name = goTypes[exact]; name == "" {
			return nil, codec{}, fmt.Errorf("type %s has no encoding: %w", t, base.ErrInvalid)
		}
		if pointer && wrappers[name] != "" {
			name = wrappers[name]
		}
	}
	f.Encoding = encoding.Prefix + name
	if o.enum != nil {
		if exact.Kind() != reflect.String {
			return nil, codec{}, fmt.Errorf("type %s is no string, which an enum is: %w", t, base.ErrInvalid)
		}
		f.Kind, f.Encoding, f.Identifiers = schema.Enum, "", o.enum
	}
	nullable := wrappers[name] == ""
	return f, codec{
		to: func(v reflect.Value) any {
			if nullable && v.IsZero() {
				return nil
			}
			if exact != t {
				v = v.Convert(exact)
			}
			return v.Interface()
		},
		from: func(v any) reflect.Value {
			if v == nil {
				return reflect.Zero(t)
			}
			if r := reflect.ValueOf(v); r.CanConvert(t) {
				return r.Convert(t)
			}
			return reflect.Zero(t)
		},
	}, nil
}

func referenceCodec(t reflect.Type, o words) (*schema.Field, codec, error) {
	f := &schema.Field{
		Kind: schema.Reference, Indexed: true, InverseDelete: o.inverse, ForwardDelete: o.forward, AllowDeleted: o.deleted,
	}
	c := codec{
		to: func(v reflect.Value) any {
			if v.IsZero() {
				return nil
			}
			if v.Kind() == reflect.Struct {
				v = v.Field(0)
			}
			return v.Interface()
		},
		from: func(v any) reflect.Value {
			r := reflect.New(t).Elem()
			switch {
			case v == nil:
			case t.Kind() == reflect.Struct:
				r.Field(0).Set(reflect.ValueOf(v))
			default:
				r.Set(reflect.ValueOf(v))
			}
			return r
		},
	}
	if r, ok := reflect.Zero(t).Interface().(targeted); ok {
		c.target = r.target()
	}
	return f, c, nil
}
