package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

// patience ends a test in which what must end does not.
const patience = 5 * time.Minute

// begin begins a command on a connection of its own, without reading what comes.
func begin(t *testing.T, dir string) net.Conn {
	t.Helper()
	c, err := net.Dial("unix", SocketPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := (&wire{w: c}).send(frameRequest, fmt.Appendf(nil, `{"Version":%d}`, version)); err != nil {
		t.Fatal(err)
	}
	return c
}

// ends waits for a channel to be closed.
func ends(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	select {
	case <-done:
	case <-ctx.Done():
		t.Fatalf("%s does not end", what)
	}
}

// TestStopWithClientThatDoesNotRead stops a server whose client takes nothing of what his command
// writes.
func TestStopWithClientThatDoesNotRead(t *testing.T) {
	dir := shortDir(t)
	s, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	full, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if err := s.Serve(ctx, func(_ context.Context, _ Request, _ io.Reader, stdout, _ io.Writer) int {
			var once sync.Once
			for written, part := 0, make([]byte, maxFrame); ; written += len(part) {
				if _, err := stdout.Write(part); err != nil {
					return 1
				}
				if written > 0 {
					once.Do(func() { close(full) })
				}
			}
		}); err != nil {
			t.Error(err)
		}
	}()
	begin(t, dir)
	ends(t, "filling the connection", full)
	stop()
	ends(t, "serving", done)
}

// TestEndIsNoticedBehindInput has clients who have sent input that nobody reads go away, and
// interrupt: the command ends.
func TestEndIsNoticedBehindInput(t *testing.T) {
	for name, leave := range map[string]func(c net.Conn) error{
		"gone":        net.Conn.Close,
		"interrupted": func(c net.Conn) error { return (&wire{w: c}).send(frameStop, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			reads, ended := make(chan struct{}), make(chan struct{})
			dir := serving(t, func(ctx context.Context, _ Request, stdin io.Reader, _, _ io.Writer) int {
				if _, err := stdin.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
				close(reads)
				<-ctx.Done() // it waits for something else
				close(ended)
				return 0
			})
			c := begin(t, dir)
			w := &wire{w: c}
			for wants := 0; wants < window; {
				kind, _, err := receive(c, maxFrame)
				if err != nil {
					t.Fatal(err)
				}
				if kind == frameWant {
					wants++
				}
			}
			for range window {
				if err := w.send(frameInput, make([]byte, maxFrame)); err != nil {
					t.Fatal(err)
				}
			}
			ends(t, "the read", reads)
			if err := leave(c); err != nil {
				t.Fatal(err)
			}
			ends(t, "the command", ended)
		})
	}
}

// TestInputBeyondTheWindow ends the command of a client who sends what nobody has asked for.
func TestInputBeyondTheWindow(t *testing.T) {
	ended := make(chan struct{})
	dir := serving(t, func(ctx context.Context, _ Request, _ io.Reader, _, _ io.Writer) int {
		<-ctx.Done()
		close(ended)
		return 0
	})
	w := &wire{w: begin(t, dir)}
	for range 100 {
		if w.send(frameInput, make([]byte, maxFrame)) != nil {
			break
		}
	}
	ends(t, "the command", ended)
}

// answers listens as a server that does something else to a connection than to serve it.
func answers(t *testing.T, do func(c net.Conn)) string {
	t.Helper()
	dir := shortDir(t)
	if err := os.Mkdir(filepath.Join(dir, socketDir), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", SocketPath(dir))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			do(c)
			_ = c.Close()
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return dir
}

// TestServerThatHasNotBegun: when a server ends before it has begun with the command, it is as if
// there were none; after that it is not known how far the command went. What the system says of the
// connection is no error of the output.
func TestServerThatHasNotBegun(t *testing.T) {
	r := Request{Args: []string{strings.Repeat("x", 1<<20)}} // more than a connection holds
	dir := answers(t, func(net.Conn) {})
	if _, ok, err := Run(t.Context(), dir, r, nil, io.Discard, io.Discard); ok || err != nil {
		t.Errorf("a server that is ending: %t, %v", ok, err)
	}
	dir = answers(t, func(c net.Conn) { _ = (&wire{w: c}).send(frameBegun, nil) })
	if _, ok, err := Run(t.Context(), dir, r, nil, io.Discard, io.Discard); !ok || err == nil || errors.Is(err, syscall.EPIPE) {
		t.Errorf("a server that ends within the command: %t, %v", ok, err)
	}
	dir = answers(t, func(c net.Conn) {
		w := &wire{w: c}
		_, _, _ = receive(c, maxRequest)
		_, _ = w.send(frameBegun, nil), w.send(frameOut, []byte("x"))
	})
	closed := writerFunc(func([]byte) (int, error) { return 0, syscall.EPIPE })
	if _, ok, err := Run(t.Context(), dir, Request{}, nil, closed, io.Discard); !ok || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("an output that was closed: %t, %v", ok, err)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestStoppingServerBeginsNothing: a command that comes when the server is ending is not begun.
func TestStoppingServerBeginsNothing(t *testing.T) {
	dir := answers(t, func(c net.Conn) {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		serve(ended, c.(*net.UnixConn), func(context.Context, Request, io.Reader, io.Writer, io.Writer) int {
			t.Error("the command has begun")
			return 0
		})
	})
	if _, ok, err := Run(t.Context(), dir, Request{}, nil, io.Discard, io.Discard); ok || err != nil {
		t.Errorf("%t, %v", ok, err)
	}
}

// TestScarcityPasses: the server goes on when the system has had no room for one more connection.
func TestScarcityPasses(t *testing.T) {
	dir := shortDir(t)
	s, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	fails := 2
	s.accept = func() (*net.UnixConn, error) {
		if fails--; fails >= 0 {
			return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
		}
		return s.listener.AcceptUnix()
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ctx, func(context.Context, Request, io.Reader, io.Writer, io.Writer) int { return 3 }); err != nil {
			t.Error(err)
		}
	})
	defer wg.Wait()
	defer stop()
	if code, ok, err := Run(t.Context(), dir, Request{}, nil, io.Discard, io.Discard); code != 3 || !ok || err != nil {
		t.Error(code, ok, err)
	}
}

// TestInputThatBreaksOff: input that cannot be read on is no whole input.
func TestInputThatBreaksOff(t *testing.T) {
	dir := serving(t, func(_ context.Context, _ Request, stdin io.Reader, _, _ io.Writer) int {
		if b, err := io.ReadAll(stdin); err == nil {
			t.Errorf("%q is whole", b)
		}
		return 0
	})
	broken := io.MultiReader(strings.NewReader("half"), iotest.ErrReader(syscall.EIO))
	if _, ok, err := Run(t.Context(), dir, Request{}, broken, io.Discard, io.Discard); !ok || !errors.Is(err, syscall.EIO) {
		t.Errorf("%t, %v", ok, err)
	}
}
