package dir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
)

func FuzzPath(f *testing.F) {
	for _, s := range []string{"a", "a/b", "a.b/..c", "con", strings.Repeat("a", 128), strings.Repeat("a", 129), strings.Repeat("a", 257) + "/b", "a=", "a+/b=",
		strings.Repeat("a", 128) + "~/=", strings.Repeat("a", 128) + "~/b=", "../a=", "a,b=", "a.b=", "partial/x", "+/a=", "a++/b=", ",,/a=", ",=", "a~/b="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if name, ok := nameOf(s); ok && (bucket.CheckName(name) != nil || pathOf(name) != s) {
			t.Fatalf("path %q is that of %q, whose path is %q", s, name, pathOf(name))
		}
		if bucket.CheckName(s) != nil {
			return
		}
		p := pathOf(s)
		if name, ok := nameOf(p); !ok || name != s {
			t.Fatalf("%q has the path %q, which is that of %q", s, p, name)
		}
		if !fs.ValidPath(p) || path.Clean(p) != p || strings.ContainsAny(p, ".\\:") || strings.HasPrefix(p, partial+"/") {
			t.Fatalf("%q has the path %q", s, p)
		}
		for elem := range strings.SplitSeq(p, "/") {
			if len(elem) > chunkBytes+1 || len(elem) < 2 {
				t.Fatalf("%q has the path %q", s, p)
			}
		}
	})
}

// steps lists the steps of a put with links and without.
var steps = map[bool][]string{false: {"create", "sync", "mkdir", "link", "syncdir"}, true: {"create", "sync", "mkdir", "link", "claimed", "syncdir"}}

// TestKilledPut ends a put before each of its steps, without any cleaning up, as a kill does: then
// there is the whole object or none, and another put finds the name taken or free.
func TestKilledPut(t *testing.T) {
	for noLinks, all := range steps {
		for _, at := range all {
			t.Run(fmt.Sprintf("no links %v, %s", noLinks, at), func(t *testing.T) {
				where := t.TempDir()
				b, err := Open(t.Context(), where, Options{})
				if err != nil {
					t.Fatal(err)
				}
				reached := false
				b.hook(noLinks, func(what string) error {
					if what == at {
						reached = true
						runtime.Goexit()
					}
					return nil
				})
				done := make(chan struct{})
				go func() {
					defer close(done)
					_ = b.PutIfAbsent(context.Background(), "a/b", 5, strings.NewReader("first"))
				}()
				if <-done; !reached {
					t.Fatal("no such step")
				}
				if b, err = Open(t.Context(), where, Options{}); err != nil {
					t.Fatal(err)
				}
				b.hook(noLinks, func(string) error { return nil })
				want := "second"
				switch err = b.PutIfAbsent(t.Context(), "a/b", 6, strings.NewReader(want)); {
				case at == "syncdir" && errors.Is(err, bucket.ErrExists):
					want = "first"
				case at == "claimed" && bucket.ClassOf(err) == bucket.ClassBusy:
					return
				case err != nil || at == "syncdir":
					t.Fatal(err)
				}
				o, err := b.Get(t.Context(), "a/b", 0, -1)
				if err != nil {
					t.Fatal(err)
				}
				defer o.Body.Close()
				if got, err := io.ReadAll(o.Body); string(got) != want || err != nil {
					t.Fatalf("%q, %v", got, err)
				}
			})
		}
	}
}

// TestFailingPut lets each step of a put fail: it leaves no file, and says that the object may be
// there when it is.
func TestFailingPut(t *testing.T) {
	for noLinks, all := range steps {
		for _, at := range all {
			for errno, class := range map[error]bucket.Class{syscall.ENOSPC: bucket.ClassQuota, syscall.EACCES: bucket.ClassDenied, syscall.EIO: bucket.ClassRetryable} {
				where := t.TempDir()
				b, err := Open(t.Context(), where, Options{})
				if err != nil {
					t.Fatal(err)
				}
				b.hook(noLinks, func(what string) error {
					if what == at {
						return errno
					}
					return nil
				})
				err = b.PutIfAbsent(t.Context(), "a/b", 5, strings.NewReader("first"))
				landed := at == "syncdir"
				if !errors.Is(err, errno) || bucket.ClassOf(err) != class || bucket.Ambiguous(err) != landed {
					t.Errorf("no links %v, %s: %v", noLinks, at, err)
				}
				b.hook(noLinks, func(string) error { return nil })
				if err = b.PutIfAbsent(t.Context(), "a/b", 5, strings.NewReader("other")); errors.Is(err, bucket.ErrExists) != landed || err != nil && !landed {
					t.Errorf("no links %v, after %s: %v", noLinks, at, err)
				}
				left, err := os.ReadDir(filepath.Join(where, partial))
				if len(left) != 0 || err != nil && at != "create" {
					t.Errorf("no links %v, %s: left %v, %v", noLinks, at, left, err)
				}
			}
		}
	}
}

// TestOvertakenPut lets a second put of the name come and go just before the first gives its file
// the name.
func TestOvertakenPut(t *testing.T) {
	for noLinks := range steps {
		where := t.TempDir()
		b, err := Open(t.Context(), where, Options{})
		if err != nil {
			t.Fatal(err)
		}
		second, err := Open(t.Context(), where, Options{})
		if err != nil {
			t.Fatal(err)
		}
		second.hook(noLinks, func(string) error { return nil })
		b.hook(noLinks, func(what string) error {
			if what == "link" {
				return second.PutIfAbsent(t.Context(), "a/b", 6, strings.NewReader("second"))
			}
			return nil
		})
		if err := b.PutIfAbsent(t.Context(), "a/b", 5, strings.NewReader("first")); !errors.Is(err, bucket.ErrExists) || bucket.Ambiguous(err) {
			t.Errorf("no links %v: %v", noLinks, err)
		}
		o, err := b.Get(t.Context(), "a/b", 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(o.Body); string(got) != "second" || err != nil {
			t.Errorf("no links %v: %q, %v", noLinks, got, err)
		}
		if err := o.Body.Close(); err != nil {
			t.Error(err)
		}
	}
}
