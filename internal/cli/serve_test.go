//go:build linux || darwin

package cli_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/cli"
	"github.com/ledgerd/ledger/internal/daemon"
)

// announced is standard error of serve. It tells when serve listens.
type announced struct {
	once  sync.Once
	ready chan struct{}
	text  string // "" for what serve says
}

func (a *announced) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(cmp.Or(a.text, "until an interrupt"))) {
		a.once.Do(func() { close(a.ready) })
	}
	return len(p), nil
}

// startServe runs serve on dir until the test ends, or stop is called, which returns its exit code.
func startServe(t *testing.T, dir string, flags ...string) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	a := &announced{ready: make(chan struct{})}
	code := make(chan int, 1)
	go func() {
		code <- cli.Main(ctx, process(append([]string{"--dir", dir, "serve"}, flags...), nil, io.Discard, a))
	}()
	stop = sync.OnceValue(func() int {
		cancel()
		return <-code
	})
	t.Cleanup(func() { stop() })
	select {
	case <-a.ready:
	case c := <-code:
		t.Fatalf("serve ended with %d", c)
	}
	return stop
}

func process(args []string, stdin io.Reader, stdout, stderr io.Writer) cli.Process {
	return cli.Process{Args: args, Stdin: stdin, Stdout: stdout, Stderr: stderr, LookupEnv: func(string) (string, bool) { return "", false }}
}

// do runs a command and returns what it prints.
func do(t *testing.T, wantCode int, stdin string, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	if code := cli.Main(t.Context(), process(args, strings.NewReader(stdin), &out, &errs)); code != wantCode {
		t.Fatalf("ledgerd %q: exit code %d, want %d; %s", args, code, wantCode, errs.String())
	}
	return out.String()
}

func TestVerbsGoThroughServe(t *testing.T) {
	dir, err := os.MkdirTemp("", "s") // short: it has a socket in it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	repo := filepath.Join(dir, "r")
	do(t, 0, "", "--dir", repo, "init")
	do(t, 0, "", "--dir", repo, "put", "notes", "a", "1")
	stop := startServe(t, repo)
	do(t, 0, "", "--dir", repo, "put", "notes", "b", "2")
	do(t, 0, "from the input", "--dir", repo, "put", "new/page", "c", "-f", "-")
	if got := do(t, 0, "", "--dir", repo, "get", "new/page", "c"); got != "from the input" {
		t.Errorf("got %q", got)
	}
	if got := do(t, 0, "", "--dir", repo, "ls", "notes"); got != "a\nb\n" {
		t.Errorf("got %q", got)
	}
	do(t, 1, "", "--dir", repo, "get", "notes", "absent")
	do(t, 2, "", "--dir", repo, "get", "notes", "absent", "--nonsense")
	do(t, 11, "", "--dir", repo, "serve", "--lock-timeout", "1ms")

	t.Chdir(dir)
	if err := os.WriteFile("value", []byte("in a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	do(t, 0, "", "--dir", "r", "put", "notes", "d", "-f", "value")
	do(t, 0, "", "--dir", "r", "get", "notes", "d", "-o", "copy")
	if b, err := os.ReadFile(filepath.Join(dir, "copy")); string(b) != "in a file" {
		t.Error(string(b), err)
	}
	do(t, 0, "", "--dir", "r", "check")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() { do(t, 0, "", "--dir", repo, "put", "notes", fmt.Sprint("key ", i), "x") })
	}
	wg.Wait()
	if code := stop(); code != 0 {
		t.Errorf("serve ended with %d", code)
	}
	if got := do(t, 0, "", "--dir", repo, "ls", "notes"); strings.Count(got, "\n") != 11 {
		t.Errorf("got %q", got)
	}
}

// forServe makes a directory with a short name, since a socket stands in it, for the repository
// repo on which run calls the program.
func forServe(t *testing.T) (dir, repo string, run func(code int, args ...string) string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "s")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	repo = filepath.Join(dir, "r")
	return dir, repo, func(code int, args ...string) string {
		t.Helper()
		return do(t, code, "", append([]string{"--dir", repo}, args...)...)
	}
}

