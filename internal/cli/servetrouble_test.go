//go:build linux || darwin

package cli_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/cli"
	"github.com/ledgerd/ledger/internal/clock"
)

// TestServeEndsWhenNothingCanBeSynced takes from serve what it needs to sync, and wants an error
// that says so.
func TestServeEndsWhenNothingCanBeSynced(t *testing.T) {
	for name, c := range map[string]struct {
		take func(t *testing.T, dir, repo string) error
		code int
		want string
	}{
		"no key file":   {func(_ *testing.T, dir, _ string) error { return os.Remove(filepath.Join(dir, "key")) }, 1, "key: no such file"},
		"another key":   {otherKey, cli.ExitWrongKey, "wrong key"},
		"damaged cloud": {damagedCloud, cli.ExitCorrupt, "file cloud"},
	} {
		t.Run(name, func(t *testing.T) {
			dir, repo, run := forServe(t)
			run(0, "init")
			run(0, "key", "init", filepath.Join(dir, "key"))
			run(0, "put", "notes", "a", "1")
			run(0, "cloud", "set", "dir:"+filepath.Join(dir, "bucket"), "--key-file", filepath.Join(dir, "key"))
			if err := c.take(t, dir, repo); err != nil {
				t.Fatal(err)
			}
			var errs bytes.Buffer
			if code := cli.Main(t.Context(), process([]string{"--dir", repo, "serve"}, nil, io.Discard, &errs)); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if !strings.Contains(errs.String(), "nothing can be synced: ") || !strings.Contains(errs.String(), c.want) {
				t.Errorf("serve says %q", &errs)
			}
		})
	}
}

func otherKey(t *testing.T, dir, _ string) error {
	t.Helper()
	do(t, 0, "", "key", "init", filepath.Join(dir, "other"))
	return os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, "key"))
}

func damagedCloud(_ *testing.T, _, repo string) error {
	files, err := filepath.Glob(filepath.Join(repo, "*", "cloud"))
	if err != nil || len(files) != 1 {
		return os.ErrNotExist
	}
	b, err := os.ReadFile(files[0])
	if err != nil {
		return err
	}
	b[len(b)/2] ^= 1
	return os.WriteFile(files[0], b, 0o600)
}

// TestServeWithoutPassphrase ends with an error, too.
func TestServeWithoutPassphrase(t *testing.T) {
	dir, _, run := forServe(t)
	run(0, "init")
	pass := filepath.Join(dir, "pass")
	if err := os.WriteFile(pass, []byte("correct horse"), 0o600); err != nil {
		t.Fatal(err)
	}
	run(0, "put", "notes", "a", "1")
	run(0, "cloud", "set", "dir:"+filepath.Join(dir, "bucket"), "--passphrase-file", pass)
	run(cli.ExitWrongKey, "serve")
}

// quickClock waits a hundredth of what it is asked to.
type quickClock struct{ clock.Clock }

func (c quickClock) After(d time.Duration) (<-chan time.Time, func()) { return c.Clock.After(d / 100) }

// TestServeTellsOfOutage has the bucket refuse everything for a while.
func TestServeTellsOfOutage(t *testing.T) {
	dir, repo, run := forServe(t)
	run(0, "init")
	run(0, "key", "init", filepath.Join(dir, "key"))
	run(0, "put", "notes/today", "a", "1")
	store := &deniable{Bucket: mem.New(mem.Options{})}
	said := make(chan string, 1000)
	with := func(args ...string) cli.Process {
		p := process(append([]string{"--dir", repo}, args...), nil, io.Discard, &lines{line: func(line []byte) { said <- string(line) }})
		p.Buckets = map[string]bucket.Opener{"mem": func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return store, nil }}
		p.Clock = quickClock{clock.System}
		return p
	}
	if code := cli.Main(t.Context(), with("cloud", "set", "mem:x", "--key-file", filepath.Join(dir, "key"))); code != 0 {
		t.Fatalf("cloud set: exit code %d", code)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan int, 1)
	go func() { ended <- cli.Main(ctx, with("serve", "--max-poll", "2s")) }()
	until := func(words ...string) {
		t.Helper()
		for line := range said {
			all := true
			for _, w := range words {
				all = all && strings.Contains(line, w)
			}
			if all {
				return
			}
		}
	}
	until("serving")
	store.denied.Store(true)
	run(0, "put", "notes/today", "a", "2")
	until("sync of page notes/today fails: ", "; try: ")
	store.denied.Store(false)
	run(0, "sync") // through serve, which would try by itself somewhat later
	until("sync of page notes/today works again")
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("serve ended with %d", code)
	}
}

// TestWatchEndsWithServe stops serve below a watch, which is no regular end.
func TestWatchEndsWithServe(t *testing.T) {
	_, repo, run := forServe(t)
	run(0, "init")
	run(0, "put", "notes", "a", "1")
	stop := startServe(t, repo)
	told := make(chan string, 100)
	var errs bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		out := &lines{line: func(line []byte) { told <- string(line) }}
		ended <- cli.Main(t.Context(), process([]string{"--dir", repo, "watch", "notes", "--from", "none"}, nil, out, &errs))
	}()
	<-told
	<-told
	stop()
	if code := <-ended; code != cli.ExitError {
		t.Errorf("watch ended with %d", code)
	}
	id := strings.TrimSpace(run(0, "log", "notes", "--ids", "-n", "1"))
	for _, want := range []string{"watch page notes: serve has stopped", "watch notes --from " + id} {
		if !strings.Contains(errs.String(), want) {
			t.Errorf("watch says %q, want %q", &errs, want)
		}
	}
}
