package seal

import "math/bits"

// Padme returns the length to which n bytes are padded by Padmé (Nikitin et al., "Reducing Metadata
// Leakage from Encrypted Files and Communication with PURBs", PETS 2019): at most 12 % more, and
// lengths below 2^64 show no more than 11 bits of themselves.
func Padme(n int64) int64 {
	most := MaxPadding(n)
	return (n + most) &^ most
}

// MaxPadding returns the greatest number of bytes that Padme adds to lengths of the size of n.
func MaxPadding(n int64) int64 {
	if n < 2 {
		return 0
	}
	e := bits.Len64(uint64(n)) - 1
	s := bits.Len(uint(e))
	return int64(1)<<max(0, e-s) - 1
}

// leastQuarter and mostQuarter are the least and the greatest length that Quarters pads to
// quarters.
const (
	leastQuarter = 512
	mostQuarter  = 4 << 10
)

// Quarters returns the padded length of n bytes where lengths differ by little and reveal much:
// 512, or the next quarter of a power of two: 640, 768, 896, 1024, 1280 and so on up to 4 KiB.
// Beyond that it returns the result of Padme.
func Quarters(n int) int {
	switch {
	case n <= leastQuarter:
		return leastQuarter
	case n > mostQuarter:
		return int(Padme(int64(n)))
	}
	step := 1 << (bits.Len(uint(n-1)) - 3)
	return (n + step - 1) / step * step
}
