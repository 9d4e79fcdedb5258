package secrecy_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/internal/cli"
	"github.com/ledgerd/ledger/keys"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is two devices with secrets in everything that they are given.
type world struct {
	upload   func(string, ledger.PageID) []ledger.UploadRule
	priority ledger.Priority // of what store stores
	t        testing.TB
	way      string // how the bucket is sealed: key, passphrase, plaintext
	dir      string
	bucket   string
	cloud    ledger.Cloud
	pass     canary
	keys     []canary // what opens the bucket: must be nowhere
	inside   []canary // values and messages: must leave a device sealed, and be in no log or error
	names    []canary // what things are called: must leave a device sealed
	out      transcript
	calm     bool   // nothing goes wrong
	tmp      string // where temporary files go
}

// transcript collects everything that a device says, but to its bucket.
type transcript struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (o *transcript) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// say adds what values look like when somebody prints them.
func (o *transcript) say(values ...any) {
	for _, v := range values {
		b, err := json.Marshal(v)
		fmt.Fprintf(o, "%v\n%+v\n%#v\n%s %v\n", v, v, v, b, err)
		if e, ok := v.(error); ok {
			for ; e != nil; e = errors.Unwrap(e) {
				fmt.Fprintf(o, "%s\n%q\n%+v\n", e.Error(), e.Error(), e)
			}
		}
	}
}

// Observe is for ledger.Options.
func (o *transcript) Observe(e ledger.Event) { fmt.Fprintf(o, "%+v\n", e) }

func newWorld(t testing.TB, way string, seed uint64) *world {
	w := &world{t: t, way: way, dir: t.TempDir()}
	rng := rand.New(rand.NewPCG(seed, 20))
	w.bucket, w.tmp = filepath.Join(w.dir, "bucket"), filepath.Join(w.dir, "tmp")
	w.must(os.Mkdir(w.tmp, 0o700))
	w.cloud, w.priority = ledger.Cloud{URL: "dir:" + w.bucket}, ledger.Eager
	for _, what := range []string{"short value", "value", "compressible value", "long value", "lazy value", "message"} {
		w.inside = append(w.inside, newCanary(rng, what))
	}
	for _, what := range []string{"key", "long key", "page", "ledger", "tag", "device"} {
		w.names = append(w.names, newCanary(rng, what))
	}
	switch way {
	case "key":
		w.cloud.KeyFile = filepath.Join(w.dir, "key")
		w.must(keys.CreateFile(w.cloud.KeyFile, nil))
		text, err := os.ReadFile(w.cloud.KeyFile)
		w.must(err)
		line := bytes.Split(text, []byte("\n"))[1]
		raw, err := hex.DecodeString(string(line))
		w.must(err)
		w.keys = append(w.keys, canaryOf("text of the key", line), canaryOf("key", raw))
	case "passphrase":
		w.pass = newCanary(rng, "passphrase")
		w.cloud.Passphrase = w.pass.text
		w.keys = append(w.keys, w.pass)
	case "plaintext":
		w.cloud.Plaintext = true
	}
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) inner(what string) canary { return named(w.inside, what) }

// values returns what was written as values.
func (w *world) values() (cs []canary) {
	for _, c := range w.inside {
		if c.what != "message" {
			cs = append(cs, c)
		}
	}
	return cs
}

func (w *world) name(what string) string { return string(named(w.names, what).text) }

func named(cs []canary, what string) canary {
	for _, c := range cs {
		if c.what == what {
			return c
		}
	}
	panic(what)
}

func (w *world) options() *ledger.Options {
	return &ledger.Options{
		Device: w.name("device"), Logger: slog.New(slog.NewTextHandler(&w.out, &slog.HandlerOptions{Level: slog.LevelDebug - 4, AddSource: true})), Observe: w.out.Observe,
		ManualMerge: true, JournalBytes: 64 << 10, Upload: w.upload,
		Sync: ledger.SyncOptions{Manual: true, Merge: true, Passphrase: w.cloud.Passphrase},
	}
}

func (w *world) open(name string) *ledger.Repository {
	w.t.Helper()
	r, err := ledger.Open(context.Background(), filepath.Join(w.dir, name), w.options())
	w.must(err)
	return r
}

func (w *world) page(r *ledger.Repository) *ledger.Page {
	w.t.Helper()
	p, err := r.Page(context.Background(), w.name("ledger"), w.name("page"))
	w.must(err)
	return p
}

