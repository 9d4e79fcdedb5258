package merge_test

import (
	"bytes"
	"math/big"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/merge"
)

// absent stands for absence in tables.
const absent = "\x00absent"

func bytesOf(v string) []byte {
	if v == absent {
		return nil
	}
	return append([]byte{}, v...)
}

func textOf(v []byte) string {
	if v == nil {
		return absent
	}
	return string(v)
}

func TestValueRules(t *testing.T) {
	ones, nines := strings.Repeat("1", 1000), strings.Repeat("9", 1000)
	rules := map[string]merge.ValueRule{"counter": merge.Counter, "maximum": merge.Maximum, "set union": merge.SetUnion}
	const no = "\x00undecided"
	tests := []struct{ rule, base, left, right, want string }{
		{"counter", "5", "7", "4", "6"},
		{"counter", "5", "6", "6", "7"},
		{"counter", absent, "6", "6", "12"},
		{"counter", "5", absent, "7", "2"},
		{"counter", "5", absent, absent, absent},
		{"counter", "1", "-1", "0", "-2"},
		{"counter", "3", "2", "1", "0"},
		{"counter", "-0", "007", "1", "8"},
		{"counter", "1\n", "2\n", "3\n", "4\n"},
		{"counter", "1", "2\n", "3\n", "4\n"},
		{"counter", "1\n", "2\n", "3", "4"},
		{"counter", absent, "2\n", "3\n", "5\n"},
		{"counter", "1\n", "2\n", absent, "1\n"},
		{"counter", "1", "1", "not a number", "not a number"},
		{"counter", "1", "2", "x", no},
		{"counter", "x", "2", "3", no},
		{"counter", "1", "2", "", no},
		{"counter", "1", "2", "-", no},
		{"counter", "1", "2", "+3", no},
		{"counter", "1", "2", " 3", no},
		{"counter", "1", "2", "3\n\n", no},
		{"counter", "1", "2", "1_0", no},
		{"counter", "1", "2", "0x3", no},
		{"counter", "0", "1", nines, no},
		{"counter", "0", "-1", "-" + nines, no},
		{"counter", "0", ones, "-" + ones, "0"},
		{"counter", "0", "1", "-" + nines, "-" + nines[:999] + "8"},
		{"counter", "0", "1", nines + "1", no},
		{"maximum", "5", "7", "40", "40"},
		{"maximum", "5", "-7", "-40", "-7"},
		{"maximum", "5", absent, "3", "3"},
		{"maximum", absent, "a", "b", "b"},
		{"maximum", absent, "9", "x", "x"},
		{"maximum", absent, "07", "7", "7"},
		{"maximum", "5", "3", "5", "3"},
		{"maximum", absent, "", "-", "-"},
		{"set union", absent, "b\na\n", "c", "a\nb\nc\n"},
		{"set union", "a\nb\n", "a\nb\nc\n", "b\n", "b\nc\n"},
		{"set union", "a\n", "b\n", "c\n", "b\nc\n"},
		{"set union", "a\nb\n", "a\n", "b\n", ""},
		{"set union", "a\nb\n", absent, "b\n", absent},
		{"set union", "a\nb\n", absent, "b\nc\n", "c\n"},
		{"set union", "a", "\n", "a\nb", "\nb\n"},
		{"set union", "", "a\na\nb", "b\nc\nb", "a\nb\nc\n"},
		{"set union", "x", "b\na", "b\na", "b\na"},
	}
	for _, test := range tests {
		for _, sides := range [][2]string{{test.left, test.right}, {test.right, test.left}} {
			v, ok := rules[test.rule](bytesOf(test.base), bytesOf(sides[0]), bytesOf(sides[1]))
			got := textOf(v)
			if !ok {
				got = no
			}
			if got != test.want {
				t.Errorf("%s of %.20q, %.20q, %.20q: %.20q, want %.20q", test.rule, test.base, sides[0], sides[1], got, test.want)
			}
		}
	}
}

// The laws that every rule here keeps: the sides are alike, a change of one side stands, arguments
// stay as they are.
func TestValueRuleLaws(t *testing.T) {
	values := map[string]*rapid.Generator[string]{
		"counter": rapid.OneOf(rapid.StringMatching(`-?[0-9]{1,30}\n?`), rapid.SampledFrom([]string{absent, "0", "-0", "x"})),
		"maximum": rapid.OneOf(rapid.StringMatching(`-?[0-9]{1,3}\n?`), rapid.SampledFrom([]string{absent, "", "-", "x"})),
		"set union": rapid.OneOf(rapid.StringMatching("([a-d]\n){0,5}"), rapid.StringMatching("[a-d]?(\n[a-d]?){0,5}"),
			rapid.SampledFrom([]string{absent, ""})),
	}
	rules := map[string]merge.ValueRule{"counter": merge.Counter, "maximum": merge.Maximum, "set union": merge.SetUnion}
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				b, l, r := values[name].Draw(t, "base"), values[name].Draw(t, "left"), values[name].Draw(t, "right")
				base, left, right := bytesOf(b), bytesOf(l), bytesOf(r)
				merged, ok := rule(base, left, right)
				mirrored, okMirrored := rule(base, right, left)
				if ok != okMirrored || textOf(merged) != textOf(mirrored) {
					t.Fatalf("%q and with sides exchanged %q", textOf(merged), textOf(mirrored))
				}
				if one, ok := rule(base, left, base); !ok || textOf(one) != l {
					t.Fatalf("change of one side to %q gives %q, %t", l, textOf(one), ok)
				}
				if textOf(base) != b || textOf(left) != l || textOf(right) != r {
					t.Fatal("the rule has changed its arguments")
				}
				if name == "counter" {
					return
				}
				if same, ok := rule(base, left, left); !ok || textOf(same) != l {
					t.Fatalf("equal sides %q give %q, %t", l, textOf(same), ok)
				}
				if again, ok := rule(base, merged, merged); !ok || !bytes.Equal(again, merged) {
					t.Fatalf("merged %q again gives %q", merged, again)
				}
			})
		})
	}
}

// The sum is what integers of any size give.
func TestCounterAddsWhatBothAdded(t *testing.T) {
	number := rapid.Custom(func(t *rapid.T) *big.Int {
		n, ok := new(big.Int).SetString(rapid.StringMatching("-?[0-9]{1,60}").Draw(t, "n"), 10)
		if !ok {
			t.Fatal("no number")
		}
		return n
	})
	rapid.Check(t, func(t *rapid.T) {
		base, x, y := number.Draw(t, "base"), number.Draw(t, "x"), number.Draw(t, "y")
		left, right := new(big.Int).Add(base, x), new(big.Int).Add(base, y)
		want := new(big.Int).Add(left, y).String()
		got, ok := merge.Counter([]byte(base.String()), []byte(left.String()), []byte(right.String()))
		if !ok || string(got) != want {
			t.Fatalf("%s + %s + %s is %s, %t, want %s", base, x, y, got, ok, want)
		}
	})
}
