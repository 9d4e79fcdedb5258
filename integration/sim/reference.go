package sim

import (
	"maps"
	"strconv"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/merge"
)

// merged is the model's merge of two commits.
type merged struct {
	content map[string]string
	// conflicts has the keys that need a rule because both sides changed them to different content.
	conflicts map[string]bool
	// either has keys whose value depends on data outside of the model: the order of virtual bases,
	// the cuts of values. Any value of these is right.
	either map[string]bool
	whole  bool // one side is taken unchanged
}

// ancestor is the content of a common ancestor, or the merge of several. In a merge, keys may be
// unknown.
type ancestor struct {
	content map[string]string
	unknown map[string]bool
	either  map[string]bool // see merged
	above   set
	time    int64 // the greatest timestamp
}

// merge merges two commits with the resolver of an opinion. left is the lesser in the order of
// commit.Compare. It works on whole contents. Its only shortcut is the one that determines the
// result (I5 of package merge): a side whose own commits are all merges. pruned are commits that
// may be gone.
func (g *graph) merge(opinion int, left, right *node, pruned set) merged {
	common := left.above.and(right.above)
	leftOwn, rightOwn := g.own(left.above.minus(common)), g.own(right.above.minus(common))
	switch {
	case len(leftOwn) == 0: // also when neither has one: right is the greater
		return merged{content: right.content, whole: true}
	case len(rightOwn) == 0:
		return merged{content: left.content, whole: true}
	}
	base := g.virtual(g.bases(common))
	g.short = g.short || left.above.or(right.above).minus(common).and(pruned).last() >= 0
	m := merged{content: map[string]string{}, conflicts: map[string]bool{}, either: base.either}
	for _, k := range keys(base.content, left.content, right.content) {
		b, l, r := value(base.content, k), left.value(k), right.value(k)
		v, conflict := threeWay(base.unknown[k], b, l, r)
		if conflict && g.maybeRecut(l, r) {
			m.either = with(m.either, k)
		} else if conflict {
			m.conflicts[k] = true
		}
		if conflict || asksAlways(k) {
			var ok bool
			if v, ok = byValue(k, base.unknown[k], b, l, r); !ok {
				if v = g.decide(opinion, k, left, right); g.short && k[0] != 'r' {
					m.either = with(m.either, k)
				}
			}
		}
		if v != absent {
			m.content[k] = v
		}
	}
	return m
}

// virtual merges common ancestors, one after another. It applies only rules on values.
func (g *graph) virtual(bases []*node) ancestor {
	a := ancestor{content: bases[0].content, above: bases[0].above, time: bases[0].c.Timestamp}
	for i, n := range bases[1:] {
		lower := g.virtual(g.bases(a.above.and(n.above)))
		out := ancestor{
			content: map[string]string{}, unknown: map[string]bool{}, either: maps.Clone(lower.either), above: a.above.or(n.above),
			time: n.c.Timestamp,
		}
		for k := range a.either { // also where no content has the key
			out.either = with(out.either, k)
		}
		tie := i > 0 && a.time == n.c.Timestamp // the id of a commit of a would decide which of the two is the left one
		for _, k := range keys(lower.content, a.content, n.content, asContent(a.unknown), asContent(lower.unknown)) {
			b, l, r := value(lower.content, k), value(a.content, k), n.value(k)
			v, conflict := threeWay(lower.unknown[k], b, l, r)
			known := true
			switch {
			case a.unknown[k]:
				known = false
			case conflict || asksAlways(k):
				v, known = byValue(k, lower.unknown[k], b, l, r)
				if tie && k[0] == 'f' {
					out.either = with(out.either, k)
				}
			}
			if !known {
				out.unknown[k] = true
			} else if v != absent {
				out.content[k] = v
			}
		}
		a = out
	}
	return a
}

func with(s map[string]bool, k string) map[string]bool {
	if s == nil {
		s = map[string]bool{}
	}
	s[k] = true
	return s
}

func asContent(unknown map[string]bool) map[string]string {
	out := map[string]string{}
	for k := range unknown {
		out[k] = ""
	}
	return out
}

// threeWay merges one key without rules.
func threeWay(unknown bool, b, l, r string) (v string, conflict bool) {
	switch {
	case l == r:
		return l, false
	case unknown:
		return "", true
	case l == b:
		return r, false
	case r == b:
		return l, false
	}
	return "", true
}

// asksAlways reports whether the key's rule must see equal changes too: when two devices add 1, the
// sum is 2.
func asksAlways(key string) bool { return key[0] == 'c' }

// byValue reimplements the value rule of a key. Only the maximum works without a base.
func byValue(key string, unknown bool, b, l, r string) (string, bool) {
	if unknown && key[0] != 'm' {
		return "", false
	}
	bn, _ := strconv.Atoi(b)
	ln, lErr := strconv.Atoi(l)
	rn, rErr := strconv.Atoi(r)
	switch key[0] {
	case 'c':
		if b == absent && l == absent && r == absent {
			return absent, true
		}
		return strconv.Itoa(ln + rn - bn), true
	case 'm':
		if l == absent || rErr == nil && lErr == nil && rn > ln {
			return r, true
		}
		return l, true
	case 'f':
		if lErr != nil || rErr != nil || max(ln, -ln, rn, -rn) > maxThirds {
			return "", false
		}
		n := 4*ln + rn
		if n = (n - (n%3+3)%3) / 3; n == 0 {
			return absent, true
		}
		return strconv.Itoa(n), true
	case 's':
		old, left, right := elements(b), elements(l), elements(r)
		out := map[string]bool{}
		maps.Copy(out, left)
		maps.Copy(out, right)
		for e := range out {
			if old[e] && (!left[e] || !right[e]) {
				delete(out, e)
			}
		}
		return joined(out), true
	}
	return "", false
}

// decide returns the decision of a decider that considers more than values.
func (g *graph) decide(opinion int, key string, left, right *node) string {
	l, r := left.value(key), right.value(key)
	if key[0] == 'r' {
		switch o, v := (resolver{opinion}).choose(key, l, r); o {
		case merge.TakeLeft:
			return l
		case merge.TakeRight:
			return r
		case merge.TakeNew:
			return v
		default:
			return absent
		}
	}
	common := left.above.and(right.above)
	lw, rw := g.newest(key, g.writer(key, left, common), common), g.newest(key, g.writer(key, right, common), common)
	switch {
	case lw != nil && (rw == nil || newer(lw, rw)):
		return l
	case rw == nil && newer(left, right):
		return l
	}
	return r
}

// writer returns the newest commit on a side, above the common ancestors, that itself gave the key
// its value on this side.
func (g *graph) writer(key string, side *node, common set) *node {
	var w *node
	want := side.value(key)
	for i := range side.above.minus(common).all() {
		n := g.nodes[i]
		own := n.value(key) == want
		for _, p := range n.parents {
			own = own && p.value(key) != want
		}
		if own && (w == nil || commit.CompareGeneration(n.c, w.c) > 0) {
			w = n
		}
	}
	return w
}

// newest returns the commit that represents a side, given its writer w of the key: the newest of w
// and the ancestors of w that wrote the key and have a later timestamp.
func (g *graph) newest(key string, w *node, common set) *node {
	if w == nil {
		return nil
	}
	newest := w
	for i := range w.above.minus(common).all() {
		n := g.nodes[i]
		own := len(n.parents) > 0
		for _, p := range n.parents {
			own = own && p.value(key) != n.value(key)
		}
		if own && n.c.Timestamp > w.c.Timestamp && newer(n, newest) {
			newest = n
		}
	}
	return newest
}
