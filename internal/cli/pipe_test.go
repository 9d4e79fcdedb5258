//go:build linux || darwin

package cli_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/cli"
)

// closedOutput is an output that nobody reads any more.
type closedOutput struct{}

func (closedOutput) Write([]byte) (int, error) { return 0, syscall.EPIPE }

// TestBrokenPipe: whoever closes the output has seen enough, but a connection that breaks as a pipe
// does is an error, as is damage that was found.
func TestBrokenPipe(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repo")
	do(t, 0, "", "--dir", dir, "init")
	do(t, 0, "", "--dir", dir, "put", "notes", "a", "1")
	var errs bytes.Buffer
	if code := cli.Main(t.Context(), process([]string{"--dir", dir, "ls", "notes"}, nil, closedOutput{}, &errs)); code != cli.ExitDone || errs.Len() > 0 {
		t.Errorf("closed output: exit code %d, %s", code, &errs)
	}
	segments, err := filepath.Glob(filepath.Join(dir, "1", "ledgers", "*", "*", "*.seg"))
	if err == nil {
		err = os.WriteFile(segments[0], []byte("damaged"), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if code := cli.Main(t.Context(), process([]string{"--dir", dir, "check"}, nil, closedOutput{}, &errs)); code != cli.ExitCorrupt {
		t.Errorf("damage with a closed output: exit code %d, %s", code, &errs)
	}
	errs.Reset()
	var out bytes.Buffer
	p := process([]string{"cloud", "probe", "broken:x"}, nil, &out, &errs)
	p.Buckets = map[string]bucket.Opener{"broken": func(ctx context.Context, _ string, _ bucket.OpenOptions) (bucket.Bucket, error) {
		return nil, fmt.Errorf("write to the store: %w", syscall.EPIPE)
	}}
	if code := cli.Main(t.Context(), p); code == cli.ExitDone || !strings.Contains(errs.String(), "write to the store") {
		t.Errorf("broken connection: exit code %d, %q", code, errs.String())
	}
}

// fullOutput is an output without room.
type fullOutput struct{}

func (fullOutput) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

// TestOutputThatFails: a verb whose result cannot be printed says that it is done all the same.
func TestOutputThatFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "repo")
	do(t, 0, "", "--dir", dir, "init")
	var errs bytes.Buffer
	code := cli.Main(t.Context(), process([]string{"--dir", dir, "put", "notes", "a", "1"}, nil, fullOutput{}, &errs))
	if code != cli.ExitPartly || !strings.Contains(errs.String(), "the verb is done, and its output could not be written: ") {
		t.Errorf("exit code %d, %s", code, &errs)
	}
	if got := do(t, 0, "", "--dir", dir, "get", "notes", "a"); got != "1" {
		t.Errorf("the page has %q", got)
	}
}

// slowInput is a standard input whose first byte comes when the channel more is closed. It closes
// asked when a verb first waits for it.
type slowInput struct {
	asked, more chan struct{}
	once        sync.Once
	content     *strings.Reader
}

func (s *slowInput) Read(p []byte) (int, error) {
	s.once.Do(func() { close(s.asked) })
	<-s.more
	return s.content.Read(p)
}

// TestSlowInputHoldsNoLock runs other verbs while one waits for its standard input.
func TestSlowInputHoldsNoLock(t *testing.T) {
	for _, args := range [][]string{{"put", "notes", "slow", "-f", "-"}, {"import", "notes", "-", "--format", "jsonl"}} {
		dir := filepath.Join(t.TempDir(), "repo")
		do(t, 0, "", "--dir", dir, "init")
		in := &slowInput{asked: make(chan struct{}), more: make(chan struct{}), content: strings.NewReader(`{"key":"slow","value":"x"}`)}
		done := make(chan int)
		var errs bytes.Buffer
		go func() {
			done <- cli.Main(t.Context(), process(append([]string{"--dir", dir}, args...), in, io.Discard, &errs))
		}()
		<-in.asked
		do(t, 0, "", "--dir", dir, "put", "notes", "quick", "y")
		close(in.more)
		if code := <-done; code != 0 {
			t.Errorf("%q: exit code %d, %s", args, code, &errs)
		}
		if got := do(t, 0, "", "--dir", dir, "ls", "notes"); got != "quick\nslow\n" {
			t.Errorf("%q: the page has %q", args, got)
		}
	}
}

// TestPipeWithoutWriter names a pipe that nothing else opens: a verb that ends does not wait, and
// leaves no call that waits, which TestMain would find.
func TestPipeWithoutWriter(t *testing.T) {
	dir, pipe := filepath.Join(t.TempDir(), "repo"), filepath.Join(t.TempDir(), "pipe")
	do(t, 0, "", "--dir", dir, "init")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	end()
	for _, args := range [][]string{{"put", "notes", "a", "-f", pipe}, {"catalog", "add", "things", pipe}} {
		var errs bytes.Buffer
		code := cli.Main(ctx, process(append([]string{"--dir", dir}, args...), nil, io.Discard, &errs))
		if code != cli.ExitInterrupted || !strings.Contains(errs.String(), "interrupted: ") {
			t.Errorf("%q: exit code %d, %s", args, code, &errs)
		}
	}
}
