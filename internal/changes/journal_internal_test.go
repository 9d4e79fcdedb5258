package changes

import (
	"fmt"
	"testing"

	"github.com/ledgerd/ledger/btree"
	fb "github.com/ledgerd/ledger/flatbuffers"
)

// TestJournalOfOneKey overwrites one key again and again. What was replaced counts as memory that
// is taken, so that a transaction moves it to its tree and forgets it. The last value stands.
func TestJournalOfOneKey(t *testing.T) {
	var j Journal
	value := func(i int) string { return fmt.Sprintf("%0200d", i) }
	for i := range 1000 {
		j.Set(&btree.Change{Entry: fb.Entry{Key: []byte("key"), Value: []byte(value(i)), Inline: true}})
		if least := int64(203 * (i + 1)); j.Bytes() < least {
			t.Fatalf("%d bytes after %d changes, want %d or more", j.Bytes(), i+1, least)
		}
		if c, ok := j.Get([]byte("key")); !ok || string(c.Entry.Value) != value(i) {
			t.Fatalf("got %q, %v, want %q", c.Entry.Value, ok, value(i))
		}
	}
	if cs := j.Batch(nil, nil, true, 2); len(cs) != 1 || string(cs[0].Entry.Value) != value(999) || j.Count() != 1 {
		t.Fatalf("%d changes, counted %d", len(cs), j.Count())
	}
	if j.Clear(); !j.Empty() || j.Bytes() != 0 || j.Count() != 0 || j.Version() != 1001 {
		t.Errorf("not empty after Clear, or the same version")
	}
}
