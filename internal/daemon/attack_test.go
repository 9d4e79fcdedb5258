//go:build linux || darwin || freebsd

package daemon

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

// patience ends a test in which what must end does not.
const patience = 5 * time.Minute

// begin begins a command on a connection of its own, without reading the answer.
func begin(t *testing.T, dir string, stdin io.Reader) *http.ClientConn {
	t.Helper()
	c, err := connect(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	q, err := http.NewRequestWithContext(context.Background(), http.MethodPost, origin+runPath, stdin)
	if err != nil {
		t.Fatal(err)
	}
	q.ContentLength = -1
	q.Header.Set(requestHeader, "e30=")
	if a, err := c.RoundTrip(q); err != nil || a.StatusCode != http.StatusOK {
		t.Fatal(a, err)
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
			for written, part := 0, make([]byte, maxPart); ; written += len(part) {
				if _, err := stdout.Write(part); err != nil {
					return 1
				}
				if written >= window/2 {
					once.Do(func() { close(full) })
				}
			}
		}); err != nil {
			t.Error(err)
		}
	}()
	begin(t, dir, nil)
	ends(t, "filling the connection", full)
	stop()
	ends(t, "serving", done)
}

// endless is input that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestEndIsNoticedBehindInput has clients with input that nobody reads go away, and interrupt: the
// command ends.
func TestEndIsNoticedBehindInput(t *testing.T) {
	for name, leave := range map[string]func(c *http.ClientConn) error{
		"gone":        (*http.ClientConn).Close,
		"interrupted": func(c *http.ClientConn) error { return call(context.Background(), c, stopPath) },
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
			c := begin(t, dir, endless{})
			ends(t, "the read", reads)
			if err := leave(c); err != nil {
				t.Fatal(err)
			}
			ends(t, "the command", ended)
		})
	}
}

// TestInterruptEndsTheRead has a command whose context ends wait for input that does not come: the
// read ends with the cause.
func TestInterruptEndsTheRead(t *testing.T) {
	reads := make(chan struct{})
	dir := serving(t, func(_ context.Context, _ Request, stdin io.Reader, _, _ io.Writer) int {
		close(reads)
		if _, err := io.ReadAll(stdin); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		return 130
	})
	ctx, interrupt := context.WithCancel(t.Context())
	go func() {
		<-reads
		interrupt()
	}()
	silent, end := io.Pipe()
	defer end.Close()
	if code, ok, err := Run(ctx, dir, Request{}, silent, io.Discard, io.Discard); code != 130 || !ok || err != nil {
		t.Error(code, ok, err)
	}
}

