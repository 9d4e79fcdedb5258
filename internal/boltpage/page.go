package boltpage

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"sort"

	"github.com/ledgerd/ledger/internal/base"
)

// The layout of a bbolt file, version 2, in the byte order of the host (bbolt writes no other):
//
//	page     id u64, flags u16, count u16, overflow u32 (how many further pages belong to it)
//	meta     page header, magic u32, version u32, page size u32, flags u32, root bucket (page u64,
//	         sequence u64), page of the list of free pages u64, number of pages u64,
//	         transaction u64, FNV-1a of the 56 bytes before
//	branch   page header, count elements (offset from the element u32, key length u32, page u64),
//	         keys
//	leaf     page header, count elements (flags u32, offset u32, key length u32, value length
//	         u32), then key and value of each in turn
//	free     page header, count ids u64; with count 0xffff the first of them is the count
//	bucket   value of an element with flag 1 in the root tree: page u64, sequence u64; with page 0
//	         a leaf follows
const (
	// HeaderBytes is the length of a page header.
	HeaderBytes  = 16
	elementBytes = 16
	bucketBytes  = 16
	metaBytes    = 64

	// BranchFlag is the flag of branch pages.
	BranchFlag = 0x01
	leafFlag   = 0x02
	freeFlag   = 0x10

	bucketFlag = 0x01

	metaMagic   = 0xED0CDAED
	metaVersion = 2

	minPageBytes = 1 << 10
	maxPageBytes = 64 << 10

	maxKeyBytes   = 32768
	maxValueBytes = 1 << 30

	// MaxDepth bounds the levels of a tree: with two children per branch it allows 2^40 pages.
	MaxDepth = 40
)

// Order is the byte order of the host, in which bbolt writes.
var Order = binary.NativeEndian

// Meta is the content of a valid meta page.
type Meta struct {
	PageBytes int
	Root      uint64 // page of the root tree
	Free      uint64 // page of the list of free pages
	Pages     uint64 // number of pages, ids are below it
	Tx        uint64
}

// ParseMeta returns false when b, the start of a page, is no valid meta page.
func ParseMeta(b []byte) (Meta, bool) {
	if len(b) < HeaderBytes+metaBytes {
		return Meta{}, false
	}
	b = b[HeaderBytes : HeaderBytes+metaBytes]
	h := fnv.New64a()
	h.Write(b[:56]) // never fails
	if Order.Uint32(b) != metaMagic || Order.Uint32(b[4:]) != metaVersion || Order.Uint64(b[56:]) != h.Sum64() {
		return Meta{}, false
	}
	m := Meta{
		PageBytes: int(Order.Uint32(b[8:])),
		Root:      Order.Uint64(b[16:]),
		Free:      Order.Uint64(b[32:]),
		Pages:     Order.Uint64(b[40:]),
		Tx:        Order.Uint64(b[48:]),
	}
	if m.PageBytes < minPageBytes || m.PageBytes > maxPageBytes || m.PageBytes&(m.PageBytes-1) != 0 {
		return Meta{}, false
	}
	return m, true
}

// Page is a page with its overflow pages. Its element accessors may be used after Verify has
// accepted it.
type Page []byte

// ID returns the number of the page.
func (p Page) ID() uint64 { return Order.Uint64(p) }

// Flags returns the kind of the page.
func (p Page) Flags() uint16 { return Order.Uint16(p[8:]) }

// Count returns the number of elements.
func (p Page) Count() int { return int(Order.Uint16(p[10:])) }

// Overflow returns the number of further pages that belong to it.
func (p Page) Overflow() uint32 { return Order.Uint32(p[12:]) }

// Leaf reports whether it is a leaf.
func (p Page) Leaf() bool { return p.Flags() == leafFlag }

func (p Page) u32(i, off int) int {
	return int(Order.Uint32(p[HeaderBytes+elementBytes*i+off:]))
}

// Branch elements.

