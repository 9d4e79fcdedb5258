package value

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/indexeddb/internal/wtf8"
	"github.com/ledgerd/ledger/internal/base"
)

// Encode returns the serialized form of v, with the envelopes of Blink 21 and V8 16. It does not
// compress. Decode returns v again, with these exceptions:
//
//   - an invalid byte in a WTF-8 string becomes U+FFFD; in strings of Blink a lone surrogate does
//     too;
//   - an Error of another class becomes an Error;
//   - -0 and NaN are kept, but there is only one NaN.
//
// Encode neither changes nor retains v. Errors: base.ErrInvalid for an invalid Value, such as a nil
// pointer or an array whose Length does not match its Elements; base.ErrTooLarge above MaxBytes, or
// with more than 10 000 nested values.
func Encode(v Value) ([]byte, error) { return EncodeFor(v, math.MaxInt32) }

// EncodeFor is Encode for a record with the given number of external objects. It refuses references
// to others with base.ErrInvalid.
func EncodeFor(v Value, objects int) ([]byte, error) {
	if w, ok := v.(*Wrapped); ok && w != nil {
		b := binary.AppendUvarint([]byte{tagVersion, wrapVersion, wrapBlob}, uint64(w.Size))
		return binary.AppendUvarint(b, uint64(w.Index)), nil
	}
	e := encoder{objects: objects, b: append(make([]byte, 0, 64), tagVersion, maxBlink, tagTrailer)}
	e.b = append(append(e.b, make([]byte, trailerBytes)...), tagVersion, maxV8)
	e.value(v, 0)
	if e.err != nil {
		return nil, fmt.Errorf("encode a value: %w", e.err)
	}
	e.trailer()
	if len(e.b) > MaxBytes {
		return nil, fmt.Errorf("encode a value of %d bytes, limit %d: %w", len(e.b), MaxBytes, base.ErrTooLarge)
	}
	return e.b, nil
}

// nanBits are the bits of the NaN of scripts.
const nanBits = 0x7ff8 << 48

// encoder writes a serialized value. After an error its output is invalid.
type encoder struct {
	b    []byte
	seen map[Value]uint32 // the numbers of objects
	// interfaces are the tags of host objects, without duplicates. A browser reads them in the
	// trailer before it decodes.
	interfaces []byte
	objects    int // the number of external objects
	err        error
}

// trailer writes the interfaces that a reader needs, and the offset of this list.
func (e *encoder) trailer() {
	if len(e.interfaces) == 0 {
		return
	}
	at := len(e.b)
	e.tag(tagInterfaces)
	e.b = append(binary.BigEndian.AppendUint32(e.b, uint32(len(e.interfaces))), e.interfaces...)
	binary.BigEndian.PutUint64(e.b[trailerAt:], uint64(at))
	binary.BigEndian.PutUint32(e.b[trailerAt+8:], uint32(len(e.b)-at))
}

// hosted begins a host object, that is an object of the browser.
func (e *encoder) hosted(tag byte) {
	e.b = append(e.b, hostTag, tag)
	if bytes.IndexByte(e.interfaces, tag) < 0 {
		e.interfaces = append(e.interfaces, tag)
	}
}

func (e *encoder) fail(what string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), base.ErrInvalid)
	}
}

func (e *encoder) tag(tag byte)  { e.b = append(e.b, tag) }
func (e *encoder) uint(n uint64) { e.b = binary.AppendUvarint(e.b, n) }
func (e *encoder) length(n int)  { e.uint(uint64(n)) }
func (e *encoder) double(f float64) {
	bits := math.Float64bits(f)
	if f != f {
		bits = nanBits
	}
	e.b = binary.LittleEndian.AppendUint64(e.b, bits)
}

// again writes a reference to an object already written. Otherwise it numbers the object.
func (e *encoder) again(v Value) bool {
	if n, ok := e.seen[v]; ok {
		e.tag('^')
		e.uint(uint64(n))
		return true
	}
	if e.seen == nil {
		e.seen = map[Value]uint32{}
	}
	e.seen[v] = uint32(len(e.seen))
	return false
}

