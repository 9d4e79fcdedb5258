package progress_test

import (
	"testing"

	"github.com/ledgerd/ledger/cloudsync/progress"
)

// TestTracker counts units of work: one that fails and is begun again counts once, nothing comes to
// more than there is, and Settle ends a unit wholly.
func TestTracker(t *testing.T) {
	begun, moved := 0, 0
	tr := progress.New(func() { begun++ }, func() { moved++ })
	want := func(s progress.State) {
		t.Helper()
		if got := tr.State(); got != s {
			t.Errorf("%+v, want %+v", got, s)
		}
	}
	tr.Begin(2, 10)
	tr.Advance(1, 4)
	tr.Begin(2, 10) // again
	want(progress.State{TotalValues: 2, TotalBytes: 10})
	tr.Advance(3, 11)
	want(progress.State{Values: 2, TotalValues: 2, Bytes: 10, TotalBytes: 10})
	tr.Settle()
	tr.Begin(1, 8<<20)
	tr.Expect(1, 0)
	told := moved
	tr.Advance(0, 5<<20)
	want(progress.State{Values: 2, TotalValues: 4, Bytes: 10 + 5<<20, TotalBytes: 10 + 8<<20})
	if begun != 3 || moved != told+1 {
		t.Errorf("begun %d times, told %d times since", begun, moved-told)
	}
	tr.Settle()
	want(progress.State{Values: 4, TotalValues: 4, Bytes: 10 + 8<<20, TotalBytes: 10 + 8<<20})
	tr.Restart()
	want(progress.State{})

	var none *progress.Tracker
	none.Begin(1, 1)
	none.Expect(1, 1)
	none.Advance(1, 1)
	none.Settle()
}