// TestInputIsBounded reads one byte of endless input: not more is taken from it than the window and
// what lies in buffers beside.
func TestInputIsBounded(t *testing.T) {
	full := make(chan struct{})
	dir := serving(t, func(ctx context.Context, _ Request, stdin io.Reader, _, _ io.Writer) int {
		_, _ = stdin.Read(make([]byte, 1))
		<-full
		return 0
	})
	var read atomic.Int64
	in := readerFunc(func(p []byte) (int, error) {
		if read.Add(int64(len(p))) > window-maxPart {
			select {
			case <-full:
			default:
				close(full)
			}
		}
		return len(p), nil
	})
	if code, ok, err := Run(t.Context(), dir, Request{}, in, io.Discard, io.Discard); code != 0 || !ok || err != nil {
		t.Error(code, ok, err)
	}
	if n := read.Load(); n > 4*window {
		t.Errorf("%d bytes were taken of input that nobody reads", n)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

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
	for name, kill := range map[string]func(http.ResponseWriter){
		"at once":     func(http.ResponseWriter) {},
		"in a part":   func(w http.ResponseWriter) { _, _ = w.Write([]byte{partOut, 0, 0, 0, 9, 'x'}) },
		"behind one":  func(w http.ResponseWriter) { _, _ = w.Write([]byte{partOut, 0, 0, 0, 1, 'x'}) },
		"a long part": func(w http.ResponseWriter) { _, _ = w.Write([]byte{partOut, 1, 0, 0, 0}) },
	} {
		for _, abort := range []bool{true, false} {
			dir := answersHTTP(t, func(w http.ResponseWriter) {
				kill(w)
				_ = http.NewResponseController(w).Flush()
				if abort {
					panic(http.ErrAbortHandler)
				}
			})
			if _, ok, err := Run(t.Context(), dir, Request{}, nil, io.Discard, io.Discard); !ok || err == nil || errors.Is(err, syscall.EPIPE) {
				t.Errorf("a server that ends within the command, %s: %t, %v", name, ok, err)
			}
		}
	}
	closed := writerFunc(func([]byte) (int, error) { return 0, syscall.EPIPE })
	dir = serving(t, func(_ context.Context, _ Request, _ io.Reader, stdout, _ io.Writer) int {
		_, _ = io.WriteString(stdout, "x")
		return 0
	})
	if _, ok, err := Run(t.Context(), dir, Request{}, nil, closed, io.Discard); !ok || !errors.Is(err, syscall.EPIPE) {
		t.Errorf("an output that was closed: %t, %v", ok, err)
	}
}

// answersHTTP listens as a server that answers each request as do does.
func answersHTTP(t *testing.T, do func(http.ResponseWriter)) string {
	t.Helper()
	dir := shortDir(t)
	s, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	h := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { do(w) }), Protocols: clearText(), ReadHeaderTimeout: patience,
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = h.Serve(s.listener) })
	t.Cleanup(func() {
		_ = h.Close()
		wg.Wait()
	})
	return dir
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestStoppingServerBeginsNothing: a command that comes when the server is ending is not begun.
func TestStoppingServerBeginsNothing(t *testing.T) {
	dir := shortDir(t)
	s, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	accepted, closed := make(chan struct{}), make(chan struct{})
	s.listener = slow{s.listener, accepted, closed}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Serve(ctx, func(context.Context, Request, io.Reader, io.Writer, io.Writer) int {
			t.Error("the command has begun")
			return 0
		}); err != nil {
			t.Error(err)
		}
	})
	wg.Go(func() {
		if _, ok, err := Run(t.Context(), dir, Request{}, nil, io.Discard, io.Discard); ok || err != nil {
			t.Errorf("%t, %v", ok, err)
		}
	})
	<-accepted
	stop()
	wg.Wait()
}

// slow gives a connection out only when it was closed.
type slow struct {
	net.Listener
	accepted, closed chan struct{}
}

func (l slow) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		close(l.accepted)
	}
	<-l.closed
	return c, err
}

func (l slow) Close() error {
	select {
	case <-l.closed:
	default:
		close(l.closed)
	}
	return l.Listener.Close()
}

// TestScarcityPasses: the server goes on when the system has had no room for one more connection.
func TestScarcityPasses(t *testing.T) {
	dir := shortDir(t)
	s, err := Listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	fails := 2
	s.listener = scarce{s.listener, &fails}
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

// scarce is a listener that fails some times.
type scarce struct {
	net.Listener
	fails *int
}

func (l scarce) Accept() (net.Conn, error) {
	if *l.fails--; *l.fails >= 0 {
		return nil, &net.OpError{Op: "accept", Err: os.NewSyscallError("accept4", syscall.EMFILE)}
	}
	return l.Listener.Accept()
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

// TestServerThatDoesNotRespond ends a command whose server is suspended, before and after the
// command has begun.
func TestServerThatDoesNotRespond(t *testing.T) {
	for _, begins := range []bool{false, true} {
		dir := shortDir(t)
		if err := os.Mkdir(filepath.Dir(SocketPath(dir)), 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: SocketPath(dir), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		if begins {
			silent := make(chan struct{})
			server := &http.Server{Protocols: clearText(), Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				if q.URL.Path == runPath {
					_ = http.NewResponseController(w).Flush()
					stop()
				}
				<-silent
			})}
			wg.Go(func() { _ = server.Serve(l) })
			defer func() { close(silent); _ = server.Close(); wg.Wait() }()
		} else {
			stop()
		}
		_, begun, err := Run(ctx, dir, Request{}, nil, io.Discard, io.Discard)
		if begun != begins || errors.Is(err, context.Canceled) == begins || err == nil {
			t.Errorf("begun %v, want %v: %v", begun, begins, err)
		}
		_ = l.Close()
	}
}
