package wire_test

import (
	"errors"
	"iter"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/wire"
)

// TestMerged merges words: their case says which source is the first.
func TestMerged(t *testing.T) {
	broken := errors.New("broken")
	source := func(words string, err error) iter.Seq2[string, error] {
		return func(yield func(string, error) bool) {
			for _, word := range strings.Fields(words) {
				if !yield(word, nil) {
					return
				}
			}
			if err != nil {
				yield("", err)
			}
		}
	}
	fold := func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) }
	for _, c := range []struct {
		of   []iter.Seq2[string, error]
		want string
		err  error
	}{
		{nil, "", nil},
		{[]iter.Seq2[string, error]{source("a b", nil)}, "a b", nil},
		{[]iter.Seq2[string, error]{source("B D", nil), source("", nil), source("a b c d e", nil)}, "a B c D e", nil},
		{[]iter.Seq2[string, error]{source("A", nil), source("a b", nil), source("A B c", broken)}, "A b c", broken},
		{[]iter.Seq2[string, error]{source("a", nil), source("", broken)}, "", broken},
	} {
		var got []string
		var last error
		for word, err := range wire.Merged(c.of, fold) {
			if last = err; err == nil {
				got = append(got, word)
			}
		}
		if !slices.Equal(got, strings.Fields(c.want)) || !errors.Is(last, c.err) {
			t.Errorf("merged %q, %v, want %q, %v", got, last, c.want, c.err)
		}
	}
	for range wire.Merged([]iter.Seq2[string, error]{source("a", nil), source("b", nil)}, fold) {
		break // ends the sources
	}
}
