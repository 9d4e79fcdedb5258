package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/filetree"
)

// exportsAllBut writes the files of a page with a lost value: another file is there.
func exportsAllBut(t *testing.T, p *ledger.Page, lost, other string) {
	t.Helper()
	var left []filetree.Warning
	o := &filetree.ExportOptions{Warn: func(w filetree.Warning) { left = append(left, w) }}
	to := t.TempDir()
	err := p.View(t.Context(), func(s *ledger.Snapshot) error {
		_, err := filetree.Export(t.Context(), s, to, o)
		return err
	})
	if err != nil || len(left) != 1 || left[0].Path != lost || !errors.Is(left[0], ledger.ErrGone) {
		t.Errorf("export: %v, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(to, other)); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(to, lost)); err == nil {
		t.Error("there is a part of the lost value")
	}
}

// TestPutRestoresALostValue damages a value, repairs the page, and puts the same value under the
// same key: the tree stays as it is, and the value can be read again, on all devices.
func TestPutRestoresALostValue(t *testing.T) {
	value, key := pseudo(7, 2<<20), []byte("film")
	ways := map[string]func(ctx context.Context, p *ledger.Page) error{
		"Put": func(ctx context.Context, p *ledger.Page) error { return p.Put(ctx, key, value) },
		"Commit": func(ctx context.Context, p *ledger.Page) error {
			tx, err := p.Begin(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if err := tx.PutReader(ctx, key, bytes.NewReader(value), -1, ledger.Eager); err != nil {
				return err
			}
			_, err = tx.Commit(ctx)
			return err
		},
	}
	for name, again := range ways {
		t.Run(name, func(t *testing.T) {
			w, dir := newCloudWorld(t), t.TempDir()
			o := w.options()
			o.InMemory = false
			r := open(t, dir, o)
			must(t, page(t, r, "app", "page").Put(t.Context(), key, value))
			closeIt(t, r)
			segments, err := filepath.Glob(filepath.Join(pageDir(t, dir), "*.seg"))
			must(t, err)
			for _, name := range segments {
				b, err := os.ReadFile(name)
				must(t, err)
				if len(b) > 1<<20 {
					clear(b[900_000:902_000])
					must(t, os.WriteFile(name, b, 0o600))
				}
			}
			r = open(t, dir, o)
			_, err = admin.Check(t.Context(), r, &admin.CheckOptions{Repair: true})
			must(t, err)
			p := page(t, r, "app", "page")
			if _, err := p.Get(t.Context(), key); !errors.Is(err, ledger.ErrGone) {
				t.Fatalf("the lost value: %v", err)
			}
			must(t, p.Put(t.Context(), []byte("other"), []byte("short")))
			exportsAllBut(t, p, "film", "other")
			must(t, again(t.Context(), p))
			closeIt(t, r)
			r = open(t, dir, o)
			if got, err := page(t, r, "app", "page").Get(t.Context(), key); err != nil || !bytes.Equal(got, value) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
			if report, err := admin.Check(t.Context(), r, nil); err != nil || !report.OK() {
				t.Fatalf("%+v, %v", report, err)
			}
			_, err = r.SetCloud(t.Context(), w.cloud())
			must(t, err)
			syncAll(t, r)
			b := w.device(w.options())
			syncAll(t, b)
			if got, err := page(t, b, "app", "page").Get(t.Context(), key); err != nil || !bytes.Equal(got, value) {
				t.Fatalf("on another device: %d bytes, %v", len(got), err)
			}
		})
	}
}
