package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/ledgerd/ledger/internal/base"
)

// Run has the server of the repository in dir run a command, and returns its exit code. ok is false when there is no server, which costs one look at the file system. ctx ends the command, not the wait
// for it: the exit code says how it ended. stdin is read by a goroutine, when the command reads it; who reads it may be left waiting there when the command ends before.
// Errors are those of the connection; then it is not known how far the command went.
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
	w := &wire{w: c}
	if err := w.send(frameRequest, request); err != nil {
		return 0, true, fmt.Errorf("call the server of %s: %w", dir, err)
	}
	unhook := context.AfterFunc(ctx, func() { _ = w.send(frameStop, nil) })
	defer unhook()
	code, err = answer(c, w, stdin, stdout, stderr)
	if err != nil {
		return 0, true, fmt.Errorf("the server of %s went away: %w", dir, err)
	}
	return code, true, nil
}

// absent reports whether err says that nobody listens at a socket.
func absent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.EINVAL) ||
		errors.Is(err, syscall.ENAMETOOLONG)
}

// answer takes what the server sends, up to the exit code.
func answer(c io.Reader, w *wire, stdin io.Reader, stdout, stderr io.Writer) (int, error) {
	for {
		kind, payload, err := receive(c, maxFrame)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
		switch kind {
		case frameOut:
			if _, err := stdout.Write(payload); err != nil {
				return 0, err
			}
		case frameErr:
			if _, err := stderr.Write(payload); err != nil {
				return 0, err
			}
		case frameWant:
			go sendInput(w, stdin) // ends with the input, or with the first write after the connection's end
		case frameExit:
			if len(payload) == 1 {
				return int(payload[0]), nil
			}
		}
	}
}

// sendInput sends standard input and its end.
func sendInput(w *wire, stdin io.Reader) {
	if stdin != nil {
		if _, err := io.CopyBuffer(w.stream(frameInput), struct{ io.Reader }{stdin}, make([]byte, 32<<10)); err != nil {
			return
		}
	}
	_ = w.send(frameEnd, nil)
}
