package bench

import (
	"crypto/sha256"
	"fmt"
	"testing"
)

// BenchmarkSHA256 measures SHA-256 on one core for the mean chunk, the mean node and a short
// commit. Where the processor has no instructions for it, many of the other figures are bound by
// it.
func BenchmarkSHA256(b *testing.B) {
	for _, size := range []int{16 << 10, 2 << 10, 256} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			data := incompressible(b, 16<<10)[:size]
			const total = 64 << 20
			var s samples
			for b.Loop() {
				for range 5 {
					s.add(timed(func() {
						for range total / size {
							_ = sha256.Sum256(data)
						}
					}))
				}
			}
			report(b, map[string]float64{"GB/s": mbPerSecond(total, s.median()) / 1e3})
		})
	}
}