func (e *encoder) value(v Value, depth int) {
	if depth > maxDepth && e.err == nil {
		e.err = fmt.Errorf("values more than %d deep: %w", maxDepth, base.ErrTooLarge)
	}
	if e.err != nil {
		return
	}
	switch v := v.(type) {
	case Undefined:
		e.tag('_')
	case Null:
		e.tag('0')
	case bool:
		e.tag(choose(v, 'T', 'F'))
	case float64:
		e.number(v)
	case string:
		e.string(v)
	case *big.Int:
		e.tag('Z')
		e.bigint(v)
	case *View:
		e.view(v)
	case *Extended:
		e.extended(v, depth)
	default:
		e.object(v, depth)
	}
}

func choose(v bool, yes, no byte) byte {
	if v {
		return yes
	}
	return no
}

// number writes integers in V8's integer form, others as doubles.
func (e *encoder) number(f float64) {
	n := int32(f)
	if float64(n) != f || n == 0 && math.Signbit(f) || n < -1<<30 || n >= 1<<30 {
		e.tag('N')
		e.double(f)
		return
	}
	e.tag('I')
	e.uint(uint64(uint32(n<<1) ^ uint32(n>>31)))
}

func (e *encoder) bigint(n *big.Int) {
	if n == nil {
		e.fail("a bigint that is nil")
		return
	}
	const digit = 8 // V8 writes whole digits
	digits := reversed(n.Bytes())
	if over := len(digits) % digit; over > 0 {
		digits = append(digits, make([]byte, digit-over)...)
	}
	bits := uint64(len(digits)) << 1
	if n.Sign() < 0 {
		bits |= 1
	}
	e.uint(bits)
	e.b = append(e.b, digits...)
}

// string writes a string in Latin-1 if possible, else in UTF-16, whose code units are at even
// offsets.
func (e *encoder) string(s string) {
	latin, most := 0, rune(0)
	for _, r := range s {
		latin++
		most = max(most, r)
	}
	if most <= 0xff {
		e.tag('"')
		e.length(latin)
		if latin == len(s) {
			e.b = append(e.b, s...)
			return
		}
		for _, r := range s {
			e.b = append(e.b, byte(r))
		}
		return
	}
	units := wtf8.AppendUTF16(nil, s)
	head := binary.AppendUvarint([]byte{'c'}, uint64(len(units)))
	if (len(e.b)+len(head))%2 != 0 {
		e.tag(0)
	}
	e.b = append(e.b, head...)
	for i := 0; i < len(units); i += 2 {
		e.b = append(e.b, units[i+1], units[i])
	}
}

// extended writes an object without its additional properties, as V8 does.
func (e *encoder) extended(v *Extended, depth int) {
	if v == nil {
		e.fail("an extended object that is nil")
		return
	}
	e.value(v.Object, depth+1)
}

// object writes a value that has an identity.
func (e *encoder) object(v Value, depth int) {
	switch v.(type) {
	case *Object, *Array, *Date, *Boxed, *RegExp, *Map, *Set, *Buffer, *Error, *Blob, *FileList, *Handle, *ImageData, *Shape:
	default:
		e.fail("a value of the type %T", v)
		return
	}
	if reflect.ValueOf(v).IsNil() {
		e.fail("a %T that is nil", v)
		return
	}
	if e.again(v) {
		return
	}
	switch v := v.(type) {
	case *Object:
		e.tag('o')
		e.properties(v.Properties, '{', depth)
	case *Array:
		e.array(v, depth)
	case *Map:
		e.tag(';')
		for _, entry := range v.Entries {
			e.value(entry[0], depth+1)
			e.value(entry[1], depth+1)
		}
		e.tag(':')
		e.length(2 * len(v.Entries))
	case *Set:
		e.tag('\'')
		for _, element := range v.Elements {
			e.value(element, depth+1)
		}
		e.tag(',')
		e.length(len(v.Elements))
	case *Error:
		e.error(v, depth)
	default:
		e.leaf(v)
	}
}

