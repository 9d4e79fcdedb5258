package kill_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/dir"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/secret"
	"github.com/ledgerd/ledger/internal/tier"
)

// program is the built binary, made once for all tests.
var program struct {
	once sync.Once
	dir  string
	err  error
}

// ledgerd returns the path of the binary.
func ledgerd(t testing.TB) string {
	t.Helper()
	program.once.Do(func() {
		if program.dir, program.err = os.MkdirTemp("", "ledgerd"); program.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(program.dir, "ledgerd"), "../../cmd/ledgerd").CombinedOutput()
		if err != nil {
			program.err = fmt.Errorf("build: %w: %s", err, out)
		}
	})
	if program.err != nil {
		t.Fatal(program.err)
	}
	return filepath.Join(program.dir, "ledgerd")
}

// removeProgram is for the end of all tests.
func removeProgram() {
	if program.dir != "" {
		_ = os.RemoveAll(program.dir) // nobody is left to tell
	}
}

func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := tier.Seed()
	t.Logf("LEDGER_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 99))
}

// times is n for every change, less on a developer's machine and more at night.
func times(n int) int { return tier.Of(n/5, n, 20*n) }

// world is a bucket in a directory, a key, and devices beside them.
type world struct {
	t      testing.TB
	dir    string
	rng    *rand.Rand
	killed int
	ended  int // runs that had ended before they were to be killed
	// acked is what was acknowledged, by page and key.
	acked map[string]map[string][32]byte
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, dir: t.TempDir(), rng: seeded(t), acked: map[string]map[string][32]byte{}}
	w.run("key", "init", w.path("key"))
	w.run(w.on("a", "init")...)
	return w
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// on returns arguments for a device.
func (w *world) on(device string, args ...string) []string {
	return append([]string{"--dir", w.path(device), "--no-progress", "--lock-timeout", "5m"}, args...)
}

func (w *world) cloud(bucket string) []string {
	return []string{"dir:" + w.path(bucket), "--key-file", w.path("key")}
}

