package flatbuffers

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sort"
	"sync/atomic"

	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
)

// MaxLevel is the greatest level of a node.
const MaxLevel = 63

// Entry is an entry of a tree node.
type Entry struct {
	Key []byte
	// Value is the value when Inline.
	Value []byte
	// Inline says that the entry holds the value itself. Such an entry is Eager, its Size is
	// len(Value), and its Digest is zero.
	Inline bool
	// Digest names the root piece of the value when not Inline.
	Digest object.Digest
	// Size is the length of the value in bytes, at most the greatest int64.
	Size     uint64
	Priority object.Priority
}

// Child is a child of a tree node.
type Child struct {
	// Gap is the gap of the child: gap i lies before entry i, the last one after all entries.
	Gap int
	// Level is the child's level, 0 to the node's level - 1.
	Level int
	// Digest names the child.
	Digest object.Digest
}

// Node is a verified view of a tree node. It borrows the bytes that it was parsed from, is
// immutable except for its links, and its methods neither allocate nor fail; they panic only for an
// index out of range, like a slice.
type Node struct {
	// A look-up in a cold cache waits for each line of memory, so the fields of every look-up are
	// first. The common prefix of most nodes' keys fits into common, which saves one line.
	words  []uint64               // eight bytes of each key after the common prefix
	links  []atomic.Pointer[Node] // for each gap, see Link; nil for a node that no cache keeps
	common [3]uint64              // the first bytes of the common prefix
	prefix uint32                 // length of the common prefix of all keys
	used   atomic.Bool            // see Use
	places
	home atomic.Pointer[atomic.Pointer[Node]] // see KeepIn
}

// places locates the parts of a node in its bytes: offsets take less memory than slices.
type places struct {
	buf      []byte
	n        uint32 // entries
	keys     uint32 // offset of the keys
	vals     uint32 // offset of the values
	children uint32 // number of them
	flags    uint32 // offset of the entries' flags
	gaps     uint32 // offset of the children's gaps
	levels   uint32 // offset of the children's levels
	ids      uint32 // offset of the children's digests
	// These save a look-up two more lines. Keys or values of one length are located by it; for
	// different lengths (wide) the ends locate them.
	keyLen, valLen uint16
	plain          bool // all entries are inline
	level          uint8
}

// keyEnds returns the offset of the count of the ends of keys; 4 bytes for each entry follow.
func (p *places) keyEnds() uint32 { return nodeKeyEndsPos }

// valEnds is keyEnds for values.
func (p *places) valEnds() uint32 { return nodeKeyEndsPos + 4 + 4*p.n }

// wide stands for keys or values of different lengths.
const wide = 1<<16 - 1

// The layout of a tree node of n entries and c children:
//
//	offset  bytes  content
//	8       22     vtable
//	30      2      zeros
//	32      40     table: distance to the vtable, places of key_ends, value_ends, child_gaps,
//	               flags, child_levels, child_ids, keys, values, then level (1), zeros (3)
//	72      4+4n   key_ends
//	        4+4n   value_ends
//	        4+4c   child_gaps
//	        4+n    flags, padded as all that follow
//	        4+c    child_levels
//	        4+33c  child_ids
//	               keys
//	               values
const (
	nodeIdent      = "LNO1"
	nodeWhere      = "tree node"
	nodeTable      = 32
	nodeTableLen   = 40
	nodeHeaderLen  = nodeTable + nodeTableLen
	nodeKeyEndsPos = nodeHeaderLen
	nodeLevelField = nodeTable + 36
	nodeVectors    = 8
	nodeFixed      = nodeHeaderLen + 4*nodeVectors
)

// The flags of an entry.
const (
	flagLazy      = 1 << 0
	flagReference = 1 << 1
)

// In the order of the schema: level, key_ends, value_ends, child_gaps, flags, child_levels,
// child_ids, keys, values.
var nodeFields = []uint16{36, 4, 8, 12, 16, 20, 24, 28, 32}

// nodeShape determines the place of each vector of a node.
type nodeShape struct {
	n, children         int
	keyBytes, valueByte int
}

// nodePlaces are the places of the eight vectors, in their order in the buffer, and the end.
type nodePlaces struct {
	keyEnds, valEnds, gaps, flags, levels, ids, keys, values, end int
}

