package sim

import (
	"context"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
)

// Rules returns the merge rules of a device. The first letter of a key determines its content and
// its rule:
//
//	l  anything; the last one wins
//	z  the same, and a long value comes from the bucket when it is read
//	c  a counter: the sum of what was added
//	m  a number: the greater one; m+ is only ever raised
//	s  a set of lines, by its elements; s+ only ever gains some
//	f  a number: (4a+b)/3, rounded down, 0 removes it; neither associative nor commutative
//	r  anything; a resolver decides, which takes a side, removes the key or makes a new value
func (h *History) Rules(device int) merge.Rules {
	return merge.Rules{Rules: []merge.Rule{
		{Prefix: []byte("c"), Decider: merge.ByValue{Name: "counter", Rule: merge.Counter, Equal: true}},
		{Prefix: []byte("m"), Decider: merge.ByValue{Name: "maximum", Rule: merge.Maximum, NoBase: true}},
		{Prefix: []byte("s"), Decider: merge.ByValue{Name: "set", Rule: merge.SetUnion}},
		{Prefix: []byte("f"), Decider: merge.ByValue{Name: "thirds", Rule: thirds}},
		{Prefix: []byte("r"), Decider: resolver{h.opinion(device)}},
	}}
}

// opinion distinguishes the resolvers of devices that disagree.
func (h *History) opinion(device int) int {
	if h.Disagree {
		return device
	}
	return -1
}

// maxThirds is the greatest absolute value of a number that thirds decides.
const maxThirds = 1 << 28

// thirds is a merge.ValueRule.
func thirds(_, left, right []byte) ([]byte, bool) {
	a, aErr := strconv.ParseInt(string(left), 10, 64)
	b, bErr := strconv.ParseInt(string(right), 10, 64)
	if aErr != nil || bErr != nil || max(a, -a, b, -b) > maxThirds {
		return nil, false
	}
	n := 4*a + b
	q := n / 3
	if n%3 < 0 {
		q--
	}
	if q == 0 {
		return nil, true
	}
	return strconv.AppendInt(nil, q, 10), true
}

// resolver decides conflicts by the values of the sides and by its opinion.
type resolver struct{ opinion int }

// choose returns the outcome, and the value for merge.TakeNew.
func (r resolver) choose(key string, left, right string) (merge.Outcome, string) {
	h := fnv.New64a()
	for _, s := range []string{strconv.Itoa(r.opinion), key, left, right} {
		h.Write([]byte(s))
		h.Write([]byte{0})
	}
	switch sum := h.Sum64(); sum >> 32 % 8 {
	case 0, 1, 2:
		return merge.TakeLeft, ""
	case 3, 4, 5:
		return merge.TakeRight, ""
	case 6:
		return merge.TakeNone, ""
	default:
		return merge.TakeNew, "n" + strconv.FormatUint(sum%1000, 10)
	}
}

const absent = "\x00absent" // equals no value

// Decide implements merge.Decider.
func (r resolver) Decide(ctx context.Context, p *merge.Pair, cs []merge.Conflict) error {
	for i := range cs {
		c := &cs[i]
		left, right := absent, absent
		if c.HasLeft {
			v, err := p.Value(ctx, &c.Left, 1<<20)
			if err != nil {
				return err
			}
			left = string(v)
		}
		if c.HasRight {
			v, err := p.Value(ctx, &c.Right, 1<<20)
			if err != nil {
				return err
			}
			right = string(v)
		}
		var text string
		c.Rule = "resolver"
		if c.Outcome, text = r.choose(string(c.Key), left, right); c.Outcome == merge.TakeNew {
			e, err := p.Store(ctx, []byte(text), object.Eager)
			if err != nil {
				return err
			}
			c.New = e
		}
	}
	return nil
}

// apply returns the value of a key after a change.
func (c Change) apply(old string) string {
	n, _ := strconv.Atoi(c.Text)
	was, err := strconv.Atoi(old)
	switch c.Op {
	case Remove:
		return absent
	case Add:
		return strconv.Itoa(was + n)
	case Raise:
		if err == nil && was >= n {
			return old
		}
		return c.Text
	case Insert, Erase:
		set := elements(old)
		delete(set, c.Text)
		if c.Op == Insert {
			set[c.Text] = true
		}
		return joined(set)
	}
	if len(c.Text) >= c.Size {
		return c.Text
	}
	h := fnv.New64a()
	h.Write([]byte(c.Text)) // not the length: values of other lengths share pieces
	rng := rand.New(rand.NewPCG(h.Sum64(), 0))
	b := append(make([]byte, 0, c.Size), c.Text+" "...)
	for len(b) < c.Size {
		b = append(b, byte('a'+rng.IntN(26)))
	}
	return string(b[:c.Size])
}

func elements(set string) map[string]bool {
	m := map[string]bool{}
	if set == absent {
		return m
	}
	for line := range strings.Lines(set) {
		m[strings.TrimSuffix(line, "\n")] = true
	}
	return m
}

// joined returns a set as merge.SetUnion writes it.
func joined(set map[string]bool) string {
	var lines []string
	for e := range set {
		lines = append(lines, e+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
