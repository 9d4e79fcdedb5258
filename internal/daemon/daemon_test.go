//go:build linux || darwin || freebsd

package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/internal/base"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shortDir returns a directory whose path leaves room for a socket's.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// serving starts a server and returns its repository.
func serving(t *testing.T, h Handler) string {
	t.Helper()
	dir := shortDir(t)
	s, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ctx, h); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		wg.Wait()
		if _, err := os.Lstat(SocketPath(dir)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the socket is still there: %v", err)
		}
	})
	return dir
}

func TestCommandHasStreamsAndCode(t *testing.T) {
	dir := serving(t, func(_ context.Context, r Request, stdin io.Reader, stdout, stderr io.Writer) int {
		in, err := io.ReadAll(stdin)
		if err != nil {
			t.Error(err)
		}
		_, _ = fmt.Fprintf(stderr, "%s %q %s %s", r.Program, r.Args, r.Env["LEDGER_X"], r.Dir)
		_, _ = stdout.Write(in)
		return 7
	})
	input := bytes.Repeat([]byte("0123456789abcdef"), 40_000)
	var out, errs bytes.Buffer
	r := Request{Program: "p", Args: []string{"a", "b\x00c"}, Env: map[string]string{"LEDGER_X": "y"}, Dir: "/d"}
	code, ok, err := Run(t.Context(), dir, r, bytes.NewReader(input), &out, &errs)
	if code != 7 || !ok || err != nil {
		t.Fatal(code, ok, err)
	}
	if !bytes.Equal(out.Bytes(), input) {
		t.Errorf("%d bytes came back of %d", out.Len(), len(input))
	}
	if want := `p ["a" "b\x00c"] y /d`; errs.String() != want {
		t.Errorf("got %s, want %s", errs.String(), want)
	}
}

// refuse fails when it is read.
type refuse struct{ t *testing.T }

func (r refuse) Read([]byte) (int, error) {
	r.t.Error("standard input was read")
	return 0, io.EOF
}

func TestInputIsReadOnlyOnDemand(t *testing.T) {
	dir := serving(t, func(context.Context, Request, io.Reader, io.Writer, io.Writer) int { return 0 })
	if code, ok, err := Run(t.Context(), dir, Request{}, refuse{t}, io.Discard, io.Discard); code != 0 || !ok || err != nil {
		t.Fatal(code, ok, err)
	}
}

func TestManyClients(t *testing.T) {
	dir := serving(t, func(_ context.Context, r Request, _ io.Reader, stdout, _ io.Writer) int {
		_, _ = io.WriteString(stdout, r.Args[0])
		return 0
	})
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			var out bytes.Buffer
			want := fmt.Sprint("client ", i)
			if _, ok, err := Run(t.Context(), dir, Request{Args: []string{want}}, nil, &out, io.Discard); !ok || err != nil || out.String() != want {
				t.Error(ok, err, out.String())
			}
		})
	}
	wg.Wait()
}

func TestEndOfClientEndsCommand(t *testing.T) {
	began := make(chan struct{})
	dir := serving(t, func(ctx context.Context, _ Request, _ io.Reader, _, _ io.Writer) int {
		close(began)
		<-ctx.Done()
		return 130
	})
	ctx, stop := context.WithCancel(t.Context())
	go func() {
		<-began
		stop()
	}()
	if code, ok, err := Run(ctx, dir, Request{}, nil, io.Discard, io.Discard); code != 130 || !ok || err != nil {
		t.Fatal(code, ok, err)
	}
}

func TestLostClientEndsCommand(t *testing.T) {
	began, ended := make(chan struct{}), make(chan struct{})
	dir := serving(t, func(ctx context.Context, _ Request, stdin io.Reader, _, _ io.Writer) int {
		close(began)
		if _, err := io.ReadAll(stdin); err == nil {
			t.Error("the input of a lost client ended as if it were whole")
		}
		<-ctx.Done()
		close(ended)
		return 0
	})
	rest, end := io.Pipe()
	defer end.Close()
	c := begin(t, dir, io.MultiReader(strings.NewReader("half"), rest))
	<-began
	_ = c.Close()
	<-ended
}

func TestNoServer(t *testing.T) {
	dir := shortDir(t)
	check := func() {
		t.Helper()
		if _, ok, err := Run(t.Context(), dir, Request{}, nil, io.Discard, io.Discard); ok || err != nil {
			t.Fatal(ok, err)
		}
	}
	check()
	s, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	s.listener.(sameUser).SetUnlinkOnClose(false) // as a process that was killed leaves it
	_ = s.listener.Close()
	check()
	again, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	path := SocketPath(dir)
	if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
	if info, err := os.Lstat(filepath.Dir(path)); err != nil || info.Mode().Perm() != 0o700 {
		t.Error(info.Mode(), err)
	}
	_ = again.listener.Close()
}

func TestListenRefuses(t *testing.T) {
	dir := shortDir(t)
	if _, err := Listen(filepath.Join(dir, strings.Repeat("x", 100))); !errors.Is(err, base.ErrInvalid) {
		t.Error(err)
	}
	run := filepath.Join(dir, socketDir)
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(run, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(dir); !errors.Is(err, os.ErrPermission) {
		t.Error(err)
	}
	if err := os.Remove(run); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(shortDir(t), run); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(dir); !errors.Is(err, os.ErrPermission) {
		t.Error(err)
	}
}

func TestServerRefusesWhatItDoesNotUnderstand(t *testing.T) {
	dir := serving(t, func(context.Context, Request, io.Reader, io.Writer, io.Writer) int {
		t.Error("a handler ran")
		return 0
	})
	for name, q := range map[string]struct{ path, request string }{
		"another version": {"/3/run", "e30="},
		"no request":      {runPath, ""},
		"no base64":       {runPath, "{}"},
		"no JSON":         {runPath, "eyI="},
		"a long request":  {runPath, strings.Repeat("A", 3*maxRequest)},
	} {
		c, err := connect(dir)
		if err != nil {
			t.Fatal(err)
		}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, origin+q.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set(requestHeader, q.request)
		if a, err := c.RoundTrip(r); err == nil && a.StatusCode == http.StatusOK {
			t.Errorf("%s: %s", name, a.Status)
		}
		_ = c.Close()
	}
	for name, send := range map[string]string{
		"frames of before": "R\x00\x00\x00\x0d{\"Version\":3}",
		"HTTP/1.1":         "POST /4/run HTTP/1.1\r\nHost: x\r\nLedger-Request: e30=\r\n\r\n",
	} {
		c, err := net.Dial("unix", SocketPath(dir))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, send); err != nil {
			t.Fatal(err)
		}
		_ = c.(*net.UnixConn).CloseWrite()
		if _, err := io.Copy(io.Discard, c); err != nil && !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %v", name, err)
		}
		_ = c.Close()
	}
}