func (s nodeShape) places() (p nodePlaces) {
	p.keyEnds = nodeKeyEndsPos
	p.valEnds = p.keyEnds + 4 + 4*s.n
	p.gaps = p.valEnds + 4 + 4*s.n
	p.flags = p.gaps + 4 + 4*s.children
	p.levels = p.flags + 4 + roundUp(s.n)
	p.ids = p.levels + 4 + roundUp(s.children)
	p.keys = p.ids + 4 + roundUp(object.DigestSize*s.children)
	p.values = p.keys + 4 + roundUp(s.keyBytes)
	p.end = p.values + 4 + roundUp(s.valueByte)
	return p
}

// putNodeHeader writes the first nodeHeaderLen bytes of a node.
func putNodeHeader(b []byte, level int, p *nodePlaces) {
	putHeader(b, nodeIdent, nodeTableLen, nodeFields)
	putOffset(b, nodeTable+4, p.keyEnds)
	putOffset(b, nodeTable+8, p.valEnds)
	putOffset(b, nodeTable+12, p.gaps)
	putOffset(b, nodeTable+16, p.flags)
	putOffset(b, nodeTable+20, p.levels)
	putOffset(b, nodeTable+24, p.ids)
	putOffset(b, nodeTable+28, p.keys)
	putOffset(b, nodeTable+32, p.values)
	b[nodeLevelField] = byte(level)
}

// ParseNode verifies a node wholly and returns a view of it, which retains b. For a valid b it
// allocates only the view, with eight bytes for each key. Errors: *base.CorruptError,
// *base.FormatError.
func ParseNode(b []byte) (*Node, error) {
	if err := checkIdent(nodeWhere, b, nodeIdent, nodeFixed); err != nil {
		return nil, err
	}
	if len(b) > limits.MaxNodeBytes {
		return nil, corrupt(nodeWhere, "%d bytes", len(b))
	}
	s, err := readShape(b)
	if err != nil {
		return nil, err
	}
	var want [nodeHeaderLen]byte
	p := s.places()
	level := int(b[nodeLevelField])
	putNodeHeader(want[:], level, &p)
	if !bytes.Equal(want[:], b[:nodeHeaderLen]) {
		return nil, corrupt(nodeWhere, "header is not the canonical one")
	}
	if level > MaxLevel {
		return nil, corrupt(nodeWhere, "level %d", level)
	}
	if s.n == 0 && (level != 0 || s.children != 0) {
		return nil, corrupt(nodeWhere, "level %d with %d children and no entries", level, s.children)
	}
	nd := &Node{places: viewPlaces(b, level, s)}
	if err := nd.checkKeys(s.keyBytes); err != nil {
		return nil, err
	}
	if err := nd.checkValues(s.valueByte); err != nil {
		return nil, err
	}
	if err := nd.checkChildren(); err != nil {
		return nil, err
	}
	nd.setPrefix()
	return nd, nil
}

// readShape finds the vectors of a node one after the other and verifies their places.
func readShape(b []byte) (s nodeShape, err error) {
	pos := nodeKeyEndsPos
	if s.n, pos, err = vector(nodeWhere, b, pos, 4); err != nil {
		return s, err
	}
	if pos, err = vectorLen(nodeWhere, b, pos, 4, s.n); err != nil {
		return s, err
	}
	if s.children, pos, err = vector(nodeWhere, b, pos, 4); err != nil {
		return s, err
	}
	if s.children > s.n+1 {
		return s, corrupt(nodeWhere, "%d children with %d entries", s.children, s.n)
	}
	for _, count := range [...]int{s.n, s.children, object.DigestSize * s.children} {
		if pos, err = vectorLen(nodeWhere, b, pos, 1, count); err != nil {
			return s, err
		}
	}
	if s.keyBytes, pos, err = vector(nodeWhere, b, pos, 1); err != nil {
		return s, err
	}
	if s.valueByte, pos, err = vector(nodeWhere, b, pos, 1); err != nil {
		return s, err
	}
	if pos != len(b) {
		return s, corrupt(nodeWhere, "%d bytes behind its end", len(b)-pos)
	}
	return s, nil
}

