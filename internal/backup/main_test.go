package backup_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/internal/backup"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/presence"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errCut = errors.New("cut")

// source has two pages, of which one has left, and fails when cut says so.
func source(cut bool) backup.Source {
	return backup.Source{
		Progress: func(int64) {},
		Identity: []byte("identity"), Now: time.Unix(9, 0),
		Pages: func(context.Context) ([]backup.Page, error) {
			return []backup.Page{{Page: base.Page{Ledger: "l", ID: [16]byte{1}}, Name: "one"}, {Page: base.Page{Ledger: "l", ID: [16]byte{2}}}}, nil
		},
		Away: func(context.Context) ([]presence.Gone, error) {
			if cut {
				return nil, errCut
			}
			return nil, nil
		},
		Copy: func(_ context.Context, p base.Page, create backup.Create) (bool, error) {
			if p.ID[0] == 2 {
				return false, base.ErrNotFound
			}
			w, err := create("file", 5)
			if err != nil {
				return true, err
			}
			_, err = io.WriteString(w, "bytes")
			return true, errors.Join(err, w.Close())
		},
	}
}

// TestCopies: directory and stream have the same files, and the one that makes a repository of them
// comes last, and not at all after an error.
func TestCopies(t *testing.T) {
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprint(cut), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "copy")
			var stream bytes.Buffer
			for _, err := range []error{backup.ToDir(t.Context(), dir, source(cut)), backup.ToTar(t.Context(), &stream, source(cut))} {
				if cut != errors.Is(err, errCut) {
					t.Fatal(err)
				}
			}
			last := ""
			for r := tar.NewReader(&stream); ; {
				h, err := r.Next()
				if err != nil {
					break
				}
				last = h.Name
				b, err := io.ReadAll(r)
				there, dirErr := os.ReadFile(filepath.Join(dir, h.Name))
				if filepath.Base(filepath.Dir(h.Name)) != "page_usage_db" && (errors.Join(err, dirErr) != nil || !bytes.Equal(b, there)) {
					t.Errorf("%s: %q in the stream, %q in the directory, %v %v", h.Name, b, there, err, dirErr)
				}
			}
			_, err := os.Stat(filepath.Join(dir, "1", "repository"))
			if cut != (err != nil) || cut == (last == "1/repository") {
				t.Errorf("a file that makes a repository: %v, last in the stream %q", err, last)
			}
			if err := backup.ToDir(t.Context(), dir, source(false)); !errors.Is(err, base.ErrInvalid) {
				t.Errorf("a directory that is not empty: %v", err)
			}
		})
	}
}
