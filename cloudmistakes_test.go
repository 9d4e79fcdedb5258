package ledger_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledger"
)

// TestMissingKeyNeedsTheUser reopens a repository whose key file is gone.
func TestMissingKeyNeedsTheUser(t *testing.T) {
	w, dir := newCloudWorld(t), t.TempDir()
	o := w.options()
	o.InMemory = false
	r := open(t, dir, o)
	_, err := r.SetCloud(t.Context(), w.cloud())
	must(t, err)
	put(t, page(t, r, "app", "page"), "a", "1")
	syncAll(t, r)
	closeIt(t, r)
	must(t, os.Remove(w.key))
	r = open(t, dir, o)
	_, err = r.Sync(t.Context())
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, s := range r.SyncStates() {
		if s.Upload != ledger.SyncNeedsUser {
			t.Errorf("%+v", s)
		}
	}
}

// TestBucketInTheRepository refuses a bucket whose objects would lie beside the pages.
func TestBucketInTheRepository(t *testing.T) {
	w, dir := newCloudWorld(t), t.TempDir()
	r := open(t, dir, nil)
	for _, path := range []string{dir, filepath.Join(dir, "bucket")} {
		if _, err := r.SetCloud(t.Context(), &ledger.Cloud{URL: "dir:" + path, KeyFile: w.key}); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("%s: %v", path, err)
		}
	}
}