func viewPlaces(b []byte, level int, s nodeShape) places {
	p := s.places()
	return places{
		level:    uint8(level),
		buf:      b,
		n:        uint32(s.n),
		keys:     uint32(p.keys + 4),
		vals:     uint32(p.values + 4),
		children: uint32(s.children),
		flags:    uint32(p.flags + 4),
		gaps:     uint32(p.gaps + 4),
		levels:   uint32(p.levels + 4),
		ids:      uint32(p.ids + 4),
		keyLen:   wide,
		valLen:   wide,
	}
}

// checkEnds verifies that the ends never decrease, and that the last is the end of the block.
func checkEnds(what string, ends []byte, block int) error {
	last := uint32(0)
	for i := 4; i+4 <= len(ends); i += 4 {
		end := le.Uint32(ends[i:])
		if end < last {
			return corrupt(nodeWhere, "%s %d ends before it begins", what, i/4-1)
		}
		last = end
	}
	if uint64(last) != uint64(block) {
		return corrupt(nodeWhere, "%ss end at %d of %d", what, last, block)
	}
	return nil
}

// ends returns a vector of ends together with its count.
func (nd *Node) ends(pos uint32) []byte { return nd.buf[pos:][:4+4*nd.n] }

func (nd *Node) checkKeys(block int) error {
	if err := checkEnds("key", nd.ends(nd.keyEnds()), block); err != nil {
		return err
	}
	var last []byte
	for i := range nd.Len() {
		k := nd.Key(i)
		if len(k) > limits.MaxKeyBytes {
			return corrupt(nodeWhere, "key %d of %d bytes", i, len(k))
		}
		if i > 0 && bytes.Compare(last, k) >= 0 {
			return corrupt(nodeWhere, "key %d is not above the one before", i)
		}
		last = k
	}
	return nil
}

func (nd *Node) checkValues(block int) error {
	if err := checkEnds("value", nd.ends(nd.valEnds()), block); err != nil {
		return err
	}
	flags := nd.buf[nd.flags:][:nd.n]
	for i, f := range flags {
		switch f {
		case 0:
		case flagReference, flagReference | flagLazy:
			if problem := checkReference(nd.rawValue(i)); problem != "" {
				return corrupt(nodeWhere, "value %d: %s", i, problem)
			}
		default:
			return corrupt(nodeWhere, "flags %#02x of entry %d", f, i)
		}
	}
	return nil
}

// checkReference returns what is wrong with the encoding of a reference, or "".
func checkReference(v []byte) string {
	if len(v) <= object.DigestSize {
		return "reference is too short"
	}
	if problem := checkValueDigest(v[0]); problem != "" {
		return problem
	}
	u := v[object.DigestSize:]
	size, n := binary.Uvarint(u)
	switch {
	case n <= 0 || n != len(u) || n > 1 && u[n-1] == 0:
		return "size is no minimal uvarint"
	case size > math.MaxInt64:
		return "size above 2^63-1"
	}
	return ""
}

// checkValueDigest returns what is wrong with the prefix byte of a value's digest.
func checkValueDigest(prefix byte) string {
	if object.Kind(prefix) > object.Index {
		return "digest names no piece of a value"
	}
	return ""
}

// checkNodeDigest returns what is wrong with the prefix byte of a node's digest.
func checkNodeDigest(prefix byte) string {
	if object.Kind(prefix) != object.Node {
		return "digest names no node"
	}
	return ""
}

func (nd *Node) checkChildren() error {
	last := -1
	for i := range nd.NumChildren() {
		gap := le.Uint32(nd.buf[int(nd.gaps)+4*i:])
		if uint64(gap) > uint64(nd.n) || int(gap) <= last {
			return corrupt(nodeWhere, "gap %d of child %d with %d entries", gap, i, nd.n)
		}
		last = int(gap)
		if level := nd.buf[int(nd.levels)+i]; level >= nd.level {
			return corrupt(nodeWhere, "child %d at level %d of a node at level %d", i, level, nd.level)
		}
		if problem := checkNodeDigest(nd.buf[int(nd.ids)+object.DigestSize*i]); problem != "" {
			return corrupt(nodeWhere, "child %d: %s", i, problem)
		}
	}
	return nil
}

