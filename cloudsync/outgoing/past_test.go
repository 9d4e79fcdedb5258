package outgoing_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/storage"
)

// TestFindPast tells apart what another log had: what the present one is past, what is reached from
// no head any more, and what is still to be sent.
func TestFindPast(t *testing.T) {
	d := newDevice(t)
	var line []*commit.Commit
	for i := range 6 {
		line = append(line, d.commit(edit{"k": text(string(rune('a' + i)))}))
	}
	own := d.commitOn(edit{"own": text("1")}, nil, line[2]) // beside the others, on what the log is past
	if err := d.s.SetTag(t.Context(), "v1", line[0].ID); err != nil {
		t.Fatal(err)
	}
	if _, err := d.s.Prune(t.Context(), []commit.ID{line[1].ID}); err != nil {
		t.Fatal(err)
	}
	d.settle(&storage.SyncBatch{Synced: []commit.ID{line[4].ID}})
	past, err := outgoing.FindPast(t.Context(), d.s)
	if err != nil {
		t.Fatal(err)
	}
	ids := func(m map[commit.ID]bool) []commit.ID { return slices.SortedFunc(maps.Keys(m), commit.ID.Compare) }
	want := func(cs ...*commit.Commit) []commit.ID {
		m := map[commit.ID]bool{}
		for _, c := range cs {
			m[c.ID] = true
		}
		return ids(m)
	}
	if diff := cmp.Diff(want(line[2], line[3]), ids(past.Covered)); diff != "" {
		t.Errorf("covered: %s", diff)
	}
	if diff := cmp.Diff(want(line[0]), ids(past.Islands)); diff != "" {
		t.Errorf("islands: %s", diff)
	}

	d.page.SetPast(past)
	out, err := d.page.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	type sent struct {
		ID   commit.ID
		Past bool
	}
	var got []sent
	for _, c := range out.Body.Body.Commits {
		got = append(got, sent{c.Commit.ID, c.Past})
	}
	slices.SortFunc(got[:len(got)-1], func(a, b sent) int { return a.ID.Compare(b.ID) })
	expected := []sent{{line[2].ID, true}, {line[3].ID, true}, {line[5].ID, false}, {own.ID, false}}
	slices.SortFunc(expected, func(a, b sent) int { return a.ID.Compare(b.ID) })
	if diff := cmp.Diff(append(expected, sent{line[0].ID, true}), got); diff != "" {
		t.Errorf("what is sent, the island last: %s", diff)
	}
	if !out.Body.Body.Shallow {
		t.Error("parents that were given up are not said to be")
	}
}

// TestHistoryHasTaggedIslands writes a checkpoint of history of a page with a tagged commit from
// which no head leads on: it has the tag, though the bucket does not, and the tree.
func TestHistoryHasTaggedIslands(t *testing.T) {
	d := newDevice(t)
	island := d.commit(edit{"k": text("1"), "gone": text("1")})
	between := d.commit(edit{"k": text("2"), "gone": nil})
	head := d.commit(edit{"k": text("3")})
	for name, c := range map[string]*commit.Commit{"v1": island, "v3": head} {
		if err := d.s.SetTag(t.Context(), name, c.ID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := d.s.Prune(t.Context(), []commit.ID{between.ID}); err != nil {
		t.Fatal(err)
	}
	d.number, d.hash = 1, format.Hash{1}
	if _, err := d.page.WriteHistory(t.Context(), d.position(), d.s.Heads()); err != nil {
		t.Fatal(err)
	}
	stored, _ := d.b.Content(d.names().Checkpoint(1))
	st, err := d.seal.NewStream(bytes.NewReader(stored), d.names().CheckpointLabel(1))
	if err != nil {
		t.Fatal(err)
	}
	c, err := format.ReadCheckpoint(st, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Commits) != 2 || len(c.Heads) != 1 || len(c.Tags) != 2 || len(c.Trees) != 1 || c.Commits[c.Trees[0]].ID != island.ID {
		t.Errorf("%d commits, heads %v, tags %v, trees %v", len(c.Commits), c.Heads, c.Tags, c.Trees)
	}
}
