package segment

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func info(number uint64) BatchInfo {
	return BatchInfo{Number: number, Segment: 1, Start: headerBytes + 40*(number-1), End: headerBytes + 40*number}
}

func TestNumbers(t *testing.T) {
	var n numbers
	want := func(complete uint64) {
		t.Helper()
		if n.complete != complete {
			t.Fatalf("complete %d, want %d", n.complete, complete)
		}
	}
	for i := range uint64(6) {
		if got := n.next(); got != i+1 {
			t.Fatalf("number %d, want %d", got, i+1)
		}
	}
	n.done(2, durable, info(2))
	want(0)
	if p := n.position(6); p.Number != 0 {
		t.Fatalf("position %d before anything is complete", p.Number)
	}
	n.done(1, durable, info(1))
	want(2)
	n.done(4, durable, info(4))
	n.done(3, failed, BatchInfo{})
	want(4)
	if p := n.position(3); p.Number != 2 || p.end(1) != info(2).End {
		t.Fatalf("position %+v, want that of batch 2", p)
	}
	n.done(6, durable, info(6)) // the sync of 5 has failed: it stays under way
	want(4)
	p := n.position(6)
	if d := cmp.Diff(Position{Number: 4, Segment: 1, Start: info(4).Start, Ends: []End{{1, info(4).End}}}, p); d != "" {
		t.Fatal(d)
	}
	if p := n.position(2); p.Number != 0 {
		t.Fatalf("position %d for what was given up, want the origin", p.Number)
	}
}

// TestNumbersAreBounded appends without ever asking for a position.
func TestNumbersAreBounded(t *testing.T) {
	n := numbers{origin: Position{Number: 5}, base: Position{Number: 5}, upTo: 5, complete: 5}
	for range 5 * maxPending {
		k := n.next()
		n.done(k, durable, info(k))
		if len(n.pending) > 2*maxPending {
			t.Fatalf("%d numbers are remembered", len(n.pending))
		}
	}
	last := n.complete
	if p := n.position(last - maxPending + 1); p.Number != last-maxPending+1 {
		t.Fatalf("position %d, want %d", p.Number, last-maxPending+1)
	}
	if p := n.position(last - maxPending - 1); p.Number != 5 {
		t.Fatalf("position %d, want the origin", p.Number)
	}
}
