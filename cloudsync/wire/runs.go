package wire

import "math/bits"

// runFanout is how many runs of one size class are merged. So a record is rewritten once for each
// power of runFanout between the size of a cut and that of all.
const (
	runFanout    = 1 << runFanoutLog
	runFanoutLog = 3
)

// MergeRuns returns how many runs are merged with the new records. runs has the sizes of the runs
// of one kind from the newest to the oldest, and fresh is that of the new records, measured like a
// run of them alone. 0 means that the new records become a run of their own. The rule is that of
// size-tiered compaction.
func MergeRuns(runs []uint64, fresh uint64) (merged int) {
	for sum := fresh; ; {
		n := merged
		for n < len(runs) && sizeClass(runs[n]) <= sizeClass(sum) {
			n++
		}
		if n-merged < runFanout-1 {
			return merged
		}
		for _, r := range runs[merged:n] {
			sum += r
		}
		merged = n
	}
}

// sizeClass returns the power of runFanout that n reaches.
func sizeClass(n uint64) int { return (bits.Len64(n) - 1) / runFanoutLog }
