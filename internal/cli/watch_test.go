package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/ledgerd/ledger/internal/cli"
)

// notified is a line of watch --json: a change, or the commit that ends a notification.
type notified struct {
	Commit, Base, Change, Key string
	New                       struct{ Value string }
}

// lines hands on whole lines.
type lines struct {
	rest []byte
	line func([]byte)
}

func (w *lines) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	for {
		line, rest, found := bytes.Cut(w.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		w.line(line)
		w.rest = rest
	}
}

// Whoever watches, is interrupted again and again, and goes on from the last commit that was
// printed, sees every change exactly once and in order, while others write, make siblings and
// merge.
func TestWatchIsExact(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repo")
	runs(t, dir, "", "init")
	watchIsExact(t, dir)
}

func watchIsExact(t *testing.T, dir string) {
	t.Helper()
	runs(t, dir, "", "put", "p", "first", "0")
	written, seen := make(chan struct{}), make(chan struct{}, 1)
	go func() {
		defer close(written)
		for round := range 5 {
			select {
			case <-seen:
			default:
			}
			write(t, dir, round)
			<-seen
		}
	}()
	page, last, rounds := map[string]string{}, "none", 0
	for {
		head, stop := "", written
		select {
		case <-written:
			stop = nil // a change is left to be printed, or none
			head = strings.TrimSpace(runs(t, dir, "", "log", "p", "--ids", "-n", "1"))
		default:
		}
		if last == head {
			break
		}
		last = watchOnce(t, dir, last, page, stop)
		rounds++
		select {
		case seen <- struct{}{}:
		default:
		}
	}
	want := map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSpace(runs(t, dir, "", "export", "p", "-", "--format", "jsonl")), "\n") {
		var e struct{ Key, Value string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		want[e.Key] = e.Value
	}
	if diff := cmp.Diff(want, page); diff != "" {
		t.Errorf("page is not what the notifications told (-want +got):\n%s", diff)
	}
	if rounds < 5 {
		t.Errorf("watched in %d rounds, want several", rounds)
	}
}

// write changes the page in many ways, and in the end so that it has one head, which no other
// equals.
func write(t *testing.T, dir string, round int) {
	r := rand.New(rand.NewPCG(1, uint64(round)))
	for i := range 6 {
		args := []string{"put", "p", fmt.Sprint("k", r.IntN(4)), fmt.Sprint(round, " ", i)}
		switch r.IntN(5) {
		case 0:
			args = append([]string{"rm", "p", "--force"}, args[2])
		case 1:
			args = append(args, "--parent", "HEAD~1", "--no-merge")
		case 2:
			args = append(args, "--parent", "HEAD~1")
		case 3:
			args = append(args, "--no-merge")
		}
		if _, errs, code := run(t, dir, "", args...); code != cli.ExitDone {
			t.Errorf("%q: exit code %d: %s", args, code, errs)
		}
	}
	for _, args := range [][]string{{"merge", "p"}, {"put", "p", "last", fmt.Sprint(round)}} {
		if _, errs, code := run(t, dir, "", args...); code != cli.ExitDone {
			t.Errorf("%q: exit code %d: %s", args, code, errs)
		}
	}
}

// watchOnce watches from a commit, is interrupted at the first line or when stop is closed, and
// returns the last commit that was printed.
func watchOnce(t *testing.T, dir, last string, page map[string]string, stop <-chan struct{}) string {
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	var stopping sync.WaitGroup
	stopping.Go(func() {
		select {
		case <-stop:
			interrupt()
		case <-ctx.Done():
		}
	})
	defer stopping.Wait()
	defer interrupt()
	var errs bytes.Buffer
	var changes []notified
	code := cli.Main(ctx, cli.Process{
		Args: []string{"watch", "p", "--json", "--from", last}, Stdin: strings.NewReader(""), Stderr: &errs,
		Stdout: &lines{line: func(line []byte) {
			interrupt()
			var n notified
			if err := json.Unmarshal(line, &n); err != nil {
				t.Errorf("line %q: %v", line, err)
			}
			if n.Commit == "" {
				changes = append(changes, n)
				return
			}
			if n.Base != last && last != "none" || len(changes) == 0 {
				t.Errorf("commit %s has %d changes since %s, after %s", n.Commit, len(changes), n.Base, last)
			}
			last = n.Commit
			replay(t, page, changes)
			changes = nil
		}},
		LookupEnv: environment(dir),
	})
	if code != cli.ExitDone {
		t.Fatalf("watch from %s: exit code %d: %s", last, code, &errs)
	}
	return last
}

// replay changes the page as a notification says.
func replay(t *testing.T, page map[string]string, changes []notified) {
	t.Helper()
	for _, c := range changes {
		old, has := page[c.Key]
		switch {
		case c.Change == "added" && !has, c.Change == "changed" && has && old != c.New.Value:
			page[c.Key] = c.New.Value
		case c.Change == "removed" && has:
			delete(page, c.Key)
		default:
			t.Errorf("key %s is %s, and was %q, %v", c.Key, c.Change, old, has)
		}
	}
}
