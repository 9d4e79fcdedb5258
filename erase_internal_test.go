package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
)

// has returns a file below dir that has text in it, "" when none has.
func has(t *testing.T, fs vfs.FS, dir, text string) string {
	t.Helper()
	infos, err := fs.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range infos {
		name := path.Join(dir, i.Name)
		if i.Dir {
			if found := has(t, fs, name, text); found != "" {
				return found
			}
			continue
		}
		f, err := fs.OpenRead(name)
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, i.Size)
		if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(text)) {
			return name
		}
	}
	return ""
}

// openInbox opens a page of a repository on a file system, where nothing is collected by itself.
func openInbox(t *testing.T, fs vfs.FS) (*Repository, *Page) {
	t.Helper()
	r, err := openFiles(t.Context(), fs, Options{Collection: CollectionOptions{Off: true}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Page(t.Context(), "notes", "inbox")
	if err != nil {
		t.Fatal(err)
	}
	return r, p
}

// TestCrashOfErase crashes while a value is erased, at every change of the disk: whoever erases
// again gets rid of it, also when the commits are given up already.
func TestCrashOfErase(t *testing.T) {
	ctx := t.Context()
	mem := vfstest.NewMem()
	const secret = "hunter2-hunter2"
	crashes, finished := 0, 0
	var ref PageRef
	recovered := func(mem *vfstest.Mem) {
		r, p := openInbox(t, mem)
		crashes++
		begun, err := cloudsync.Erasing(ctx, p.store)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Close(); err != nil {
			t.Fatal(err)
		}
		commits, err := admin.Erase(ctx, r, ref, []byte("password"))
		if err == nil && commits == 0 {
			finished++
		}
		if err != nil && (begun || !errors.Is(err, ErrNotFound)) {
			t.Errorf("erase after crash %d: %v", crashes, err)
		}
		if f := has(t, mem, "", secret); f != "" {
			t.Errorf("after crash %d, and erasing again (%v), %s has it", crashes, err, f)
		}
		if err := admin.Check(ctx, r); err != nil {
			t.Error(err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	armed := false
	r, p := openInbox(t, vfstest.NewHooked(mem, func(vfstest.Op) {
		if armed && !t.Failed() {
			recovered(mem.CrashClone(vfstest.KeepAll))
			recovered(mem.CrashClone(vfstest.KeepNone))
		}
	}))
	for _, v := range []string{secret, "none"} {
		if _, err := p.Update(ctx, func(tx *Tx) error { return tx.Put(ctx, []byte("password"), []byte(v)) }); err != nil {
			t.Fatal(err)
		}
	}
	if has(t, mem, "", secret) == "" {
		t.Fatal("the test looks in the wrong place")
	}
	ref = PageRef{Ledger: "notes", ID: p.Ref().ID}
	armed = true
	if _, err := admin.Erase(ctx, r, ref, []byte("password")); err != nil {
		t.Fatal(err)
	}
	armed = false
	if crashes < 10 || finished == 0 {
		t.Errorf("%d crashes, %d of them behind the pruning", crashes, finished)
	}
	if err := errors.Join(p.Close(), r.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestErasedBytesAreGone erases in random histories: also where a segment becomes longer by that,
// since what is stored as a difference to the node that had the value is written whole.
func TestErasedBytesAreGone(t *testing.T) {
	ctx := t.Context()
	const secret = "hunter2-hunter2"
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		mem := vfstest.NewMem()
		r, p := openInbox(t, mem)
		put := func(key, value string) {
			if _, err := p.Update(ctx, func(tx *Tx) error { return tx.Put(ctx, []byte(key), []byte(value)) }); err != nil {
				t.Fatal(err)
			}
		}
		keys := 1 + rnd.IntN(100)
		some := func() {
			for range rnd.IntN(20) {
				put(fmt.Sprint(rnd.IntN(keys)), fmt.Sprint(rnd.IntN(1000)))
			}
		}
		some()
		put("password", secret)
		some()
		put("password", "none")
		some()
		if _, err := admin.Erase(ctx, r, PageRef{Ledger: "notes", ID: p.Ref().ID}, []byte("password")); err != nil {
			t.Fatal(err)
		}
		if f := has(t, mem, "", secret); f != "" {
			t.Errorf("seed %d: %s has it", seed, f)
		}
		if err := admin.Check(ctx, r); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		if err := errors.Join(p.Close(), r.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEraseBesideATransaction refuses while a transaction has written to the files in which the
// value stands, and is done when it has ended.
func TestEraseBesideATransaction(t *testing.T) {
	ctx := t.Context()
	mem := vfstest.NewMem()
	r, err := openFiles(ctx, mem, Options{Collection: CollectionOptions{Off: true}})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := r.OpenPage(ctx, PageRef{Ledger: "notes"})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	const mark = "hunter2-hunter2"
	var long strings.Builder
	for i := range 20_000 {
		fmt.Fprint(&long, mark, i)
	}
	for _, v := range []string{long.String(), "none"} {
		if _, err := p.Update(ctx, func(tx *Tx) error { return tx.Put(ctx, []byte("password"), []byte(v)) }); err != nil {
			t.Fatal(err)
		}
	}
	tx, err := p.Begin(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := tx.Put(ctx, []byte("other"), bytes.Repeat([]byte("0123456789"), 100_000)); err != nil {
		t.Fatal(err)
	}
	ref := PageRef{Ledger: "notes", ID: p.Ref().ID}
	_, err = admin.Erase(ctx, r, ref, []byte("password"))
	if has(t, mem, "", mark) != "" && !errors.Is(err, ErrConflict) {
		t.Errorf("the value is still there, and: %v", err)
	}
	if err := tx.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		if commits, err := admin.Erase(ctx, r, ref, []byte("password")); err != nil || commits != 0 {
			t.Errorf("%+v, %v", commits, err)
		}
	}
	if f := has(t, mem, "", mark); f != "" {
		t.Errorf("%s has it", f)
	}
}
