//go:build linux || darwin

package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/cli"
)

// riddles are what no error may show: ids of root pages, names of objects and directories, and
// suggestions cut short.
var riddles = regexp.MustCompile(`0{32}|[0-9a-v]{40}|; ;|: : |\\t`)

// TestErrorsSayItOnce provokes errors of all verbs. None says one thing twice, and none names a
// page otherwise than its user does.
func TestErrorsSayItOnce(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	repo := path("repo")
	store := &deniable{Bucket: mem.New(mem.Options{})}
	openers := map[string]bucket.Opener{"mem": func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return store, nil }}
	do(t, 0, "", "key", "init", path("key"))
	do(t, 0, "", "key", "init", path("other"))
	do(t, 0, "", "--dir", repo, "init")
	for _, page := range []string{"notes", "notes/today", "films/seen"} {
		do(t, 0, "", "--dir", repo, "put", page, "a", "1")
	}
	if err := os.WriteFile(path("bad"), []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	try := func(want int, args ...string) {
		t.Helper()
		var out, errs bytes.Buffer
		p := process(append([]string{"--dir", repo}, args...), nil, &out, &errs)
		p.Buckets = openers
		code := cli.Main(t.Context(), p)
		said := strings.ReplaceAll(strings.ReplaceAll(errs.String(), dir, "DIR"), "\n   try: ", "\n")
		if code != want {
			t.Errorf("%q: exit code %d, want %d: %s", args, code, want, said)
		}
		first, _, _ := strings.Cut(said, "\n")
		seen := map[string]bool{}
		for part := range strings.SplitSeq(first, ": ") {
			if seen[part] {
				t.Errorf("%q says %q twice: %s", args, part, said)
			}
			seen[part] = true
		}
		if bad := riddles.FindString(said); bad != "" {
			t.Errorf("%q says %q: %s", args, bad, said)
		}
	}
	try(2, "lgo")
	try(2, "cloud", "sett", "x")
	try(2, "cloud", "set", "nowhere:x", "--key-file", path("key"))
	try(2, "cloud", "probe", "dir:")
	try(2, "clone", "/a/path", "--key-file", path("key"))
	try(2, "gc", "--keep-within", "soon")
	for _, verb := range []string{"get nope k", "ls nope", "gc nope", "gc --compact nope/old", "evict nope/old", "delete nope --yes", "delete nope/ --yes",
		"delete nope/old --yes", "delete nope --from-history k --yes", "check nope", "status --space nope", "status nope/", "check nope/", "ls nope/", "fetch nope", "merge nope", "sync", "sync notes",
		"cloud show", "cloud gc", "cloud check", "cloud unset", "get notes/today k", "get notes a --at nothing", "get notes a --at HEAD~9",
		"rm notes k", "tag notes -d v1", "why notes k", "put notes a 2 --if-absent", "evict notes", "delete notes --yes", "delete notes --from-history a --yes"} {
		try(1, strings.Fields(verb)...)
	}
	try(20, "key", "show", path("bad"))
	try(2, "backup", repo)
	try(1, "cloud", "set", "dir:"+path("bucket"), "--key-file", path("absent"))
	try(0, "cloud", "set", "mem:x", "--key-file", path("key"))
	try(0, "sync")
	try(1, "sync", "nope/old")
	try(1, "cloud", "check", "nope")
	try(12, "clone", "mem:x", "--dir", path("clone"), "--key-file", path("other"))
	try(1, "clone", "dir:"+path("absent"), "--dir", path("clone"), "--key-file", path("key"))
	try(0, "put", "notes/today", "a", "2")
	store.denied.Store(true)
	for _, verb := range []string{"sync notes/today", "evict notes", "evict notes/today", "cloud gc", "cloud check", "delete films/seen --everywhere --yes"} {
		try(1, strings.Fields(verb)...)
	}
}

// deniable is a bucket that refuses everything once it is told to.
type deniable struct {
	bucket.Bucket
	denied atomic.Bool
}

func (b *deniable) refuse(op bucket.Op, name string) error {
	if b.denied.Load() {
		return &bucket.Error{Op: op, Name: name, Class: bucket.ClassDenied, Err: errors.New("the account is closed")}
	}
	return nil
}

func (b *deniable) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	if err := b.refuse(bucket.OpGet, name); err != nil {
		return bucket.Object{}, err
	}
	return b.Bucket.Get(ctx, name, off, n)
}

func (b *deniable) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	if err := b.refuse(bucket.OpList, prefix); err != nil {
		return nil, err
	}
	return b.Bucket.List(ctx, after, prefix, limit)
}

func (b *deniable) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	if err := b.refuse(bucket.OpPut, name); err != nil {
		return err
	}
	return b.Bucket.PutIfAbsent(ctx, name, size, content)
}