// setPrefix finds the common prefix of all keys: since they are sorted, that of the first and the
// last. It copies the bytes that Search mostly needs to one place: the keys and their ends are many
// cache lines.
func (nd *Node) setPrefix() {
	nd.setLengths()
	defer nd.setWords()
	if nd.n < 2 {
		return
	}
	a, z := nd.Key(0), nd.Key(nd.Len()-1)
	m := uint32(min(len(a), len(z)))
	for nd.prefix < m && a[nd.prefix] == z[nd.prefix] {
		nd.prefix++
	}
}

// NamesNothing reports whether the node has neither children nor values outside it.
func (nd *Node) NamesNothing() bool { return nd.plain && nd.children == 0 }

func (nd *Node) setWords() {
	nd.words = slices.Grow(nd.words[:0], nd.Len())[:nd.n]
	for i := range nd.words {
		k := nd.Key(i)
		for w := 0; i == 0 && w < len(nd.common); w++ {
			nd.common[w] = word(k[min(8*w, int(nd.prefix)):nd.prefix])
		}
		nd.words[i] = word(k[nd.prefix:])
	}
}

func (nd *Node) setLengths() {
	nd.keyLen, nd.valLen = nd.oneLength(nd.keyEnds()), nd.oneLength(nd.valEnds())
	nd.plain = bytes.Count(nd.buf[nd.flags:][:nd.n], []byte{0}) == int(nd.n)
}

// oneLength returns the common length of all elements of a block, or wide.
func (nd *Node) oneLength(ends uint32) uint16 {
	if nd.n == 0 {
		return wide
	}
	_, length := nd.bounds(ends, 0)
	if length >= wide {
		return wide
	}
	for i := range nd.Len() {
		if _, end := nd.bounds(ends, i); end != uint32(i+1)*length {
			return wide
		}
	}
	return uint16(length)
}

// bounds returns the beginning and end of element i of a block. ends is the offset of the count of
// its vector of ends.
func (nd *Node) bounds(ends uint32, i int) (start, end uint32) {
	if uint(i) >= uint(nd.n) {
		panic("flatbuffers: entry of a tree node out of range")
	}
	w := le.Uint64(nd.buf[int(ends)+4*i:])
	start, end = uint32(w), uint32(w>>32)
	if i == 0 {
		start = 0
	}
	return start, end
}

// Bytes returns the encoding of the node, which the caller must not change.
func (nd *Node) Bytes() []byte { return nd.buf }

// Level returns the level of the node, 0 to MaxLevel.
func (nd *Node) Level() int { return int(nd.level) }

// Len returns the number of entries.
func (nd *Node) Len() int { return int(nd.n) }

// Key returns the key of entry i, borrowed.
func (nd *Node) Key(i int) []byte {
	if l := uint32(nd.keyLen); l != wide && uint(i) < uint(nd.n) {
		at := nd.keys + uint32(i)*l
		return nd.buf[at : at+l : at+l]
	}
	start, end := nd.bounds(nd.keyEnds(), i)
	return nd.buf[nd.keys+start : nd.keys+end : nd.keys+end]
}

// Head returns the first eight bytes of the key of entry i as a big-endian number, padded with
// zeros. It does not load the key. Where two heads differ, they are in the order of the keys.
func (nd *Node) Head(i int) uint64 {
	if nd.prefix >= 8 {
		return nd.common[0]
	}
	return nd.common[0] | nd.words[i]>>(8*nd.prefix)
}

// rawValue returns the bytes of entry i in the value block.
func (nd *Node) rawValue(i int) []byte {
	if l := uint32(nd.valLen); l != wide && uint(i) < uint(nd.n) {
		at := nd.vals + uint32(i)*l
		return nd.buf[at : at+l : at+l]
	}
	start, end := nd.bounds(nd.valEnds(), i)
	return nd.buf[nd.vals+start : nd.vals+end : nd.vals+end]
}

// flag returns the flags of entry i.
func (nd *Node) flag(i int) byte {
	if nd.plain {
		return 0
	}
	return nd.buf[nd.flags:][:nd.n][i]
}

// Inline reports whether entry i holds its value itself.
func (nd *Node) Inline(i int) bool { return nd.flag(i)&flagReference == 0 }

