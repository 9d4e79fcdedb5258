package ledger_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger"
)

func undo(t testing.TB, p *ledger.Page, c ledger.CommitID, o *ledger.UndoOptions) ledger.UndoResult {
	t.Helper()
	r, err := p.Undo(t.Context(), c, o)
	must(t, err)
	return r
}

func TestUndo(t *testing.T) {
	p := manualPage(t)
	long := string(pseudo(1, 300_000))
	put(t, p, "changed", "1", "deleted", long, "later", "1")
	c := update(t, p, func(tx *ledger.Tx) error {
		must(t, tx.Put(t.Context(), []byte("changed"), []byte("2")))
		must(t, tx.Delete(t.Context(), []byte("deleted")))
		must(t, tx.Put(t.Context(), []byte("later"), []byte("2")))
		return tx.Put(t.Context(), []byte("new"), []byte("2"))
	})
	put(t, p, "later", "3", "other", "3")
	r := undo(t, p, c, nil)
	if r.Changed != 3 || r.Kept != 1 {
		t.Errorf("result %+v", r)
	}
	wantContent(t, p, map[string]string{"changed": "1", "deleted": long, "later": "3", "other": "3"})
	head, err := p.Commit(t.Context(), r.Commit)
	must(t, err)
	if head.Message != "undo "+c.Short() {
		t.Errorf("message %q", head.Message)
	}
	// Once more there is nothing to do.
	again := undo(t, p, c, nil)
	if again.Commit != r.Commit || again.Changed != 0 {
		t.Errorf("again: %+v, want the head %s", again, r.Commit.Short())
	}
	back := undo(t, p, r.Commit, &ledger.UndoOptions{Message: "I was wrong"})
	if back.Changed != 3 || back.Kept != 0 {
		t.Errorf("result %+v", back)
	}
	wantContent(t, p, map[string]string{"changed": "2", "later": "3", "new": "2", "other": "3"})
	if head, err := p.Commit(t.Context(), back.Commit); err != nil || head.Message != "I was wrong" {
		t.Errorf("message %q, %v", head.Message, err)
	}
	checkClean(t, p.Repository())
}

// TestUndoKeepsWhatWasWrittenAgain: also with the value that the commit gave it.
func TestUndoKeepsWhatWasWrittenAgain(t *testing.T) {
	p := manualPage(t)
	put(t, p, "x", "0", "y", "0")
	c := put(t, p, "x", "A", "y", "A")
	put(t, p, "x", "B")
	put(t, p, "x", "A")
	if r := undo(t, p, c, nil); r.Changed != 1 || r.Kept != 1 {
		t.Errorf("result %+v", r)
	}
	wantContent(t, p, map[string]string{"x": "A", "y": "0"})
}

// TestUndoOfAWinner: the value that lost to the commit in a later merge is back.
func TestUndoOfAWinner(t *testing.T) {
	p := manualPage(t)
	base := put(t, p, "color", "red")
	blue := putOn(t, p, base, "color", "blue", "b", "1")
	green := putOn(t, p, base, "color", "green", "g", "1")
	mergeAll(t, p)
	put(t, p, "other", "1")
	if r := undo(t, p, green, nil); r.Changed != 2 || r.Kept != 0 {
		t.Errorf("result %+v", r)
	}
	wantContent(t, p, map[string]string{"color": "blue", "b": "1", "other": "1"})
	// Undoing green wrote the color, on top of blue.
	if r := undo(t, p, blue, nil); r.Changed != 1 || r.Kept != 1 {
		t.Errorf("result %+v", r)
	}
	wantContent(t, p, map[string]string{"color": "blue", "other": "1"})
}

func TestUndoOfAMerge(t *testing.T) {
	p := manualPage(t)
	base := put(t, p, "color", "red")
	blue := putOn(t, p, base, "color", "blue", "b", "1")
	green := putOn(t, p, base, "color", "green", "g", "1")
	merged := mergeAll(t, p)
	_, err := p.Undo(t.Context(), merged, nil)
	wantErr(t, err, ledger.ErrInvalid)
	for _, id := range []ledger.CommitID{blue, green} {
		if !strings.Contains(err.Error(), id.String()) {
			t.Errorf("%v does not name parent %s", err, id)
		}
	}
	if r := undo(t, p, merged, &ledger.UndoOptions{Parent: blue}); r.Changed != 2 {
		t.Errorf("result %+v", r)
	}
	wantContent(t, p, map[string]string{"color": "blue", "b": "1"})
}

