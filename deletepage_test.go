package ledger_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

func TestDeletePage(t *testing.T) {
	w := newCloudWorld(t)
	r := w.device(w.options())
	ctx := t.Context()
	at := evictable(t, r, "l", "p", "k", "v")
	p := page(t, r, "l", "p")
	_, err := r.DeletePage(ctx, at, &ledger.DeleteOptions{DiscardUnsynced: true})
	wantErr(t, err, ledger.ErrConflict) // it is open
	put(t, p, "k", "mine")
	closeIt(t, p)
	_, err = r.DeletePage(ctx, at, nil)
	wantErr(t, err, ledger.ErrConflict)
	syncAll(t, r)
	d, err := r.DeletePage(ctx, at, nil)
	must(t, err)
	if !d.InCloud || d.Discarded || d.Bytes == 0 || d.Name != "p" {
		t.Errorf("%+v", d)
	}
	syncAll(t, r)
	away := evictedPages(t, r)
	if names := namesHere(t, r); len(names)+len(away) != 0 || isListed(t, r, at) {
		t.Errorf("%v here, %v away", names, away)
	}
	_, err = r.DeletePage(ctx, at, nil)
	wantErr(t, err, ledger.ErrNotFound)
	// Who opens it begins with an empty page, offline too, and gets what the bucket has with the
	// next sync.
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
	_, err = admin.Evict(ctx, r, &admin.EvictOptions{Pages: []ledger.PageRef{at}})
	must(t, err)
	all, err := admin.DeleteLedger(ctx, r, "l", nil)
	must(t, err)
	if len(all) != 1 || !all[0].InCloud || all[0].Bytes != 0 {
		t.Errorf("%+v", all)
	}
	_, err = admin.DeleteLedger(ctx, r, "l", nil)
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
	_, err := admin.DeleteLedger(t.Context(), r, "l", nil)
	wantErr(t, err, ledger.ErrConflict)
	if len(namesHere(t, r)) != 2 {
		t.Error("a page is gone")
	}
	all, err := admin.DeleteLedger(t.Context(), r, "l", &ledger.DeleteOptions{DiscardUnsynced: true})
	must(t, err)
	if len(all) != 2 || !all[0].Discarded || all[0].InCloud || len(namesHere(t, r)) != 0 {
		t.Errorf("%+v", all)
	}
	if all, err := r.Pages(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("pages %v, %v", all, err)
	}
	wantContent(t, page(t, r, "l", "a"), map[string]string{})
}

// isListed reports whether a page is here or evicted.
func isListed(t testing.TB, r *ledger.Repository, at ledger.PageRef) bool {
	t.Helper()
	_, err := r.PageInfo(t.Context(), at)
	if err != nil {
		wantErr(t, err, ledger.ErrNotFound)
	}
	return err == nil
}

// TestDeletedPageStaysDeleted: also when it was written and deleted again before the bucket was
// asked.
func TestDeletedPageStaysDeleted(t *testing.T) {
	w := newCloudWorld(t)
	r := w.device(w.options())
	at := evictable(t, r, "l", "p", "k", "v")
	_, err := r.DeletePage(t.Context(), at, nil)
	must(t, err)
	p := page(t, r, "l", "p")
	put(t, p, "k", "w")
	closeIt(t, p)
	d, err := r.DeletePage(t.Context(), at, &ledger.DeleteOptions{DiscardUnsynced: true})
	must(t, err)
	if d.InCloud || !d.Discarded {
		t.Errorf("%+v", d)
	}
	syncAll(t, r)
	if isListed(t, r, at) {
		t.Error("the page is there, and nobody has named it")
	}
	must(t, errorOf(r.Sync(t.Context(), at)))
	wantContent(t, page(t, r, "l", "p"), map[string]string{"k": "v"})
}

// TestDeletedBeforeTheCloud: a page that was deleted where no cloud was set does not come from one.
func TestDeletedBeforeTheCloud(t *testing.T) {
	w := newCloudWorld(t)
	at := evictable(t, w.device(w.options()), "l", "p", "k", "v")
	r := open(t, "", w.options())
	p := page(t, r, "l", "p")
	put(t, p, "k", "mine")
	closeIt(t, p)
	_, err := r.DeletePage(t.Context(), at, &ledger.DeleteOptions{DiscardUnsynced: true})
	must(t, err)
	must(t, errorOf(r.SetCloud(t.Context(), w.cloud())))
	syncAll(t, r)
	if isListed(t, r, at) {
		t.Error("the page is there, and nobody has named it")
	}
}

