package replica_test

import (
	"fmt"
	"testing"
	"time"
)

// BenchmarkCut compares cuts after one commit, in a long and in a short history that is kept
// wholly: the time on the device that cuts, and on one that enters the epoch.
func BenchmarkCut(b *testing.B) {
	const short, long, cuts = 1000, 20_000, 4
	var cut, enter [2]time.Duration
	for i, commits := range []int{short, long} {
		w := newWorld(b)
		d, o := w.device(), w.device()
		d.mustSync()
		change := func(n int) { d.change(fmt.Sprintf("key %d", n%1000), n) }
		for n := range commits {
			if change(n); n%1000 == 999 {
				d.send()
			}
		}
		d.cut()
		o.mustSync()
		for n := range cuts {
			change(commits + n)
			d.send()
			o.mustSync()
			begun := time.Now()
			d.cut()
			cut[i] += time.Since(begun)
			begun = time.Now()
			o.mustSync()
			enter[i] += time.Since(begun)
		}
	}
	b.ReportMetric(float64(cut[1].Milliseconds())/cuts, "cut-ms")
	b.ReportMetric(float64(enter[1].Microseconds())/cuts/1000, "enter-ms")
	b.ReportMetric(float64(cut[1])/float64(cut[0]), "cut-long/short")
	b.ReportMetric(float64(enter[1])/float64(enter[0]), "enter-long/short")
	b.ReportMetric(0, "ns/op")
}
