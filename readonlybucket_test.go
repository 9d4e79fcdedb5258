package ledger_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/keys"
)

// TestCloneOfAReadOnlyBucket clones a bucket into which the device may not write, after the data
// key was rotated: it reads all and follows what others write. What it writes waits for the right
// to send it, which is told, and it needs nothing else then.
func TestCloneOfAReadOnlyBucket(t *testing.T) {
	w := newCloudWorld(t)
	a := w.device(w.options())
	p := page(t, a, "l", "p")
	defer closeIt(t, p)
	long := string(pseudo(1, 300_000))
	put(t, p, "k", "one")
	put(t, p, "long", long)
	syncAll(t, a)
	if _, err := keys.Change(t.Context(), a, &keys.ChangeOptions{NewDataKey: true}); err != nil {
		t.Fatal(err)
	}
	put(t, p, "k", "two")
	syncAll(t, a)
	refuse := func(op bucket.Op, name string) error {
		if op == bucket.OpPut || op == bucket.OpDelete {
			return &bucket.Error{Class: bucket.ClassDenied, Op: op, Name: name, Err: fs.ErrPermission}
		}
		return nil
	}
	w.bucket.SetBefore(refuse)
	b, err := ledger.Clone(t.Context(), "", w.options(), w.cloud())
	must(t, err)
	defer closeIt(t, b)
	_, err = b.Sync(t.Context())
	must(t, err)
	q := page(t, b, "l", "p")
	defer closeIt(t, q)
	if c := pageContent(t, q); c["k"] != "two" || c["long"] != long {
		t.Errorf("a clone has %.20q", c)
	}
	w.bucket.SetBefore(nil)
	put(t, p, "k", "three")
	syncAll(t, a)
	w.bucket.SetBefore(refuse)
	syncAll(t, b)
	if c := pageContent(t, q); c["k"] != "three" {
		t.Errorf("a clone follows up to %.20q", c["k"])
	}
	put(t, q, "mine", "here")
	if _, err := b.Sync(t.Context()); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("sync without the right to write: %v", err)
	}
	w.bucket.SetBefore(nil)
	syncAll(t, b)
	syncAll(t, a)
	if c := pageContent(t, p); c["mine"] != "here" {
		t.Error("what the clone wrote does not arrive")
	}
}
