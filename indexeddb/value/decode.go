package value

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	"github.com/ledgerd/ledger/indexeddb/internal/wtf8"
	"github.com/ledgerd/ledger/internal/base"
)

// maxDepth bounds the nesting of values. The stack of a browser ends earlier.
const maxDepth = 10_000

// decoder reads a serialized value. After an error it returns zeros and makes no progress.
type decoder struct {
	b    []byte
	at   int
	v8   uint32
	seen []Value // the objects that references refer to, by number
	due  uint64  // the elements that open arrays still need, each of at least a byte
	like int     // the number of properties of the last object; many objects have as many
	all  string  // b, once a short text shares its memory
	err  error
}

// decoders pools decoders with allocated lists, to save allocations.
var decoders = sync.Pool{New: func() any { return &decoder{seen: make([]Value, 0, fewProperties)} }}

// free returns d to the pool, unless its lists are large.
func (d *decoder) free() {
	if cap(d.seen) > 64*fewProperties {
		return
	}
	clear(d.seen)
	*d = decoder{seen: d.seen[:0], like: d.like}
	decoders.Put(d)
}

func (d *decoder) corrupt(got string, args ...any) {
	if d.err == nil {
		d.err = corruptValue(fmt.Sprintf(got, args...)+" at byte %d", d.at)
	}
}

func (d *decoder) unsupported(what string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf("decode a value: %s at byte %d: %w", fmt.Sprintf(what, args...), d.at, base.ErrUnsupported)
	}
}

func (d *decoder) byte() byte {
	if d.err != nil || d.at >= len(d.b) {
		d.corrupt("it ends")
		return 0
	}
	d.at++
	return d.b[d.at-1]
}

// peek returns the next tag without consuming it, or 0.
func (d *decoder) peek() byte {
	d.padding()
	if d.err != nil || d.at >= len(d.b) {
		return 0
	}
	return d.b[d.at]
}

// tag consumes the next tag.
func (d *decoder) tag() byte {
	d.padding()
	return d.byte()
}

func (d *decoder) padding() {
	for d.err == nil && d.at < len(d.b) && d.b[d.at] == 0 {
		d.at++
	}
}

func (d *decoder) uint64() uint64 {
	if d.err != nil {
		return 0
	}
	if d.at < len(d.b) && d.b[d.at] < 0x80 { // most numbers are lengths in one byte
		d.at++
		return uint64(d.b[d.at-1])
	}
	n, size := binary.Uvarint(d.b[d.at:])
	if size <= 0 {
		d.corrupt("a number that is cut or too large")
		return 0
	}
	d.at += size
	return n
}

func (d *decoder) uint32() uint32 {
	n := d.uint64()
	if n > math.MaxUint32 {
		d.corrupt("a number that is too large")
		return 0
	}
	return uint32(n)
}

func (d *decoder) double() float64 {
	b := d.bytes(8)
	if b == nil {
		return 0
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(b))
}

// bytes consumes n bytes. They share memory with the input.
func (d *decoder) bytes(n uint64) []byte {
	if d.err != nil || n > uint64(len(d.b)-d.at) {
		d.corrupt("%d bytes of which not all are there", n)
		return nil
	}
	start := d.at
	d.at += int(n)
	return d.b[start:d.at:d.at]
}

// add reserves the number of a value for later references. set stores the value.
func (d *decoder) add(v Value) int {
	d.seen = append(d.seen, v)
	return len(d.seen) - 1
}

// value reads one value, and a view that follows its buffer.
func (d *decoder) value(depth int) Value {
	v := d.single(depth)
	if buffer, ok := v.(*Buffer); ok && d.peek() == 'V' {
		d.at++
		return d.view(buffer)
	}
	return v
}