// leaf writes an object that contains no values.
func (e *encoder) leaf(v Value) {
	switch v := v.(type) {
	case *Date:
		e.tag('D')
		e.double(v.Milliseconds)
	case *Boxed:
		e.boxed(v)
	case *RegExp:
		e.tag('R')
		e.string(v.Pattern)
		e.flags(v.Flags)
	case *Buffer:
		e.buffer(v)
	default:
		e.host(v)
	}
}

func (e *encoder) boxed(v *Boxed) {
	switch content := v.Value.(type) {
	case bool:
		e.tag(choose(content, 'y', 'x'))
	case float64:
		e.tag('n')
		e.double(content)
	case *big.Int:
		e.tag('z')
		e.bigint(content)
	case string:
		e.tag('s')
		e.string(content)
	default:
		e.fail("a boxed %T", content)
	}
}

func (e *encoder) flags(flags string) {
	bits := uint64(0)
	for _, letter := range flags {
		i := strings.IndexRune(flagLetters, letter)
		if i < 0 || bits&(1<<i) != 0 {
			e.fail("a regular expression with the flags %.20q", flags)
			return
		}
		bits |= 1 << i
	}
	e.uint(bits)
}

func (e *encoder) buffer(v *Buffer) {
	if len(v.Bytes) > MaxBytes || v.MaxLength >= 0 && (v.MaxLength < int64(len(v.Bytes)) || v.MaxLength > math.MaxUint32) {
		e.fail("a buffer of %d bytes that may have %d", len(v.Bytes), v.MaxLength)
		return
	}
	if v.MaxLength >= 0 {
		e.tag('~')
		e.length(len(v.Bytes))
		e.uint(uint64(v.MaxLength))
	} else {
		e.tag('B')
		e.length(len(v.Bytes))
	}
	e.b = append(e.b, v.Bytes...)
}

// view writes a view after its buffer, or after a reference to the buffer.
func (e *encoder) view(v *View) {
	if v == nil || v.Buffer == nil {
		e.fail("a view that is nil or has no buffer")
		return
	}
	if n, ok := e.seen[v]; ok {
		e.tag('^')
		e.uint(uint64(n))
		return
	}
	size := len(v.Buffer.Bytes)
	for tag, kind := range views {
		if kind.name != v.Kind {
			continue
		}
		if v.Offset < 0 || v.Length < 0 || v.Offset > size || v.Length > size-v.Offset || v.Offset%kind.size != 0 || v.Length%kind.size != 0 ||
			v.Tracks && v.Length != (size-v.Offset)/kind.size*kind.size {
			e.fail("a view of the bytes from %d to %d of a buffer of %d", v.Offset, v.Offset+v.Length, size)
			return
		}
		if !e.again(v.Buffer) {
			e.buffer(v.Buffer)
		}
		e.again(v)
		e.tag('V')
		e.tag(tag)
		e.length(v.Offset)
		e.length(v.Length)
		flags := uint64(0)
		if v.Tracks {
			flags |= viewTracks
		}
		if v.Buffer.MaxLength >= 0 {
			flags |= viewResizable
		}
		e.uint(flags)
		return
	}
	e.fail("a view of the class %.30q", v.Kind)
}

// properties writes names and values. It writes names that are indexes as numbers.
func (e *encoder) properties(p Properties, end byte, depth int) {
	for _, property := range p {
		if n, err := strconv.ParseUint(property.Name, 10, 32); err == nil && n < math.MaxUint32 && strconv.FormatUint(n, 10) == property.Name {
			e.number(float64(n))
		} else {
			e.string(property.Name)
		}
		e.value(property.Value, depth+1)
	}
	e.tag(end)
	e.length(len(p))
}

