package ledger_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// holds returns a file below dir that has text in it, "" when none has.
func holds(t *testing.T, dir, text string) (found string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(text)) {
			found = path
		}
		return err
	}))
	return found
}

func pageRef(p *ledger.Page) ledger.PageRef { return ledger.PageRef{Ledger: "notes", ID: p.Ref().ID} }

// TestEraseFromHistory erases a short and a long value: no file has them any more.
func TestEraseFromHistory(t *testing.T) {
	ctx := t.Context()
	dir := t.TempDir()
	r := open(t, dir, nil)
	p := page(t, r, "notes", "inbox")
	put(t, p, "a", "1")
	var b strings.Builder
	for i := range 20_000 { // not periodic: some repositories would cut that into equal pieces
		fmt.Fprint(&b, "correct horse battery staple ", i, " ")
	}
	short, long := "hunter2-hunter2", b.String()
	put(t, p, "password", short)
	put(t, p, "b", "1")
	put(t, p, "password", long)
	put(t, p, "c", "1")
	_, err := admin.Erase(ctx, r, pageRef(p), []byte("a"), nil)
	wantErr(t, err, ledger.ErrNotFound)
	tagged, err := p.Resolve(ctx, "HEAD~1")
	must(t, err)
	put(t, p, "password", "none")
	must(t, p.Tag(ctx, "release", tagged))
	_, err = admin.Erase(ctx, r, pageRef(p), []byte("password"), nil)
	if wantErr(t, err, ledger.ErrConflict); !strings.Contains(err.Error(), "release") {
		t.Error(err)
	}
	must(t, p.DeleteTag(ctx, "release"))
	put(t, p, "d", "1")
	e, err := admin.Erase(ctx, r, pageRef(p), []byte("password"), nil)
	must(t, err)
	if e.Commits != 4 || e.Bytes < int64(len(long))/2 || e.InBucket {
		t.Errorf("%+v", e)
	}
	wantContent(t, p, map[string]string{"a": "1", "b": "1", "c": "1", "d": "1", "password": "none"})
	checkClean(t, r)
	closeIt(t, p)
	closeIt(t, r)
	for _, text := range []string{short, "correct horse battery staple"} {
		if f := holds(t, dir, text); f != "" {
			t.Errorf("%s has %q", f, text)
		}
	}
}

// TestEraseFromTheBucket erases a value from the history of two devices and from the bucket.
func TestEraseFromTheBucket(t *testing.T) {
	ctx := t.Context()
	w := newCloudWorld(t)
	now := w.stopped()
	a, b := w.device(w.options()), w.device(w.options())
	pa := page(t, a, "notes", "inbox")
	put(t, pa, "k", "1")
	syncAll(t, a, b)
	pb := page(t, b, "notes", "inbox")
	old := put(t, pa, "password", strings.Repeat("secret ", 200_000))
	put(t, pa, "k", "2")
	syncAll(t, a, b)
	put(t, pa, "password", "none")
	put(t, pa, "k", "3")
	closeIt(t, pb)
	syncAll(t, a, b)
	e, err := admin.Erase(ctx, a, pageRef(pa), []byte("password"), nil)
	must(t, err)
	if e.Commits != 2 || !e.InBucket {
		t.Errorf("%+v", e)
	}
	syncAll(t, b, a)
	pb = page(t, b, "notes", "inbox")
	for _, p := range []*ledger.Page{pa, pb} {
		if _, err := p.At(ctx, old); err == nil {
			t.Error("the commit is there")
		}
		wantContent(t, p, map[string]string{"k": "3", "password": "none"})
	}
	now.Advance(31 * 24 * time.Hour)
	if _, err := admin.CollectCloud(ctx, a, nil); err != nil {
		t.Fatal(err)
	}
	for _, n := range w.bucket.Names() {
		if strings.Contains(n, "/log/") && n[len(n)-1] < '4' {
			t.Errorf("the bucket has %s", n)
		}
	}
	c := w.device(w.options())
	syncAll(t, c)
	wantContent(t, page(t, c, "notes", "inbox"), map[string]string{"k": "3", "password": "none"})
	checkClean(t, a)
	checkClean(t, b)
}

// TestEraseOnWhoIsBehind erases on a device that has to read first what the others have done, while
// the page is kept there.
func TestEraseOnWhoIsBehind(t *testing.T) {
	ctx := t.Context()
	w := newCloudWorld(t)
	a, b := w.device(w.options()), w.device(w.options())
	pa := page(t, a, "notes", "inbox")
	put(t, pa, "password", strings.Repeat("secret ", 1000))
	syncAll(t, a, b)
	kept, err := b.KeepPage(ctx, pageRef(pa))
	must(t, err)
	defer func() { must(t, kept.Close()) }()
	put(t, pa, "password", "none")
	must(t, pa.Sync(ctx))
	e, err := admin.Erase(ctx, b, pageRef(pa), []byte("password"), nil)
	must(t, err)
	if e.Commits != 1 {
		t.Errorf("%+v", e)
	}
}
