package diff3

import "slices"

// Hunk is a part of a merge. Merged has the elements when both sides agree, or only one has changed
// the base. In a conflict both have changed Base, which may be empty, to Left and Right.
type Hunk[T comparable] struct {
	Merged            []T
	Conflict          bool
	Base, Left, Right []T
}

// maxCells bounds the comparison table of two sequences. Longer ones, after removal of the common
// beginning and end, count as entirely different.
const maxCells = 1 << 22

// Merge returns the parts of the merge of left and right, in order. They share memory with the
// arguments.
func Merge[T comparable](base, left, right []T) []Hunk[T] {
	inLeft, inRight := matches(base, left), matches(base, right)
	var hunks []Hunk[T]
	b, l, r := 0, 0, 0
	for b < len(base) || l < len(left) || r < len(right) {
		n := 0 // elements common to all
		for b+n < len(base) && inLeft[b+n] == l+n && inRight[b+n] == r+n {
			n++
		}
		if n > 0 {
			hunks = append(hunks, Hunk[T]{Merged: base[b : b+n]})
			b, l, r = b+n, l+n, r+n
			continue
		}
		nb := b // the next common element
		for nb < len(base) && (inLeft[nb] < l || inRight[nb] < r) {
			nb++
		}
		nl, nr := len(left), len(right)
		if nb < len(base) {
			nl, nr = inLeft[nb], inRight[nb]
		}
		hunks = append(hunks, decide(base[b:nb], left[l:nl], right[r:nr]))
		b, l, r = nb, nl, nr
	}
	return hunks
}

func decide[T comparable](base, left, right []T) Hunk[T] {
	switch {
	case slices.Equal(left, right), slices.Equal(base, right):
		return Hunk[T]{Merged: left}
	case slices.Equal(base, left):
		return Hunk[T]{Merged: right}
	}
	return Hunk[T]{Conflict: true, Base: base, Left: left, Right: right}
}

// matches returns, for each element of a, where it is in b in a longest common subsequence, or -1.
func matches[T comparable](a, b []T) []int {
	at := make([]int, len(a))
	for i := range at {
		at[i] = -1
	}
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		at[head] = head
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		at[len(a)-1-tail] = len(b) - 1 - tail
		tail++
	}
	common(a[head:len(a)-tail], b[head:len(b)-tail], head, at[head:])
	return at
}

// common fills at with a longest common subsequence of a and b; before is the offset of b.
func common[T comparable](a, b []T, before int, at []int) {
	n, m := len(a), len(b)
	if n == 0 || m == 0 || n > maxCells/m {
		return
	}
	w := m + 1
	length := make([]int32, (n+1)*w) // of the longest one of a[i:] and b[j:]
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			if a[i] == b[j] {
				length[i*w+j] = length[(i+1)*w+j+1] + 1
			} else {
				length[i*w+j] = max(length[(i+1)*w+j], length[i*w+j+1])
			}
		}
	}
	for i, j := 0, 0; i < n && j < m; {
		switch {
		case a[i] == b[j]:
			at[i] = before + j
			i++
			j++
		case length[(i+1)*w+j] >= length[i*w+j+1]:
			i++
		default:
			j++
		}
	}
}
