package wire

import (
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// aChild draws a commit whose only parent is that of a record, with what it may have in common with
// it.
func aChild(t *rapid.T, of *Commit) *Commit {
	c, err := commit.New(commit.Params{Now: time.Unix(9, 0), Root: aDigest(t, object.Node), Parents: []*commit.Commit{of.Commit}, Message: "m"})
	if err != nil {
		t.Fatal(err)
	}
	r := &Commit{Commit: c, Base: of.Commit.ID, Diff: aDiff(t, 0)}
	if rapid.Bool().Draw(t, "same sender") {
		r.Sender = of.Sender
	}
	if of.Diff.Place != nil && rapid.Bool().Draw(t, "same pack") {
		place := aPlace(t)
		place.Epoch, place.Pack = of.Diff.Place.Epoch, of.Diff.Place.Pack
		r.Diff = Diff{Place: &place}
	}
	return r
}

// TestCommitsThatFollow: what a commit has in common with the one before it stands in a stream once
// (I1), and nowhere twice.
func TestCommitsThatFollow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := aRecord(t, tagCommit).(*Commit)
		b := aChild(t, a)
		all := []Record{a, b}
		encoded, err := write(RunOf(Commits), all)
		if err != nil {
			t.Fatal(err)
		}
		got, err := read(RunOf(Commits), encoded)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, all)
		if _, err := read(RunOf(Commits), unchecked(all)); !errors.Is(err, base.ErrCorrupt) {
			t.Fatalf("each stands for itself: %v", err)
		}
	})
}
