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
	if len(s) == 0 || slices.Equal(s, o) {
		return o
	}
	out := make(Set, 0, len(s)+len(o))
	for len(s) > 0 && len(o) > 0 {
		least := min(s[0], o[0])
		out = append(out, least)
		if s[0] == least {
			s = s[1:]
		}
		if o[0] == least {
			o = o[1:]
		}
	}
	return append(append(out, s...), o...)
}

// Without returns the commits of s that are not in o.
func (s Set) Without(o Set) Set {
	return s.where(o.ascending(), false)
}

// And returns the commits that are in s and in o.
func (s Set) And(o Set) Set {
	if len(o) < len(s) {
		s, o = o, s
	}
	return s.where(o.ascending(), true)
}

// where returns the commits of s for which has returns want.
func (s Set) where(has func(Commit) bool, want bool) (out Set) {
	for _, c := range s {
		if has(c) == want {
			out = append(out, c)
		}
	}
	return out
}

// ascending returns Has for calls with ascending commits, which does not search the whole set.
func (s Set) ascending() (has func(Commit) bool) {
	return func(c Commit) bool {
		reach := 1
		for reach < len(s) && s[reach] < c {
			reach *= 2
		}
		i, ok := slices.BinarySearch(s[:min(reach+1, len(s))], c)
		s = s[i:]
		return ok
	}
}

// Within reports whether all commits of s are in o.
func (s Set) Within(o Set) bool {
	has := o.ascending()
	return !slices.ContainsFunc(s, func(c Commit) bool { return !has(c) })
}
