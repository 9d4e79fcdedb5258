package index

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"

	"github.com/ledgerd/ledger/internal/base"
)

// The layout of a bbolt file, version 2, in the byte order of the host (bbolt writes no other):
//
//	page     id u64, flags u16, count u16, overflow u32 (how many further pages belong to it)
//	meta     page header, magic u32, version u32, page size u32, flags u32, root bucket (page u64,
//	         sequence u64), page of the list of free pages u64, number of pages u64,
//	         transaction u64, FNV-1a of the 56 bytes before
//	branch   page header, count elements (offset from the element u32, key length u32, page u64), keys
//	leaf     page header, count elements (flags u32, offset u32, key length u32, value length u32),
//	         then key and value of each in turn
//	free     page header, count ids u64; with count 0xffff the first of them is the count
//	bucket   value of an element with flag 1 in the root tree: page u64, sequence u64; with page 0 a
//	         leaf follows
const (
	headerBytes  = 16
	elementBytes = 16
	bucketBytes  = 16
	metaBytes    = 64

	branchFlag = 0x01
	leafFlag   = 0x02
	freeFlag   = 0x10

	bucketFlag = 0x01

	metaMagic   = 0xED0CDAED
	metaVersion = 2

	minPageBytes = 1 << 10
	maxPageBytes = 64 << 10

	// maxDepth bounds the levels of a tree: with two children a branch it is enough for 2^40 pages.
	maxDepth = 40
)

var order = binary.NativeEndian

// meta is what a valid meta page says.
type meta struct {
	pageBytes int
	root      uint64 // page of the root tree
	free      uint64 // page of the list of free pages
	pages     uint64 // number of pages, ids are below it
	tx        uint64
}

// parseMeta returns false when b, from the start of a page, is no valid meta page.
func parseMeta(b []byte) (meta, bool) {
	if len(b) < headerBytes+metaBytes {
		return meta{}, false
	}
	b = b[headerBytes : headerBytes+metaBytes]
	h := fnv.New64a()
	h.Write(b[:56]) // never fails
	if order.Uint32(b) != metaMagic || order.Uint32(b[4:]) != metaVersion || order.Uint64(b[56:]) != h.Sum64() {
		return meta{}, false
	}
	m := meta{
		pageBytes: int(order.Uint32(b[8:])),
		root:      order.Uint64(b[16:]),
		free:      order.Uint64(b[32:]),
		pages:     order.Uint64(b[40:]),
		tx:        order.Uint64(b[48:]),
	}
	if m.pageBytes < minPageBytes || m.pageBytes > maxPageBytes || m.pageBytes&(m.pageBytes-1) != 0 {
		return meta{}, false
	}
	return m, true
}

// page is a page with its overflow pages. Its accessors of elements may be used once verify or
// verifyFree has accepted it.
type page []byte

func (p page) id() uint64       { return order.Uint64(p) }
func (p page) flags() uint16    { return order.Uint16(p[8:]) }
func (p page) count() int       { return int(order.Uint16(p[10:])) }
func (p page) overflow() uint32 { return order.Uint32(p[12:]) }
func (p page) leaf() bool       { return p.flags() == leafFlag }

func (p page) u32(i, off int) int {
	return int(order.Uint32(p[headerBytes+elementBytes*i+off:]))
}

// Branch elements.

func (p page) child(i int) uint64 { return order.Uint64(p[headerBytes+elementBytes*i+8:]) }

func (p page) branchKey(i int) []byte {
	start := headerBytes + elementBytes*i + p.u32(i, 0)
	end := start + p.u32(i, 4)
	return p[start:end:end]
}

// Leaf elements.

func (p page) leafKey(i int) []byte {
	start := headerBytes + elementBytes*i + p.u32(i, 4)
	end := start + p.u32(i, 8)
	return p[start:end:end]
}

func (p page) value(i int) []byte {
	start := headerBytes + elementBytes*i + p.u32(i, 4) + p.u32(i, 8)
	end := start + p.u32(i, 12)
	return p[start:end:end]
}

func (p page) key(i int) []byte {
	if p.leaf() {
		return p.leafKey(i)
	}
	return p.branchKey(i)
}

// search returns the first element of a leaf whose key is at least k.
func (p page) search(k []byte) (i int, found bool) {
	lo, hi := 0, p.count()
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		switch c := bytes.Compare(p.leafKey(mid), k); {
		case c < 0:
			lo = mid + 1
		case c > 0:
			hi = mid
		default:
			return mid, true
		}
	}
	return lo, false
}

