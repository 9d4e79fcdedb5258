package cloudsync_test

import (
	"maps"
	"testing"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
)

// TestTreesAreBuiltTogether has a device that knows history without trees build all of them: the
// log is read a few times, not once for each.
func TestTreesAreBuiltTogether(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	var ids []commit.ID
	for i := range 40 {
		c := a.commit(edit{key(i % 7): noise(uint64(i), 400), "n": text(key(i))}) // values that no checkpoint has any more
		ids = append(ids, c.ID)
		sync(t, a)
	}
	if err := a.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	b, c := w.synced(), w.synced()
	one := c.counts(func() {
		if err := c.BuildTree(t.Context(), ids[20]); err != nil {
			t.Fatal(err)
		}
	})
	all := b.counts(func() {
		if err := b.BuildTrees(t.Context(), ids); err != nil {
			t.Fatal(err)
		}
	})
	if all.B > 3*one.B {
		t.Errorf("all trees cost %+v, one %+v", all, one)
	}
	for _, id := range ids {
		if got, want := b.contentAt(id), a.contentAt(id); !maps.Equal(got, want) {
			t.Fatalf("commit %s: %d keys, want %d", id.Short(), len(got), len(want))
		}
	}
}

// contentAt returns the digests and values that a commit has by key.
func (p *page) contentAt(id commit.ID) map[string]string {
	p.d.w.t.Helper()
	ctx := p.d.w.t.Context()
	c, err := p.store.Commit(ctx, id)
	if err != nil {
		p.d.w.t.Fatal(err)
	}
	m := map[string]string{}
	cur := btree.Tree{Page: testPage, Source: p.store, Root: c.Root}.Cursor()
	ok, err := cur.First(ctx)
	for ; ok && err == nil; ok, err = cur.Next(ctx) {
		e := cur.Entry()
		if m[string(e.Key)] = string(e.Value); !e.Inline {
			st, stErr := p.store.PieceState(e.Digest)
			if stErr != nil || !st.Held && !st.Synced {
				p.d.w.t.Fatalf("value of %q at %s is nowhere: %v", e.Key, id.Short(), stErr)
			}
			m[string(e.Key)] = e.Digest.String()
		}
	}
	if err != nil {
		p.d.w.t.Fatal(err)
	}
	return m
}
