package bench

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/indexeddb/pages"
	"github.com/ledgerd/ledger/indexeddb/profile"
)

// BenchmarkIndexedDBImport imports directories of a browser with the built command, of 100 000
// records and of ten times as many, with 6 properties and two indexes. It tells the memory of the
// command at its most: own-MB are its own pages, and mapped-MB those of files, which the system
// takes back when it needs them. growth is how many times as much of its own ten times the records
// take.
func BenchmarkIndexedDBImport(b *testing.B) {
	bin := filepath.Join(tempDir(b), "ledgerd")
	command(b, "..", "go", "build", "-o", bin, "./cmd/ledgerd")
	few := scaled(100_000, recordsInTransaction) / recordsInTransaction * recordsInTransaction
	metrics := map[string]float64{}
	var own [2]float64
	for i, n := range []int{few, 10 * few} {
		dir := browserDirectory(b, n)
		took, peak := commandMemory(b, bin, "--dir", filepath.Join(tempDir(b), "repo"), "indexeddb", "import", "app/db", dir)
		own[i] = float64(peak["RssAnon"])
		name := fmt.Sprintf("%dk-", n/1000)
		metrics[name+"records/s"] = float64(n) / took.Seconds()
		metrics[name+"own-MB"] = own[i] / 1e6
		metrics[name+"mapped-MB"] = float64(peak["RssFile"]) / 1e6
	}
	metrics["growth"] = own[1] / max(1, own[0])
	report(b, metrics)
}

// browserDirectory returns a directory as a browser has it.
func browserDirectory(b *testing.B, n int) string {
	b.Helper()
	ctx := context.Background()
	repo, page := openPage(b, tempDir(b), ledger.Options{})
	defer closePage(b, repo, page)
	customers(b, page, n)
	snapshot, err := page.Snapshot(ctx)
	must(b, err)
	defer func() { must(b, snapshot.Close()) }()
	done, err := profile.Export(ctx, pages.Reader(snapshot.Reader), tempDir(b), nil)
	must(b, err)
	return done.Path
}

// commandMemory runs a program to its end. It returns how long that took, and the most memory that
// it was seen to have, in bytes: nothing where the system does not tell.
func commandMemory(b *testing.B, name string, args ...string) (time.Duration, map[string]int64) {
	b.Helper()
	cmd := exec.Command(name, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	peak := map[string]int64{}
	took := timed(func() {
		must(b, cmd.Start())
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case err := <-ended:
				if err != nil {
					b.Fatalf("%s %v: %v\n%s", name, args, err, &out)
				}
				return
			case <-tick.C:
				seeMemory(cmd.Process.Pid, peak)
			}
		}
	})
	return took, peak
}

// seeMemory raises peak to what a process has now.
func seeMemory(pid int, peak map[string]int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return
	}
	for line := range bytes.Lines(text) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		fields := bytes.Fields(value)
		if !bytes.HasPrefix(name, []byte("Rss")) || len(fields) == 0 {
			continue
		}
		if kib, err := strconv.ParseInt(string(fields[0]), 10, 64); err == nil {
			peak[string(name)] = max(peak[string(name)], kib<<10)
		}
	}
}
