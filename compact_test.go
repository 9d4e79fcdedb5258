package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// pageFiles returns what the segments and indexes below a directory take.
func pageFiles(t *testing.T, dir string) (n int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(name) != ".seg" && filepath.Base(name) != "page.db" {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}

func TestCompactGivesSpaceBack(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	r := open(t, dir, nil)
	p := page(t, r, "notes", "inbox")
	for i := range 10 {
		update(t, p, func(tx *ledger.Tx) error { return tx.Put(ctx, []byte("long"), pseudo(uint64(i), 1<<20)) })
	}
	if got, err := admin.Compact(ctx, r, nil); err != nil || len(got) != 1 || got[0].Freed != 0 || got[0].Segments != 0 {
		t.Fatalf("nothing is dead: %+v, %v", got, err)
	}
	snap, err := p.Snapshot(ctx)
	must(t, err)
	value, err := snap.Open(ctx, []byte("long"))
	must(t, err)
	first := make([]byte, 1<<19)
	_, err = io.ReadFull(value, first)
	must(t, err)
	_, err = admin.Collect(ctx, r, &admin.CollectOptions{Retention: &admin.Retention{Commits: 1}})
	must(t, err)
	before := pageFiles(t, dir)
	dry, err := admin.Compact(ctx, r, &admin.CompactOptions{DryRun: true})
	must(t, err)
	if n := pageFiles(t, dir); n != before {
		t.Errorf("a dry run made %d bytes of %d", n, before)
	}
	told := false
	got, err := admin.Compact(ctx, r, &admin.CompactOptions{
		Pages:    []ledger.PageRef{{Ledger: "notes", ID: p.Ref().ID}},
		Progress: func(p ledger.Progress) { told = p.Bytes <= p.TotalBytes && p.Now == "notes/inbox" },
	})
	must(t, err)
	after := pageFiles(t, dir)
	c := got[0]
	if c.Before != before || c.After != after || c.Freed != before-after || c.Segments == 0 || after > 1<<20+1<<19 {
		t.Errorf("%d bytes before, %d after: %+v", before, after, c)
	}
	if d := dry[0].Freed; !told || d < c.Freed-1<<16 || d > c.Freed+1<<16 || dry[0].Segments != c.Segments || dry[0].After != dry[0].Before-d {
		t.Errorf("progress: %v; dry run says %+v, compaction %+v", told, dry[0], c)
	}
	rest, err := io.ReadAll(value) // which was open meanwhile
	must(t, err)
	if !bytes.Equal(append(first, rest...), pseudo(9, 1<<20)) {
		t.Error("a value that was open reads as another")
	}
	must(t, errors.Join(value.Close(), snap.Close()))
	if got, err = admin.Compact(ctx, r, nil); err != nil || got[0].Freed != 0 || got[0].Segments != 0 {
		t.Errorf("a second time: %+v, %v", got, err)
	}
	must(t, r.Close())
	must(t, os.Remove(findOne(t, dir, "page.db")))
	r = open(t, dir, nil)
	defer func() { must(t, r.Close()) }()
	p = page(t, r, "notes", "inbox")
	snap, err = p.Snapshot(ctx)
	must(t, err)
	defer func() { must(t, snap.Close()) }()
	if b, err := snap.Get(ctx, []byte("long")); err != nil || !bytes.Equal(b, pseudo(9, 1<<20)) {
		t.Errorf("from an index made anew: %d bytes, %v", len(b), err)
	}
	report, err := admin.Check(ctx, r, nil)
	if err != nil || !report.OK() {
		t.Errorf("check: %v, %v", report, err)
	}
}

// findOne returns the only file of a name.
func findOne(t *testing.T, dir, name string) (path string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if filepath.Base(p) == name {
			path = p
		}
		return err
	}))
	return path
}

func TestCompactRefusals(t *testing.T) {
	ctx, dir := t.Context(), t.TempDir()
	r := open(t, dir, nil)
	p := page(t, r, "notes", "inbox")
	update(t, p, func(tx *ledger.Tx) error { return tx.Put(ctx, []byte("k"), []byte("v")) })
	if _, err := admin.Compact(ctx, r, &admin.CompactOptions{Pages: []ledger.PageRef{{Ledger: "notes"}}}); !errors.Is(err, ledger.ErrNotFound) {
		t.Errorf("a page that is not here: %v", err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if _, err := admin.Compact(ended, r, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}
	must(t, r.Close())
	if _, err := admin.Compact(ctx, r, nil); !errors.Is(err, ledger.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	r = open(t, dir, &ledger.Options{ReadOnly: true})
	defer func() { must(t, r.Close()) }()
	if _, err := admin.Compact(ctx, r, nil); !errors.Is(err, ledger.ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
}
