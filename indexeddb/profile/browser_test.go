package profile_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// browser runs scripts in headless Chromium, on a page of one origin, with a profile directory of
// its own.
type browser struct {
	t       *testing.T
	program string
	server  *http.Server
	origin  string
	profile string
	sqlite  bool

	script  atomic.Value // a string: the server reads it
	results chan []byte
	during  func() // is called before the browser ends
}

// newBrowser skips the test where there is no Chromium.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	b := &browser{t: t, profile: t.TempDir(), results: make(chan []byte, 1)}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			b.program = path
		}
	}
	if b.program == "" {
		t.Skip("no Chromium is installed: Debian has it as the package chromium")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b.origin = listener.Addr().String()
	b.server = &http.Server{Handler: b}
	served := make(chan struct{})
	go func() {
		defer close(served)
		b.server.Serve(listener) // ends with Close
	}()
	t.Cleanup(func() {
		b.server.Close()
		<-served
	})
	return b
}

// ServeHTTP serves the page, and takes what its script has to say.
func (b *browser) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/result":
		body, _ := io.ReadAll(r.Body)
		select {
		case b.results <- body:
		default:
		}
	case "/":
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!DOCTYPE html><meta charset=utf-8><script type=module>
const post = o => fetch('/result', {method: 'POST', body: JSON.stringify(o)});
const done = r => new Promise((ok, no) => { r.onsuccess = () => ok(r.result); r.onerror = () => no(r.error); });
const finished = tx => new Promise((ok, no) => { tx.oncomplete = ok; tx.onabort = () => no(tx.error || 'aborted'); });
const open = (name, version, upgrade) => new Promise((ok, no) => {
  const r = indexedDB.open(name, version);
  r.onupgradeneeded = e => upgrade && upgrade(r.result, r.transaction, e.oldVersion);
  r.onsuccess = () => ok(r.result); r.onerror = () => no(r.error); r.onblocked = () => no('blocked');
});
try { await post({ok: await (async () => { %s })() ?? null}); } catch (e) { await post({error: String(e && e.stack || e)}); }
</script>`, b.script.Load())
	default:
		http.NotFound(w, r)
	}
}

// run runs a script to its end in a new process, and decodes into result what it returns. A clean
// end is that of a browser that was closed; else the process is killed.
func (b *browser) run(script string, clean bool, result any) {
	b.t.Helper()
	b.script.Store(script)
	ctx, cancel := context.WithTimeout(b.t.Context(), 2*time.Minute)
	defer cancel()
	features := "--disable-features=IdbSqliteBackingStore,IdbSqliteOnDiskRollout"
	if b.sqlite {
		features = "--enable-features=IdbSqliteBackingStore,IdbSqliteOnDiskRollout"
	}
	cmd := exec.CommandContext(ctx, b.program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--remote-debugging-pipe",
		features, "--user-data-dir="+b.profile, "http://"+b.origin+"/")
	commands, answers := pipe(b.t), pipe(b.t)
	cmd.ExtraFiles = []*os.File{commands[0], answers[1]}
	var log strings.Builder
	cmd.Stderr, cmd.WaitDelay = &log, 10*time.Second
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	commands[0].Close()
	answers[1].Close()
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		io.Copy(io.Discard, answers[0])
	}()
	var body []byte
	select {
	case body = <-b.results:
	case <-ctx.Done():
	}
	if body != nil && b.during != nil {
		b.during()
	}
	if clean && body != nil {
		fmt.Fprint(commands[1], `{"id":1,"method":"Browser.close"}`+"\x00")
	} else {
		cmd.Process.Kill()
	}
	cmd.Wait() // the exit code of a browser that is closed says nothing
	commands[1].Close()
	<-drained
	answers[0].Close()
	var answer struct {
		OK    json.RawMessage
		Error string
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.Error != "" {
		if body != nil {
			log.Reset() // it is long, and tells only why there is no result
		}
		b.t.Fatalf("the script says %q, error %v\n%s", answer.Error, err, log.String())
	}
	if result != nil {
		if err := json.Unmarshal(answer.OK, result); err != nil {
			b.t.Fatal(err)
		}
	}
}

func pipe(t *testing.T) [2]*os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return [2]*os.File{r, w}
}

// indexedDB is where the browser keeps the data of all origins.
func (b *browser) indexedDB() string { return filepath.Join(b.profile, "Default", "IndexedDB") }

// endings are how a browser ends: it is killed, and with LEDGER_TIER=2 it is closed, too.
func endings() []bool {
	if os.Getenv("LEDGER_TIER") >= "2" {
		return []bool{false, true}
	}
	return []bool{false}
}