func (d *decoder) single(depth int) Value {
	if depth > maxDepth {
		d.unsupported("values more than %d deep", maxDepth)
	}
	if d.err != nil {
		return nil
	}
	if s, ok := d.short(); ok {
		return s
	}
	switch tag := d.tag(); tag {
	case '_':
		return Undefined{}
	case '0':
		return Null{}
	case 'T', 'F':
		return tag == 'T'
	case 'I':
		n := d.uint32()
		return integer(int32(n>>1) ^ -int32(n&1))
	case 'U':
		return float64(d.uint32())
	case 'N':
		return d.double()
	case 'Z':
		return d.bigint()
	case '"', 'c', 'S':
		return d.text(tag)
	case '^':
		n := d.uint32()
		if d.err == nil && n >= uint32(len(d.seen)) || d.err == nil && d.seen[n] == nil {
			d.corrupt("a reference to value %d, which is none", n)
		}
		if d.err != nil {
			return nil
		}
		return d.seen[n]
	case hostTag:
		return d.host()
	case 'o', 'A', 'a', ';', '\'', 'r':
		return d.container(tag, depth)
	default:
		return d.leaf(tag)
	}
}

// integers holds the least numbers, which occur in most records. Converting another number to a
// Value allocates.
var integers = func() (all [256]Value) {
	for i := range all {
		all[i] = float64(i)
	}
	return all
}()

func integer(n int32) Value {
	if uint32(n) < uint32(len(integers)) {
		return integers[n]
	}
	return float64(n)
}

// leaf reads an object that contains no values.
func (d *decoder) leaf(tag byte) (v Value) {
	id := d.add(nil)
	switch tag {
	case 'D':
		v = &Date{d.double()}
	case 'y', 'x':
		v = &Boxed{tag == 'y'}
	case 'n':
		v = &Boxed{d.double()}
	case 'z':
		v = &Boxed{d.bigint()}
	case 's':
		v = &Boxed{d.string()}
	case 'R':
		v = &RegExp{d.string(), d.flags()}
	case 'B':
		v = &Buffer{Bytes: bytes.Clone(d.bytes(uint64(d.uint32()))), MaxLength: -1}
	case '~':
		length, most := d.uint32(), d.uint32()
		if length > most {
			d.corrupt("a buffer longer than it may become")
		}
		v = &Buffer{Bytes: bytes.Clone(d.bytes(uint64(length))), MaxLength: int64(most)}
	default:
		d.unsupported("an unknown value with the tag %q", tag)
		return nil
	}
	d.seen[id] = v
	return v
}

func (d *decoder) bigint() *big.Int {
	bits := d.uint32()
	digits := d.bytes(uint64(bits >> 1))
	big := new(big.Int).SetBytes(reversed(digits))
	if bits&1 != 0 {
		big.Neg(big)
	}
	return big
}

func reversed(b []byte) []byte {
	out := make([]byte, len(b))
	for i, c := range b {
		out[len(b)-1-i] = c
	}
	return out
}

// text reads a string after its tag.
func (d *decoder) text(tag byte) string {
	b := d.bytes(uint64(d.uint32()))
	switch tag {
	case '"':
		return wtf8.FromLatin1(b)
	case 'c':
		if len(b)%2 != 0 {
			d.corrupt("a string of an odd number of bytes")
		}
		return wtf8.FromUTF16(b, binary.LittleEndian)
	}
	if !utf8.Valid(b) {
		d.corrupt("a string that is not UTF-8")
	}
	return string(b)
}

// sharedBytes is the greatest length of a value whose strings share one allocation. Records consist
// mostly of property names and short texts, so this saves a quarter of the time. A retained string
// keeps at most this much memory alive.
const sharedBytes = 1024

// short reads a short ASCII string with its tag, if one is next.
func (d *decoder) short() (s string, ok bool) {
	b := d.b[d.at:]
	if len(b) < 2 || b[0] != '"' || b[1] >= 0x80 || int(b[1]) > len(b)-2 || len(d.b) > sharedBytes {
		return "", false
	}
	at, end := d.at+2, d.at+2+int(b[1])
	if !wtf8.IsASCII(d.b[at:end]) {
		return "", false
	}
	if d.all == "" {
		d.all = string(d.b)
	}
	d.at = end
	return d.all[at:end], true
}

