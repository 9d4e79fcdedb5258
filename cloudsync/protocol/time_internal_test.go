package protocol

import (
	"math"
	"testing"
	"time"
)

// TestTimeOf keeps the order of times that no number of nanoseconds stands for, as a bucket may say
// them, and sums with ages.
func TestTimeOf(t *testing.T) {
	last := Time(0)
	for _, at := range []time.Time{
		time.Date(1, 1, 1, 0, 0, 0, 1, time.UTC), time.Unix(-1, 0), time.Unix(0, 0), time.Unix(0, 1), time.Unix(1, 0), time.Unix(1<<32, 5), time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC),
		time.Date(2263, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), time.Unix(math.MaxInt64/2, 0),
	} {
		got := TimeOf(at)
		if got < last || got < 1 || got.Add(Grace) < got {
			t.Errorf("%s is %d behind %d", at, got, last)
		}
		last = got
	}
	if got := TimeOf(time.Time{}); got != 0 {
		t.Errorf("no time is %d", got)
	}
	if at := time.Date(2030, 2, 3, 4, 5, 6, 7, time.UTC); !TimeOf(at).Time().Equal(at) {
		t.Errorf("%s is %s", at, TimeOf(at).Time())
	}
}