// TestDeletedUntilNamed: a page that was deleted is listed again when it is named, and not before,
// whatever is written, deleted, evicted and synced, here and on another device. A page of the
// bucket that was never here comes by itself.
func TestDeletedUntilNamed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		w := newCloudWorld(t)
		r, other := w.device(w.options()), w.device(w.options())
		at := ref(page(t, other, "l", "p"))
		written, inBucket, listed, deleted := 0, false, false, false
		write := func(r *ledger.Repository) {
			p := page(t, r, "l", "p")
			written++
			put(t, p, "k", fmt.Sprint(written))
			closeIt(t, p)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(*rapid.T) {
				write(r)
				listed = true
			},
			"delete": func(rt *rapid.T) {
				discard := rapid.Bool().Draw(rt, "discard")
				_, err := r.DeletePage(ctx, at, &ledger.DeleteOptions{DiscardUnsynced: discard})
				switch {
				case err == nil:
					listed, deleted = false, true
				case listed && discard || !errors.Is(err, ledger.ErrNotFound) && !errors.Is(err, ledger.ErrConflict):
					rt.Fatal(err)
				}
			},
			"evict": func(rt *rapid.T) {
				_, err := admin.Evict(ctx, r, &admin.EvictOptions{Pages: []ledger.PageRef{at}})
				if err != nil && !errors.Is(err, ledger.ErrNotFound) && !errors.Is(err, ledger.ErrConflict) {
					rt.Fatal(err)
				}
			},
			"sync by name": func(*rapid.T) {
				if listed || inBucket {
					must(t, errorOf(r.Sync(ctx, at)))
					listed, inBucket = true, true
				}
			},
			"sync": func(*rapid.T) {
				syncAll(t, r)
				listed, inBucket = listed || inBucket && !deleted, inBucket || listed
			},
			"other device": func(*rapid.T) {
				write(other)
				syncAll(t, other)
				inBucket = true
			},
			"": func(rt *rapid.T) {
				if got := isListed(t, r, at); got != listed {
					rt.Fatalf("listed: %t, want %t", got, listed)
				}
			},
		})
		closeIt(t, r)
		closeIt(t, other)
	})
}

type writerFunc func()

func (f writerFunc) Write(b []byte) (int, error) {
	f()
	return len(b), nil
}

// TestPagesThatLeaveMeanwhile deletes a page while all are checked, collected, compacted and backed
// up: what was listed and has left since is passed over.
func TestPagesThatLeaveMeanwhile(t *testing.T) {
	ctx := t.Context()
	for name, all := range map[string]func(r *ledger.Repository, first func()) error{
		"check": func(r *ledger.Repository, first func()) error {
			_, err := admin.Check(ctx, r, &admin.CheckOptions{Progress: func(ledger.Progress) { first() }})
			return err
		},
		"collect": func(r *ledger.Repository, first func()) error {
			_, err := admin.Collect(ctx, r, &admin.CollectOptions{Progress: func(ledger.Progress) { first() }})
			return err
		},
		"backup": func(r *ledger.Repository, first func()) error {
			return admin.BackupTo(ctx, r, writerFunc(func() { first() }), nil)
		},
		"compact": func(r *ledger.Repository, first func()) error {
			_, err := admin.Compact(ctx, r, &admin.CompactOptions{Progress: func(ledger.Progress) { first() }})
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
			refs[p.Ref().ID] = true
			closeIt(t, p)
		}
		if name == "compact" {
			_, err := admin.Collect(ctx, r, &admin.CollectOptions{Retention: &admin.Retention{Commits: 1}})
			must(t, err)
		}
		deleted := 0
		err := all(r, sync.OnceFunc(func() {
			for id := range refs { // the one that is being looked at is open, and stays
				if _, err := r.DeletePage(ctx, ledger.PageRef{Ledger: "app", ID: id}, &ledger.DeleteOptions{DiscardUnsynced: true}); err == nil {
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
