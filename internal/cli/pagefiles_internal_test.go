package cli

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/spf13/cobra"
)

// watch finds the files of every page, and sees that a commit was made.
func TestPageFilesChange(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repo")
	repo, err := ledger.Open(t.Context(), dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer repo.Close()
	for _, text := range []string{"notes", "notes/inbox", "notes/000102030405060708090a0b0c0d0e0f", "%00/x", strings.Repeat("l", 150), strings.Repeat("l", 151) + "/x"} {
		name, err := parsePageName(&cobra.Command{Use: "test"}, text)
		if err != nil {
			t.Fatal(err)
		}
		files := pageFiles{dir: pageDir(dir, name)}
		if files.note(); files.changed() || files.seen != "" {
			t.Errorf("page %s is there before it is made: %q", text, files.seen)
		}
		page, err := (&app{}).openPage(t.Context(), repo, name, creates)
		if err != nil {
			t.Fatal(err)
		}
		for _, value := range []string{"1", "2"} {
			if _, err := page.Update(t.Context(), func(tx *ledger.Tx) error { return tx.Put(t.Context(), []byte("k"), []byte(value)) }); err != nil {
				t.Fatal(err)
			}
			if !files.changed() {
				t.Errorf("page %s was written, and its files are as before: %q", text, files.seen)
			}
			if files.note(); files.changed() {
				t.Errorf("files of page %s change by themselves", text)
			}
		}
		if err := page.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
