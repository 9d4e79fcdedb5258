package ingest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
)

// writeCheckpoint puts the checkpoint of the present position with one head.
func (d *device) writeCheckpoint(head *commit.Commit) uint64 {
	d.t.Helper()
	c := d.checkpoint(head)
	_, roots := d.diff(btree.EmptyRoot, head.Root)
	c.Packs = d.uploadValues(roots...)
	return d.put(c)
}

// TestBuildTreeFromCheckpoint builds trees from the newest checkpoint before the commit, and reads
// nothing of the log before that.
func TestBuildTreeFromCheckpoint(t *testing.T) {
	w := newWorld(t)
	a := w.device(t)
	var cs []*commit.Commit
	var numbers []uint64
	for i := range 45 {
		cs = append(cs, a.commit(edit{fmt.Sprint(i % 7): fmt.Appendf(nil, "%d", i), "value": noise(uint64(i/10), 3000)}))
		a.push()
		if i%20 == 19 || i == 44 {
			numbers = append(numbers, a.writeCheckpoint(cs[i]))
		}
	}
	b := w.device(t)
	b.s.SetFetcher(b.fetcher)
	if _, _, err := b.page.Adopt(t.Context(), numbers[2]); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		commit      int
		checkpoints []uint64
		first       uint64 // of the entries that may be read
	}{
		{30, numbers, numbers[0] + 1},
		{39, numbers, 1000},               // a head
		{42, numbers, numbers[1]},         // its chain ends at one that was built
		{7, numbers, 1},                   // older than all
		{10, nil, 1},                      // nobody knows of any
		{25, []uint64{99, 12}, 1},         // they are not there
		{35, numbers[:1], numbers[0] + 1}, // the newest is not known
	} {
		history := func(yield func(*format.Entry) error) error {
			for _, e := range w.log {
				if err := yield(e); err != nil {
					return err
				}
			}
			return nil
		}
		log := past(history, test.checkpoints...)
		entries, least := log.Entries, uint64(1000)
		log.Entries = func(from format.Position, yield func(*format.Entry) error) error {
			least = min(least, from.Number+1)
			return entries(from, yield)
		}
		c := cs[test.commit]
		if err := b.page.BuildTree(t.Context(), c.ID, log); err != nil {
			t.Fatalf("commit %d: %v", test.commit, err)
		}
		if least < test.first && test.first < 1000 {
			t.Errorf("commit %d: the log was read from entry %d on, not %d", test.commit, least, test.first)
		}
		if diff := cmp.Diff(a.content(c), b.content(c)); diff != "" {
			t.Fatalf("commit %d: %s", test.commit, diff)
		}
	}
	b.check()
}

// TestFindPlaces takes an entry with a value that was in the log before the checkpoint, and not in
// that, when nothing says where it is.
func TestFindPlaces(t *testing.T) {
	w := newWorld(t)
	a := w.device(t)
	a.commit(edit{"old": noise(1, 30_000)})
	a.push()
	a.commit(edit{"old": nil, "new": noise(2, 30_000)})
	a.push()
	number := a.writeCheckpoint(a.s.NewestHead())
	back := a.commit(edit{"old": noise(1, 30_000)})
	e := w.append(a.body(back))
	b := w.device(t)
	if _, _, err := b.page.Adopt(t.Context(), number); err != nil {
		t.Fatal(err)
	}
	var needs *ingest.NeedsPlacesError
	if _, err := b.apply(e); !errors.As(err, &needs) || needs.Object != w.names.Entry(e.Number) || !errors.Is(err, base.ErrNeedsFetch) {
		t.Fatalf("an entry with a piece that is not known: %v", err)
	}
	none := func(func(*format.Entry) error) error { return base.ErrGone }
	history := func(yield func(*format.Entry) error) error {
		for _, e := range w.log[:number] {
			if err := yield(e); err != nil {
				return err
			}
		}
		return nil
	}
	for _, test := range []struct {
		history func(yield func(*format.Entry) error) error
		found   bool
	}{{none, false}, {history, true}} {
		if err := b.page.FindPlaces(t.Context(), past(test.history)); err != nil {
			t.Fatal(err)
		}
		_, err := b.apply(e)
		var bad *ingest.EntryError
		if test.found && err != nil || !test.found && !errors.As(err, &bad) {
			t.Fatalf("found %t: %v", test.found, err)
		}
		if !test.found {
			b = w.device(t)
			if _, _, err := b.page.Adopt(t.Context(), number); err != nil {
				t.Fatal(err)
			}
		}
	}
	if diff := cmp.Diff(a.content(back), b.content(back)); diff != "" {
		t.Fatal(diff)
	}
	b.check()
}
