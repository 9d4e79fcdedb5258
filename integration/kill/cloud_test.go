package kill_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/tier"
)

// TestKillSync kills sync on two devices that write between.
func TestKillSync(t *testing.T) {
	t.Parallel() // it waits for the disk more than it works
	w := newWorld(t)
	w.put("a", "notes", "begin", []byte("x"))
	w.run(w.on("a", append([]string{"cloud", "set"}, w.cloud("bucket")...)...)...)
	w.put("a", "notes", "long", w.noise(3<<20))
	whole := w.measure(w.on("a", "sync")...) * 3 / 4
	w.run(w.on("b", append([]string{"clone"}, w.cloud("bucket")...)...)...)
	for i := 0; w.killed < times(15); i++ {
		device := []string{"a", "b"}[i%2]
		w.put(device, "notes", fmt.Sprint("key ", i), []byte(fmt.Sprint("value ", i)))
		if i%3 == 0 {
			w.put(device, "notes", fmt.Sprint("long ", i), w.noise(1200<<10))
		}
		w.kill(&whole, w.on(device, "sync")...)
	}
	w.settle("a", "b")
	announced, orphans := w.packs("bucket", "notes", ledger.PageID{})
	t.Logf("%d killed, %d ended; %d packs announced, %d orphans", w.killed, w.ended, announced, orphans)
	if orphans > w.killed {
		t.Errorf("%d packs that no entry announces after %d kills", orphans, w.killed)
	}
}

// TestKillUpload kills sync within the upload of a long value: what was sent is not sent again.
func TestKillUpload(t *testing.T) {
	t.Parallel() // it waits for the disk more than it works
	w := newWorld(t)
	const packs = 3
	w.put("a", "films", "long", w.noise(packs*15<<20))
	w.run(w.on("a", append([]string{"cloud", "set"}, w.cloud("bucket")...)...)...)
	for whole, i := 400*time.Millisecond, 0; i < times(5); i++ {
		w.kill(&whole, w.on("a", "sync")...)
	}
	w.run(w.on("a", "sync")...)
	announced, orphans := w.packs("bucket", "films", ledger.PageID{})
	t.Logf("%d killed, %d ended; %d packs announced, %d orphans", w.killed, w.ended, announced, orphans)
	if orphans > 2*w.killed { // those that were on their way
		t.Errorf("%d packs that no entry announces after %d kills", orphans, w.killed)
	}
	w.wholeObjects("bucket")
	w.run(w.on("b", append([]string{"clone"}, w.cloud("bucket")...)...)...)
	w.settle("a", "b")
}

// TestKillClone kills clone again and again in one directory.
func TestKillClone(t *testing.T) {
	t.Parallel() // it waits for the disk more than it works
	w := newWorld(t)
	for i := range 20 {
		w.put("a", "notes", fmt.Sprint("key ", i), []byte(fmt.Sprint("value ", i)))
	}
	w.put("a", "notes", "long", w.noise(3<<20))
	w.put("a", "other/page", "k", []byte("v"))
	w.run(w.on("a", append([]string{"cloud", "set"}, w.cloud("bucket")...)...)...)
	w.run(w.on("a", "sync")...)
	clone := func(device string) []string { return w.on(device, append([]string{"clone"}, w.cloud("bucket")...)...) }
	whole := w.measure(clone("measured")...)
	device := 0
	name := func() string { return fmt.Sprint("b", device) }
	for w.killed < times(15) {
		ended := w.ended
		if w.kill(&whole, clone(name())...); w.ended > ended {
			w.settle("a", name())
			device++
		}
	}
	w.run(clone(name())...)
	w.settle("a", name())
	t.Logf("%d killed, %d ended", w.killed, w.ended)
}

// TestKillCloudSet kills the change from one cloud to another.
func TestKillCloudSet(t *testing.T) {
	t.Parallel() // it waits for the disk more than it works
	w := newWorld(t)
	w.put("a", "notes", "long", w.noise(1200<<10))
	set := func(i int) []string {
		return w.on("a", append([]string{"cloud", "set"}, w.cloud(fmt.Sprint("bucket", i%2))...)...)
	}
	whole := w.measure(set(0)...)
	for i := 0; w.killed < times(15); i++ {
		w.put("a", "notes", fmt.Sprint("key ", i), []byte("v"))
		w.kill(&whole, set(i+1)...)
		if i%4 == 3 {
			w.run(w.on("a", "sync")...) // with whichever it is
		}
	}
	w.run(set(0)...)
	w.run(w.on("a", "sync")...)
	w.run(w.on("b", append([]string{"clone"}, w.cloud("bucket0")...)...)...)
	w.settle("a", "b")
	t.Logf("%d killed, %d ended", w.killed, w.ended)
}

// TestKillImport kills an import and the sync after it.
func TestKillImport(t *testing.T) {
	t.Parallel() // it waits for the disk more than it works
	w := newWorld(t)
	src := w.path("src")
	files := func(round int) {
		for i := range 40 {
			path := filepath.Join(src, fmt.Sprint("dir", i%4), fmt.Sprint("file", i))
			w.must(os.MkdirAll(filepath.Dir(path), 0o700))
			w.must(os.WriteFile(path, bytes.Repeat([]byte(fmt.Sprint(round, " ", i, "\n")), 100*(i+1)), 0o600))
		}
		w.must(os.WriteFile(filepath.Join(src, "large"), w.noise(1<<20), 0o600))
	}
	files(0)
	w.run(w.on("a", "import", "src", src)...)
	w.run(w.on("a", append([]string{"cloud", "set"}, w.cloud("bucket")...)...)...)
	whole := w.measure(w.on("a", "sync")...)
	wholeImport := whole
	for i := 0; w.killed < times(15); i++ {
		files(i + 1)
		w.kill(&wholeImport, w.on("a", "import", "src", src)...)
		w.run(w.on("a", "import", "src", src)...)
		w.kill(&whole, w.on("a", "sync")...)
	}
	w.run(w.on("a", "sync")...)
	w.run(w.on("b", append([]string{"clone"}, w.cloud("bucket")...)...)...)
	w.settle("a", "b")
	w.run(w.on("b", "export", "src", w.path("out"))...)
	if out, err := exec.Command("diff", "-r", src, w.path("out")).CombinedOutput(); err != nil {
		t.Errorf("diff: %v: %s", err, out)
	}
	t.Logf("%d killed, %d ended", w.killed, w.ended)
}

