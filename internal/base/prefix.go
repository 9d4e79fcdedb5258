package base

import "bytes"

// PrefixEnd returns the first byte string after all that begin with prefix; nil when there is none,
// because prefix is empty or all 0xff. It shares no memory with prefix.
func PrefixEnd(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			end := bytes.Clone(prefix[:i+1])
			end[i]++
			return end
		}
	}
	return nil
}