// Value returns the value of entry i, borrowed, and true, when it is inline.
func (nd *Node) Value(i int) (value []byte, inline bool) {
	// The usual case is that of rawValue, without its call: a scan comes here for each entry.
	if l := uint32(nd.valLen); nd.plain && l != wide && uint(i) < uint(nd.n) {
		at := nd.vals + uint32(i)*l
		return nd.buf[at : at+l : at+l], true
	}
	if !nd.Inline(i) {
		return nil, false
	}
	return nd.rawValue(i), true
}

// Entry returns entry i; its Key and Value are borrowed.
func (nd *Node) Entry(i int) Entry {
	e := Entry{Key: nd.Key(i)}
	v := nd.rawValue(i)
	f := nd.flag(i)
	if f&flagReference == 0 {
		e.Value, e.Inline, e.Size = v, true, uint64(len(v))
		return e
	}
	e.Digest = object.Digest(v[:object.DigestSize])
	e.Size, _ = binary.Uvarint(v[object.DigestSize:])
	e.Priority = object.Priority(f & flagLazy)
	return e
}

// EqualEntries reports whether entry i is equal to entry k of another node.
func (nd *Node) EqualEntries(i int, other *Node, k int) bool {
	return nd.flag(i) == other.flag(k) && bytes.Equal(nd.Key(i), other.Key(k)) && bytes.Equal(nd.rawValue(i), other.rawValue(k))
}

// NumChildren returns the number of children.
func (nd *Node) NumChildren() int { return int(nd.children) }

// Child returns the i-th child in the order of the gaps.
func (nd *Node) Child(i int) Child {
	if uint(i) >= uint(nd.children) {
		panic("flatbuffers: child of a tree node out of range")
	}
	return nd.child(i)
}

func (nd *Node) child(i int) Child { return nd.childIn(i, nd.gap(i)) }

// childIn returns child i, whose gap is given.
func (nd *Node) childIn(i, gap int) Child {
	return Child{
		Gap:    gap,
		Level:  int(nd.buf[int(nd.levels)+i]),
		Digest: object.Digest(nd.buf[int(nd.ids)+object.DigestSize*i:][:object.DigestSize]),
	}
}

func (nd *Node) gap(i int) int { return int(le.Uint32(nd.buf[int(nd.gaps)+4*i:])) }