// TestTwoSyncs runs two at once on one repository: one waits for the other, or says that it is
// there.
func TestTwoSyncs(t *testing.T) {
	t.Parallel() // it waits for the disk more than it works
	w := newWorld(t)
	w.put("a", "notes", "long", w.noise(4<<20))
	w.run(w.on("a", append([]string{"cloud", "set"}, w.cloud("bucket")...)...)...)
	var both sync.WaitGroup
	out := make([]string, 2)
	errs := make([]error, 2)
	for i := range 2 {
		both.Go(func() {
			b, err := exec.Command(ledgerd(t), w.on("a", "sync")...).CombinedOutput()
			out[i], errs[i] = string(b), err
		})
	}
	both.Wait()
	if errs[0] != nil || errs[1] != nil {
		t.Errorf("two that wait: %v %q, %v %q", errs[0], out[0], errs[1], out[1])
	}
	w.put("a", "notes", "longer", w.noise(4<<20))
	for i := range 2 {
		both.Go(func() {
			b, err := exec.Command(ledgerd(t), "--dir", w.path("a"), "--lock-timeout", "0s", "sync").CombinedOutput()
			out[i], errs[i] = string(b), err
		})
	}
	both.Wait()
	for i, err := range errs {
		if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 11) {
			t.Errorf("who finds the repository locked: %v %s", err, out[i])
		}
	}
	if errs[0] != nil && errs[1] != nil {
		t.Errorf("neither has synced: %s %s", out[0], out[1])
	}
	w.run(w.on("b", append([]string{"clone"}, w.cloud("bucket")...)...)...)
	w.settle("a", "b")
	if announced, orphans := w.packs("bucket", "notes", ledger.PageID{}); orphans > 0 {
		t.Errorf("%d packs announced, %d orphans", announced, orphans)
	}
}

// TestInterrupt ends a sync with an interrupt: it ends in good order, and the next one goes on.
func TestInterrupt(t *testing.T) {
	t.Parallel() // it waits for the disk more than it works
	w := newWorld(t)
	w.put("a", "notes", "long", w.noise(12<<20))
	w.run(w.on("a", append([]string{"cloud", "set"}, w.cloud("bucket")...)...)...)
	interrupted := 0
	for range tier.Of(1, 3, 3) {
		var out bytes.Buffer
		before := w.sent("bucket")
		cmd := exec.Command(ledgerd(t), w.on("a", "sync", "--upload-limit", "256K")...) // so it takes a minute
		cmd.Stdout, cmd.Stderr = &out, &out
		w.must(cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		for w.sent("bucket") == before { // it has begun, and asked for signals
			tick, release := clock.System.After(10 * time.Millisecond)
			select {
			case <-tick:
			case err := <-ended:
				t.Fatalf("it has ended before it sent anything: %v: %s", err, out.String())
			}
			release()
		}
		w.must(cmd.Process.Signal(os.Interrupt))
		err := <-ended
		if exit, ok := errors.AsType[*exec.ExitError](err); !ok || !exit.Exited() || exit.ExitCode() != 130 {
			t.Errorf("an interrupted sync: %v: %s", err, out.String())
		}
		interrupted++
	}
	w.run(w.on("a", "sync")...)
	w.run(w.on("b", append([]string{"clone"}, w.cloud("bucket")...)...)...)
	w.settle("a", "b")
	announced, orphans := w.packs("bucket", "notes", ledger.PageID{})
	t.Logf("%d interrupted; %d packs announced, %d orphans", interrupted, announced, orphans)
}

// sent returns how many bytes of files are in a directory, those not yet in their place included.
func (w *world) sent(dir string) int64 {
	var n int64
	w.must(filepath.WalkDir(w.path(dir), func(_ string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}

// TestLongValue takes a value of 2 GiB to another device.
func TestLongValue(t *testing.T) {
	t.Parallel() // it waits for the disk more than it works
	if !tier.Nightly() {
		t.Skip("takes minutes; LEDGER_TIER=2 runs it")
	}
	w := newWorld(t)
	file := w.path("long")
	f, err := os.Create(file)
	w.must(err)
	block := w.noise(1 << 20)
	for i := range 2 << 10 {
		copy(block, fmt.Sprint(i))
		_, err := f.Write(block)
		w.must(err)
	}
	w.must(f.Close())
	w.run(w.on("a", "put", "films", "long", "-f", file)...)
	w.run(w.on("a", append([]string{"cloud", "set"}, w.cloud("bucket")...)...)...)
	for whole, i := 10*time.Second, 0; i < 5; i++ {
		w.kill(&whole, w.on("a", "sync")...)
	}
	w.run(w.on("a", "sync")...)
	w.run(w.on("b", append([]string{"clone"}, w.cloud("bucket")...)...)...)
	cmd := exec.Command("sh", "-c", fmt.Sprintf("%s --dir %s get films long | cmp - %s", ledgerd(t), w.path("b"), file))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
