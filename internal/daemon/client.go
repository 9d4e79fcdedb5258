package daemon

import (
	"cmp"
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

// Run lets the server of the repository in dir run a command, and returns its exit code. ok is
// false when there is no server, or when it ends before it has begun the command. ctx ends the
// command, not the wait for it: the exit code says how it ended. Run does not wait for a server
// that does not respond to that, such as a suspended one. A goroutine reads stdin if the command
// does; a read that blocks when the command ends is abandoned. Errors are those of ctx before the
// command has begun, of stdin, stdout and stderr, and of the connection; the progress of the
// command is then unknown.
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
	reading, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	stop := func() {
		leaving, cancel := context.WithTimeout(reading, farewell)
		defer cancel()
		if errors.Is(call(leaving, c, stopPath), context.DeadlineExceeded) {
			abandon(errors.New("it does not respond"))
			_ = c.Close()
		}
	}
	unhook := context.AfterFunc(ctx, func() { stopping.Go(stop) })
	defer unhook()
	in, feed := io.Pipe()
	defer in.Close() // ends the goroutine that feeds it
	failed := make(chan error, 1)
	send := sync.OnceFunc(func() {
		go func() { // a blocked read continues until the process ends
			if stdin != nil {
				if _, err := io.Copy(feed, stdin); err != nil {
					failed <- err
					stop() // stdin is incomplete: the command must not see an end
					return
				}
			}
			feed.Close()
		}()
	})
	q, err := http.NewRequestWithContext(reading, http.MethodPost, origin+runPath, in)
	if err != nil {
		return 0, false, err
	}
	q.Header.Set(requestHeader, base64.StdEncoding.EncodeToString(request))
	a, err := c.RoundTrip(q)
	if err != nil {
		return 0, false, ctx.Err() // the server has not begun
	}
	if a.StatusCode != http.StatusOK {
		return 0, true, fmt.Errorf("the server of %s speaks another version: stop it, and start it anew: %w", dir, base.ErrUnsupported)
	}
	err = split(a.Body, stdout, stderr, send)
	if e, ok := errors.AsType[outputError](err); ok {
		return 0, true, e.error
	}
	select {
	case err := <-failed:
		if !errors.Is(err, io.ErrClosedPipe) { // otherwise the command has ended
			return 0, true, fmt.Errorf("read standard input: %w", err)
		}
	default:
	}
	code, noCode := strconv.Atoi(a.Trailer.Get(codeTrailer))
	if err == nil && noCode != nil {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return 0, true, fmt.Errorf("the server of %s went away: %w", dir, &lostError{cmp.Or(context.Cause(reading), err)})
	}
	return code, true, nil
}

// origin is the server in the addresses of requests; only the socket matters.
const origin = "http://ledgerd"

// connect returns a connection to the server of the repository in dir, nil when there is none.
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

// call makes a request without content, and expects none in the answer.
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

// lostError reports that the connection has ended. It does not match the system's error, which
// might be taken for an error of the output.
type lostError struct{ cause error }

func (e *lostError) Error() string { return e.cause.Error() }

// absent reports whether err means that no server listens at a socket, or none of this user: other
// users may not access it.
func absent(err error) bool {
	return errors.Is(err, os.ErrPermission) || errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EINVAL) ||
		errors.Is(err, syscall.ENAMETOOLONG) || errors.Is(err, syscall.ELOOP)
}