// string reads a string with its tag.
func (d *decoder) string() string {
	switch tag := d.tag(); tag {
	case '"', 'c', 'S':
		return d.text(tag)
	default:
		d.corrupt("%q in place of a string", tag)
		return ""
	}
}

// flagLetters are the flags of regular expressions, by bit. l is a flag of V8, not of scripts.
const flagLetters = "gimyusldv"

func (d *decoder) flags() string {
	bits := d.uint32()
	if bits >= 1<<len(flagLetters) {
		d.unsupported("an unknown flag of a regular expression")
	}
	var flags []byte
	for i := range len(flagLetters) {
		if bits&(1<<i) != 0 {
			flags = append(flags, flagLetters[i])
		}
	}
	slices.Sort(flags)
	return string(flags)
}

// container reads an object that contains values.
func (d *decoder) container(tag byte, depth int) Value {
	switch tag {
	case 'o':
		o := &Object{}
		d.add(o)
		o.Properties = d.properties('{', depth)
		return o
	case 'A', 'a':
		return d.array(tag, depth)
	case ';':
		m := &Map{}
		d.add(m)
		for d.more(':') {
			m.Entries = append(m.Entries, [2]Value{d.value(depth + 1), d.value(depth + 1)})
		}
		d.count(2 * len(m.Entries))
		return m
	case '\'':
		s := &Set{}
		d.add(s)
		for d.more(',') {
			s.Elements = append(s.Elements, d.value(depth+1))
		}
		d.count(len(s.Elements))
		return s
	}
	return d.error(depth)
}

// more reports whether another value precedes the end tag. Otherwise it consumes the end tag.
func (d *decoder) more(end byte) bool {
	if d.err != nil {
		return false
	}
	if d.peek() == end {
		d.at++
		return false
	}
	return true
}

// count reads the number of values, which must be n.
func (d *decoder) count(n int) {
	if got := d.uint32(); d.err == nil && uint64(got) != uint64(n) {
		d.corrupt("%d values where %d are said to be", n, got)
	}
}

// properties reads names and values up to the end tag, and the number of properties after it.
func (d *decoder) properties(end byte, depth int) Properties {
	all := make(Properties, 0, d.like)
	n := 0
	var index map[string]int // keeps the time for many properties linear
	for ; d.more(end); n++ {
		name, ok := d.name(depth)
		if !ok {
			d.corrupt("a property without a name")
			return nil
		}
		v := d.value(depth + 1)
		at := 0
		if len(all) < fewProperties {
			for at < len(all) && all[at].Name != name {
				at++
			}
		} else {
			if index == nil {
				index = make(map[string]int, 2*fewProperties)
				for i, p := range all {
					index[p.Name] = i
				}
			}
			if at, ok = index[name]; !ok {
				at = len(all)
				index[name] = at
			}
		}
		if at < len(all) {
			all[at].Value = v
		} else {
			all = append(all, Property{name, v})
		}
	}
	d.count(n)
	if d.like = min(len(all), fewProperties); 2*len(all) < cap(all) {
		return slices.Clone(all)
	}
	return all
}

// name reads the name of a property.
func (d *decoder) name(depth int) (name string, ok bool) {
	if name, ok = d.short(); ok {
		return name, true
	}
	switch d.peek() {
	case '"', 'c', 'S':
		return d.string(), true
	}
	switch key := d.single(depth + 1).(type) {
	case string:
		return key, true
	case float64:
		return NumberText(key), true
	}
	return "", false
}

// fewProperties is a number of properties for which linear search is fast.
const fewProperties = 16

