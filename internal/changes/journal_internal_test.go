package changes

import (
	"fmt"
	"testing"
)

// TestJournalOfOneKey overwrites one key again and again. What was replaced counts as memory that
// is taken, so that the journal spills and forgets it, and the last value stands.
func TestJournalOfOneKey(t *testing.T) {
	var j Journal
	j.Init(4<<10, "")
	value := func(i int) string { return fmt.Sprintf("%0200d", i) }
	for i := range 1000 {
		if err := j.Put([]byte("key"), []byte(value(i))); err != nil {
			t.Fatal(err)
		}
		if most := j.limit + changeOverhead + maxRowHead + 203; j.bytes > most {
			t.Fatalf("%d bytes in memory, limit %d", j.bytes, j.limit)
		}
		if c, ok, err := j.Get([]byte("key")); err != nil || !ok || string(c.Entry.Value) != value(i) {
			t.Fatalf("got %q, %v, %v, want %q", c.Entry.Value, ok, err, value(i))
		}
	}
	if j.run == nil {
		t.Error("the journal has never spilled")
	}
	n := 0
	for c, err := range j.All() {
		if n++; err != nil || string(c.Entry.Value) != value(999) {
			t.Fatalf("got %q, %v", c.Entry.Value, err)
		}
	}
	if n != 1 {
		t.Errorf("%d changes, want 1", n)
	}
	if err := j.Clear(); err != nil {
		t.Error(err)
	}
}
