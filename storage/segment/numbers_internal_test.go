package segment

import "testing"

func TestNumbers(t *testing.T) {
	n := numbers{last: 5, complete: 5}
	for i := range uint64(6) {
		if got := n.next(); got != i+6 {
			t.Fatalf("number %d, want %d", got, i+6)
		}
	}
	for _, step := range []struct{ finished, complete uint64 }{{7, 5}, {6, 7}, {9, 7}, {8, 9}, {11, 9}} { // the sync of 10 has failed
		if n.finish(step.finished); n.complete != step.complete {
			t.Fatalf("complete %d, want %d", n.complete, step.complete)
		}
	}
	if len(n.done) != 1 {
		t.Fatalf("%d numbers are remembered", len(n.done))
	}
}
