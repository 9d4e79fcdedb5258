package indexeddb

import (
	"crypto/sha256"
	"slices"

	"github.com/ledgerd/ledger/ordered"
)

// maxPart is the greatest length of a sortable key that a page row holds unshortened. Two shortened
// keys and the prefix of the row fit into limits.MaxKeyBytes.
const maxPart = 1984

// AppendPagePart appends k as it appears in the key of a page row: the sortable form, shortened
// when it is long (X4).
func (k Key) AppendPagePart(dst []byte) []byte {
	start := len(dst)
	dst = k.AppendSortable(slices.Grow(dst, k.sortableSize()))
	if len(dst)-start <= maxPart {
		return dst
	}
	sum := sha256.Sum256(dst[start:])
	return append(dst[:start+maxPart], sum[:]...)
}

// sortableSize estimates the length of the sortable form of k.
func (k Key) sortableSize() int { return len(k.enc) + len(k.enc)/2 }

// CutPagePart splits b into the part that AppendPagePart appended and the rest. short reports
// whether the part was shortened. part and rest share memory with b. Errors: base.ErrCorrupt.
func CutPagePart(b []byte) (part, rest []byte, short bool, err error) {
	n, ok := sortableLen(b)
	switch {
	case ok:
		return b[:n], b[n:], false, nil
	case len(b) >= maxPart+sha256.Size:
		return b[:maxPart+sha256.Size], b[maxPart+sha256.Size:], true, nil
	}
	return nil, nil, false, malformed("row of a page", "a key in it is cut")
}

// sortableLen returns the length of the sortable key at the beginning of b. ok is false when the
// key has more than maxPart bytes.
func sortableLen(b []byte) (n int, ok bool) {
	b = b[:min(len(b), maxPart)]
	for depth := 0; n < len(b); {
		t := b[n]
		n++
		switch t {
		case sortableNumber, sortableDate:
			n += 8
		case sortableString:
			_, size, ok := unitsLen(b[n:])
			if !ok {
				return 0, false
			}
			n += size
		case sortableBinary:
			size, ok := groupsLen(b[n:])
			if !ok {
				return 0, false
			}
			n += size
		case sortableArray:
			depth++
		case sortableEnd:
			depth--
		default:
			return 0, false
		}
		if depth <= 0 {
			return n, depth == 0 && n <= len(b)
		}
	}
	return 0, false
}

// ShortPagePart reports whether a part, given without the bytes after it, was shortened.
func ShortPagePart(part []byte) bool { return len(part) > maxPart }

// PageBound returns the first possible key of the rows of a family with a key of at least k, or
// above k when after is set. In an index, k is the index key, else the primary key. exact is false
// when k had to be shortened: then keys below k may sort after the bound, and keys above k before
// the bound.
func PageBound(family Row, k Key, after bool) (bound []byte, exact bool) {
	bound = PageFamily(family)
	start := len(bound)
	bound = k.AppendSortable(slices.Grow(bound, k.sortableSize()))
	exact = len(bound)-start <= maxPart
	bound = bound[:start+min(len(bound)-start, maxPart)]
	if after {
		return ordered.PrefixEnd(bound), exact
	}
	return bound, exact
}

// PageDatabase returns the common prefix of the keys of all page rows of a database, except the row
// of its name.
func PageDatabase(id int64) []byte { return AppendPageUint(slices.Clone(namespace), id) }

// PageStore returns the common prefix of the keys of all records and index rows of an object store
// on a page.
func PageStore(database, id int64) []byte { return AppendPageUint(PageDatabase(database), id) }