// write writes every kind of value.
func (w *world) write(r *ledger.Repository, round int) {
	w.t.Helper()
	ctx := context.Background()
	p := w.page(r)
	long := func(c canary, n int) []byte { // a canary in all of it, between bytes that do not repeat
		rng := rand.New(rand.NewPCG(uint64(n), uint64(round)))
		var b []byte
		for len(b) < n {
			b = append(b, c.text...)
			for range 100 {
				b = append(b, byte(rng.Uint32()))
			}
		}
		return b
	}
	id, err := p.Update(ctx, func(tx *ledger.Tx) error {
		key := func(s string) []byte { return []byte(fmt.Sprint(w.name("key"), s)) }
		return errors.Join(
			tx.SetMessage(string(w.inner("message").text)),
			tx.Put(ctx, key("short"), fmt.Appendf(nil, "%s %d", w.inner("short value").text, round)),
			tx.Put(ctx, []byte(strings.Repeat(w.name("long key"), 100)), long(w.inner("value"), 5000)),
			tx.Put(ctx, key("compressible"), bytes.Repeat(w.inner("compressible value").text, 3000+round)),
			tx.Put(ctx, key("long"), long(w.inner("long value"), 1300<<10)),
			tx.PutReader(ctx, key("lazy"), bytes.NewReader(long(w.inner("lazy value"), 1100<<10)), -1, ledger.Lazy),
		)
	})
	w.must(err)
	w.must(p.Tag(ctx, w.name("tag"), id))
	w.must(p.Close())
}

// put makes commits that are in conflict with those of others, and many, so that there is a range
// and a checkpoint.
func (w *world) put(r *ledger.Repository, n int) {
	w.t.Helper()
	ctx := context.Background()
	p := w.page(r)
	for i := range n {
		_, err := p.Update(ctx, func(tx *ledger.Tx) error {
			return tx.Put(ctx, []byte(w.name("key")), fmt.Appendf(nil, "%s %s %d %p", w.inner("value").text, strings.Repeat("x", i), i, r))
		})
		w.must(err)
		if n > 1 {
			w.must(p.Sync(ctx))
		}
	}
	w.must(p.Close())
}

// replace writes a page whose log becomes longer than what it holds, so that there is a checkpoint.
func (w *world) replace(r *ledger.Repository) {
	w.t.Helper()
	p, err := r.Page(w.t.Context(), w.name("ledger"), w.name("page")+" 2")
	w.must(err)
	for i := range 7 {
		value := make([]byte, 60<<10)
		for j := range value {
			value[j] = byte(rand.NewPCG(uint64(i), uint64(j)).Uint64())
		}
		_, err := p.Update(w.t.Context(), func(tx *ledger.Tx) error {
			return tx.Put(w.t.Context(), []byte(w.name("key")), append(value, w.inner("value").text...))
		})
		w.must(err)
		w.must(p.Sync(w.t.Context()))
	}
	w.must(p.Close())
}

func (w *world) sync(rs ...*ledger.Repository) {
	w.t.Helper()
	for _, r := range rs {
		done, err := r.Sync(context.Background())
		w.must(err)
		w.out.say(done)
	}
}

// tell says everything that a repository can be asked for without reading pages.
func (w *world) tell(r *ledger.Repository) {
	w.t.Helper()
	st, err := admin.Status(context.Background(), r)
	w.must(err)
	info, _ := r.Cloud()
	w.out.say(st, st.Cloud, info, r.SyncStates(), admin.Metrics(r), r, w.options().Sync.Limits)
}

// run has two devices do all that there is to do with a bucket.
func (w *world) run() {
	w.t.Helper()
	ctx := context.Background()
	a := w.open("a")
	w.write(a, 1)
	info, err := a.SetCloud(ctx, &w.cloud)
	w.must(err)
	w.out.say(info)
	w.sync(a)
	b, err := ledger.Clone(ctx, filepath.Join(w.dir, "b"), w.options(), &w.cloud)
	w.must(err)
	first, err := b.Sync(ctx)
	w.must(err)
	w.out.say(first)
	if w.way == "passphrase" {
		w.put(a, 2) // what is in a bucket does not depend on where its key comes from
	} else {
		w.put(a, 34)
		w.replace(a)
	}
	w.put(b, 1)
	w.sync(a, b, a)
	w.write(a, 2)
	w.sync(a, b)
	w.must(w.forget(b))
	for range 2 {
		report, err := admin.CollectCloud(ctx, a, nil)
		w.must(err)
		w.out.say(report)
		w.age(w.bucket, 31*24*time.Hour)
	}
	p := w.page(b)
	err = p.View(ctx, func(s *ledger.Snapshot) error {
		_, err := s.Prefetch(ctx, nil, nil)
		return err
	})
	if err != nil {
		w.t.Error(err)
	}
	w.must(p.Close())
	w.tell(a)
	w.tell(b)
	if !w.calm {
		w.trouble(a)
	}
	w.must(a.Close())
	w.must(b.Close())
}

// forget lets errors of names that are not there be said.
func (w *world) forget(r *ledger.Repository) error {
	p := w.page(r)
	_, err := p.Resolve(context.Background(), "no such revision")
	w.out.say(err)
	return p.Close()
}

