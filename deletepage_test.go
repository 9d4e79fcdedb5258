package ledger_test

import (
	"sync"
	"testing"

	"github.com/ledgerd/ledger"
)

func TestDeletePage(t *testing.T) {
	w := newCloudWorld(t)
	r := w.device(w.options())
	ctx := t.Context()
	at := evictable(t, r, "l", "p", "k", "v")
	p := page(t, r, "l", "p")
	_, err := r.DeletePage(ctx, at, ledger.DeleteOptions{DiscardUnsynced: true})
	wantErr(t, err, ledger.ErrConflict) // it is open
	put(t, p, "k", "mine")
	closeIt(t, p)
	_, err = r.DeletePage(ctx, at, ledger.DeleteOptions{})
	wantErr(t, err, ledger.ErrConflict)
	syncAll(t, r)
	d, err := r.DeletePage(ctx, at, ledger.DeleteOptions{})
	must(t, err)
	if !d.InCloud || d.Discarded || d.Bytes == 0 || d.Name != "p" {
		t.Errorf("%+v", d)
	}
	syncAll(t, r)
	away, err := r.EvictedPages(ctx)
	must(t, err)
	l, err := r.Ledger("l")
	must(t, err)
	has, err := l.HasPage(ctx, at.ID)
	must(t, err)
	if names := namesHere(t, r); len(names)+len(away) != 0 || has {
		t.Errorf("%v here, %v away, %t", names, away, has)
	}
	_, err = r.DeletePage(ctx, at, ledger.DeleteOptions{})
	wantErr(t, err, ledger.ErrNotFound)
	// Who opens it begins with an empty page, offline too, and gets what the bucket has with the next sync.
	p = page(t, r, "l", "p")
	wantContent(t, p, map[string]string{})
	put(t, p, "new", "1")
	must(t, p.Sync(ctx))
	if _, err := p.Merge(ctx); err != nil {
		t.Error(err)
	}
	wantContent(t, p, map[string]string{"k": "mine", "new": "1"})
	closeIt(t, p)

	// One that was evicted.
	must(t, errorOf(r.Sync(ctx)))
	_, err = r.Evict(ctx, ledger.EvictOptions{Pages: []ledger.PageRef{at}})
	must(t, err)
	all, err := r.DeleteLedger(ctx, "l", ledger.DeleteOptions{})
	must(t, err)
	if len(all) != 1 || !all[0].InCloud || all[0].Bytes != 0 {
		t.Errorf("%+v", all)
	}
	_, err = r.DeleteLedger(ctx, "l", ledger.DeleteOptions{})
	wantErr(t, err, ledger.ErrNotFound)
	done, err := r.Sync(ctx, at)
	must(t, err)
	if len(done) != 1 || !done[0].Created {
		t.Errorf("%+v", done)
	}
	wantContent(t, page(t, r, "l", "p"), map[string]string{"k": "mine", "new": "1"})
	checkClean(t, r)
}

// TestDeleteWithoutACloud: everything is here only, so nothing goes without the flag.
func TestDeleteWithoutACloud(t *testing.T) {
	r := open(t, t.TempDir(), nil)
	for _, name := range []string{"a", "b"} {
		p := page(t, r, "l", name)
		put(t, p, "k", "v")
		closeIt(t, p)
	}
	_, err := r.DeleteLedger(t.Context(), "l", ledger.DeleteOptions{})
	wantErr(t, err, ledger.ErrConflict)
	if len(namesHere(t, r)) != 2 {
		t.Error("a page is gone")
	}
	all, err := r.DeleteLedger(t.Context(), "l", ledger.DeleteOptions{DiscardUnsynced: true})
	must(t, err)
	if len(all) != 2 || !all[0].Discarded || all[0].InCloud || len(namesHere(t, r)) != 0 {
		t.Errorf("%+v", all)
	}
	if l, err := r.Ledgers(t.Context()); err != nil || len(l) != 0 {
		t.Errorf("ledgers %v, %v", l, err)
	}
	wantContent(t, page(t, r, "l", "a"), map[string]string{})
}

type writerFunc func()

func (f writerFunc) Write(b []byte) (int, error) {
	f()
	return len(b), nil
}

// TestPagesThatLeaveMeanwhile deletes a page while all are checked, collected, compacted and backed up: what was listed and has left since is passed over.
func TestPagesThatLeaveMeanwhile(t *testing.T) {
	ctx := t.Context()
	for name, all := range map[string]func(r *ledger.Repository, first func()) error{
		"check": func(r *ledger.Repository, first func()) error {
			_, err := r.Check(ctx, ledger.CheckOptions{Progress: func(ledger.CheckProgress) { first() }})
			return err
		},
		"collect": func(r *ledger.Repository, first func()) error {
			_, err := r.Collect(ctx, ledger.CollectOptions{Progress: func(ledger.PageCollection) { first() }})
			return err
		},
		"backup": func(r *ledger.Repository, first func()) error { return r.BackupTo(ctx, writerFunc(func() { first() })) },
		"compact": func(r *ledger.Repository, first func()) error {
			_, err := r.Compact(ctx, ledger.CompactOptions{Progress: func(ledger.PageCompaction, int64, int64) { first() }})
			return err
		},
	} {
		r := open(t, "", &ledger.Options{InMemory: true, Collection: ledger.CollectionOptions{Off: true}})
		refs := map[ledger.PageID]bool{}
		for _, n := range []string{"a", "b"} {
			p := page(t, r, "app", n)
			for _, v := range []string{string(pseudo(1, 300_000)), string(pseudo(2, 300_000))} {
				put(t, p, "k", v)
			}
			refs[p.ID()] = true
			closeIt(t, p)
		}
		if name == "compact" {
			_, err := r.Collect(ctx, ledger.CollectOptions{Retention: &ledger.Retention{Commits: 1}})
			must(t, err)
		}
		deleted := 0
		err := all(r, sync.OnceFunc(func() {
			for id := range refs { // the one that is being looked at is open, and stays
				if _, err := r.DeletePage(ctx, ledger.PageRef{Ledger: "app", ID: id}, ledger.DeleteOptions{DiscardUnsynced: true}); err == nil {
					deleted++
				}
			}
		}))
		if err != nil || deleted != 1 {
			t.Errorf("%s: %d pages were deleted meanwhile: %v", name, deleted, err)
		}
		closeIt(t, r)
	}
}
