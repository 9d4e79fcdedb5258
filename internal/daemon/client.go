package daemon

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/ledgerd/ledger/internal/base"
)

// Run has the server of the repository in dir run a command, and returns its exit code. ok is false
// when there is no server, or it ends and has not begun with the command. ctx ends the command, not
// the wait for it: the exit code says how it ended. stdin is read by a goroutine, when the command
// reads it; a read that waits when the command ends is left to itself. Errors are those of stdin,
// stdout and stderr, and of the connection; then it is not known how far the command went.
func Run(ctx context.Context, dir string, r Request, stdin io.Reader, stdout, stderr io.Writer) (code int, ok bool, err error) {
	request, err := json.Marshal(r)
	if err != nil || len(request) > maxRequest {
		return 0, false, errors.Join(fmt.Errorf("call the server of %s: the arguments are too long: %w", dir, base.ErrTooLarge), err)
	}
	c, err := connect(dir)
	if err != nil || c == nil {
		return 0, false, err
	}
	var stopping sync.WaitGroup
	defer stopping.Wait()
	defer c.Close()
	stop := func() { _ = call(context.WithoutCancel(ctx), c, stopPath) }
	unhook := context.AfterFunc(ctx, func() { stopping.Go(stop) })
	defer unhook()
	in := &source{r: stdin, wanted: make(chan struct{}), over: make(chan struct{}), stop: stop}
	defer in.Close()
	q, err := http.NewRequestWithContext(context.WithoutCancel(ctx), http.MethodPost, origin+runPath, in)
	if err != nil {
		return 0, false, err
	}
	q.Header.Set(requestHeader, base64.StdEncoding.EncodeToString(request))
	a, err := c.RoundTrip(q)
	if err != nil {
		return 0, false, nil // the server has not begun
	}
	if a.StatusCode != http.StatusOK {
		return 0, true, fmt.Errorf("the server of %s speaks another version: stop it, and start it anew: %w", dir, base.ErrUnsupported)
	}
	err = split(a.Body, stdout, stderr, sync.OnceFunc(func() { close(in.wanted) }))
	if e, ok := errors.AsType[outputError](err); ok {
		return 0, true, e.error
	}
	if failed := in.failed(); failed != nil {
		return 0, true, fmt.Errorf("read standard input: %w", failed)
	}
	code, noCode := strconv.Atoi(a.Trailer.Get(codeTrailer))
	if err == nil && noCode != nil {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, true, fmt.Errorf("the server of %s went away: %w", dir, &lostError{err})
	}
	return code, true, nil
}

// origin stands for the server in the addresses of requests; the socket is what counts.
const origin = "http://ledgerd"

// connect returns a connection to the server of the repository in dir, nil where none answers.
func connect(dir string) (*http.ClientConn, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: SocketPath(dir), Net: "unix"})
	switch {
	case absent(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("call the server of %s: %w", dir, err)
	case !peersKnown || !samePeer(c):
		return nil, errors.Join(fmt.Errorf("call the server of %s: it belongs to another user: %w", dir, os.ErrPermission), c.Close())
	}
	t := &http.Transport{
		DialContext: func(context.Context, string, string) (net.Conn, error) { return c, nil },
		Protocols:   clearText(),
		HTTP2:       &http.HTTP2Config{MaxReceiveBufferPerStream: window, MaxReadFrameSize: maxPart},
	}
	h, err := t.NewClientConn(context.Background(), "http", "ledgerd:80")
	if err != nil { // the server is ending
		_ = c.Close()
		return nil, nil
	}
	return h, nil
}

// call makes a request that has no content, neither has its answer.
func call(ctx context.Context, c *http.ClientConn, path string) error {
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, origin+path, nil)
	if err != nil {
		return err
	}
	a, err := c.RoundTrip(q)
	if err != nil {
		return err
	}
	return a.Body.Close()
}

// lostError says that the connection has ended. It does not match what the system says of that,
// which might be taken for an error of the output.
type lostError struct{ cause error }

func (e *lostError) Error() string { return e.cause.Error() }

// absent reports whether err says that nobody listens at a socket, or nobody who is this user's:
// others may not look there.
func absent(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EINVAL) ||
		errors.Is(err, syscall.ENAMETOOLONG)
}

// source is the standard input of a command, as the body of its request.
type source struct {
	r      io.Reader     // nil for none
	wanted chan struct{} // closed when the command reads it
	over   chan struct{} // closed by Close
	close  sync.Once
	stop   func() // ends the command

	mu  sync.Mutex
	err error // guarded by mu; of r, when it is not its end
}

// Close implements io.Closer. It may be called more than once, concurrently with Read.
func (s *source) Close() error {
	s.close.Do(func() { close(s.over) })
	return nil
}

// Read implements io.Reader. It waits for the command to read, and returns when s is closed. The
// read of s.r goes on then, into a buffer of its own, and ends with the process.
func (s *source) Read(p []byte) (int, error) {
	select {
	case <-s.wanted:
	case <-s.over:
		return 0, io.EOF
	}
	if s.r == nil {
		return 0, io.EOF
	}
	type read struct {
		b   []byte
		err error
	}
	done := make(chan read, 1)
	go func() {
		b := make([]byte, min(len(p), maxPart))
		n, err := s.r.Read(b)
		done <- read{b[:n], err}
	}()
	select {
	case r := <-done:
		n := copy(p, r.b)
		if r.err != nil && !errors.Is(r.err, io.EOF) { // what came is not all of it
			s.mu.Lock()
			s.err = r.err
			s.mu.Unlock()
			s.stop()
			<-s.over
		}
		return n, r.err
	case <-s.over:
		return 0, io.EOF
	}
}

// failed returns the error of the input.
func (s *source) failed() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}
