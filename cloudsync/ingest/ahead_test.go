package ingest_test

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/commit"
)

// countdown is a context that is canceled when it has been asked so many times whether it is.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestHistoryComesInSteps takes over a checkpoint two commits at a time, and breaks off at one moment after the other. The heads are those that were before, or those of the
// checkpoint; and the page comes to the same with the checkpoint, and with the log from its beginning on.
func TestHistoryComesInSteps(t *testing.T) {
	s := newStory(t)
	began, partly := false, 0
	parts := map[int][]commit.ID{} // heads by how many entries were read
	for part := 1; part <= 5; part++ {
		d := s.device(t)
		if _, err := d.apply(s.log[:part]...); err != nil {
			t.Fatal(err)
		}
		parts[part] = headIDs(d)
	}
	for n := 0; !began; n += 13 {
		for _, again := range []bool{true, false} {
			d := s.device(t)
			ingest.SetSmallBounds(d.page)
			_, _, err := d.page.Adopt(&countdown{t.Context(), n}, s.number)
			began = err == nil
			if began {
				break
			}
			if hs := d.s.Heads(); len(hs) != 1 || !hs[0].IsFirst() {
				t.Fatalf("%d heads after %v", len(hs), err)
			}
			if _, err := d.s.Commit(t.Context(), s.cs[0].ID); err == nil {
				partly++
			}
			if again {
				if _, _, err := d.page.Adopt(t.Context(), s.number); err != nil {
					t.Fatal(err)
				}
				d.read = int(s.number)
			} else {
				part := 1 + n%5 // the log may be read to a commit that has come ahead
				if _, err := d.apply(s.log[:part]...); err != nil {
					t.Fatal(err)
				}
				d.read = part
				if diff := cmp.Diff(parts[part], headIDs(d)); diff != "" {
					t.Fatal(diff)
				}
			}
			d.pull()
			s.same(d)
			if row, err := d.s.Metadata(t.Context(), ingest.MetadataAhead); err != nil || row != nil {
				t.Fatalf("the row about what came ahead is left: %x, %v", row, err)
			}
		}
	}
	if partly < 4 {
		t.Errorf("a part of the history was there %d times", partly)
	}
}

// TestHistoryAheadOfOwnHeads takes over a checkpoint that goes on from a head of the page, on one that has a commit of its own there and on one that has none.
func TestHistoryAheadOfOwnHeads(t *testing.T) {
	w := newWorld(t)
	a := w.device(t)
	a.commit(edit{"k": []byte("v")})
	a.push()
	b := w.device(t)
	ingest.SetSmallBounds(b.page)
	b.pull()
	own := b.commit(edit{"own": []byte("w")})
	var head, on *commit.Commit
	for i := range 7 {
		head = a.commit(edit{"k": {byte(i)}})
		if i == 3 {
			on = head
		}
	}
	a.push()
	side := a.commit(edit{"side": []byte("s")}, on)
	a.push()
	number := w.put(a.checkpoint(head, side))
	read := b.read
	c := w.device(t)
	ingest.SetSmallBounds(c.page)
	if _, err := c.apply(w.log[:read]...); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*device{b, c} {
		if _, res, err := d.page.Adopt(t.Context(), number); err != nil || res.Commits != 8 {
			t.Fatalf("%+v, %v", res, err)
		}
		want := map[commit.ID]bool{head.ID: true, side.ID: true}
		if d == b {
			want[own.ID] = true
		}
		got := map[commit.ID]bool{}
		for _, h := range d.s.Heads() {
			got[h.ID] = true
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		d.check()
	}
}
