package indexeddb

import "bytes"

// ComparatorName is the name under which LevelDB directories record the order of CompareRows.
const ComparatorName = "idb_cmp1"

// CompareRows returns a negative number, 0 or a positive one when the row key a sorts before, equal
// to or after b in Chromium's LevelDB. The order is total on all bytes: malformed row keys sort
// bytewise after valid ones. Of rows that DecodeRow accepts, two are equal only when they differ at
// most in -0 and 0.
func CompareRows(a, b []byte) int {
	da, sa, ia, ra, okA := cutPrefix(a)
	db, sb, ib, rb, okB := cutPrefix(b)
	if !okA || !okB {
		return compareMalformed(a, b, okA, okB)
	}
	if c := firstOf(sign(da-db), sign(sa-sb), sign(ia-ib)); c != 0 {
		return c
	}
	if len(ra) == 0 || len(rb) == 0 {
		return sign(int64(len(ra) - len(rb)))
	}
	switch {
	case da == 0:
		return compareGlobal(ra, rb)
	case sa == 0:
		return compareMetadata(ra, rb)
	case ia < MinIndexID:
		c, ra, rb := compareKeys(ra, rb, 0)
		return firstOf(c, bytes.Compare(ra, rb))
	}
	return compareIndexRows(ra, rb)
}

func firstOf(cs ...int) int {
	for _, c := range cs {
		if c != 0 {
			return c
		}
	}
	return 0
}

func compareGlobal(a, b []byte) int {
	t := a[0]
	if c := sign(int64(t) - int64(b[0])); c != 0 {
		return c
	}
	c, a, b := 0, a[1:], b[1:]
	switch t {
	case typeDatabaseFree:
		c, a, b = compareVarInts(a, b)
	case typeDatabaseName:
		if c, a, b = compareStrings(a, b); c == 0 && a != nil {
			c, a, b = compareStrings(a, b)
		}
	}
	return firstOf(c, bytes.Compare(a, b))
}

func compareMetadata(a, b []byte) int {
	t := a[0]
	if c := sign(int64(t) - int64(b[0])); c != 0 {
		return c
	}
	c, a, b := 0, a[1:], b[1:]
	switch t {
	case typeStore, typeStoreFree, typeIndexName, typeIndex, typeIndexFree:
		c, a, b = compareVarInts(a, b)
	}
	if c == 0 && a != nil {
		switch t {
		case typeIndex, typeIndexFree:
			c, a, b = compareVarInts(a, b)
		case typeStoreName, typeIndexName:
			c, a, b = compareStrings(a, b)
		}
	}
	return firstOf(c, bytes.Compare(a, b))
}

// compareVarInts compares the numbers at the beginning of a and b. It returns the bytes after them
// when the numbers are equal, else nil.
func compareVarInts(a, b []byte) (c int, restA, restB []byte) {
	na, restA, okA := varInt(a)
	nb, restB, okB := varInt(b)
	if !okA || !okB {
		return compareMalformed(a, b, okA, okB), nil, nil
	}
	if na != nb {
		return sign(na - nb), nil, nil
	}
	return 0, restA, restB
}

// compareStrings does the same as compareVarInts for strings with length.
func compareStrings(a, b []byte) (c int, restA, restB []byte) {
	ua, restA, okA := stringWithLength(a)
	ub, restB, okB := stringWithLength(b)
	if !okA || !okB {
		return compareMalformed(a, b, okA, okB), nil, nil
	}
	if c := bytes.Compare(ua, ub); c != 0 {
		return c, nil, nil
	}
	return 0, restA, restB
}

// compareIndexRows compares index keys, then primary keys, then sequences. In the bytes, the
// sequence precedes the primary key.
func compareIndexRows(a, b []byte) int {
	c, a, b := compareKeys(a, b, 0)
	if c != 0 || a == nil {
		return c
	}
	if len(a) == 0 || len(b) == 0 {
		return sign(int64(len(a) - len(b)))
	}
	na, pa, okA := varInt(a)
	nb, pb, okB := varInt(b)
	if !okA || !okB {
		return compareMalformed(a, b, okA, okB)
	}
	if len(pa) == 0 || len(pb) == 0 {
		return firstOf(sign(int64(len(pa)-len(pb))), sign(na-nb))
	}
	c, pa, pb = compareKeys(pa, pb, 0)
	return firstOf(c, sign(na-nb), bytes.Compare(pa, pb))
}