// Child returns the page below element i of a branch.
func (p Page) Child(i int) uint64 { return Order.Uint64(p[HeaderBytes+elementBytes*i+8:]) }

// BranchKey returns the first key below element i of a branch. It shares memory with the page, as
// do all keys and values.
func (p Page) BranchKey(i int) []byte {
	start := HeaderBytes + elementBytes*i + p.u32(i, 0)
	end := start + p.u32(i, 4)
	return p[start:end:end]
}

// Leaf elements.

// LeafKey returns the key of element i of a leaf.
func (p Page) LeafKey(i int) []byte {
	start := HeaderBytes + elementBytes*i + p.u32(i, 4)
	end := start + p.u32(i, 8)
	return p[start:end:end]
}

// Value returns the value of element i of a leaf.
func (p Page) Value(i int) []byte {
	start := HeaderBytes + elementBytes*i + p.u32(i, 4) + p.u32(i, 8)
	end := start + p.u32(i, 12)
	return p[start:end:end]
}

// Key returns the key of element i of a branch or leaf.
func (p Page) Key(i int) []byte {
	if p.Leaf() {
		return p.LeafKey(i)
	}
	return p.BranchKey(i)
}

// Search returns the first element of a leaf whose key is at least k.
func (p Page) Search(k []byte) (i int, found bool) {
	return sort.Find(p.Count(), func(i int) int { return bytes.Compare(k, p.LeafKey(i)) })
}

// ChildFor returns the element of a branch whose child holds k.
func (p Page) ChildFor(k []byte) int {
	above := sort.Search(p.Count(), func(i int) bool { return bytes.Compare(p.BranchKey(i), k) > 0 })
	return max(above-1, 0)
}

// Bounds are the requirements on a page by the page that refers to it.
type Bounds struct {
	Lo, Hi  []byte // its first key is Lo, and its keys are below Hi; nil is no bound
	Buckets bool   // it belongs to the root tree: leaves hold bucket headers and nothing else
	Mixed   bool   // leaves hold bucket headers and rows
	Inline  bool   // it is a leaf inside a bucket header
	Pages   uint64 // ids are below this
	Size    int    // of one page
}

// Verify checks everything inside a branch or leaf page: elements, keys and values follow each
// other without gaps, end in the last overflow page, and keys ascend inside the bounds.
func (p Page) Verify(b Bounds) error {
	n, isLeaf := p.Count(), p.Leaf()
	if !isLeaf && (p.Flags() != BranchFlag || n == 0 || b.Inline) {
		return p.Damage("a branch or leaf", "flags %#x with %d elements", p.Flags(), n)
	}
	at := HeaderBytes + elementBytes*n
	if at > len(p) {
		return p.Damage("elements inside the page", "%d of them", n)
	}
	var prev []byte
	for i := range n {
		end, err := p.verifyElement(i, at, isLeaf, b)
		if err != nil {
			return err
		}
		at = end
		if isLeaf && p.bucket(i) {
			if err := p.verifyHeader(i, b); err != nil {
				return err
			}
		}
		k := p.Key(i)
		if i > 0 && bytes.Compare(k, prev) <= 0 {
			return p.Damage("ascending keys", "key %d out of order", i)
		}
		if i == 0 && b.Lo != nil && !bytes.Equal(k, b.Lo) {
			return p.Damage("the first key by which the page above knows it", "another")
		}
		prev = k
	}
	if n == 0 && b.Lo != nil {
		return p.Damage("rows", "none")
	}
	if n > 0 && b.Hi != nil && bytes.Compare(prev, b.Hi) >= 0 {
		return p.Damage("keys below the next page's", "key %d beyond", n-1)
	}
	if b.Inline {
		return nil
	}
	if used := (at + b.Size - 1) / b.Size; used != len(p)/b.Size {
		return p.Damage(fmt.Sprintf("%d pages for its rows", used), "%d", len(p)/b.Size)
	}
	return nil
}