// TestServeKeepsItsBounds lets serve evict a page because of a quota, and refuses bounds that are
// none.
func TestServeKeepsItsBounds(t *testing.T) {
	dir, repo, run := forServe(t)
	run(0, "init")
	do(t, 0, "", "key", "init", filepath.Join(dir, "key"))
	run(0, "put", "notes", "a", strings.Repeat("0123456789", 20_000))
	run(0, "cloud", "set", "dir:"+filepath.Join(dir, "bucket"), "--key-file", filepath.Join(dir, "key"))
	run(0, "sync")
	for _, flag := range []string{"--quota=much", "--keep-free=-1", "--keep-values=5X"} {
		run(2, "serve", flag)
	}
	if got := run(0, "status", "--space"); strings.Contains(got, "in the cloud only") {
		t.Fatalf("usage said %q", got)
	}
	startServe(t, repo, "--quota", "1K")
	for got := ""; !strings.Contains(got, "in the cloud only"); { // until the test's time is over
		got = run(0, "status", "--space")
	}
}

// TestEvictBesideServe: serve gives a page up that is evicted, does not bring it back by itself,
// and keeps it again when somebody uses it.
func TestEvictBesideServe(t *testing.T) {
	dir, repo, run := forServe(t)
	run(0, "init")
	do(t, 0, "", "key", "init", filepath.Join(dir, "key"))
	run(0, "put", "notes", "a", "1")
	run(0, "put", "other", "b", "2")
	run(0, "cloud", "set", "dir:"+filepath.Join(dir, "bucket"), "--key-file", filepath.Join(dir, "key"))
	stop := startServe(t, repo)
	run(0, "sync")
	if got := run(0, "evict", "notes"); !strings.Contains(got, "notes: evicted") {
		t.Errorf("evict said %q", got)
	}
	run(0, "put", "other", "c", "3") // serve looks for pages after each verb
	run(0, "ls", "other")
	if got := run(0, "status", "--space"); !strings.Contains(got, "in the cloud only") {
		t.Errorf("usage said %q", got)
	}
	run(0, "sync")
	if got := run(0, "status", "--space"); !strings.Contains(got, "in the cloud only") {
		t.Errorf("after sync usage said %q", got)
	}
	if got := run(0, "get", "notes", "a"); got != "1" {
		t.Errorf("got %q", got)
	}
	if got := run(0, "status", "--space"); strings.Contains(got, "in the cloud only") {
		t.Errorf("after its use usage said %q", got)
	}
	if code := stop(); code != 0 {
		t.Errorf("serve ended with %d", code)
	}
}

// TestVerbWaitsForTheSocket runs a verb while a process holds the repository that answers on no
// socket yet: it goes through that as soon as it does. Who may not wait says who holds the
// repository.
func TestVerbWaitsForTheSocket(t *testing.T) {
	_, repo, run := forServe(t)
	run(0, "init")
	run(0, "put", "notes", "a", "1")
	r, err := ledger.Open(t.Context(), repo, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}()
	run(11, "get", "notes", "a", "--lock-timeout", "0")
	run(11, "put", "notes", "a", "2", "--lock-timeout", "60ms")
	codes := make(chan int, 2)
	for _, args := range [][]string{{"get", "notes", "a"}, {"put", "notes", "a", "2"}} {
		go func() {
			codes <- cli.Main(t.Context(), process(append([]string{"--dir", repo, "--lock-timeout", "24h"}, args...), nil, io.Discard, io.Discard))
		}()
	}
	s, err := daemon.Listen(repo)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- s.Serve(ctx, func(context.Context, daemon.Request, io.Reader, io.Writer, io.Writer) int { return 77 })
	}()
	for range 2 {
		if code := <-codes; code != 77 {
			t.Errorf("exit code %d, want that of the server", code)
		}
	}
	stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// TestCompletionBesideServe asks for completions while a process holds the repository: serve gives
