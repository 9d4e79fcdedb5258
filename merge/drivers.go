package merge

import (
	"bytes"
	"cmp"
	"math/big"
	"slices"
)

// Counter is a ValueRule for decimal integers of any sign and up to 1000 digits: the base plus the
// additions of both sides. Absence is 0.
//
// An integer is an optional '-' and digits, and may end with a line feed. The sum has neither
// needless zeros nor "-0", and ends with a line feed if the existing values of the sides do. The
// rule cannot decide about other values, nor when the sum has more digits.
//
// Two sides that have each added the same have equal content, and the sum counts both: the rule is
// for ByValueEqual.
func Counter(base, left, right []byte) ([]byte, bool) {
	if v, ok := oneSided(base, left, right); ok {
		return v, true
	}
	b, okBase := parseInteger(base)
	l, okLeft := parseInteger(left)
	r, okRight := parseInteger(right)
	if !okBase || !okLeft || !okRight {
		return nil, false
	}
	if left == nil && right == nil {
		return nil, true
	}
	sum := l.Sub(l.Add(l, r), b).Append(nil, 10)
	if digits := len(sum); digits > maxDigits+1 || digits > maxDigits && sum[0] != '-' {
		return nil, false
	}
	if endsLine(left) && endsLine(right) {
		sum = append(sum, '\n')
	}
	return sum, true
}

// maxDigits bounds the digits of the integers of Counter and Maximum.
const maxDigits = 1000

// parseInteger reads a decimal integer; absence is 0.
func parseInteger(v []byte) (*big.Int, bool) {
	if v == nil {
		return new(big.Int), true
	}
	v = bytes.TrimSuffix(v, []byte{'\n'})
	digits := bytes.TrimPrefix(v, []byte{'-'})
	if len(digits) == 0 || len(digits) > maxDigits {
		return nil, false
	}
	for _, d := range digits {
		if d < '0' || d > '9' {
			return nil, false
		}
	}
	return new(big.Int).SetString(string(v), 10)
}

// endsLine reports whether a value ends with a line feed, if there is one.
func endsLine(v []byte) bool { return v == nil || bytes.HasSuffix(v, []byte{'\n'}) }

// oneSided returns one side's value when the other has the base's value: a change of one side
// stands (I2).
func oneSided(base, left, right []byte) (value []byte, ok bool) {
	switch {
	case sameValue(left, base):
		return right, true
	case sameValue(right, base):
		return left, true
	}
	return nil, false
}

// Maximum is a ValueRule that takes the greater decimal integer, or the bytewise greater value when
// one is no integer. Absence is least. Integers are as for Counter; of equal integers in different
// forms the bytewise greater is taken. It needs no base, see ByValueNoBase.
func Maximum(base, left, right []byte) ([]byte, bool) {
	if v, ok := oneSided(base, left, right); ok {
		return v, true
	}
	switch {
	case left == nil:
		return right, true
	case right == nil:
		return left, true
	}
	order := 0
	l, okLeft := parseInteger(left)
	r, okRight := parseInteger(right)
	if okLeft && okRight {
		order = l.Cmp(r)
	}
	if cmp.Or(order, bytes.Compare(left, right)) < 0 {
		return right, true
	}
	return left, true
}

// SetUnion is a ValueRule for sets of lines: the lines that both sides have, and those that one has
// added; lines that one has removed are gone. The result is sorted, each line ends with a line
// feed. The last line of a value may lack it. Absence is the empty set; an empty result is absence
// when a side is absent, else the empty value.
func SetUnion(base, left, right []byte) ([]byte, bool) {
	if v, ok := oneSided(base, left, right); ok {
		return v, true
	}
	if sameValue(left, right) {
		return left, true
	}
	b, l, r := parseSet(base), parseSet(left), parseSet(right)
	has := func(set [][]byte, line []byte) bool {
		_, ok := slices.BinarySearchFunc(set, line, bytes.Compare)
		return ok
	}
	merged := []byte{}
	for _, line := range sortSet(slices.Concat(l, r)) {
		if has(b, line) && !(has(l, line) && has(r, line)) {
			continue // one side has removed it
		}
		merged = append(append(merged, line...), '\n')
	}
	if len(merged) == 0 && (left == nil || right == nil) {
		return nil, true
	}
	return merged, true
}

// parseSet returns the lines of a value, sorted, each once and without its line feed.
func parseSet(v []byte) [][]byte {
	if len(v) == 0 {
		return nil
	}
	return sortSet(bytes.Split(bytes.TrimSuffix(v, []byte{'\n'}), []byte{'\n'}))
}

// sortSet sorts lines and removes duplicates.
func sortSet(lines [][]byte) [][]byte {
	slices.SortFunc(lines, bytes.Compare)
	return slices.CompactFunc(lines, bytes.Equal)
}