func TestUndoRefuses(t *testing.T) {
	p := manualPage(t)
	first := firstCommit(t, p)
	base := put(t, p, "k", "0")
	a := putOn(t, p, base, "k", "a")
	b := putOn(t, p, base, "k", "b")
	if _, err := p.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		id   ledger.CommitID
		o    ledger.UndoOptions
		want error
	}{
		{"no commit", ledger.CommitID{}, ledger.UndoOptions{}, ledger.ErrInvalid},
		{"unknown", ledger.CommitID{1}, ledger.UndoOptions{}, ledger.ErrNotFound},
		{"the first one", first, ledger.UndoOptions{}, ledger.ErrInvalid},
		{"a sibling", a, ledger.UndoOptions{}, ledger.ErrInvalid},
		{"not its parent", b, ledger.UndoOptions{Parent: a}, ledger.ErrInvalid},
		{"long message", b, ledger.UndoOptions{Message: strings.Repeat("m", 1<<20)}, ledger.ErrTooLarge},
	} {
		r, err := p.Undo(t.Context(), c.id, &c.o)
		wantErr(t, err, c.want)
		if !strings.HasPrefix(err.Error(), "undo: ") || r != (ledger.UndoResult{}) {
			t.Errorf("%s: %+v, %v", c.name, r, err)
		}
	}
	if r := undo(t, p, b, &ledger.UndoOptions{Parent: base}); r.Changed != 1 {
		t.Errorf("result %+v", r)
	}
	wantContent(t, p, map[string]string{"k": "0"})
}

func TestUndoReadOnly(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, nil)
	p := page(t, r, "app", "page")
	id := put(t, p, "k", "v")
	closeIt(t, p)
	closeIt(t, r)
	p = page(t, open(t, dir, &ledger.Options{ReadOnly: true}), "app", "page")
	_, err := p.Undo(t.Context(), id, nil)
	wantErr(t, err, ledger.ErrReadOnly)
}

// TestUndoAgainstAModel: in a chain of commits each key that a commit changed, and that no later
// one wrote, is what it was before.
func TestUndoAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := manualPage(t)
		states := []map[string]string{{}}
		ids := []ledger.CommitID{firstCommit(t, p)}
		for range rapid.IntRange(1, 12).Draw(rt, "commits") {
			state := maps.Clone(states[len(states)-1])
			id := update(t, p, func(tx *ledger.Tx) error {
				for range rapid.IntRange(1, 5).Draw(rt, "changes") {
					k := rapid.StringMatching(`[a-f]`).Draw(rt, "key")
					v := rapid.SampledFrom([]string{"", "1", "2", "3"}).Draw(rt, "value")
					if v == "" {
						must(t, tx.Delete(t.Context(), []byte(k)))
						delete(state, k)
						continue
					}
					must(t, tx.Put(t.Context(), []byte(k), []byte(v)))
					state[k] = v
				}
				return nil
			})
			if id != ids[len(ids)-1] {
				ids, states = append(ids, id), append(states, state)
			}
		}
		if len(ids) == 1 {
			return
		}
		i := rapid.IntRange(1, len(ids)-1).Draw(rt, "undone")
		before, after, head := states[i-1], states[i], states[len(states)-1]
		want := maps.Clone(head)
		changed, kept := 0, 0
		for _, k := range strings.Split("abcdef", "") {
			again := slices.ContainsFunc(states[i:], func(s map[string]string) bool { return s[k] != after[k] })
			switch {
			case before[k] == after[k]:
			case !again:
				changed++
				if want[k] = before[k]; want[k] == "" {
					delete(want, k)
				}
			case head[k] != before[k]:
				kept++
			}
		}
		r := undo(t, p, ids[i], nil)
		if r.Changed != changed || r.Kept != kept {
			rt.Fatalf("%+v, want %d changed and %d kept", r, changed, kept)
		}
		if diff := cmp.Diff(want, pageContent(t, p)); diff != "" {
			rt.Fatalf("content (-want +got):\n%s", diff)
		}
		if (r.Commit == ids[len(ids)-1]) != (changed == 0) {
			rt.Fatalf("commit %s, head was %s", r.Commit.Short(), ids[len(ids)-1].Short())
		}
	})
}

// TestUndoAmongWriters undoes while others write: it builds on heads that are not durable yet.
func TestUndoAmongWriters(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 20 {
				id, err := p.Update(t.Context(), func(tx *ledger.Tx) error {
					return tx.Put(t.Context(), fmt.Appendf(nil, "%d/%d", w, i), []byte("v"))
				})
				if err != nil {
					t.Errorf("update: %v", err)
					return
				}
				if i%2 == 0 {
					continue
				}
				if r, err := p.Undo(t.Context(), id, nil); err != nil || r.Changed != 1 {
					t.Errorf("undo: %+v, %v", r, err)
				}
			}
		})
	}
	wg.Wait()
	if got := pageContent(t, p); len(got) != 40 {
		t.Errorf("%d keys are left, want 40", len(got))
	}
	checkClean(t, p.Repository())
}