// them, and where nobody answers there are none.
func TestCompletionBesideServe(t *testing.T) {
	_, repo, run := forServe(t)
	run(0, "init")
	run(0, "put", "notes", "a", "1")
	run(0, "put", "notes", "b", "1")
	lines := []string{"get\x00", "get\x00notes\x00", "diff\x00notes\x00", "get\x00notes\x00a\x00--at\x00HEAD", "get\x00nosuch\x00", "serve\x00", "g"}
	complete := func(line string) string {
		t.Helper()
		return run(0, append([]string{"__complete"}, strings.Split(line, "\x00")...)...)
	}
	want := map[string]string{}
	for _, line := range lines {
		want[line] = complete(line)
	}
	if !strings.HasPrefix(want["get\x00notes\x00"], "a\nb\n:") {
		t.Fatalf("completed %q", want)
	}
	stop := startServe(t, repo)
	for _, line := range lines {
		if got := complete(line); got != want[line] {
			t.Errorf("%q beside serve: %q, want %q", line, got, want[line])
		}
	}
	stop()
	r, err := ledger.Open(t.Context(), repo, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := complete("get\x00"); !strings.HasPrefix(got, ":") {
		t.Errorf("beside a process that does not answer: %q", got)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// TestWatchGoesOnThroughServe has a serve begin beside a watch: that goes on behind what it has
// told, though it learns of serve by a change that serve has made.
func TestWatchGoesOnThroughServe(t *testing.T) {
	_, repo, run := forServe(t)
	run(0, "init")
	run(0, "put", "notes", "a", "1")
	told := make(chan string, 100)
	out := &lines{line: func(line []byte) { told <- string(line) }}
	ended := make(chan int, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		ended <- cli.Main(ctx, process([]string{"--dir", repo, "watch", "notes", "--from", "none", "-n", "3", "--lock-timeout", "1ms"}, nil, out, io.Discard))
	}()
	want := func(key string) {
		t.Helper()
		if commit, change := <-told, <-told; !strings.HasPrefix(commit, "commit ") || change != "+ "+key {
			t.Fatalf("told %q, %q, want %s", commit, change, key)
		}
	}
	want("a")
	stop := startServe(t, repo)
	run(0, "put", "notes", "b", "2")
	want("b")
	run(0, "put", "notes", "c", "3")
	want("c")
	if code := <-ended; code != 0 {
		t.Errorf("watch ended with %d", code)
	}
	stop()
}

// TestWatchThroughServeIsExact is TestWatchIsExact beside serve.
func TestWatchThroughServeIsExact(t *testing.T) {
	_, repo, run := forServe(t)
	run(0, "init")
	startServe(t, repo)
	watchIsExact(t, repo)
}

// TestWatchThroughServeWaits has a watch wait for a page, and then for a key while others change
// and history is given up: it tells the key alone.
func TestWatchThroughServeWaits(t *testing.T) {
	_, repo, run := forServe(t)
	run(0, "init")
	startServe(t, repo)
	told, errs := make(chan string, 100), &announced{ready: make(chan struct{}), text: "waiting for page notes/new"}
	out := &lines{line: func(line []byte) { told <- string(line) }}
	ended := make(chan int, 1)
	go func() {
		ended <- cli.Main(t.Context(), process([]string{"--dir", repo, "watch", "notes/new", "--prefix", "a", "-n", "2"}, nil, out, errs))
	}()
	<-errs.ready
	run(0, "put", "notes", "a", "of another page")
	want := func(what, key string) {
		t.Helper()
		if commit, change := <-told, <-told; !strings.HasPrefix(commit, "commit ") || change != what+" "+key {
			t.Fatalf("told %q, %q, want %s %s", commit, change, what, key)
		}
	}
	run(0, "put", "notes/new", "a", "1")
	want("+", "a")
	for i := range 3 {
		run(0, "put", "notes/new", "b", fmt.Sprint(i))
		run(0, "gc", "notes/new", "--keep-last", "1", "--yes")
	}
	run(0, "put", "notes/new", "a", "2")
	want("~", "a")
	if code := <-ended; code != 0 {
		t.Errorf("watch ended with %d", code)
	}
}

// TestServeCreatesNothing refuses a directory that has no repository, one that is not there among
// them.
func TestServeCreatesNothing(t *testing.T) {
	dir, repo, run := forServe(t)
	run(10, "serve")
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v is there, %v", entries, err)
	}
	if err := os.Mkdir(repo, 0o700); err != nil {
		t.Fatal(err)
	}
	run(10, "serve")
	if entries, err := os.ReadDir(repo); err != nil || len(entries) > 0 {
		t.Errorf("%v is there, %v", entries, err)
	}
}

// TestKeyringThroughServe shows and changes the keyring while serve holds the repository. A secret
// is not asked for then: the terminal would show it.
func TestKeyringThroughServe(t *testing.T) {
	dir, repo, run := forServe(t)
	run(0, "init")
	run(0, "key", "init", filepath.Join(dir, "key"))
	run(0, "key", "init", filepath.Join(dir, "key2"))
	run(0, "cloud", "set", "dir:"+filepath.Join(dir, "bucket"), "--key-file", filepath.Join(dir, "key"))
	pass := filepath.Join(dir, "pass")
	if err := os.WriteFile(pass, []byte("correct horse battery\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	startServe(t, repo)
	if out := run(0, "key", "show"); !strings.Contains(out, "clone") {
		t.Errorf("key show prints %q", out)
	}
	run(0, "key", "show", filepath.Join(dir, "key"))
	run(0, "key", "add", "file", filepath.Join(dir, "key2"), "--label", "two")
	run(0, "key", "add", "passphrase", "--new-passphrase-file", pass, "--label", "three")
	run(0, "key", "rotate")
	run(0, "key", "rm", "two")
	if out := run(0, "key", "ls"); !strings.Contains(out, "three") || strings.Contains(out, "two") {
		t.Errorf("key ls prints %q", out)
	}
	for _, verb := range [][]string{{"key", "add", "passphrase"}, {"cloud", "set", "dir:" + filepath.Join(dir, "bucket"), "--passphrase"}} {
		var out, errs bytes.Buffer
		p := process(append([]string{"--dir", repo}, verb...), strings.NewReader("secret\nsecret\n"), &out, &errs)
		p.Asks = true
		if code := cli.Main(t.Context(), p); code != cli.ExitUsage || !strings.Contains(errs.String(), "name a file") {
			t.Errorf("%q: exit code %d, %s", verb, code, &errs)
		}
	}
}

// TestMergeRulesAreForOneMerge merges through serve with a rule. Later merges of the page do not
// use the rule.
func TestMergeRulesAreForOneMerge(t *testing.T) {
	_, repo, run := forServe(t)
	run(0, "init")
	run(0, "put", "notes", "k", "base")
	startServe(t, repo)
	run(0, "merge", "notes", "--rule", "older")
	base := strings.TrimSpace(run(0, "log", "notes", "--ids", "-n", "1"))
	run(0, "put", "notes", "k", "one", "--parent", base)
	run(0, "put", "notes", "k", "two", "--parent", base)
	if got := run(0, "get", "notes", "k"); got != "two" {
		t.Errorf("the merge took %q", got)
	}
}

// TestSettingsOfServe runs verbs through serve with settings that serve has itself: they are
// warned of, and the verbs run.
func TestSettingsOfServe(t *testing.T) {
	dir, repo, run := forServe(t)
	run(0, "init")
	run(0, "key", "init", filepath.Join(dir, "key"))
	run(0, "cloud", "set", "dir:"+filepath.Join(dir, "bucket"), "--key-file", filepath.Join(dir, "key"))
	startServe(t, repo)
	for what, verb := range map[string][]string{
		"name of the device":        {"put", "notes", "k", "v", "--device", "phone"},
		"limits of space and rates": {"sync", "--quota", "1G"},
		"":                          {"evict", "--values", "--keep-values", "1G"},
	} {
		var out, errs bytes.Buffer
		code := cli.Main(t.Context(), process(append([]string{"--dir", repo}, verb...), nil, &out, &errs))
		if code != 0 || strings.Contains(errs.String(), "serve runs this verb with its own "+what) != (what != "") {
			t.Errorf("%q: exit code %d, %q", verb, code, &errs)
		}
	}
}
