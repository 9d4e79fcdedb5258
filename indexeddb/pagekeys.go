package indexeddb

import (
	"crypto/sha256"
	"slices"

	"github.com/ledgerd/ledger/ordered"
)

// maxPart is the greatest length of a sortable key that stands in a row of a page as it is. Two
// longer ones fit, shortened, into limits.MaxKeyBytes together with what stands before them.
const maxPart = 1984

// AppendPagePart appends the form in which k stands in the key of a row of a page: sortable, and
// shortened when it is long (X4).
func (k Key) AppendPagePart(dst []byte) []byte {
	start := len(dst)
	dst = k.AppendSortable(slices.Grow(dst, k.sortableSize()))
	if len(dst)-start <= maxPart {
		return dst
	}
	sum := sha256.Sum256(dst[start:])
	return append(dst[:start+maxPart], sum[:]...)
}

// sortableSize returns about how long the sortable form of k is.
func (k Key) sortableSize() int { return len(k.enc) + len(k.enc)/2 }

// CutPagePart returns what AppendPagePart appended at the beginning of b, what is behind it, and
// whether it was shortened. Both share memory with b. Errors: base.ErrCorrupt.
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

// sortableLen returns the length of the sortable key at the beginning of b, if it is one of at most
// maxPart bytes.
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

// ShortPagePart reports whether a part, which has nothing behind it, was shortened.
func ShortPagePart(part []byte) bool { return len(part) > maxPart }

// PageBound returns where the rows of a family begin whose key is k or greater: the primary key, or
// in an index the index key; after is set for rows whose key is greater than k. It is exact only
// when k was not shortened. If it was, keys that are less than k may stand behind the bound, and
// such as are greater before it.
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

// PageDatabase returns what the keys of all rows of a database on a page begin with, but that of
// its name.
func PageDatabase(id int64) []byte { return AppendPageUint(slices.Clone(namespace), id) }

// PageStore returns what the keys of all records and index rows of an object store on a page begin
// with.
func PageStore(database, id int64) []byte { return AppendPageUint(PageDatabase(database), id) }
