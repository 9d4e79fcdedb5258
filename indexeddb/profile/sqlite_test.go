package profile_test

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
)

// TestSQLiteToLevelDB: what a browser keeps in SQLite files comes to a page, and from there to a
// LevelDB directory in which the browser reads the same, after a clean end and after a kill.
func TestSQLiteToLevelDB(t *testing.T) {
	for _, clean := range endings() {
		t.Run(fmt.Sprintf("clean=%v", clean), func(t *testing.T) {
			b := newBrowser(t)
			b.sqlite = true
			b.run(fill, clean, nil)
			page, checked := importPage(t, b.levelDir())
			if checked.Opaque != 0 || checked.Records < 90 || checked.Blobs < 5 {
				t.Errorf("%+v", checked)
			}
			b.exchanged(page)
		})
	}
}

// TestHostileSQLite: a file in which reading is a calculation without end is refused.
func TestHostileSQLite(t *testing.T) {
	for name, statements := range map[string][]string{
		"a view": {
			"ALTER TABLE records RENAME TO r",
			`CREATE VIEW records AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)
				SELECT x AS row_id, 1 AS object_store_id, x AS key, 0 AS compression_type, x AS value FROM c`,
		},
		"a column": {"ALTER TABLE records ADD COLUMN v AS (substr(hex(zeroblob(300000000)), 1, 50))"},
		"an index": {"CREATE INDEX i ON records (substr(hex(zeroblob(compression_type)), 1, 50))"},
		"a part":   {"CREATE INDEX i ON records (row_id) WHERE value GLOB '*a*a*a*a*'"},
		"a table":  {"CREATE VIRTUAL TABLE v USING fts5(a)"},
	} {
		dir := filepath.Join(t.TempDir(), "http_127.0.0.1_1")
		if err := os.CopyFS(dir, os.DirFS("testdata/sqlite-156")); err != nil {
			t.Fatal(err)
		}
		db, err := sql.Open("sqlite", "file:"+files(t, dir)[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range statements {
			if _, err := db.ExecContext(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := contents(t.Context(), dir); !errors.Is(err, base.ErrCorrupt) || !strings.Contains(err.Error(), "calculated") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDamagedSQLite changes bytes of a file. SQLite has no checksums; what is noticed is an error
// of corruption, and nothing else happens. The nightly tier takes all bytes.
func TestDamagedSQLite(t *testing.T) {
	if bounded(t, func(string) {}) == "" {
		return
	}
	dir := filepath.Join(t.TempDir(), "http_127.0.0.1_1")
	if err := os.CopyFS(dir, os.DirFS("testdata/sqlite-156")); err != nil {
		t.Fatal(err)
	}
	want, err := contents(t.Context(), dir)
	if err != nil || len(want) < 30 {
		t.Fatalf("%d rows, error %v", len(want), err)
	}
	path := files(t, dir)[0]
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	noticed := 0
	places := []int{1974, 2698, 2713, 3371, 3385, 3432, 3486, 3835, 69561, 69600} // names and types of columns, numbers as text
	for at := 0; at < len(good); at += tier.Of(1511, 499, 1) {
		places = append(places, at)
	}
	for _, at := range places {
		bad := append([]byte{}, good...)
		bad[at] ^= 0xff
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := contents(t.Context(), dir); errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrUnsupported) {
			noticed++
		} else if err != nil && !(at < len("SQLite format 3.") && errors.Is(err, base.ErrNotFound)) { // it tells that it is one
			t.Errorf("byte %d: %v", at, err)
		}
	}
	if noticed == 0 {
		t.Error("no damage was noticed")
	}
	if err := os.WriteFile(path, good[:len(good)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := contents(t.Context(), dir); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a file that is cut: %v", err)
	}
}
