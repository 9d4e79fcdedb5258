package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
)

// Request is a command to be run.
type Request struct {
	// Version is that of the protocol; Run sets it.
	Version int
	// Program is how the client was called, and Args are its arguments.
	Program string
	Args    []string
	// Env has the variables that commands look at.
	Env map[string]string
	// Dir is the directory of the client, absolute, which relative paths mean.
	Dir string
	// Asks says that a person at the client answers on standard input what the command asks on
	// standard error.
	Asks bool
}

// Handler runs a command and returns its exit code. It ends soon after ctx does.
type Handler func(ctx context.Context, r Request, stdin io.Reader, stdout, stderr io.Writer) int

// socketDir and socketName are where the socket lies within a repository.
const (
	socketDir  = "run"
	socketName = "ledgerd.sock"
)

// maxSocketPath is what every system takes as the path of a socket, with the zero behind it.
const maxSocketPath = 103

// requestTime is how long a client may take for its request.
const requestTime = 10 * time.Second

// farewell is for how long a client is waited for that does not take what a command writes, when
// the server stops.
const farewell = 2 * time.Second

// acceptPause is how long the server waits when there is not enough of something for one more
// connection.
const acceptPause = 100 * time.Millisecond

// Server answers on the socket of a repository.
type Server struct {
	path     string
	listener *net.UnixListener
	accept   func() (*net.UnixConn, error) // of the listener
	wg       sync.WaitGroup
}

// SocketPath returns the path of the socket of the repository in dir.
func SocketPath(dir string) string { return filepath.Join(dir, socketDir, socketName) }

// Listen makes the socket of the repository in dir, whose lock the caller holds: a socket that is
// there already was left by a process that has ended. Errors match base.ErrUnsupported where a
// server cannot ask who is calling, base.ErrInvalid for a path that is too long for a socket, or
// are those of the file system.
func Listen(dir string) (*Server, error) {
	if !peersKnown {
		return nil, fmt.Errorf("listen in %s: the system does not tell who calls: %w", dir, base.ErrUnsupported)
	}
	path := SocketPath(dir)
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("listen at %s: the path has %d bytes, a socket's at most %d; use a shorter or relative directory: %w", path, len(path), maxSocketPath, base.ErrInvalid)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if info, err := os.Lstat(filepath.Dir(path)); err != nil {
		return nil, err
	} else if !info.IsDir() || info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("listen in %s: it must be a directory of mode 0700: %w", filepath.Dir(path), os.ErrPermission)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return &Server{path: path, listener: l, accept: l.AcceptUnix}, nil
}

// Path returns the path of the socket.
func (s *Server) Path() string { return s.path }

// Serve runs the commands of clients until ctx ends, lets those that run end, and removes the
// socket. It returns nil then, and else the error for which it can take no more.
func (s *Server) Serve(ctx context.Context, h Handler) error {
	running, stop := context.WithCancel(ctx)
	defer s.wg.Wait()
	defer stop()
	unhook := context.AfterFunc(ctx, func() { _ = s.listener.Close() })
	defer unhook()
	for {
		c, err := s.accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			if passes(err) && pause(ctx) {
				continue
			}
			return errors.Join(fmt.Errorf("accept at %s: %w", s.path, err), s.listener.Close())
		}
		s.wg.Go(func() {
			defer c.Close()
			serve(running, c, h)
		})
	}
}

// passes reports whether err says that there is not enough of something for one more connection:
// who is served gives some back.
func passes(err error) bool {
	for _, target := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// pause waits a while, and reports false when ctx ends.
func pause(ctx context.Context) bool {
	due, release := clock.System.After(acceptPause)
	defer release()
	select {
	case <-due:
		return true
	case <-ctx.Done():
		return false
	}
}

// Close removes the socket of a server that does not serve.
func (s *Server) Close() error { return s.listener.Close() }

// serve runs the command of one client. What goes wrong with the connection is the client's to
// tell.
func serve(ctx context.Context, c *net.UnixConn, h Handler) {
	if !samePeer(c) {
		return
	}
	_ = c.SetReadDeadline(clock.System.Now().Add(requestTime)) // deadlines of connections are kept by the system
	kind, payload, err := receive(c, maxRequest)
	if err != nil || kind != frameRequest {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	out := &wire{w: c}
	var r Request
	if err := json.Unmarshal(payload, &r); err != nil || r.Version != version {
		_, _ = fmt.Fprintf(out.stream(frameErr), "ledgerd: the server of this repository speaks another version: stop it, and start it anew\n")
		_ = out.send(frameExit, []byte{1})
		return
	}
	if ctx.Err() != nil || out.send(frameBegun, nil) != nil {
		return // the client sees that nothing was done
	}
	stopping := context.AfterFunc(ctx, func() { _ = c.SetWriteDeadline(clock.System.Now().Add(farewell)) })
	defer stopping()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	in := newInput(out)
	read := make(chan struct{})
	go func() { // ends when the connection is closed, below
		defer close(read)
		in.readFrames(c, cancel)
	}()
	unhook := context.AfterFunc(ctx, func() { in.end(context.Cause(ctx)) })
	code := h(ctx, r, in, out.stream(frameOut), out.stream(frameErr))
	unhook()
	_ = out.send(frameExit, []byte{byte(code)})
	_ = c.Close()
	<-read
}

// input is standard input as it comes in frames. It asks for it when it is first read, and for more
// when it has given something out.
type input struct {
	out   *wire
	parts chan []byte // those that were asked for and came
	done  chan struct{}

	mu   sync.Mutex
	err  error // guarded by mu; set before done is closed
	over bool  // guarded by mu

	asked bool
	rest  []byte
}

func newInput(out *wire) *input {
	return &input{out: out, parts: make(chan []byte, window), done: make(chan struct{})}
}

// end has reads return err once what came before is read.
func (in *input) end(err error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.over {
		in.over, in.err = true, err
		close(in.done)
	}
}

// readFrames takes what the client sends until the connection ends, and then ends the command.
func (in *input) readFrames(c io.Reader, cancel context.CancelFunc) {
	defer cancel()
	for {
		kind, payload, err := receive(c, maxFrame)
		switch {
		case err != nil || kind == frameStop:
			return
		case kind == frameEnd:
			in.end(io.EOF)
		case kind == frameInput:
			select {
			case in.parts <- payload:
			default:
				return // nobody has asked for so much
			}
		}
	}
}

// Read implements io.Reader.
func (in *input) Read(p []byte) (int, error) {
	for want := window; !in.asked && want > 0; want-- {
		if err := in.out.send(frameWant, nil); err != nil {
			return 0, err
		}
	}
	in.asked = true
	for len(in.rest) == 0 {
		if err := in.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, in.rest)
	in.rest = in.rest[n:]
	return n, nil
}

// next waits for a part, and asks for another one.
func (in *input) next() error {
	select {
	case in.rest = <-in.parts:
		return in.more()
	case <-in.done:
	}
	select { // what came before the end
	case in.rest = <-in.parts:
		return nil
	default:
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.err
}

// more asks for another part, unless the end has come: then nobody listens.
func (in *input) more() error {
	select {
	case <-in.done:
		return nil
	default:
		return in.out.send(frameWant, nil)
	}
}
