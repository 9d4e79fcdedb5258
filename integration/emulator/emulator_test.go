//go:build unix

package emulator_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

// world is a bucket and the program.
type world struct {
	t       *testing.T
	dir     string
	program string
	env     []string
	url     string
	// objects returns what the bucket has, by name.
	objects func() map[string][]byte
}

// built is the program, built once for all tests.
var built struct {
	dir string
	err error
}

func TestMain(m *testing.M) {
	if built.dir, built.err = os.MkdirTemp("", "emulator"); built.err == nil {
		var out []byte
		if out, built.err = exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(built.dir, "ledgerd"), "../../cmd/ledgerd").CombinedOutput(); built.err != nil {
			built.err = fmt.Errorf("build: %w: %s", built.err, out)
		}
	}
	code := m.Run()
	_ = os.RemoveAll(built.dir) // nobody is left to tell
	os.Exit(code)
}

// builtProgram returns the path of the program.
func builtProgram(t *testing.T) string {
	t.Helper()
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "ledgerd")
}

// emulator is a server like that of Google Cloud Storage, on loopback. change, if it is set, may
// answer a request in its place.
type emulator struct {
	server *fakestorage.Server
	web    *httptest.Server
	change atomic.Pointer[func(w http.ResponseWriter, r *http.Request, next http.Handler)]
}

func newEmulator(t *testing.T) *emulator {
	t.Helper()
	e := &emulator{web: httptest.NewUnstartedServer(nil)} // it has its address already, which the emulator must know
	t.Cleanup(e.web.Close)
	host := e.web.Listener.Addr().String()
	var err error
	e.server, err = fakestorage.NewServerWithOptions(fakestorage.Options{NoListener: true, ExternalURL: "http://" + host, PublicHost: host, Writer: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.server.Stop)
	handler := e.server.HTTPHandler()
	e.web.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if change := e.change.Load(); change != nil {
			(*change)(w, r, handler)
			return
		}
		handler.ServeHTTP(w, r)
	})
	e.web.Start()
	e.server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "devices"})
	return e
}

