package wire

import "iter"

// Merged yields the elements of ordered sources in order. Of equal elements it yields only that of
// the first source. An element need be valid only until the next is requested. The first error of a
// source ends the sequence.
func Merged[T any](sources []iter.Seq2[T, error], compare func(a, b T) int) iter.Seq2[T, error] {
	if len(sources) == 1 {
		return sources[0]
	}
	return func(yield func(T, error) bool) {
		next := make([]func() (T, error, bool), len(sources))
		heads, more := make([]T, len(sources)), make([]bool, len(sources))
		advance := func(i int) bool {
			var err error
			if heads[i], err, more[i] = next[i](); err != nil {
				yield(heads[i], err)
			}
			return err == nil
		}
		for i, s := range sources {
			var stop func()
			next[i], stop = iter.Pull2(s)
			defer stop()
			if !advance(i) {
				return
			}
		}
		for {
			first := -1
			for i := range heads {
				if more[i] && (first < 0 || compare(heads[i], heads[first]) < 0) {
					first = i
				}
			}
			if first < 0 || !yield(heads[first], nil) {
				return
			}
			for i := range heads {
				if i != first && more[i] && compare(heads[i], heads[first]) == 0 && !advance(i) {
					return
				}
			}
			if !advance(first) {
				return
			}
		}
	}
}
