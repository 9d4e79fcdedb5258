package ledger_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/ledgerd/ledger"
)

// manual says that nothing merges by itself.

// sibling commits a pair on a base with an explicit transaction.
func sibling(t testing.TB, p *ledger.Page, base ledger.CommitID, pairs ...string) ledger.CommitID {
	t.Helper()
	tx, err := p.Begin(t.Context(), &ledger.TxOptions{Base: base})
	must(t, err)
	for i := 0; i < len(pairs); i += 2 {
		must(t, tx.Put(t.Context(), []byte(pairs[i]), []byte(pairs[i+1])))
	}
	id, err := tx.Commit(t.Context())
	must(t, err)
	return id
}

func wantHead(t testing.TB, p *ledger.Page, want ledger.CommitID) {
	t.Helper()
	got, err := p.Resolve(t.Context(), "HEAD")
	must(t, err)
	s, err := p.Snapshot(t.Context())
	must(t, err)
	defer closeIt(t, s)
	if got != want || s.Commit().ID != want {
		t.Fatalf("HEAD is %s and the snapshot %s, want %s", got.Short(), s.Commit().ID.Short(), want.Short())
	}
}

func TestHandlesFollowTheirBranches(t *testing.T) {
	r := open(t, "", &ledger.Options{InMemory: true, ManualMerge: true})
	p, q := page(t, r, "app", "page"), page(t, r, "app", "page")
	base := put(t, p, "k", "base")
	wantHead(t, q, base) // one head: everybody sees it
	a1 := sibling(t, p, base, "a", "1")
	b1 := sibling(t, q, base, "b", "1")
	wantHead(t, p, a1)
	wantHead(t, q, b1)
	a2 := put(t, p, "a", "2")
	b2 := put(t, q, "b", "2")
	wantContent(t, p, map[string]string{"k": "base", "a": "2"})
	wantContent(t, q, map[string]string{"k": "base", "b": "2"})
	c, err := p.Commit(t.Context(), a2)
	must(t, err)
	if len(c.Parents) != 1 || c.Parents[0] != a1 {
		t.Errorf("Update left its branch: %+v", c)
	}

	// The other's commits do not come over, and a new handle begins at the newest head.
	wantHead(t, p, a2)
	fresh := page(t, r, "app", "page")
	wantHead(t, fresh, b2)
	var changed int
	for range p.Diff(t.Context(), a1, ledger.CommitID{}, nil) {
		changed++
	}
	if changed != 1 {
		t.Errorf("%d changes between a1 and the handle's head, want 1", changed)
	}
	for c, err := range p.Log(t.Context(), ledger.CommitID{}) {
		must(t, err)
		if c.ID == b1 || c.ID == b2 {
			t.Error("the log of the handle's head has a commit of the other branch")
		}
	}
	must(t, p.Tag(t.Context(), "mine", ledger.CommitID{}))
	tagged, err := p.Resolve(t.Context(), "mine")
	must(t, err)
	if tagged != a2 {
		t.Errorf("the tag names %s, want %s", tagged.Short(), a2.Short())
	}
	parent, err := p.Resolve(t.Context(), "HEAD~2")
	must(t, err)
	if parent != base {
		t.Errorf("HEAD~2 is %s, want %s", parent.Short(), base.Short())
	}
	restored, err := p.Restore(t.Context(), base, "")
	must(t, err)
	if c, err = p.Commit(t.Context(), restored); err != nil || c.Parents[0] != a2 {
		t.Errorf("restored on %v, %v", c.Parents, err)
	}

	got, err := q.Refresh(t.Context())
	must(t, err)
	if got != restored { // the newest of all
		t.Errorf("refreshed to %s, want %s", got.Short(), restored.Short())
	}
	wantHead(t, q, restored)
	heads, err := q.Heads(t.Context())
	must(t, err)
	if len(heads) != 2 {
		t.Errorf("heads %+v", heads)
	}
}

func TestACommitOnAnOlderBaseMovesTheHandle(t *testing.T) {
	p := memoryPage(t, ledger.Options{ManualMerge: true})
	base := put(t, p, "k", "base")
	for i := range 5 {
		put(t, p, "k", strconv.Itoa(i))
	}
	side := sibling(t, p, base, "k", "side")
	wantHead(t, p, side)
	next := put(t, p, "k", "next")
	c, err := p.Commit(t.Context(), next)
	must(t, err)
	if c.Parents[0] != side {
		t.Error("the next commit is not on the sibling")
	}
}

func TestUpdatesOfOneHandleStayOnItsBranch(t *testing.T) {
	r := open(t, t.TempDir(), &ledger.Options{ManualMerge: true})
	p, q := page(t, r, "app", "page"), page(t, r, "app", "page")
	base := put(t, p, "k", "base")
	sibling(t, p, base, "p", "")
	sibling(t, q, base, "q", "")
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 10 {
				h := p
				if w%2 == 1 {
					h = q
				}
				put(t, h, strconv.Itoa(w), strconv.Itoa(i))
				var last string
				must(t, h.View(t.Context(), func(s *ledger.Snapshot) error {
					v, err := s.Get(t.Context(), []byte(strconv.Itoa(w)))
					last = string(v)
					return err
				}))
				if last != strconv.Itoa(i) {
					t.Errorf("worker %d does not see its own commit: %q", w, last)
				}
			}
		})
	}
	wg.Wait()
	wantContent(t, p, map[string]string{"k": "base", "p": "", "0": "9", "2": "9"})
	wantContent(t, q, map[string]string{"k": "base", "q": "", "1": "9", "3": "9"})
}