// verifyElement checks that the content of element i begins at offset at, and returns its end.
func (p Page) verifyElement(i, at int, isLeaf bool, b Bounds) (end int, err error) {
	var pos, key, val int
	if isLeaf {
		pos, key, val = p.u32(i, 4), p.u32(i, 8), p.u32(i, 12)
		want := 0
		if b.Buckets {
			want = bucketFlag
		}
		if got := p.u32(i, 0); got != want && (!b.Mixed || got != bucketFlag) {
			return 0, p.Damage(fmt.Sprintf("element flags %d", want), "%d in element %d", got, i)
		}
	} else {
		pos, key = p.u32(i, 0), p.u32(i, 4)
		if c := p.Child(i); c < 2 || c >= b.Pages || c == p.ID() {
			return 0, p.Damage("a page of the file", "page %d in element %d", c, i)
		}
	}
	// The lengths are compared before addition, which could overflow a 32-bit int.
	if HeaderBytes+elementBytes*i+pos != at || key < 1 || key > maxKeyBytes || val < 0 || val > maxValueBytes || key > len(p)-at || val > len(p)-at-key {
		return 0, p.Damage("content inside the page", "element %d at %d with %d+%d bytes", i, pos, key, val)
	}
	return at + key + val, nil
}

// verifyFree checks a list of free pages and adds them to free, which has those of the list.
func (p Page) verifyFree(m Meta, free *Set) error {
	if p.Flags() != freeFlag {
		return p.Damage("a list of free pages", "flags %#x", p.Flags())
	}
	ids, n := p[HeaderBytes:], uint64(p.Count())
	if n == 0xffff {
		n, ids = Order.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids)/8) || n > m.Pages {
		return p.Damage("free pages inside the page", "%d of them", n)
	}
	// bbolt counts before it takes the list's own pages from the free ones.
	own := uint64(len(p) / m.PageBytes)
	if most := (HeaderBytes+8*(n+own+1))/uint64(m.PageBytes) + 1; own > most {
		return p.Damage(fmt.Sprintf("at most %d pages for %d ids", most, n), "%d", own)
	}
	var prev uint64
	for i := range int(n) {
		id := Order.Uint64(ids[8*i:])
		if id < 2 || id >= m.Pages || id <= prev {
			return p.Damage("ascending ids of free pages", "%d", id)
		}
		prev = id
		if !free.Add(id) {
			return p.Damage("each page once", "page %d twice", id)
		}
	}
	return nil
}

// Damage makes an error; the caller adds the file's name.
func (p Page) Damage(want, got string, args ...any) error {
	return &base.CorruptError{Key: fmt.Sprintf("page %d", p.ID()), Want: want, Got: fmt.Sprintf(got, args...)}
}

// bucket reports whether element i of a leaf is a bucket.
func (p Page) bucket(i int) bool { return p.u32(i, 0) == bucketFlag }

// Bucket returns the page at which the bucket in element i of a leaf begins. It is 0 for a bucket
// that consists of the given leaf.
func (p Page) Bucket(i int) (root uint64, inline Page) {
	header := p.Value(i)
	if root = Order.Uint64(header); root == 0 {
		inline = Page(header[bucketBytes:])
	}
	return root, inline
}

// verifyHeader checks the bucket header in element i of a leaf: it names a page, or holds a leaf.
func (p Page) verifyHeader(i int, b Bounds) error {
	v := p.Value(i)
	if len(v) < bucketBytes {
		return p.Damage("a bucket header", "%d bytes in element %d", len(v), i)
	}
	root, in := p.Bucket(i)
	switch {
	case root == 0 && len(v) >= bucketBytes+HeaderBytes:
		if in.ID() != 0 || in.Overflow() != 0 {
			return p.Damage("a leaf in the bucket header", "page %d in element %d", in.ID(), i)
		}
		return in.Verify(Bounds{Inline: true})
	case root >= 2 && root < b.Pages && len(v) == bucketBytes:
		return nil
	}
	return p.Damage("a bucket header", "page %d and %d bytes in element %d", root, len(v), i)
}
