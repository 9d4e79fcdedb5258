package ingest_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/commit"
)

// wantHead fails unless a page has one head.
func (d *device) wantHead(c *commit.Commit) {
	d.t.Helper()
	if ids := headIDs(d); !slices.Equal(ids, []commit.ID{c.ID}) {
		d.t.Errorf("heads %v, want %s alone", ids, c.ID)
	}
	d.check()
}

// TestWhatTheLogIsPastIsNoHead takes a tagged commit that another device sends again: this one, and one that has never seen what was between, have its head and its tag, and no further head.
func TestWhatTheLogIsPastIsNoHead(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	one := a.commit(edit{"k": []byte("1"), "gone": []byte("1")})
	two := a.commit(edit{"k": []byte("2"), "gone": nil}, one)
	three := a.commit(edit{"k": []byte("3")}, two)
	top := a.body(three)
	top.Shallow, top.Commits[0].Base = true, format.Base{Empty: true}
	top.Commits[0].Diff.Inline, _ = a.diff(commit.First().Root, three.Root)
	w.append(top)
	old := a.body(one)
	old.Shallow, old.Commits[0].Past, old.Tags = true, true, []format.TagChange{{Name: "v1", Commit: one.ID}}
	w.append(old)
	b.pull()
	b.wantHead(three)
	if tags, err := b.s.Tags(t.Context()); err != nil || tags["v1"] != one.ID {
		t.Errorf("tags %v, %v", tags, err)
	}
	if got := b.content(one); got["gone"] != "1" {
		t.Errorf("what is tagged has the content %v", got)
	}
}

// TestWhatTheLogIsPastAlone refuses an entry after which a page would have no head.
func TestWhatTheLogIsPastAlone(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	body := a.body(a.commit(edit{"k": []byte("1")}))
	body.Commits[0].Past = true
	var bad *ingest.EntryError
	if _, err := b.apply(w.append(body)); !errors.As(err, &bad) {
		t.Fatalf("got %v", err)
	}
	b.wantHead(commit.First())
}

// TestGivenUpTakesHeadshipAway takes commits again that were given up here, in other entries than what was built on them: the first of them is a head only until the next entry tells.
func TestGivenUpTakesHeadshipAway(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	one := a.commit(edit{"k": []byte("1")})
	two := a.commit(edit{"k": []byte("2")}, one)
	three := a.commit(edit{"k": []byte("3")}, two)
	four := a.commit(edit{"k": []byte("4")}, three)
	a.push()
	b.pull()
	if _, err := b.s.Prune(t.Context(), []commit.ID{one.ID, two.ID, three.ID}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*commit.Commit{one, three} {
		body := a.body(c)
		if c == three { // its parent comes with it
			body = a.body(two, three)
		}
		body.Shallow = true
		if _, err := b.apply(w.append(body)); err != nil {
			t.Fatal(err)
		}
	}
	b.wantHead(four)
}
