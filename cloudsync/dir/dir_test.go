package dir_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/bucket/buckettest"
	"github.com/ledgerd/ledger/cloudsync/dir"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/tier"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, path string, o dir.Options) *dir.Bucket {
	t.Helper()
	return opened(t, path, o, dir.Open)
}

// openAs is open on a file system with links or without.
func openAs(t testing.TB, path string, noLinks bool) *dir.Bucket {
	t.Helper()
	if noLinks {
		return opened(t, path, dir.Options{}, dir.OpenWithoutLinks)
	}
	return opened(t, path, dir.Options{}, dir.Open)
}

func opened(t testing.TB, path string, o dir.Options, how func(context.Context, string, dir.Options) (*dir.Bucket, error)) *dir.Bucket {
	t.Helper()
	b, err := how(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(b bucket.Bucket, name, content string) error {
	return b.PutIfAbsent(context.Background(), name, int64(len(content)), strings.NewReader(content))
}

func read(b bucket.Bucket, name string) (string, error) {
	o, err := b.Get(context.Background(), name, 0, -1)
	if err != nil {
		return "", err
	}
	got, err := io.ReadAll(o.Body)
	return string(got), errors.Join(err, o.Body.Close())
}

// levels is how many parts the deepest name has. Each part is a directory, and each look-up goes
// through all of them.
func levels() int { return tier.Of(128, 0, 0) }

func TestConformance(t *testing.T) {
	buckettest.Run(t, func(t *testing.T) bucket.Bucket { return open(t, t.TempDir(), dir.Options{}) }, buckettest.Options{MemoryBytes: 8 << 20, Levels: levels()})
}

// TestConformanceWithoutLinks makes puts by claims. Those who race may find the name busy.
func TestConformanceWithoutLinks(t *testing.T) {
	t.Parallel()
	buckettest.Run(t, func(t *testing.T) bucket.Bucket { return openAs(t, t.TempDir(), true) },
		buckettest.Options{MemoryBytes: 8 << 20, LargeBytes: 16 << 20, Levels: levels()})
}

// TestManyOpeners races through several Buckets of one directory, as several processes do.
func TestManyOpeners(t *testing.T) {
	t.Parallel()
	for _, noLinks := range []bool{false, true} {
		path := t.TempDir()
		for round := range 20 {
			var wg sync.WaitGroup
			errs := make([]error, 16)
			for i := range errs {
				b := openAs(t, path, noLinks)
				wg.Go(func() { errs[i] = put(b, fmt.Sprintf("a/%d", round), fmt.Sprint(i)) })
			}
			wg.Wait()
			won := -1
			for i, err := range errs {
				switch {
				case err == nil && won >= 0:
					t.Fatalf("%d and %d won", won, i)
				case err == nil:
					won = i
				case bucket.ClassOf(err) != bucket.ClassExists && !(noLinks && bucket.ClassOf(err) == bucket.ClassBusy):
					t.Fatal(err)
				}
			}
			if got, err := read(open(t, path, dir.Options{}), fmt.Sprintf("a/%d", round)); err != nil || got != fmt.Sprint(won) {
				t.Fatalf("%d won, %q is stored: %v", won, got, err)
			}
		}
	}
}

func files(t testing.TB, root string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			rel, _ := filepath.Rel(root, path)
			paths = append(paths, filepath.ToSlash(rel))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func TestLeftoversAreRemovedAfterADay(t *testing.T) {
	path := t.TempDir()
	if err := os.Mkdir(filepath.Join(path, "partial"), 0o700); err != nil {
		t.Fatal(err)
	}
	now := clock.System.Now()
	for name, age := range map[string]time.Duration{"old": 25 * time.Hour, "new": 23 * time.Hour} {
		name = filepath.Join(path, "partial", name)
		if err := errors.Join(os.WriteFile(name, []byte("x"), 0o600), os.Chtimes(name, now.Add(-age), now.Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	b := open(t, path, dir.Options{})
	if d := cmp.Diff([]string{"partial/new"}, files(t, path)); d != "" {
		t.Error(d)
	}
	if infos, err := b.List(t.Context(), "", "", 9); len(infos) != 0 || err != nil {
		t.Errorf("listed %v, %v", infos, err)
	}
}

func TestOldClaimIsRemoved(t *testing.T) {
	path := t.TempDir()
	claim := filepath.Join(path, "a!")
	if err := os.WriteFile(claim, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := openAs(t, path, true)
	if err := put(b, "a", "x"); bucket.ClassOf(err) != bucket.ClassBusy {
		t.Fatalf("beside a fresh claim: %v", err)
	}
	old := clock.System.Now().Add(-25 * time.Hour)
	if err := os.Chtimes(claim, old, old); err != nil {
		t.Fatal(err)
	}
	r := bucket.NewRetry(b, bucket.RetryOptions{Clock: mem.NewAutoClock(old)})
	if err := put(r, "a", "x"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a="}, files(t, path)); d != "" {
		t.Error(d)
	}
}

// TestForeignFilesAreIgnored puts into the directory what others may have there.
func TestForeignFilesAreIgnored(t *testing.T) {
	path := t.TempDir()
	outside := filepath.Join(t.TempDir(), "secret")
	err := errors.Join(os.WriteFile(outside, []byte("secret"), 0o600), os.MkdirAll(filepath.Join(path, "d="), 0o700), os.MkdirAll(filepath.Join(path, "e+"), 0o700),
		os.MkdirAll(filepath.Join(path, "plain", "x="), 0o700))
	for _, name := range []string{".DS_Store", "Thumbs.db", "a", "A=", "a.b=", "e+/=", "=", "+", "a b=", "ä=", "lost+found", "e+/x+", strings.Repeat("a", 129) + "="} {
		err = errors.Join(err, os.WriteFile(filepath.Join(path, name), nil, 0o600))
	}
	err = errors.Join(err, os.Symlink(outside, filepath.Join(path, "s=")), os.Symlink(filepath.Dir(outside), filepath.Join(path, "t+")), os.Symlink("/nowhere", filepath.Join(path, "u=")))
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, path, dir.Options{})
	if err := put(b, "e/f", "x"); err != nil {
		t.Fatal(err)
	}
	infos, err := b.List(t.Context(), "", "", 100)
	if len(infos) != 1 || infos[0].Name != "e/f" || err != nil {
		t.Errorf("listed %v, %v", infos, err)
	}
	for _, name := range []string{"s", "u", "d"} {
		if got, err := read(b, name); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
	if got, err := read(b, "t/secret"); err == nil {
		t.Errorf("got out: %q", got)
	}
	if err := put(b, "t/new", "x"); err == nil {
		t.Error("wrote through a link that leads out")
	}
	if got := files(t, filepath.Dir(outside)); len(got) != 1 {
		t.Errorf("outside: %q", got)
	}
}

// TestDirectoryThatGoesAndComes unplugs the disk.
func TestDirectoryThatGoesAndComes(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b")
	b := open(t, path, dir.Options{})
	if err := errors.Join(put(b, "a", "x"), os.Rename(path, path+"-away")); err != nil {
		t.Fatal(err)
	}
	_, getErr := read(b, "a")
	_, listErr := b.List(t.Context(), "", "", 1)
	for _, err := range []error{getErr, listErr, put(b, "b", "x"), b.Delete(t.Context(), "a")} {
		if bucket.ClassOf(err) != bucket.ClassRetryable || bucket.Ambiguous(err) || errors.Is(err, base.ErrNotFound) {
			t.Errorf("without directory: %v", err)
		}
	}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Error("made the directory anew")
	}
	if err := os.Rename(path+"-away", path); err != nil {
		t.Fatal(err)
	}
	if got, err := read(b, "a"); got != "x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x", "y")
	if _, err := dir.Open(t.Context(), path, dir.Options{MustExist: true}); !errors.Is(err, base.ErrNotFound) {
		t.Error(err)
	}
	if _, err := dir.Open(t.Context(), "", dir.Options{}); !errors.Is(err, base.ErrInvalid) {
		t.Error(err)
	}
	b := open(t, path, dir.Options{})
	if b.String() != "dir:"+path {
		t.Error(b)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := put(b, "a", "x"); !errors.Is(err, base.ErrClosed) {
		t.Error(err)
	}
	file := filepath.Join(path, "file")
	if err := errors.Join(os.MkdirAll(path, 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.Open(t.Context(), file, dir.Options{}); err == nil {
		t.Error("opened a file")
	}
}

func TestEmptyDirectoriesGo(t *testing.T) {
	path := t.TempDir()
	b := open(t, path, dir.Options{})
	if err := errors.Join(put(b, "a/b/c", "x"), put(b, "a/d", "x"), b.Delete(t.Context(), "a/b/c")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(path, "a+", "b+")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if got, err := read(b, "a/d"); got != "x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// TestCloseTakesBackWhatOpenMade leaves no directory behind in which nothing was stored, and
// touches no other.
func TestCloseTakesBackWhatOpenMade(t *testing.T) {
	top := t.TempDir()
	path := filepath.Join(top, "new", "bucket")
	b := open(t, path, dir.Options{})
	if err := errors.Join(put(b, "a", "x"), b.Delete(t.Context(), "a"), b.Close()); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(top); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	b = open(t, path, dir.Options{})
	if err := errors.Join(put(b, "a", "x"), b.Close()); err != nil {
		t.Fatal(err)
	}
	b = open(t, path, dir.Options{})
	if got, err := read(b, "a"); got != "x" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if err := errors.Join(b.Delete(t.Context(), "a"), b.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}

func TestTruncatedFileIsNotTakenForWhole(t *testing.T) {
	path := t.TempDir()
	b := open(t, path, dir.Options{})
	if err := put(b, "a", strings.Repeat("x", 10_000)); err != nil {
		t.Fatal(err)
	}
	o, err := b.Get(t.Context(), "a", 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Body.Close()
	if err := os.Truncate(filepath.Join(path, "a="), 100); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(o.Body); !errors.Is(err, base.ErrCorrupt) {
		t.Error(err)
	}
}

// TestAgainstModel compares with a map, with puts whose content breaks and contexts that end.
func TestAgainstModel(t *testing.T) {
	t.Parallel()
	names := []string{"a", "a/b", "a-", "a/b/c", "a.b/c", "b", strings.Repeat("l", 200), strings.Repeat("l", 128), strings.Repeat("l", 128) + "/x"}
	rapid.Check(t, func(rt *rapid.T) {
		b := openAs(t, t.TempDir(), rapid.Bool().Draw(rt, "no links"))
		model, name := map[string]string{}, rapid.SampledFrom(names)
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				n, content := name.Draw(t, "name"), rapid.StringN(0, 9, -1).Draw(t, "content")
				_, had := model[n]
				if err := put(b, n, content); (err == nil) == had || had && bucket.ClassOf(err) != bucket.ClassExists {
					t.Fatalf("put %s: %v", n, err)
				}
				if !had {
					model[n] = content
				}
			},
			"broken put": func(t *rapid.T) {
				if err := b.PutIfAbsent(context.Background(), name.Draw(t, "name"), 5, strings.NewReader("x")); err == nil || bucket.Ambiguous(err) {
					t.Fatal(err)
				}
			},
			"canceled": func(t *rapid.T) {
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				if b.Delete(ctx, name.Draw(t, "name")) == nil || b.PutIfAbsent(ctx, name.Draw(t, "name"), 0, strings.NewReader("")) == nil {
					t.Fatal("went on")
				}
			},
			"get": func(t *rapid.T) {
				n := name.Draw(t, "name")
				want, had := model[n]
				if got, err := read(b, n); got != want || (err == nil) != had || !had && !errors.Is(err, base.ErrNotFound) {
					t.Fatalf("get %s: %q, %v", n, got, err)
				}
			},
			"delete": func(t *rapid.T) {
				n := name.Draw(t, "name")
				if err := b.Delete(context.Background(), n); err != nil {
					t.Fatal(err)
				}
				delete(model, n)
			},
			"": func(t *rapid.T) {
				got, want := map[string]int64{}, map[string]int64{}
				infos, err := b.List(context.Background(), "", "", 100)
				if err != nil {
					t.Fatal(err)
				}
				for _, i := range infos {
					got[i.Name] = i.Size
				}
				for n, c := range model {
					want[n] = int64(len(c))
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Fatal(d)
				}
			},
		})
	})
}