// objects returns what stands below a prefix.
func (e *emulator) objects(t *testing.T, prefix string) map[string][]byte {
	t.Helper()
	list, err := e.server.ListObjectsWithOptionsPaginated("devices", fakestorage.ListOptions{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]byte{}
	for _, info := range list.Objects {
		o, err := e.server.GetObject("devices", info.Name)
		if err != nil {
			t.Fatal(err)
		}
		all[info.Name] = o.Content
	}
	return all
}

func files(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			all[strings.TrimPrefix(path, dir)], err = os.ReadFile(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// worlds calls fn with a bucket in a directory, and with one of the emulator.
func worlds(t *testing.T, fn func(t *testing.T, w *world)) {
	program := builtProgram(t)
	t.Run("dir", func(t *testing.T) {
		w := &world{t: t, dir: t.TempDir(), program: program, env: os.Environ()}
		bucket := filepath.Join(w.dir, "bucket")
		w.url = "dir:" + bucket
		w.objects = func() map[string][]byte { return files(t, bucket) }
		fn(t, w)
	})
	t.Run("gs", func(t *testing.T) {
		e := newEmulator(t)
		w := &world{t: t, dir: t.TempDir(), program: program, env: append(os.Environ(), "STORAGE_EMULATOR_HOST="+e.web.URL), url: "gs://devices/some/prefix"}
		w.objects = func() map[string][]byte { return e.objects(t, "some/prefix/") }
		fn(t, w)
	})
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// try runs the program.
func (w *world) try(args ...string) (stdout, stderr string, err error) {
	cmd := exec.Command(w.program, args...)
	var out, errs bytes.Buffer
	cmd.Env, cmd.Stdout, cmd.Stderr = w.env, &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// run runs the program, which must succeed, and returns its standard output.
func (w *world) run(args ...string) string {
	w.t.Helper()
	stdout, stderr, err := w.try(args...)
	if err != nil {
		w.t.Fatalf("ledgerd %s: %v: %s%s", strings.Join(args, " "), err, stdout, stderr)
	}
	return stdout
}

// on runs the program for a device.
func (w *world) on(device string, args ...string) string {
	w.t.Helper()
	return w.run(append([]string{"--dir", w.path(device)}, args...)...)
}

// want wants a regular expression in a text.
func (w *world) want(text string, expressions ...string) {
	w.t.Helper()
	for _, e := range expressions {
		if !regexp.MustCompile("(?m)" + e).MatchString(text) {
			w.t.Errorf("want %s in:\n%s", e, text)
		}
	}
}

// source makes a tree of files and returns the words of which none may be seen in the bucket.
func (w *world) source() (dir string, words []string) {
	w.t.Helper()
	dir = w.path("source")
	add := func(name string, content []byte) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			w.t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			w.t.Fatal(err)
		}
	}
	for i := range 120 {
		add(filepath.Join("package"+strconv.Itoa(i%9), "readablename"+strconv.Itoa(i)+".go"), bytes.Repeat([]byte("package readablecontent // line\n"), 1+i*i/4))
	}
	blob := make([]byte, 3<<20)
	x := uint64(88172645463325252)
	for i := range blob {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		blob[i] = byte(x)
	}
	add("readableblob", blob)
	if err := os.Symlink("readableblob", filepath.Join(dir, "link")); err != nil {
		w.t.Fatal(err)
	}
	return dir, []string{"readablename", "readablecontent", "readableblob", "package1", "readableboth"}
}

// TestTwoDevices is the sequence of the README, and that of docs/sync.md about what a user sees.
func TestTwoDevices(t *testing.T) {
	worlds(t, func(t *testing.T, w *world) {
		source, words := w.source()
		key := w.path("key")
		w.want(w.run("key", "init", key), `: made, id [0-9a-f]{16}$`)
		w.on("a", "import", "src", source)
		w.on("a", "cloud", "set", w.url, "--key-file", key)
		w.want(w.on("a", "sync"), `^in sync: 1 page, `)
		w.want(w.on("b", "clone", w.url, "--key-file", key), `^src: created$`)
		w.on("b", "export", "src", w.path("out"))
		if out, err := exec.Command("diff", "-r", source, w.path("out")).CombinedOutput(); err != nil {
			t.Fatalf("diff: %v: %s", err, out)
		}
		w.on("a", "put", "src", "one", "A")
		w.on("b", "put", "src", "two", "B")
		w.on("a", "put", "src", "readableboth", "A")
		w.on("b", "put", "src", "readableboth", "B")
		w.on("a", "sync")
		w.on("b", "sync")
		w.on("a", "sync")

		graph := w.on("a", "log", "--graph", "src")
		w.want(graph, `^\|\\`, `Merge:`)
		if other := w.on("b", "log", "--graph", "src"); other != graph {
			t.Errorf("the log is another one on b:\n%s\nand on a:\n%s", other, graph)
		}
		w.sameHeads("a", "b")
		for _, d := range []string{"a", "b"} {
			w.want(w.on(d, "why", "src", "readableboth"), `now   "B"`, `lost  "A"`)
			w.want(w.on(d, "get", "src", "one"), `^A$`)
			w.want(w.on(d, "get", "src", "two"), `^B$`)
			w.want(w.on(d, "check"), `.`)
		}
		w.want(w.on("b", "status"), `^  last success +20\d\d-`, `^  class A +[1-9]`, `^  cost estimate dollars +0\.0`, `^  upload +idle$`, `^  position +[2-9]`)
		w.figures()
		w.unreadable(words)
		w.want(w.run("cloud", "probe", w.url), `.`)
		w.wrongKey()
	})
}

// sameHeads wants both devices to say that they have the same newest commit.
func (w *world) sameHeads(a, b string) {
	w.t.Helper()
	first := regexp.MustCompile(`(?m)^.*[0-9a-f]{10,}.*$`)
	heads := [2]string{first.FindString(w.on(a, "log", "src")), first.FindString(w.on(b, "log", "src"))}
	if heads[0] == "" || heads[0] != heads[1] {
		w.t.Errorf("heads %q and %q", heads[0], heads[1])
	}
}

// figures wants a status for programs that tells of freshness, requests, bytes and cost.
func (w *world) figures() {
	w.t.Helper()
	var status struct {
		Cloud struct {
			LastSuccess         string
			ClassA, ClassB      int64
			UpBytes, DownBytes  int64
			CostEstimateDollars float64
		}
	}
	lines := json.NewDecoder(strings.NewReader(w.on("b", "status", "--json"))) // the first is about all, the others about pages
	if err := lines.Decode(&status); err != nil {
		w.t.Fatal(err)
	}
	if c := status.Cloud; c.LastSuccess == "" || c.ClassA < 1 || c.ClassB < 5 || c.UpBytes < 100 || c.DownBytes < 3<<20 || c.CostEstimateDollars <= 0 {
		w.t.Errorf("figures %+v", c)
	}
}

// unreadable wants no word in the bytes and names of the bucket.
func (w *world) unreadable(words []string) {
	w.t.Helper()
	all := w.objects()
	if len(all) < 6 {
		w.t.Fatalf("%d objects", len(all))
	}
	for name, content := range all {
		for _, word := range append(words, "src") {
			if strings.Contains(name, word) || len(word) > 3 && bytes.Contains(content, []byte(word)) {
				w.t.Errorf("%s shows %q", name, word)
			}
		}
	}
}

// wrongKey wants another key to be refused, by name and exit code, with nothing made.
func (w *world) wrongKey() {
	w.t.Helper()
	w.run("key", "init", w.path("other"))
	_, stderr, err := w.try("--dir", w.path("c"), "clone", w.url, "--key-file", w.path("other"))
	exit, ok := err.(*exec.ExitError)
	if !ok || exit.ExitCode() != 12 {
		w.t.Errorf("clone with another key: %v: %s", err, stderr)
	}
	if _, err := os.Stat(w.path("c")); err == nil {
		w.t.Error("a repository was made with the wrong key")
	}
}

// TestLyingBuckets wants probe and set to refuse a bucket that breaks a promise, and nothing to be
// left in it.
func TestLyingBuckets(t *testing.T) {
	e := newEmulator(t)
	w := &world{t: t, dir: t.TempDir(), program: builtProgram(t), env: append(os.Environ(), "STORAGE_EMULATOR_HOST="+e.web.URL), url: "gs://devices/lies"}
	w.run("key", "init", w.path("key"))
	w.on("a", "init")
	w.on("a", "put", "notes", "k", "v")
	for name, lie := range map[string]func(http.ResponseWriter, *http.Request, http.Handler){
		"preconditions that are accepted and ignored": func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
			q := r.URL.Query()
			q.Del("ifGenerationMatch")
			r.URL.RawQuery = q.Encode()
			r.Header.Del("X-Goog-If-Generation-Match")
			r.RequestURI = r.URL.RequestURI()
			next.ServeHTTP(rw, r)
		},
		"lists without the newest": func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/o") {
				rw.Header().Set("Content-Type", "application/json")
				_, _ = io.WriteString(rw, `{"kind":"storage#objects"}`) // who asked may be gone
				return
			}
			next.ServeHTTP(rw, r)
		},
		"deletes that do nothing": func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
			if r.Method == http.MethodDelete {
				rw.WriteHeader(http.StatusNoContent)
				return
			}
			next.ServeHTTP(rw, r)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w.t = t
			e.change.Store(&lie)
			defer e.change.Store(nil)
			stdout, stderr, err := w.try("cloud", "probe", w.url)
			if t.Logf("%s%s", stdout, stderr); err == nil || !strings.Contains(stderr, "the bucket does not do what is needed") {
				t.Errorf("probe has found nothing: %v", err)
			}
			_, stderr, err = w.try("--dir", w.path("a"), "cloud", "set", w.url, "--key-file", w.path("key"))
			if err == nil || !strings.Contains(stderr, "the bucket does not do what is needed") {
				t.Errorf("set has accepted it: %s", stderr)
			}
			for n := range e.objects(t, "lies/") {
				if strings.HasSuffix(n, "/format") {
					t.Error("keys were made in it")
				}
			}
		})
	}
	w.t = t
	w.url = "gs://devices/honest"
	w.run("cloud", "probe", w.url)
	w.on("a", "cloud", "set", w.url, "--key-file", w.path("key"))
	w.on("a", "sync")
}
