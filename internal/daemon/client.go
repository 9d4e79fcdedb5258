package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/ledgerd/ledger/internal/base"
)

// Run has the server of the repository in dir run a command, and returns its exit code. ok is false
// when there is no server, or it ends and has not begun with the command. ctx ends the command, not
// the wait for it: the exit code says how it ended. stdin is read by a goroutine, when the command
// reads it; who reads it may be left waiting there when the command ends before. Errors are those
// of stdin, stdout and stderr, and of the connection; then it is not known how far the command
// went.
func Run(ctx context.Context, dir string, r Request, stdin io.Reader, stdout, stderr io.Writer) (code int, ok bool, err error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: SocketPath(dir), Net: "unix"})
	if err != nil {
		if absent(err) {
			return 0, false, nil
		}
		return 0, false, fmt.Errorf("call the server of %s: %w", dir, err)
	}
	defer c.Close()
	if !peersKnown || !samePeer(c) {
		return 0, false, fmt.Errorf("call the server of %s: it belongs to another user: %w", dir, os.ErrPermission)
	}
	r.Version = version
	request, err := json.Marshal(r)
	if err != nil || len(request) > maxRequest {
		return 0, false, errors.Join(fmt.Errorf("call the server of %s: the arguments are too long: %w", dir, base.ErrTooLarge), err)
	}
	k := &client{c: c, w: &wire{w: c}, stdin: stdin, stdout: stdout, stderr: stderr, wants: make(chan struct{}, window), over: make(chan struct{})}
	defer close(k.over)
	_ = k.w.send(frameRequest, request) // when it fails, the server's answer says why, or nothing comes
	unhook := context.AfterFunc(ctx, func() { _ = k.w.send(frameStop, nil) })
	defer unhook()
	code, err = k.answer()
	if lost, ok := errors.AsType[*lostError](err); ok {
		if !k.begun {
			return 0, false, nil
		}
		return 0, true, fmt.Errorf("the server of %s went away: %w", dir, lost)
	}
	return code, true, err
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

// client is one command that a server runs.
type client struct {
	c              io.Reader
	w              *wire
	stdin          io.Reader
	stdout, stderr io.Writer
	begun          bool          // the server has begun with the command
	sending        bool          // sendInput was started
	wants          chan struct{} // frames of input that the server has asked for
	over           chan struct{} // closed when the command has ended
	inputErr       atomic.Pointer[error]
}

// answer takes what the server sends, up to the exit code.
func (k *client) answer() (int, error) {
	for {
		kind, payload, err := receive(k.c, maxFrame)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, &lostError{err}
		}
		switch kind {
		case frameBegun:
			k.begun = true
		case frameOut:
			_, err = k.stdout.Write(payload)
		case frameErr:
			_, err = k.stderr.Write(payload)
		case frameWant:
			err = k.want()
		case frameExit:
			if err := k.inputErr.Load(); err != nil {
				return 0, fmt.Errorf("read standard input: %w", *err)
			}
			if len(payload) == 1 {
				return int(payload[0]), nil
			}
		}
		if err != nil {
			return 0, err
		}
	}
}

// want has one more frame of input sent.
func (k *client) want() error {
	if !k.sending {
		k.sending = true
		go k.sendInput() // ends with the input, or with the command; a read of the input that waits ends with that
	}
	select {
	case k.wants <- struct{}{}:
		return nil
	default:
		return &lostError{fmt.Errorf("it asks for more input than %d frames: %w", window, base.ErrCorrupt)}
	}
}

// sendInput sends standard input, as far as it is asked for, and its end.
func (k *client) sendInput() {
	part := make([]byte, 32<<10)
	for {
		select {
		case <-k.wants:
		case <-k.over:
			return
		}
		n, err := 0, io.EOF
		if k.stdin != nil {
			n, err = k.stdin.Read(part)
		}
		if n > 0 || err == nil {
			if k.w.send(frameInput, part[:n]) != nil {
				return
			}
		}
		switch {
		case err == nil:
			continue
		case errors.Is(err, io.EOF):
			_ = k.w.send(frameEnd, nil)
		default: // what came is not all of it
			k.inputErr.Store(&err)
			_ = k.w.send(frameStop, nil)
		}
		return
	}
}
