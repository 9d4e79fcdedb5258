package metabase

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
)

// Op is the operation of a filter.
type Op uint8

// The operations. All but Absent require that the attribute exists. The last four compare decimal
// integers; other values never match.
const (
	// Flag requires that an attribute exists. It is for $Object:ROOT and $Object:PHY alone.
	Flag Op = iota
	Equal
	NotEqual
	Absent
	Prefix
	Greater
	GreaterOrEqual
	Less
	LessOrEqual
)

func (op Op) numeric() bool { return op >= Greater && op <= LessOrEqual }

// Filter is a condition on an attribute that users set or, with the prefix "$Object:", on a system
// attribute. Value is text: ids and owners in base58, hashes in hexadecimal digits, split ids as
// UUIDs.
type Filter struct {
	Key   string
	Op    Op
	Value string
}

// condition is a compiled filter, which can be applied to stored values.
type condition struct {
	Filter
	stored []byte   // the value in stored form, for Equal and NotEqual
	number *big.Int // for comparisons
	never  bool     // the value has no stored form, so no value matches
}

// compile verifies filter i. reachable is false when no object can match the filter.
func compile(i int, f Filter) (c condition, reachable bool, err error) {
	c.Filter = f
	reason := func(format string, args ...any) (condition, bool, error) {
		return c, false, &QueryError{i, fmt.Sprintf(format, args...)}
	}
	system := strings.HasPrefix(f.Key, systemPrefix)
	switch {
	case f.Op > LessOrEqual:
		return reason("unknown operation %d", f.Op)
	case strings.IndexByte(f.Key, 0) >= 0:
		return reason("the key of an attribute contains 0x00")
	case f.Key == attrObjectID || f.Key == attrContainerID:
		return reason("attribute %s is not indexed", f.Key)
	case f.Op == Absent:
		return c, !system, nil
	case f.Key == attrRoot || f.Key == attrPhysical:
		if f.Op != Flag || f.Value != "" {
			return reason("attribute %s is a flag: it takes neither an operation nor a value", f.Key)
		}
		c.Op, c.stored = Equal, []byte("1")
		return c, true, nil
	case f.Op == Flag:
		return reason("attribute %.100q is no flag", f.Key)
	case f.Op.numeric():
		return c, c.compileNumber(), nil
	}
	problem := c.compileValue()
	if problem != "" && i == 0 && f.Op != NotEqual {
		return reason("%s", problem)
	}
	return c, !c.never, nil
}

// compileNumber sets the number and reports whether an integer can match.
func (c *condition) compileNumber() bool {
	n, ok := parseInteger(c.Value)
	if !ok || !inRange(n) || !isText(c.Key) {
		return false
	}
	c.number = n
	atEnd := n.CmpAbs(greatestInteger) == 0
	return !atEnd || c.Op != Greater && c.Op != Less || (c.Op == Greater) == (n.Sign() < 0)
}

// compileValue converts the value to its stored form and returns what is wrong with it. A prefix of
// an encoded value is compared with the printed text instead.
func (c *condition) compileValue() (problem string) {
	var err error
	switch c.Key {
	case attrOwner, attrFirst, attrParent:
		size := len(ID{})
		if c.Key == attrOwner {
			size = len(Owner{})
		}
		switch {
		case c.Op == Prefix && !isBase58(c.Value):
			problem = fmt.Sprintf("%.100q is not base58", c.Value)
		case c.Op != Prefix:
			c.stored, err = parseBase58(c.Value, size)
		}
	case attrPayloadHash, attrHomomorphic:
		c.stored, err = hex.DecodeString(c.Value)
	case attrSplitID:
		if c.Op != Prefix {
			c.stored, err = parseUUID(c.Value)
		}
	default:
		c.stored = []byte(c.Value)
	}
	if err != nil {
		problem = err.Error()
	}
	c.never = problem != "" && c.Op != Prefix
	return problem
}

// match reports whether a value in stored form meets the condition.
func (c *condition) match(stored []byte) bool {
	switch {
	case c.never:
		return false
	case c.Op == Equal:
		return bytes.Equal(stored, c.stored)
	case c.Op == NotEqual:
		return !bytes.Equal(stored, c.stored)
	case c.Op == Prefix:
		return strings.HasPrefix(printed(c.Key, stored), c.Value)
	}
	n, ok := parseInteger(string(stored))
	return ok && inRange(n) && c.matchNumber(n)
}

func (c *condition) matchNumber(n *big.Int) bool {
	switch cmp := n.Cmp(c.number); c.Op {
	case Greater:
		return cmp > 0
	case GreaterOrEqual:
		return cmp >= 0
	case Less:
		return cmp < 0
	case LessOrEqual:
		return cmp <= 0
	}
	return false
}

// span returns the range of kindMetadata keys that can hold values that meet the condition.
// integers selects the rows of integers.
func (c *condition) span(integers bool) span {
	prefix := metaKey(metaValue, []byte(c.Key), separator)
	if integers {
		prefix[0] = metaInteger
	}
	s := prefixed(prefix)
	with := func(value []byte) []byte { return append(bytes.Clone(prefix), value...) }
	switch {
	case integers && c.number != nil:
		switch key := with(integerKey(c.number)); c.Op {
		case Greater:
			s.from = prefixed(key).to
		case GreaterOrEqual:
			s.from = key
		case Less:
			s.to = key
		case LessOrEqual:
			s.to = prefixed(key).to
		}
	case integers || c.never:
	case c.Op == Equal:
		s = prefixed(append(with(c.stored), 0))
	case c.Op == Prefix && c.Key == attrPayloadHash || c.Op == Prefix && c.Key == attrHomomorphic:
		s = prefixed(with(c.stored))
	case c.Op == Prefix && isText(c.Key):
		s = prefixed(with([]byte(c.Value)))
	}
	return s
}

// intersect returns the keys that are in both spans.
func (s span) intersect(o span) span {
	if bytes.Compare(o.from, s.from) > 0 {
		s.from = o.from
	}
	if s.to == nil || o.to != nil && bytes.Compare(o.to, s.to) < 0 {
		s.to = o.to
	}
	return s
}

// holds reports whether a key is in the span.
func (s span) holds(key []byte) bool {
	return bytes.Compare(key, s.from) >= 0 && (s.to == nil || bytes.Compare(key, s.to) < 0)
}

// printed returns the text form of a stored value.
func printed(attr string, stored []byte) string {
	switch attr {
	case attrOwner, attrFirst, attrParent:
		return base58(stored)
	case attrPayloadHash, attrHomomorphic:
		return hex.EncodeToString(stored)
	case attrSplitID:
		if len(stored) == 16 {
			return fmt.Sprintf("%x-%x-%x-%x-%x", stored[:4], stored[4:6], stored[6:8], stored[8:10], stored[10:])
		}
		return hex.EncodeToString(stored)
	}
	return string(stored)
}

func parseUUID(s string) ([]byte, error) {
	if len(s) != 36 || s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
		return nil, fmt.Errorf("%.100q is no UUID", s)
	}
	return hex.DecodeString(s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:])
}