// run runs a command that must succeed, and returns what it has printed.
func (w *world) run(args ...string) string {
	w.t.Helper()
	out, err := exec.Command(ledgerd(w.t), args...).CombinedOutput()
	if err != nil {
		w.t.Fatalf("ledgerd %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// put stores a value, which is acknowledged when it returns.
func (w *world) put(device, page, key string, value []byte) {
	w.t.Helper()
	cmd := exec.Command(ledgerd(w.t), w.on(device, "put", page, key, "-f", "-")...)
	cmd.Stdin = bytes.NewReader(value)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("put: %v: %s", err, out)
	}
	if w.acked[page] == nil {
		w.acked[page] = map[string][32]byte{}
	}
	w.acked[page][key] = sha256.Sum256(value)
}

// noise returns n bytes that cannot be compressed.
func (w *world) noise(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i++ {
		b[i] = byte(w.rng.Uint32())
	}
	return b
}

// kill starts a command and kills it after a random part of the time that it takes, unless it has
// ended before; then it must have succeeded, and tells how long it takes now: that a machine has
// more to do at one time than at another must not leave commands that always end, or that are
// killed in their beginnings only.
func (w *world) kill(whole *time.Duration, args ...string) {
	w.t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(ledgerd(w.t), args...)
	cmd.Stdout, cmd.Stderr = &out, &out
	w.must(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	begun := clock.System.Now()
	tick, release := clock.System.After(time.Duration(w.rng.Int64N(int64(*whole))))
	defer release()
	select {
	case err := <-ended:
		if w.ended++; err != nil {
			w.t.Fatalf("ledgerd %s: %v: %s", strings.Join(args, " "), err, out.String())
		}
		*whole = clock.System.Now().Sub(begun)
	case <-tick:
		w.killed++
		*whole += *whole / 16
		_ = cmd.Process.Kill() // it may have ended meanwhile
		<-ended
	}
}

// measure returns how long a command takes that must succeed.
func (w *world) measure(args ...string) time.Duration {
	w.t.Helper()
	start := clock.System.Now()
	w.run(args...)
	return clock.System.Now().Sub(start)
}

// state is what a device has of a page.
type state struct {
	heads  []ledger.CommitID
	values map[string][32]byte
}

// look reads all pages of a device, checks it, and wants everything that was acknowledged.
func (w *world) look(device string) map[string]state {
	w.t.Helper()
	ctx := context.Background()
	r, err := ledger.Open(ctx, w.path(device), &ledger.Options{LockTimeout: 5 * time.Minute, MustExist: true, Sync: ledger.SyncOptions{Manual: true}})
	w.must(err)
	defer func() { w.must(r.Close()) }()
	report, err := admin.Check(ctx, r, nil)
	w.must(err)
	if !report.OK() {
		w.t.Errorf("check of %s: %+v", device, report)
	}
	infos, err := r.Pages(ctx)
	w.must(err)
	all := map[string]state{}
	for _, info := range infos {
		p, err := r.OpenPage(ctx, info.PageRef)
		w.must(err)
		s := state{values: map[string][32]byte{}}
		heads, err := p.Heads(ctx)
		w.must(err)
		for _, h := range heads {
			s.heads = append(s.heads, h.ID)
		}
		w.must(p.View(ctx, func(v *ledger.Snapshot) error {
			for e, err := range v.Scan(ctx, ledger.ScanOptions{}) {
				if err != nil {
					return err
				}
				b, err := e.Value(ctx)
				if err != nil {
					return err
				}
				s.values[string(e.Key)] = sha256.Sum256(b)
			}
			return nil
		}))
		w.must(p.Close())
		name := info.Ledger
		if info.Name != "" {
			name += "/" + info.Name
		}
		all[name] = s
	}
	for page, values := range w.acked {
		for k, want := range values {
			if got := all[page].values[k]; got != want {
				w.t.Errorf("%s: %s of page %s was acknowledged and is lost", device, k, page)
			}
		}
	}
	return all
}

// equal wants devices to have the same.
func (w *world) equal(devices ...string) {
	w.t.Helper()
	first := w.look(devices[0])
	for _, d := range devices[1:] {
		for page, s := range w.look(d) {
			if !slices.Equal(s.heads, first[page].heads) || len(s.heads) != 1 {
				w.t.Errorf("page %s has the heads %v on %s, and %v on %s", page, s.heads, d, first[page].heads, devices[0])
			}
			if len(s.values) != len(first[page].values) {
				w.t.Errorf("page %s has %d keys on %s, and %d on %s", page, len(s.values), d, len(first[page].values), devices[0])
			}
		}
	}
}

// settle syncs two devices until there is nothing to do, and compares them.
func (w *world) settle(a, b string) {
	w.t.Helper()
	for _, d := range []string{a, b, a} {
		w.run(w.on(d, "sync")...)
	}
	w.equal(a, b)
}

// packs says which packs are in the bucket for a page: those that an entry announces, and the rest.
// No piece may stand in two that are announced, but for index pieces: the pack of one may arrive
// before that of a piece below it, and until both are there it counts as not sent.
func (w *world) packs(bucketDir, ledgerName string, page ledger.PageID) (announced, orphans int) {
	w.t.Helper()
	root := w.path(bucketDir)
	master, err := seal.ReadKeyFile(w.path("key"), false, secret.Bytes{})
	w.must(err)
	b, err := dir.Open(w.t.Context(), root, dir.Options{MustExist: true})
	w.must(err)
	chain, err := cloudsync.ReadKeys(w.t.Context(), b)
	w.must(err)
	w.must(bucket.Close(b))
	ring, err := chain.Open(master)
	w.must(err)
	sealer, names := seal.NewSealer(ring, nil), wire.NamesOf(ring, ledgerName, page)
	there := map[wire.Name][]byte{}
	spoken := map[wire.Name]bool{}
	w.must(filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		name, ok := names.Parse(strings.TrimSuffix(strings.ReplaceAll(filepath.ToSlash(rel), "+/", "/"), "="))
		if !ok || name.Kind != wire.KindPack && name.Kind != wire.KindEntry {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if name.Kind == wire.KindPack {
			there[name] = content
			return nil
		}
		entry, err := wire.OpenEntry(sealer, names, name.Epoch, name.Number, content)
		if err != nil || entry.Closing != nil {
			return err
		}
		if entry.Body == nil {
			return fmt.Errorf("%s has a body of its own, which these tests do not make", path)
		}
		return eachPack(entry.Body, func(p *wire.Pack) {
			spoken[wire.Name{Kind: wire.KindPack, Epoch: p.Epoch, ID: p.ID}] = true
		})
	}))
	where := map[string]wire.Name{}
	for name, content := range there {
		if !spoken[name] {
			orphans++
			continue
		}
		announced++
		r, err := sealer.NewStream(bytes.NewReader(content), int64(len(content)), names.PackLabel(name.Epoch), nil)
		w.must(err)
		table, err := wire.ReadPackTable(r)
		w.must(err)
		for _, p := range table.Pieces {
			if other, twice := where[p.Digest.String()]; twice && !p.Digest.Kind().IsIndex() {
				w.t.Errorf("a piece stands in the packs %x and %x", other.ID, name.ID)
				break
			}
			where[p.Digest.String()] = name
		}
	}
	return announced, orphans
}

// eachPack calls fn with the packs that a body announces.
func eachPack(body []byte, fn func(p *wire.Pack)) error {
	r := wire.NewReader(bytes.NewReader(body), wire.Body)
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if p, ok := rec.(*wire.Pack); ok {
			fn(p)
		}
	}
}

// exits runs a command and wants its exit code, and returns what it said.
func (w *world) exits(code int, cmd *exec.Cmd) string {
	w.t.Helper()
	out, err := cmd.CombinedOutput()
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		w.must(err)
	}
	if got != code {
		w.t.Fatalf("%v: exit code %d, want %d: %s", cmd.Args[1:], got, code, out)
	}
	return string(out)
}

// wholeObjects wants nothing half-written to be left where who lists the bucket would see it.
func (w *world) wholeObjects(bucketDir string) {
	w.t.Helper()
	w.must(filepath.WalkDir(w.path(bucketDir), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "=") {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Size() == 0 {
			w.t.Errorf("%s is empty", path)
		}
		return err
	}))
}
