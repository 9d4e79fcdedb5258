package ledger_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/keys"
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

// TestWrongKeyFileMakesNoDirectory refuses key files and bucket ids before it makes the directory
// of a bucket.
func TestWrongKeyFileMakesNoDirectory(t *testing.T) {
	r, dir := open(t, t.TempDir(), nil), t.TempDir()
	no, key, bucket := filepath.Join(dir, "no key"), filepath.Join(dir, "key"), filepath.Join(dir, "bucket")
	must(t, os.WriteFile(no, []byte("no key"), 0o600))
	must(t, keys.CreateFile(key, nil))
	for _, c := range []ledger.Cloud{
		{KeyFile: no},
		{KeyFile: filepath.Join(dir, "absent")},
		{KeyFile: key, BucketID: strings.Repeat("0", 32)},
	} {
		c.URL = "dir:" + bucket
		if _, err := r.SetCloud(t.Context(), &c); err == nil {
			t.Errorf("%+v was accepted", c)
		}
		if _, err := os.Stat(bucket); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%+v: the directory of the bucket: %v", c, err)
		}
	}
	_, err := r.SetCloud(t.Context(), &ledger.Cloud{URL: "dir:" + bucket, KeyFile: key})
	must(t, err)
}
