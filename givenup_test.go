package ledger_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledger"
)

// TestHistoryThatWasGivenUp asks a page with a shallow history for what is left, and for what is not.
func TestHistoryThatWasGivenUp(t *testing.T) {
	ctx := t.Context()
	r := open(t, "", &ledger.Options{InMemory: true})
	p := page(t, r, "notes", "inbox")
	var ids []ledger.CommitID
	for _, v := range []string{"1", "2", "3", "4", "5"} {
		kv := []string{"n", v}
		if v == "3" {
			kv = append(kv, "color", "red")
		}
		ids = append(ids, put(t, p, kv...))
	}
	must(t, p.Tag(ctx, "release", ids[0]))
	if _, err := r.Collect(ctx, ledger.CollectOptions{Retention: &ledger.Retention{Commits: 2}}); err != nil {
		t.Fatal(err)
	}
	var log []ledger.CommitID
	for c, err := range p.Log(ctx) {
		must(t, err)
		log = append(log, c.ID)
	}
	if len(log) != 2 || log[0] != ids[4] || log[1] != ids[3] {
		t.Errorf("log %v", log)
	}
	for rev, want := range map[string]error{"HEAD~1": nil, "release": nil, "HEAD~2": ledger.ErrGone, ids[1].String(): ledger.ErrNotFound} {
		if _, err := p.Resolve(ctx, rev); !errors.Is(err, want) || want == nil && err != nil {
			t.Errorf("%s: %v", rev, err)
		}
	}
	n := 0
	for c, err := range p.Diff(ctx, ids[0], ledger.CommitID{}, nil) { // the tag's content is there, whatever is between
		must(t, err)
		n += len(c.Key)
	}
	if n != len("n")+len("color") {
		t.Errorf("the difference has keys of %d bytes", n)
	}
	_, err := p.Undo(ctx, ids[3], nil)
	if wantErr(t, err, ledger.ErrGone); !strings.Contains(err.Error(), "was given up") {
		t.Error(err)
	}
	_, err = p.Undo(ctx, ids[0], &ledger.UndoOptions{})
	if wantErr(t, err, ledger.ErrGone); !strings.Contains(err.Error(), "was given up") {
		t.Error(err)
	}
	if u, err := p.Undo(ctx, ids[4], nil); err != nil || u.Changed != 1 {
		t.Errorf("undo of the newest: %+v, %v", u, err)
	}
	steps := 0
	for s, err := range p.Why(ctx, ledger.CommitID{}, []byte("color")) {
		must(t, err)
		if steps++; !s.Pruned || s.Commit.ID != ids[3] || s.Entry == nil {
			t.Errorf("why: %+v", s)
		}
	}
	if steps != 1 {
		t.Errorf("why gives %d steps", steps)
	}
	for _, err := range p.Watch(ctx, &ledger.WatchOptions{From: ids[1]}) {
		wantErr(t, err, ledger.ErrGone)
		break
	}
	checkClean(t, r)
}