// childFor returns the element of a branch whose child holds k.
func (p page) childFor(k []byte) int {
	lo, hi := 0, p.count()
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if bytes.Compare(p.branchKey(mid), k) <= 0 {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return max(lo-1, 0)
}

// bounds says what a page must be, from what refers to it.
type bounds struct {
	lo, hi  []byte // its keys are at least lo and below hi; nil is no bound
	buckets bool   // it belongs to the root tree: leaves hold bucket headers and nothing else
	inline  bool   // it is a leaf inside a bucket header
	pages   uint64 // ids are below this
	size    int    // of one page
}

// verify checks everything inside a branch or leaf page (I2): elements, keys and values follow each
// other without gaps, end in the last overflow page, and keys ascend inside the bounds.
func (p page) verify(b bounds) error {
	n, isLeaf := p.count(), p.leaf()
	if !isLeaf && (p.flags() != branchFlag || n == 0 || b.inline) {
		return p.damage("a branch or leaf", "flags %#x with %d elements", p.flags(), n)
	}
	at := headerBytes + elementBytes*n
	if at > len(p) {
		return p.damage("elements inside the page", "%d of them", n)
	}
	var prev []byte
	for i := range n {
		end, err := p.verifyElement(i, at, isLeaf, b)
		if err != nil {
			return err
		}
		at = end
		k := p.key(i)
		if i == 0 && b.lo != nil && bytes.Compare(k, b.lo) < 0 || i > 0 && bytes.Compare(k, prev) <= 0 {
			return p.damage("ascending keys", "key %d out of order", i)
		}
		prev = k
	}
	if n > 0 && b.hi != nil && bytes.Compare(prev, b.hi) >= 0 {
		return p.damage("keys below the next page's", "key %d beyond", n-1)
	}
	if b.inline {
		return nil
	}
	if used := (at + b.size - 1) / b.size; used != len(p)/b.size {
		return p.damage(fmt.Sprintf("%d pages for its rows", used), "%d", len(p)/b.size)
	}
	return nil
}

// verifyElement checks that the content of element i stands at offset at, and returns where it ends.
func (p page) verifyElement(i, at int, isLeaf bool, b bounds) (end int, err error) {
	var pos, key, val int
	if isLeaf {
		pos, key, val = p.u32(i, 4), p.u32(i, 8), p.u32(i, 12)
		want := 0
		if b.buckets {
			want = bucketFlag
		}
		if got := p.u32(i, 0); got != want {
			return 0, p.damage(fmt.Sprintf("element flags %d", want), "%d in element %d", got, i)
		}
	} else {
		pos, key = p.u32(i, 0), p.u32(i, 4)
		if c := p.child(i); c < 2 || c >= b.pages || c == p.id() {
			return 0, p.damage("a page of the file", "page %d in element %d", c, i)
		}
	}
	// The lengths are compared before they are added, which could overflow an int of 32 bits.
	if headerBytes+elementBytes*i+pos != at || key < 1 || key > MaxKeyBytes || val < 0 || val > MaxValueBytes || key > len(p)-at || val > len(p)-at-key {
		return 0, p.damage("content inside the page", "element %d at %d with %d+%d bytes", i, pos, key, val)
	}
	return at + key + val, nil
}

// verifyFree checks a list of free pages and calls mark for each.
func (p page) verifyFree(m meta, mark func(id uint64) error) error {
	if p.flags() != freeFlag {
		return p.damage("a list of free pages", "flags %#x", p.flags())
	}
	ids, n := p[headerBytes:], uint64(p.count())
	if n == 0xffff {
		n, ids = order.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids)/8) || n > m.pages {
		return p.damage("free pages inside the page", "%d of them", n)
	}
	// bbolt counts before it takes the pages of the list itself from those that are free.
	own := uint64(len(p) / m.pageBytes)
	if most := (headerBytes+8*(n+own+1))/uint64(m.pageBytes) + 1; own > most {
		return p.damage(fmt.Sprintf("at most %d pages for %d ids", most, n), "%d", own)
	}
	var prev uint64
	for i := range int(n) {
		id := order.Uint64(ids[8*i:])
		if id < 2 || id >= m.pages || id <= prev {
			return p.damage("ascending ids of free pages", "%d", id)
		}
		prev = id
		if err := mark(id); err != nil {
			return err
		}
	}
	return nil
}

// damage makes an error; the file's name is put in by File.damaged.
func (p page) damage(want, got string, args ...any) error {
	return &base.CorruptError{Key: fmt.Sprintf("page %d", p.id()), Want: want, Got: fmt.Sprintf(got, args...)}
}

// inlineLeaf returns the leaf inside a bucket header whose page is 0.
func inlineLeaf(header []byte) page { return page(header[bucketBytes:]) }

// verifyHeader checks a bucket header: it names a page, or holds a leaf.
func verifyHeader(p page, i int, b bounds) error {
	v := p.value(i)
	if len(v) < bucketBytes {
		return p.damage("a bucket header", "%d bytes in element %d", len(v), i)
	}
	root := order.Uint64(v)
	switch {
	case root == 0 && len(v) >= bucketBytes+headerBytes:
		in := inlineLeaf(v)
		if in.id() != 0 || in.overflow() != 0 {
			return p.damage("a leaf in the bucket header", "page %d in element %d", in.id(), i)
		}
		if err := in.verify(bounds{inline: true}); err != nil {
			return err
		}
		return nil
	case root >= 2 && root < b.pages && len(v) == bucketBytes:
		return nil
	}
	return p.damage("a bucket header", "page %d and %d bytes in element %d", root, len(v), i)
}
