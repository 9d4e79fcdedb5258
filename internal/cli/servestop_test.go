//go:build linux || darwin

package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/cli"
)

// shortDir returns a directory whose name leaves room for that of a socket.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// TestVerbsWhileServeStops calls verbs while serve stops: each has done what it says, through
// serve, after it, or not at all.
func TestVerbsWhileServeStops(t *testing.T) {
	repo := filepath.Join(shortDir(t), "r")
	do(t, 0, "", "--dir", repo, "init")
	do(t, 0, "", "--dir", repo, "put", "notes", "first", "x")
	want := map[string]bool{"first": true}
	for round := range 3 {
		stop := startServe(t, repo)
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 12 {
			key := fmt.Sprintf("%d-%d", round, i)
			wg.Go(func() {
				var errs bytes.Buffer
				code := cli.Main(t.Context(), process([]string{"--dir", repo, "--lock-timeout", "5m", "put", "notes", key, "x"}, nil, io.Discard, &errs))
				mu.Lock()
				defer mu.Unlock()
				if code == 0 {
					want[key] = true
				} else if code == cli.ExitUsage || errs.Len() == 0 {
					t.Errorf("put %s: exit code %d, %s", key, code, &errs)
				}
			})
		}
		if code := stop(); code != 0 {
			t.Errorf("serve ended with %d", code)
		}
		wg.Wait()
	}
	got := strings.Fields(do(t, 0, "", "--dir", repo, "ls", "notes"))
	for _, key := range got {
		delete(want, key)
	}
	if len(want) > 0 {
		t.Errorf("%v are missing in %v", want, got)
	}
	do(t, 0, "", "--dir", repo, "check")
}

// stuckBucket is a bucket whose puts of packs end when their caller leaves, and tell when one
// begins.
type stuckBucket struct {
	bucket.Bucket
	begun chan struct{}
	once  *sync.Once
}

func (b stuckBucket) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	if !strings.Contains(name, "/packs/") {
		return b.Bucket.PutIfAbsent(ctx, name, size, content)
	}
	b.once.Do(func() { close(b.begun) })
	<-ctx.Done()
	return bucket.NewError(ctx, bucket.OpPut, name, true, ctx.Err())
}

// TestServeStopsWithinAnUpload interrupts serve while it uploads: it ends soon, and the next sync
// brings up what is missing.
func TestServeStopsWithinAnUpload(t *testing.T) {
	dir := shortDir(t)
	repo, key := filepath.Join(dir, "r"), filepath.Join(dir, "key")
	value := make([]byte, 3<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(value)
	store := mem.New(mem.Options{})
	begun := make(chan struct{})
	with := func(b bucket.Bucket, stderr io.Writer, args ...string) cli.Process {
		p := process(append([]string{"--dir", repo}, args...), nil, io.Discard, stderr)
		p.Buckets = map[string]bucket.Opener{"mem": func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return b, nil }}
		return p
	}
	run := func(args ...string) {
		t.Helper()
		var errs bytes.Buffer
		if code := cli.Main(t.Context(), with(store, &errs, args...)); code != 0 {
			t.Fatalf("%q: exit code %d, %s", args, code, &errs)
		}
	}
	run("key", "init", key)
	do(t, 0, "", "--dir", repo, "init")
	do(t, 0, string(value), "--dir", repo, "put", "notes", "big", "-f", "-")
	run("cloud", "set", "mem:x", "--key-file", key)
	ctx, stop := context.WithCancel(t.Context())
	code := make(chan int, 1)
	go func() { code <- cli.Main(ctx, with(stuckBucket{store, begun, new(sync.Once)}, io.Discard, "serve")) }()
	<-begun
	stop()
	limit, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // against a test that hangs
	defer cancel()
	select {
	case c := <-code:
		if c != 0 {
			t.Errorf("serve ended with %d", c)
		}
	case <-limit.Done():
		t.Fatal("serve does not end")
	}
	run("sync")
	other := filepath.Join(dir, "o")
	clone := with(store, io.Discard)
	clone.Args = []string{"--dir", other, "clone", "mem:x", "--key-file", key}
	if code := cli.Main(t.Context(), clone); code != 0 {
		t.Fatalf("clone: exit code %d", code)
	}
	if got := do(t, 0, "", "--dir", other, "get", "notes", "big"); got != string(value) {
		t.Errorf("%d bytes came back of %d", len(got), len(value))
	}
}

// deafLister is a bucket whose lists of pages get no answer, and that tells when an entry has come.
type deafLister struct {
	bucket.Bucket
	entry chan struct{}
	once  *sync.Once
}

func (b deafLister) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	if strings.HasPrefix(prefix, "pages/") {
		<-ctx.Done()
		return nil, bucket.NewError(ctx, bucket.OpList, prefix, false, ctx.Err())
	}
	return b.Bucket.List(ctx, after, prefix, limit)
}

func (b deafLister) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	err := b.Bucket.PutIfAbsent(ctx, name, size, content)
	if err == nil && strings.Contains(name, "/log/") {
		b.once.Do(func() { close(b.entry) })
	}
	return err
}

// TestServeKeepsPagesWhileItLists: a bucket that does not answer when it is asked for pages keeps
// no page that is here from being synced.
func TestServeKeepsPagesWhileItLists(t *testing.T) {
	dir := shortDir(t)
	repo, key := filepath.Join(dir, "r"), filepath.Join(dir, "key")
	store := mem.New(mem.Options{})
	deaf := deafLister{store, make(chan struct{}), new(sync.Once)}
	with := func(b bucket.Bucket, stderr io.Writer, args ...string) cli.Process {
		p := process(append([]string{"--dir", repo}, args...), nil, io.Discard, stderr)
		p.Buckets = map[string]bucket.Opener{"mem": func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return b, nil }}
		return p
	}
	do(t, 0, "", "key", "init", key)
	do(t, 0, "", "--dir", repo, "init")
	if code := cli.Main(t.Context(), with(store, io.Discard, "cloud", "set", "mem:x", "--key-file", key)); code != 0 {
		t.Fatalf("cloud set: exit code %d", code)
	}
	ctx, stop := context.WithCancel(t.Context())
	a := &announced{ready: make(chan struct{})}
	code := make(chan int, 1)
	go func() { code <- cli.Main(ctx, with(deaf, a, "serve")) }()
	<-a.ready
	do(t, 0, "", "--dir", repo, "put", "notes", "a", "1")
	limit, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // against a test that hangs
	defer cancel()
	select {
	case <-deaf.entry:
	case <-limit.Done():
		t.Error("the page is not synced")
	}
	stop()
	if c := <-code; c != 0 {
		t.Errorf("serve ended with %d", c)
	}
}