func (e *encoder) array(v *Array, depth int) {
	if len(v.Elements) > 0 && uint64(len(v.Elements)) != uint64(v.Length) {
		e.fail("an array of the length %d with %d elements", v.Length, len(v.Elements))
		return
	}
	if v.Sparse || v.Length > 0 && len(v.Elements) == 0 {
		all := make(Properties, 0, len(v.Elements)+len(v.Properties))
		for i, element := range v.Elements {
			if _, hole := element.(Hole); !hole {
				all = append(all, Property{strconv.Itoa(i), element})
			}
		}
		e.tag('a')
		e.uint(uint64(v.Length))
		e.properties(append(all, v.Properties...), '@', depth)
		e.uint(uint64(v.Length))
		return
	}
	e.tag('A')
	e.uint(uint64(v.Length))
	for _, element := range v.Elements {
		if _, hole := element.(Hole); hole {
			e.tag('-')
			continue
		}
		e.value(element, depth+1)
	}
	e.properties(v.Properties, '$', depth)
	e.uint(uint64(v.Length))
}

func (e *encoder) error(v *Error, depth int) {
	if v.DOM {
		e.hosted('x')
		for _, s := range []string{v.Name, v.Message, v.Stack} {
			e.utf8(s)
		}
		return
	}
	e.tag('r')
	for tag, name := range errorNames {
		if name == v.Name {
			e.tag(tag)
		}
	}
	if v.Message != "" {
		e.tag('m')
		e.string(v.Message)
	}
	if v.Cause != nil {
		e.tag('c')
		e.value(v.Cause, depth+1)
	}
	if v.Stack != "" {
		e.tag('s')
		e.string(v.Stack)
	}
	e.tag('.')
}

// host writes a host object after its tag.
func (e *encoder) host(v Value) {
	switch v := v.(type) {
	case *Blob:
		e.hosted(choose(v.File, 'e', 'i'))
		e.index(v.Index)
	case *FileList:
		e.hosted('L')
		e.length(len(v.Indexes))
		for _, i := range v.Indexes {
			e.index(i)
		}
	case *Handle:
		e.hosted(choose(v.Directory, 'N', 'n'))
		e.utf8(v.Name)
		e.index(v.Index)
	case *ImageData:
		e.hosted('#')
		for _, setting := range v.Settings {
			if setting[0] == settingsEnd || setting[0] > lastSetting {
				e.fail("a picture with the setting %d", setting[0])
			}
			e.uint(uint64(setting[0]))
			e.uint(uint64(setting[1]))
		}
		e.uint(settingsEnd)
		e.uint(uint64(v.Width))
		e.uint(uint64(v.Height))
		e.length(len(v.Bytes))
		e.b = append(e.b, v.Bytes...)
	case *Shape:
		e.shape(v)
	}
}

func (e *encoder) shape(v *Shape) {
	for tag, shape := range shapes {
		if shape.name == v.Kind && shape.n == len(v.Numbers) {
			e.hosted(tag)
			for _, n := range v.Numbers {
				e.double(n)
			}
			return
		}
	}
	e.fail("a %.30q of %d numbers", v.Kind, len(v.Numbers))
}

func (e *encoder) index(i int) {
	if i < 0 || i >= e.objects {
		e.fail("the external object %d", i)
		return
	}
	e.uint(uint64(i))
}

// utf8 writes a string in Blink's form.
func (e *encoder) utf8(s string) {
	s = strings.ToValidUTF8(s, "\ufffd")
	e.length(len(s))
	e.b = append(e.b, s...)
}

// NewArray returns a dense array.
func NewArray(elements ...Value) *Array {
	return &Array{Length: uint32(len(elements)), Elements: slices.Clone(elements)}
}

// NewObject returns an object with properties, given as alternating names and values. It panics on
// other arguments.
func NewObject(namesAndValues ...any) *Object {
	o := &Object{}
	for i := 0; i < len(namesAndValues); i += 2 {
		o.Set(namesAndValues[i].(string), namesAndValues[i+1])
	}
	return o
}
