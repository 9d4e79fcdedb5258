package ledger_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
)

// background are the options of a repository that syncs by itself, so often that nobody waits for
// long.
func (w *cloudWorld) background() *ledger.Options {
	o := w.options()
	o.Cloud = w.cloud()
	o.Sync = ledger.SyncOptions{MinPoll: time.Millisecond, MaxPoll: 5 * time.Millisecond}
	return o
}

// until waits for states of sync that are as they should be.
func until(t *testing.T, r *ledger.Repository, done func([]ledger.SyncState) bool) {
	t.Helper()
	for states, err := range r.WatchSync(t.Context()) {
		if must(t, err); done(states) {
			return
		}
	}
}

// TestClosedPagesSync closes pages before anything can have gone up, more than are held open: all
// of them reach another device, where nobody opens them.
func TestClosedPagesSync(t *testing.T) {
	const pages = 7
	w := newCloudWorld(t)
	w.offline(true)
	o := w.background()
	o.Sync.OpenPages = 2
	a := open(t, "", o)
	for i := range pages {
		p := page(t, a, "notes", fmt.Sprint(i))
		put(t, p, "k", "first")
		closeIt(t, p)
	}
	w.offline(false)
	watcher := w.device(w.options())
	for there := 0; there < pages; { // it ends when a has sent them all
		there = 0
		done, err := watcher.Sync(t.Context())
		must(t, err)
		for _, p := range done {
			if p.State.Position > 0 {
				there++
			}
		}
	}
	b := open(t, "", w.background())
	until(t, b, func(states []ledger.SyncState) bool {
		here := 0
		for _, s := range states {
			if s.Position > 0 {
				here++
			}
		}
		return here == pages
	})
	w.offline(true) // what is read now is here
	for i := range pages {
		wantContent(t, page(t, b, "notes", fmt.Sprint(i)), map[string]string{"k": "first"})
	}
	infos, err := a.Pages(t.Context())
	must(t, err)
	for _, p := range infos {
		if p.State != ledger.PageClosed {
			t.Errorf("page %s counts as open", p.Name)
		}
	}
}

// TestOnlyOpenPagesSync leaves the pages of other devices to Sync.
func TestOnlyOpenPagesSync(t *testing.T) {
	w := newCloudWorld(t)
	a := w.device(w.options())
	put(t, page(t, a, "notes", "theirs"), "k", "v")
	syncAll(t, a)
	o := w.background()
	o.Sync.OnlyOpen = true
	b := open(t, "", o)
	p := page(t, b, "notes", "mine")
	id := put(t, p, "k", "v")
	until(t, b, func(states []ledger.SyncState) bool { return len(states) > 0 && states[0].Position > 0 })
	must(t, p.WaitSynced(t.Context(), id))
	infos, err := b.Pages(t.Context())
	if must(t, err); len(infos) != 1 {
		t.Errorf("there are %d pages", len(infos))
	}
}

// TestLateKeyFile opens a repository while its key file is missing, before and after it has joined
// the bucket: the states say so. Once the file is there, the open pages sync by themselves.
func TestLateKeyFile(t *testing.T) {
	for _, joined := range []bool{false, true} {
		for _, onlyOpen := range []bool{false, true} {
			t.Run(fmt.Sprintf("joined %t, only open %t", joined, onlyOpen), func(t *testing.T) {
				w := newCloudWorld(t)
				dir := filepath.Join(t.TempDir(), "a")
				if joined {
					r := open(t, dir, w.declared())
					syncAll(t, r)
					closeIt(t, r)
				}
				away := w.key + ".away"
				must(t, os.Rename(w.key, away))
				o := w.background()
				o.InMemory, o.Sync.OnlyOpen = false, onlyOpen
				r := open(t, dir, o)
				put(t, page(t, r, "notes", "inbox"), "k", "v")
				until(t, r, func(states []ledger.SyncState) bool {
					return len(states) == 1 && errors.Is(states[0].UploadErr, os.ErrNotExist)
				})
				must(t, os.Rename(away, w.key))
				until(t, r, func(states []ledger.SyncState) bool {
					return states[0].Position > 0 && states[0].Unsynced == 0 && states[0].UploadErr == nil
				})
			})
		}
	}
}

// TestTroubleOfClosedPages damages the log of a page that nobody opens: the states say so.
func TestTroubleOfClosedPages(t *testing.T) {
	w := newCloudWorld(t)
	a := w.device(w.options())
	p := page(t, a, "notes", "theirs")
	put(t, p, "k", "v")
	syncAll(t, a)
	for _, name := range w.bucket.Names() {
		if strings.Contains(name, "/log/") {
			b, _ := w.bucket.Content(name)
			b = slices.Clone(b)
			b[len(b)/2] ^= 1
			w.bucket.Replace(name, b)
		}
	}
	b := open(t, "", w.background())
	until(t, b, func(states []ledger.SyncState) bool {
		return slices.ContainsFunc(states, func(s ledger.SyncState) bool {
			return s.Name == "theirs" && errors.Is(s.DownloadErr, ledger.ErrCorrupt)
		})
	})
}
