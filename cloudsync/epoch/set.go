package epoch

import "slices"

// Set is a set of commits in ascending order without duplicates. Its functions change neither
// operand, and may return one of them.
type Set []Commit

// SetOf returns the set of the given commits.
func SetOf(commits ...Commit) Set {
	s := slices.Clone(commits)
	slices.Sort(s)
	return slices.Compact(s)
}

// Has reports whether c is in the set.
func (s Set) Has(c Commit) bool {
	_, ok := slices.BinarySearch(s, c)
	return ok
}

// Union returns the commits that are in s or in o.
func (s Set) Union(o Set) Set {
	if len(o) == 0 {
		return s
	}
	if len(s) == 0 {
		return o
	}
	return s.combine(o, true, true, true)
}

// Without returns the commits of s that are not in o.
func (s Set) Without(o Set) Set {
	if len(s) == 0 || len(o) == 0 {
		return s
	}
	return s.combine(o, true, false, false)
}

// And returns the commits that are in s and in o.
func (s Set) And(o Set) Set { return s.combine(o, false, true, false) }

// much is the ratio of lengths from which a short set is looked up in a long one, not merged with
// it: the ancestors of each commit of a long history are compared with all its commits.
const much = 32

// combine merges both sets and takes the commits that are only in s, in both, and only in o.
func (s Set) combine(o Set, left, both, right bool) Set {
	var out Set
	for len(s) > 0 || right && len(o) > 0 {
		if !right && len(s) < len(o)/much {
			if has := o.Has(s[0]); has && both || !has && left {
				out = append(out, s[0])
			}
			s = s[1:]
			continue
		}
		switch {
		case len(o) == 0 || len(s) > 0 && s[0] < o[0]:
			if left {
				out = append(out, s[0])
			}
			s = s[1:]
		case len(s) == 0 || o[0] < s[0]:
			if right {
				out = append(out, o[0])
			}
			o = o[1:]
		default:
			if both {
				out = append(out, s[0])
			}
			s, o = s[1:], o[1:]
		}
	}
	return out
}

// Within reports whether all commits of s are in o.
func (s Set) Within(o Set) bool { return len(s.Without(o)) == 0 }
