package indexeddb

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/base"
)

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
func CutPagePart(b []byte) (part, rest []byte, short bool, err error) { return cutPart(b) }

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
		return prefixEnd(bound), exact
	}
	return bound, exact
}

// prefixEnd returns the first key behind those that begin with b, which is not of 0xff alone, and
// changes b.
func prefixEnd(b []byte) []byte {
	for b[len(b)-1] == 0xff {
		b = b[:len(b)-1]
	}
	b[len(b)-1]++
	return b
}

// PageDatabase returns what the keys of all rows of a database on a page begin with, but that of
// its name.
func PageDatabase(id int64) []byte { return appendUint(slices.Clone(namespace), id) }

// PageStore returns what the keys of all records and index rows of an object store on a page begin
// with.
func PageStore(database, id int64) []byte { return appendUint(PageDatabase(database), id) }

// At returns what stands at a path of property names in a value; objects are the external objects
// of the record. It is not ok when there is nothing, or undefined. Package value lists what has
// properties beside objects: the length of strings and arrays, size and type of blobs, name and
// lastModified of files.
func At(v value.Value, path string, objects []ExternalObject) (part value.Value, ok bool) {
	return at(v, path, objects)
}

// Check tells whether p is a valid key path: an empty string, names of properties with dots between
// them, or a list of one or more such. Errors: base.ErrInvalid.
func (p KeyPath) Check() error {
	if p.Type == ArrayKeyPath && len(p.Paths) == 0 {
		return fmt.Errorf("key path without paths: %w", base.ErrInvalid)
	}
	for _, path := range p.Paths {
		if !validPath(path) {
			return fmt.Errorf("key path %.100q: %w", path, base.ErrInvalid)
		}
	}
	return nil
}

// validPath reports whether a path is empty or consists of identifiers as scripts have them.
func validPath(path string) bool {
	begins := path != ""
	for _, r := range path {
		switch {
		case r == '.' && begins, !begins && r != '.' && !continuesIdentifier(r), begins && !beginsIdentifier(r):
			return false
		}
		begins = r == '.'
	}
	return !begins
}

func beginsIdentifier(r rune) bool {
	return r == '$' || r == '_' || unicode.In(r, unicode.L, unicode.Nl, unicode.Other_ID_Start) && !unicode.In(r, unicode.Pattern_Syntax, unicode.Pattern_White_Space)
}

func continuesIdentifier(r rune) bool {
	const nonJoiner, joiner = '\u200c', '\u200d'
	return beginsIdentifier(r) || r == nonJoiner || r == joiner || unicode.In(r, unicode.Mn, unicode.Mc, unicode.Nd, unicode.Pc, unicode.Other_ID_Continue)
}

// AppendPageUint appends a number as it stands in keys of a page: the position of an external
// object.
func AppendPageUint(dst []byte, n int64) []byte { return appendUint(dst, n) }

// Injectable reports whether Inject can put a key at a path so that an encoded value has it: into
// an object or array. The specification asks for that when a value is put; Chromium does not.
func Injectable(v value.Value, path string) bool {
	for name := range strings.SplitSeq(path, ".") {
		properties := propertiesOf(v)
		if properties == nil {
			return false
		}
		next, ok := properties.Get(name)
		if !ok {
			return true // objects are made from there on
		}
		v = next
	}
	return true
}