// NumberText formats a number as the name of a property in a script. For an integer up to 2^53 this
// is the decimal form of Go.
func NumberText(f float64) string {
	if f == math.Trunc(f) && math.Abs(f) <= 1<<53 {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

func (d *decoder) array(tag byte, depth int) Value {
	a, end := &Array{Length: d.uint32()}, byte('@')
	d.add(a)
	if tag == 'A' {
		end = '$'
		if d.due += uint64(a.Length); d.due > uint64(len(d.b)-d.at) {
			d.corrupt("%d elements of which not all are there", a.Length)
			return nil
		}
		a.Elements = make([]Value, 0, min(int(a.Length), 1<<16))
		for range a.Length {
			d.due--
			if d.peek() == '-' {
				d.at++
				a.Elements = append(a.Elements, Hole{})
				continue
			}
			if v := d.value(depth + 1); d.err == nil {
				a.Elements = append(a.Elements, v)
			}
		}
	}
	a.Properties = d.properties(end, depth)
	if tag == 'a' {
		a.fill()
	}
	if got := d.uint32(); got != a.Length {
		d.corrupt("an array of two lengths")
	}
	return a
}

// fill converts properties that are elements to Elements, if no element is missing.
func (a *Array) fill() {
	if a.Sparse = true; uint64(a.Length) > uint64(len(a.Properties)) {
		return
	}
	for i := range int(a.Length) {
		if a.Properties[i].Name != strconv.Itoa(i) {
			return
		}
	}
	a.Elements = make([]Value, a.Length)
	for i := range a.Elements {
		a.Elements[i] = a.Properties[i].Value
	}
	a.Properties = slices.Clone(a.Properties[a.Length:])
}

// views maps tags to the classes of views and the length of an element in bytes.
var views = map[byte]struct {
	name string
	size int
}{
	'b': {"Int8Array", 1}, 'B': {"Uint8Array", 1}, 'C': {"Uint8ClampedArray", 1}, 'w': {"Int16Array", 2}, 'W': {"Uint16Array", 2},
	'd': {"Int32Array", 4}, 'D': {"Uint32Array", 4}, 'h': {"Float16Array", 2}, 'f': {"Float32Array", 4}, 'F': {"Float64Array", 8},
	'q': {"BigInt64Array", 8}, 'Q': {"BigUint64Array", 8}, '?': {"DataView", 1},
}

// Flags of views. The buffer itself says whether it is resizable.
const (
	viewTracks    = 1
	viewResizable = 2
)

func (d *decoder) view(buffer *Buffer) Value {
	id := d.add(nil)
	kind, ok := views[d.byte()]
	if !ok {
		d.unsupported("an unknown view")
	}
	offset, length, flags := d.uint32(), d.uint32(), uint32(0)
	if d.v8 >= 14 {
		flags = d.uint32()
	}
	v := &View{Kind: kind.name, Buffer: buffer, Offset: int(offset), Length: int(length), Tracks: flags&viewTracks != 0}
	size := uint64(len(buffer.Bytes))
	if v.Tracks && uint64(offset) <= size {
		v.Length = (len(buffer.Bytes) - v.Offset) / max(kind.size, 1) * kind.size
	}
	if d.err == nil && (uint64(v.Offset)+uint64(v.Length) > size || v.Offset%kind.size != 0 || v.Length%kind.size != 0) {
		d.corrupt("a view beyond its buffer")
	}
	d.seen[id] = v
	return v
}

// errorNames maps tags to the classes of errors.
var errorNames = map[byte]string{
	'E': "EvalError", 'R': "RangeError", 'F': "ReferenceError", 'S': "SyntaxError", 'T': "TypeError", 'U': "URIError",
}

func (d *decoder) error(depth int) Value {
	e := &Error{Name: "Error"}
	d.add(e)
	for d.err == nil {
		switch tag := d.tag(); tag {
		case 'm':
			e.Message = d.string()
		case 's':
			e.Stack = d.string()
		case 'c':
			e.Cause = d.value(depth + 1)
		case '.':
			return e
		default:
			name, ok := errorNames[tag]
			if !ok {
				d.unsupported("an unknown part of an error")
			}
			e.Name = name
		}
	}
	return e
}
