package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/dir"
)

// TestPartlyIsNotNothing gives errors behind what was done an exit code of their own, unless the
// error has one.
func TestPartlyIsNotNothing(t *testing.T) {
	full := fmt.Errorf("collect garbage: %w", ledger.ErrNoSpace)
	for _, c := range []struct {
		err  error
		done bool
		want int
	}{
		{full, true, ExitPartly},
		{full, false, ExitError},
		{fmt.Errorf("collect garbage: %w", ledger.ErrCorrupt), true, ExitCorrupt},
		{nil, true, ExitDone},
	} {
		if got := ExitCode(partly(c.err, c.done)); got != c.want {
			t.Errorf("%v, done %t: exit code %d, want %d", c.err, c.done, got, c.want)
		}
	}
	for want, err := range map[int]error{ExitPartly: nil, ExitError: errors.New("no commit")} {
		if got := ExitCode(closing(err, unclosable{full})); got != want {
			t.Errorf("%v, then closing fails: exit code %d, want %d", err, got, want)
		}
	}
	if hint := (&app{}).hintOf(partly(full, true)); hint == "" {
		t.Error("no hint")
	}
}

// unclosable fails to close.
type unclosable struct{ err error }

func (u unclosable) Close() error { return u.err }

// TestHintOfADirectoryThatIsGone looks into a bucket whose directory has gone away, as that of a
// disk which is not mounted.
func TestHintOfADirectoryThatIsGone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bucket")
	b, err := dir.Open(t.Context(), path, dir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
	_, gone := b.Get(t.Context(), "x", 0, -1)
	canceled := &bucket.Error{Op: bucket.OpGet, Name: "x", Class: bucket.ClassCanceled, Err: context.Canceled}
	missing := &bucket.Error{Op: bucket.OpGet, Name: "x", Class: bucket.ClassNotFound, Err: fs.ErrNotExist}
	for err, mount := range map[error]bool{gone: true, canceled: false, missing: false} {
		if hint := (&app{}).hintOf(fmt.Errorf("sync: %w", err)); strings.Contains(hint, "mount it") != mount {
			t.Errorf("hint of %v: %s", err, hint)
		}
	}
	nowhere := &bucket.Error{Op: bucket.OpPut, Name: "x", Class: bucket.ClassNotFound}
	if hint := (&app{}).hintOf(nowhere); !strings.HasPrefix(hint, "make the bucket") {
		t.Errorf("hint of %v: %s", nowhere, hint)
	}
}
