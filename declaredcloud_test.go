package ledger_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledger"
)

// declared are the options of a repository whose cloud is in its options.
func (w *cloudWorld) declared() *ledger.Options {
	o := w.options()
	o.InMemory, o.Cloud = false, w.cloud()
	return o
}

// TestDeclaredCloud opens a repository without the network, and has it join the bucket with the
// first sync. It is remembered then, so that options without it sync, too.
func TestDeclaredCloud(t *testing.T) {
	w := newCloudWorld(t)
	w.offline(true)
	dir := filepath.Join(t.TempDir(), "a")
	a := open(t, dir, w.declared())
	pa := page(t, a, "notes", "inbox")
	must(t, pa.Put(t.Context(), []byte("color"), []byte("red")))
	if info, ok := a.Cloud(); !ok || info.URL != "mem:x" || info.BucketID != "" || info.Err != nil {
		t.Errorf("before anybody asked: %+v %v", info, ok)
	}
	_, err := a.Sync(t.Context())
	wantErr(t, err, ledger.ErrNetwork)
	if info, _ := a.Cloud(); info.Err == nil {
		t.Error("the cloud does not say why it could not be reached")
	}
	if s := syncState(pa); s.Upload != ledger.SyncFailing || s.UploadErr == nil {
		t.Errorf("the page's state is %+v", s)
	}
	w.offline(false)
	syncAll(t, a)
	if info, ok := a.Cloud(); !ok || info.BucketID == "" || info.Device == "" || info.Err != nil {
		t.Errorf("after a sync: %+v %v", info, ok)
	}
	closeIt(t, pa)
	closeIt(t, a)

	b := w.declared()
	b.InMemory = true
	rb := open(t, "", b)
	syncAll(t, rb)
	v, err := page(t, rb, "notes", "inbox").Get(t.Context(), []byte("color"))
	if must(t, err); string(v) != "red" {
		t.Errorf("the other device reads %q", v)
	}

	o := w.declared()
	o.Cloud = nil
	a = open(t, dir, o)
	must(t, page(t, a, "notes", "inbox").Delete(t.Context(), []byte("color")))
	syncAll(t, a, rb)
	_, err = page(t, rb, "notes", "inbox").Get(t.Context(), []byte("color"))
	wantErr(t, err, ledger.ErrNotFound)
}

// TestDeclaredCloudDiffers names another cloud than the one that is remembered, another place for
// the key, and a key that does not fit.
func TestDeclaredCloudDiffers(t *testing.T) {
	w := newCloudWorld(t)
	dir := filepath.Join(t.TempDir(), "a")
	r := open(t, dir, w.declared())
	syncAll(t, r)
	closeIt(t, r)

	o := w.declared()
	o.Cloud.URL = "mem:y"
	_, err := ledger.Open(t.Context(), dir, o)
	wantErr(t, err, ledger.ErrConflict)
	o = w.declared()
	o.Cloud.BucketID = "0123456789abcdef0123456789abcdef"
	_, err = ledger.Open(t.Context(), dir, o)
	wantErr(t, err, ledger.ErrCloudReplaced)
	o = w.declared()
	o.Cloud.Plaintext = true
	_, err = ledger.Open(t.Context(), dir, o)
	wantErr(t, err, ledger.ErrInvalid)

	moved := filepath.Join(t.TempDir(), "moved")
	must(t, os.Rename(w.key, moved))
	r = open(t, dir, w.declared())
	_, err = r.Sync(t.Context())
	wantErr(t, err, os.ErrNotExist)
	closeIt(t, r)
	w.key = moved
	r = open(t, dir, w.declared())
	syncAll(t, r)
	closeIt(t, r)
	o = w.declared()
	o.Cloud = nil // the new place is remembered
	r = open(t, dir, o)
	syncAll(t, r)
	closeIt(t, r)
}

// TestDeclaredPassphrase derives the key from a passphrase, which each Open needs.
func TestDeclaredPassphrase(t *testing.T) {
	w := newCloudWorld(t)
	dir := filepath.Join(t.TempDir(), "a")
	declared := func(pass string) *ledger.Options {
		o := w.declared()
		o.Cloud = &ledger.Cloud{URL: "mem:x", Passphrase: []byte(pass)}
		return o
	}
	r := open(t, dir, declared("correct horse"))
	syncAll(t, r)
	closeIt(t, r)
	r = open(t, dir, declared("battery staple"))
	_, err := r.Sync(t.Context())
	wantErr(t, err, ledger.ErrWrongKey)
	closeIt(t, r)
	r = open(t, dir, declared("correct horse"))
	syncAll(t, r)
	closeIt(t, r)
}

// TestDeclaredCloudWithoutOpener is told at once, and not by a sync that fails for ever.
func TestDeclaredCloudWithoutOpener(t *testing.T) {
	o := &ledger.Options{Cloud: &ledger.Cloud{URL: "gs://bucket/notes", Plaintext: true}}
	_, err := ledger.Open(t.Context(), filepath.Join(t.TempDir(), "a"), o)
	wantErr(t, err, ledger.ErrUnsupported)
}
