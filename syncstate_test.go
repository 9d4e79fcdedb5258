package ledger_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/keys"
)

// obstacle keeps a repository from syncing until it is taken away.
type obstacle struct {
	put, take func(t *testing.T, w *cloudWorld)
	want      error
	activity  cloudsync.Activity
}

func obstacles() map[string]obstacle {
	online := func(_ *testing.T, w *cloudWorld) { w.offline(false) }
	keyBack := func(t *testing.T, w *cloudWorld) { must(t, os.Rename(w.key+".away", w.key)) }
	return map[string]obstacle{
		"no key": {func(t *testing.T, w *cloudWorld) { must(t, os.Rename(w.key, w.key+".away")) }, keyBack, fs.ErrNotExist, ledger.SyncNeedsUser},
		"another key": {func(t *testing.T, w *cloudWorld) {
			must(t, os.Rename(w.key, w.key+".away"))
			must(t, keys.CreateFile(w.key, nil))
		}, keyBack, ledger.ErrWrongKey, ledger.SyncNeedsUser},
		"no network": {func(_ *testing.T, w *cloudWorld) { w.offline(true) }, online, ledger.ErrNetwork, ledger.SyncFailing},
		"no permission": {func(_ *testing.T, w *cloudWorld) {
			w.bucket.SetBefore(func(bucket.Op, string) error { return &bucket.Error{Class: bucket.ClassDenied, Err: fs.ErrPermission} })
		}, online, fs.ErrPermission, ledger.SyncNeedsUser},
	}
}

// TestSyncStateSaysWhyNothingGoes puts obstacles in the way of sync: after one attempt, of the
// background or by Sync, all states say what is wrong and how much waits. When the obstacle is
// gone, the next attempt takes that back.
func TestSyncStateSaysWhyNothingGoes(t *testing.T) {
	for name, what := range obstacles() {
		t.Run(name, func(t *testing.T) { testObstacle(t, what, false) })
		t.Run(name+", in the background", func(t *testing.T) { testObstacle(t, what, true) })
	}
}

func testObstacle(t *testing.T, what obstacle, background bool) {
	w := newCloudWorld(t)
	o := w.options()
	o.InMemory = false
	dir := filepath.Join(t.TempDir(), "r")
	r := open(t, dir, o)
	put(t, page(t, r, "l", "p"), "k", "v")
	_, err := r.SetCloud(t.Context(), w.cloud())
	must(t, err)
	syncAll(t, r)
	closeIt(t, r)

	what.put(t, w)
	o.Sync.Manual = !background
	r = open(t, dir, o)
	p := page(t, r, "l", "p")
	put(t, p, "k", "w")
	if background {
		waitForTrouble(t, r)
	} else {
		_, err = r.Sync(t.Context())
		wantErr(t, err, what.want)
	}
	states := statesOf(t, r, p)
	for _, s := range states {
		if !errors.Is(errors.Join(s.UploadErr, s.DownloadErr), what.want) || s.Download != what.activity || s.Unsynced != 1 || s.OldestUnsynced.IsZero() || s.Name != "p" {
			t.Errorf("state %+v", s)
		}
	}
	if len(states) != 3 {
		t.Errorf("%d states", len(states))
	}
	if !background {
		closeIt(t, r)
		r = open(t, dir, o)
		p = page(t, r, "l", "p")
		status, err := admin.Status(t.Context(), r)
		must(t, err)
		if s := status.Pages[0].Sync; s.UploadErr == nil || s.Upload != what.activity {
			t.Errorf("in another process: %+v", s)
		}
	}
	what.take(t, w)
	syncAll(t, r)
	for _, s := range statesOf(t, r, p) {
		if s.UploadErr != nil || s.DownloadErr != nil || s.Unsynced != 0 {
			t.Errorf("without the obstacle: %+v", s)
		}
	}
	closeIt(t, r)
}

// waitForTrouble waits until a state has an error.
func waitForTrouble(t *testing.T, r *ledger.Repository) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // a test fails rather than waits for ever
	defer cancel()
	for states, err := range r.WatchSync(ctx) {
		must(t, err)
		if len(states) == 1 && states[0].DownloadErr != nil {
			return
		}
	}
}

// syncState returns the state of an open page, the zero one without a cloud.
func syncState(p *ledger.Page) ledger.SyncState {
	for _, s := range p.Repository().SyncStates() {
		if (ledger.PageRef{Ledger: s.Ledger, ID: s.Page}) == p.Ref() {
			return s
		}
	}
	return ledger.SyncState{}
}

// statesOf returns all that is said of the sync of p, the only page.
func statesOf(t *testing.T, r *ledger.Repository, p *ledger.Page) []ledger.SyncState {
	t.Helper()
	status, err := admin.Status(t.Context(), r)
	must(t, err)
	return append(r.SyncStates(), syncState(p), status.Pages[0].Sync)
}

// TestSyncStateSaysHowFarItIs looks at the states while packs go up and come down: what is done
// grows up to what there is.
func TestSyncStateSaysHowFarItIs(t *testing.T) {
	w := newCloudWorld(t)
	a, b := w.device(w.options()), w.device(w.options())
	pa := page(t, a, "l", "p")
	put(t, pa, "first", "1")
	syncAll(t, a, b)
	pb := page(t, b, "l", "p")
	const long = 20 << 20
	put(t, pa, "long", string(pseudo(1, long)), "short", "123", "other", "4567")

	var up, down []ledger.SyncState
	watch := func(op bucket.Op, p *ledger.Page, states *[]ledger.SyncState) {
		var mu sync.Mutex
		w.bucket.SetBefore(func(o bucket.Op, name string) error {
			mu.Lock()
			defer mu.Unlock()
			if o == op && strings.Contains(name, "/packs/") {
				*states = append(*states, syncState(p))
			}
			return nil
		})
	}
	watch(bucket.OpPut, pa, &up)
	syncAll(t, a)
	watch(bucket.OpGet, pb, &down)
	syncAll(t, b)
	w.bucket.SetBefore(nil)

	if len(up) != 2 || len(down) != 2 {
		t.Fatalf("%d packs up, %d down", len(up), len(down))
	}
	done := syncState(pa).Up
	if want := (cloudsync.Progress{Values: 3, TotalValues: 3, Bytes: long + 7, TotalBytes: long + 7}); done != want {
		t.Errorf("up %+v, want %+v", done, want)
	}
	for _, s := range up {
		if s.Upload != ledger.SyncInProgress || s.Up.TotalValues != 3 || s.Up.TotalBytes != long+7 || s.Up.Bytes >= long {
			t.Errorf("while packs go up: %+v", s)
		}
	}
	if done = syncState(pb).Down; done.Values != 3 || done.TotalValues != 3 || done.Bytes != done.TotalBytes || done.Bytes < long {
		t.Errorf("down %+v", done)
	}
	for i, s := range down {
		if s.Download != ledger.SyncInProgress || s.Down.TotalValues != 3 || s.Down.TotalBytes != done.Bytes || (s.Down.Bytes > 0) != (i > 0) {
			t.Errorf("while pack %d comes down: %+v", i, s)
		}
	}

	c := w.device(w.options())
	pages, err := c.Sync(t.Context())
	must(t, err)
	if s := pages[0].State.Down; s.TotalValues < 4 || s.Values != s.TotalValues || s.Bytes != s.TotalBytes {
		t.Errorf("a new device: %+v", s)
	}
}