// trouble has things go wrong, to see what the errors say.
func (w *world) trouble(r *ledger.Repository) {
	w.t.Helper()
	ctx := context.Background()
	wrong := w.cloud
	wrong.KeyFile, wrong.Passphrase, wrong.Plaintext = "", nil, false
	for _, change := range []func(*ledger.Cloud){
		func(o *ledger.Cloud) { o.Passphrase = append([]byte("not "), w.pass.text...) },
		func(o *ledger.Cloud) { o.Passphrase, o.KeyFile = w.cloud.Passphrase, w.cloud.KeyFile },
		func(o *ledger.Cloud) { o.KeyFile = filepath.Join(w.bucket, "keys+", "00000000=") },
		func(o *ledger.Cloud) { o.KeyFile = w.dir },
		func(o *ledger.Cloud) { o.Plaintext = true },
		func(o *ledger.Cloud) { *o = w.cloud; o.URL = "gs://nobody/knows" },
		func(o *ledger.Cloud) {
			*o = w.cloud
			o.CredentialsFile = w.cloud.KeyFile
			o.URL = "dir:" + w.cloud.KeyFile
		},
	} {
		o := wrong
		change(&o)
		if w.way == "plaintext" && o.Plaintext && o.URL == w.cloud.URL {
			continue
		}
		_, err := r.SetCloud(ctx, &o)
		w.out.say(err)
		c, err := ledger.Clone(ctx, filepath.Join(w.dir, "none"), w.options(), &o)
		w.out.say(err)
		if c != nil {
			w.must(c.Close())
		}
	}
	// Each object of the log damaged in turn, for who begins.
	n, most := 0, 12
	if w.way == "passphrase" {
		most = 2 // each costs a derivation
	}
	w.files(w.bucket, func(path string, content []byte) {
		if !strings.Contains(path, "/log+/") && !strings.Contains(path, "pages+") && !strings.Contains(path, "/packs+/") || n >= most {
			return
		}
		n++
		bad := bytes.Clone(content)
		bad[len(bad)/2] ^= 1
		w.must(os.WriteFile(path, bad, 0o600))
		o := w.options()
		o.InMemory = true
		c, err := ledger.Clone(ctx, "", o, &w.cloud)
		w.out.say(err)
		if c != nil {
			first, err := c.Sync(ctx)
			w.out.say(first, err)
			w.tell(c)
			w.must(c.Close())
		}
		w.must(os.WriteFile(path, content, 0o600))
	})
	w.must(os.Rename(w.bucket, w.bucket+"-away"))
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	_, err := r.Sync(short)
	cancel()
	w.out.say(err)
	w.tell(r)
	w.must(os.Rename(w.bucket+"-away", w.bucket))
}

// files calls fn with every file below dir.
func (w *world) files(dir string, fn func(path string, content []byte)) {
	w.t.Helper()
	w.must(filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil {
			fn(path, b)
		}
		return err
	}))
}

// age makes the files below a directory older.
func (w *world) age(dir string, by time.Duration) {
	w.t.Helper()
	w.files(dir, func(path string, _ []byte) {
		info, err := os.Stat(path)
		w.must(err)
		then := info.ModTime().Add(-by)
		w.must(os.Chtimes(path, then, then))
	})
}

// cli runs a command, and has all that it says in the transcript.
func (w *world) cli(env map[string]string, args ...string) {
	w.t.Helper()
	code := cli.Main(w.t.Context(), cli.Process{Args: args, Stdin: strings.NewReader(""), Stdout: &w.out, Stderr: &w.out,
		LookupEnv: func(name string) (string, bool) { v, ok := env[name]; return v, ok }})
	fmt.Fprintf(&w.out, "%q: %d\n", args[2], code)
}

// commands runs the verbs that speak of clouds.
func (w *world) commands() {
	w.t.Helper()
	env := map[string]string{}
	secret := []string{"--plaintext"}
	switch w.way {
	case "key":
		secret = []string{"--key-file", w.cloud.KeyFile}
	case "passphrase":
		file := filepath.Join(w.dir, "pass")
		w.must(os.WriteFile(file, append(w.pass.text, '\n'), 0o600))
		env["LEDGER_PASSPHRASE"] = string(w.pass.text)
		secret = []string{"--passphrase-file", file}
	}
	dir := func(name string, args ...string) []string {
		return append([]string{"--dir", filepath.Join(w.dir, name)}, args...)
	}
	w.cli(env, append(dir("a", "cloud", "set", w.cloud.URL), secret...)...)
	for _, json := range []string{"--json", "--json=false"} {
		if w.way == "passphrase" && json != "--json" {
			break
		}
		w.cli(env, dir("a", "status", json)...)
		w.cli(env, dir("a", "cloud", "show", json)...)
		w.cli(env, dir("a", "cloud", "probe", w.cloud.URL, json)...)
		w.cli(env, dir("a", "cloud", "gc", "--dry-run", json)...)
		w.cli(env, dir("a", "sync", json)...)
	}
	w.cli(env, append(dir("d", "clone", w.cloud.URL), secret...)...)
	w.cli(env, append(dir("a", "cloud", "set", "dir:"+filepath.Join(w.dir, "other"), "--no-such-flag"), secret...)...)
	w.cli(map[string]string{"LEDGER_PASSPHRASE": "wrong"}, dir("a", "sync")...)
	if w.way == "key" {
		w.cli(env, dir("a", "key", "show", w.cloud.KeyFile)...)
		w.cli(env, dir("a", "key", "init", w.cloud.KeyFile)...)
	}
}