// ChildAt returns the child in a gap, and whether there is one. It returns false for a gap that
// does not exist.
func (nd *Node) ChildAt(gap int) (Child, bool) {
	// Gaps ascend strictly, so the index of a gap's child is at most the gap, and at least the gap
	// less the number of gaps without a child. Most gaps of an inner node have a child: the window
	// is small.
	n, children := nd.Len(), nd.NumChildren()
	if gap < 0 || gap > n || children == 0 {
		return Child{}, false
	}
	if children == n+1 {
		return nd.childIn(gap, gap), true
	}
	lo := max(0, gap-(n+1-children))
	hi := min(gap, children-1)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if nd.gap(mid) < gap {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo >= children || nd.gap(lo) != gap {
		return Child{}, false
	}
	return nd.childIn(lo, gap), true
}

// Search returns the number of the first entry whose key is not below key, Len() if there is none,
// and whether its key is equal to key.
func (nd *Node) Search(key []byte) (i int, found bool) {
	if c := nd.comparePrefix(key); c > 0 {
		return nd.Len(), false
	} else if c < 0 {
		return 0, false
	}
	// The eight bytes after the common prefix mostly decide.
	rest := key[nd.prefix:]
	want, words := word(rest), nd.words
	lo := below(words, want)
	if lo == len(words) || words[lo] != want {
		return lo, false
	}
	for hi := len(words); lo < hi; {
		mid := int(uint(lo+hi) >> 1)
		c := 1
		if words[mid] == want {
			c = bytes.Compare(nd.Key(mid)[nd.prefix:], rest)
		}
		if c == 0 {
			return mid, true
		}
		if c < 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo, false
}

// below returns how many of the sorted words are below want. It counts the rest of a binary search
// without branches: the processor then loads all cache lines of the rest at once instead of one
// after another.
func below(words []uint64, want uint64) int {
	const window = 32
	lo, hi := 0, len(words)
	for hi-lo > window {
		if mid := int(uint(lo+hi) >> 1); words[mid] < want {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	for _, w := range words[lo:hi] {
		_, borrow := bits.Sub64(w, want, 0)
		lo += int(borrow)
	}
	return lo
}

// comparePrefix compares the beginning of key with the common prefix of all keys. A shorter key
// that equals the beginning of the prefix is below.
func (nd *Node) comparePrefix(key []byte) int {
	p := int(nd.prefix)
	if p == 0 {
		return 0
	}
	m := min(p, len(key))
	for w := 0; 8*w < m && w < len(nd.common); w++ {
		if c := cmp.Compare(word(key[8*w:m]), nd.common[w]); c != 0 {
			return c
		}
	}
	// The keys themselves would be one more line of memory to load.
	if p > 8*len(nd.common) || m < p {
		if c := bytes.Compare(key[:m], nd.buf[nd.keys:][:m]); c != 0 {
			return c
		}
	}
	return cmp.Compare(m, p)
}

// NextDifference returns the first item from item on in which two nodes differ that have the same
// keys, lengths of values, flags and gaps with children: item 2g is the child in gap g, item 2i+1
// is entry i, and 2*Len()+1 stands for the end. ok is false when the nodes differ in more than
// that. It compares blocks of bytes, which is several times as fast as comparing items.
func (nd *Node) NextDifference(other *Node, item int) (next int, ok bool) {
	if nd.n != other.n || nd.children != other.children || nd.keys != other.keys || nd.vals != other.vals ||
		!bytes.Equal(nd.buf[nd.keyEnds():nd.ids], other.buf[other.keyEnds():other.ids]) || !bytes.Equal(nd.buf[nd.keys:nd.vals], other.buf[other.keys:other.vals]) {
		return 0, false
	}
	next = 2*nd.Len() + 1
	for c, from := nd.childFrom(item), int(nd.ids); c < nd.NumChildren(); c++ {
		at := from + object.DigestSize*c
		if !bytes.Equal(nd.buf[at:at+object.DigestSize], other.buf[at:at+object.DigestSize]) {
			next = 2 * nd.gap(c)
			break
		}
	}
	entry := item / 2
	if 2*entry+1 >= next || entry >= nd.Len() {
		return next, true
	}
	start, _ := nd.bounds(nd.valEnds(), entry)
	_, end := nd.bounds(nd.valEnds(), min((next-1)/2, nd.Len()-1)) // values of entries after the differing child do not count
	at := int(start) + mismatch(nd.buf[nd.vals+start:nd.vals+end], other.buf[nd.vals+start:nd.vals+end])
	if at >= int(end) {
		return next, true
	}
	for ; entry < nd.Len(); entry++ {
		if _, end := nd.bounds(nd.valEnds(), entry); int(end) > at {
			break
		}
	}
	return min(next, 2*entry+1), true
}

// Items returns the number of entries and children from item from to item to, exclusive, counted as
// in NextDifference.
func (nd *Node) Items(from, to int) int {
	return to/2 - from/2 + nd.childFrom(to) - nd.childFrom(from)
}

// childFrom returns the first child in the order of the gaps that is at or after item.
func (nd *Node) childFrom(item int) int {
	return sort.Search(nd.NumChildren(), func(i int) bool { return 2*nd.gap(i) >= item })
}

// mismatch returns the first index at which two slices of one length differ, or their length.
func mismatch(a, b []byte) int {
	const step = 256
	at := 0
	for len(a)-at > step && bytes.Equal(a[at:at+step], b[at:at+step]) {
		at += step
	}
	for at < len(a) && a[at] == b[at] {
		at++
	}
	return at
}

// Touch reads a byte of each cache line of the keys and values and returns their combination, so
// that the compiler keeps the reads. The processor then loads all lines of a node that is about to
// be read at once instead of one after another. next is the node that is read after it, or nil: the
// processor loads where its parts are meanwhile.
func (nd *Node) Touch(next *Node) (all byte) {
	if next != nil {
		all = byte(next.prefix) | next.level
	}
	buf := nd.buf[nd.keys:]
	for i := 0; i < len(buf); i += cacheLine {
		all |= buf[i]
	}
	return all
}

const cacheLine = 64

// word returns the first eight bytes of b as a big-endian number, padded with zeros. Where two
// words differ, they are in the order of the byte strings.
func word(b []byte) (w uint64) {
	if len(b) >= 8 {
		return binary.BigEndian.Uint64(b)
	}
	for i, c := range b {
		w |= uint64(c) << (56 - 8*i)
	}
	return w
}
