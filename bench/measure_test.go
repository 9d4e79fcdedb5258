package bench

import (
	"runtime"
	"runtime/metrics"
	"slices"
	"testing"
	"time"
)

// samples are durations of one thing.
type samples []time.Duration

func (s *samples) add(d time.Duration) { *s = append(*s, d) }

func (s samples) percentile(p float64) time.Duration {
	if len(s) == 0 {
		return 0
	}
	sorted := slices.Clone(s)
	slices.Sort(sorted)
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

func (s samples) median() time.Duration { return s.percentile(0.5) }

// pair are the two sides of a comparison, measured in turns: element i of both comes from round i.
type pair struct{ ours, theirs samples }

// ratio is the median of the rounds' own ratios, ours to theirs, so that a disturbance which both
// sides of a round saw cancels out.
func (p *pair) ratio() float64 {
	rs := make([]float64, 0, len(p.ours))
	for i := range min(len(p.ours), len(p.theirs)) {
		rs = append(rs, p.ours[i].Seconds()/p.theirs[i].Seconds())
	}
	return median(rs)
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Clone(v)
	slices.Sort(v)
	return v[len(v)/2]
}

// run measures both sides n times, in an order that changes from round to round.
func (p *pair) run(n int, ours, theirs func() time.Duration) {
	for i := range n {
		if i%2 == 0 {
			p.ours.add(ours())
			p.theirs.add(theirs())
		} else {
			p.theirs.add(theirs())
			p.ours.add(ours())
		}
	}
}

func timed(fn func()) time.Duration {
	start := time.Now()
	fn()
	return time.Since(start)
}

// settled is timed after a collection, so that no side pays for the garbage of the other.
func settled(fn func()) time.Duration {
	runtime.GC()
	return timed(fn)
}

// allocations returns how many objects fn allocates.
func allocations(fn func()) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return float64(after.Mallocs - before.Mallocs)
}

// peakHeap calls fn and returns how many bytes of heap were live at the most, beyond those before,
// as collections of the garbage find that are made twice a second. Such a collection takes for live
// what is allocated while it goes on, which may be hundreds of MB where much else is live and the
// machine is busy: that is taken off.
func peakHeap(fn func()) float64 {
	read := func() (live, allocated float64) {
		sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/allocs:bytes"}}
		metrics.Read(sample)
		return float64(sample[0].Value.Uint64()), float64(sample[1].Value.Uint64())
	}
	collect := func() float64 {
		_, before := read()
		runtime.GC()
		live, after := read()
		return live - (after - before)
	}
	collect()
	before, peak := collect(), 0.0
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			peak = max(peak, collect()-before)
			select {
			case <-done:
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
	}()
	fn()
	close(done)
	<-ended
	return peak
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
func us(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func mbPerSecond(n int, d time.Duration) float64 { return float64(n) / 1e6 / d.Seconds() }

// report states the metrics in place of the time of an iteration, which says nothing here.
func report(b *testing.B, metrics map[string]float64) {
	b.Helper()
	b.ReportMetric(0, "ns/op")
	for unit, v := range metrics {
		b.ReportMetric(v, unit)
	}
}
