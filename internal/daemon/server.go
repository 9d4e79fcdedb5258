package daemon

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
)

// Request is a command to run.
type Request struct {
	// Program is the name under which the client was called, and Args are its arguments.
	Program string
	Args    []string
	// Env has the variables that commands use.
	Env map[string]string
	// Dir is the client's working directory, absolute, the base of relative paths.
	Dir string
	// PID is the client's process, whose open files /dev/fd has.
	PID int
	// Asks reports that a user at the client can answer on standard input the questions that the
	// command prints on standard error.
	Asks bool
}

// Handler runs a command and returns its exit code. It ends soon after ctx does.
type Handler func(ctx context.Context, r Request, stdin io.Reader, stdout, stderr io.Writer) int

// socketDir and socketName are the place of the socket within a repository.
const (
	socketDir  = "run"
	socketName = "ledgerd.sock"
)

// maxSocketPath is the length of a socket's path that every system accepts, without the final zero.
const maxSocketPath = 103

// The paths of the protocol, with its version.
const (
	runPath  = "/4/run"
	stopPath = "/4/stop"
)

// The header of a request and the trailer of an answer.
const (
	requestHeader = "Ledger-Request"
	codeTrailer   = "Exit-Code"
)

// maxRequest bounds a Request as JSON.
const maxRequest = 4 << 20

// window bounds the bytes in flight in one direction of a command.
const window = 256 << 10

// requestTime is the time limit for a client's request.
const requestTime = 10 * time.Second

// farewell is how long a stopping server waits for a client that does not read its command's
// output, and a client that ends a command for a server that does not respond.
const farewell = 2 * time.Second

// Server answers on the socket of a repository.
type Server struct {
	path     string
	listener net.Listener
	commands sync.RWMutex // read-locked by each command; locked for ever by a server that has stopped
}

// SocketPath returns the path of the socket of the repository in dir.
func SocketPath(dir string) string { return filepath.Join(dir, socketDir, socketName) }

// Listen makes the socket of the repository in dir, whose lock the caller holds. An existing socket
// was left by a process that has ended. Errors match base.ErrUnsupported where the system cannot
// identify the peer, base.ErrInvalid for a path that is too long for a socket, or are those of the
// file system.
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
	return &Server{path: path, listener: sameUser{l}}, nil
}

// sameUser accepts only connections of the user of this process.
type sameUser struct{ *net.UnixListener }

// Accept implements net.Listener.
func (l sameUser) Accept() (net.Conn, error) {
	for {
		c, err := l.AcceptUnix()
		if err != nil || samePeer(c) {
			return c, err
		}
		_ = c.Close()
	}
}

// Serve runs the commands of clients until ctx ends. It then ends their contexts, waits for them,
// removes the socket, and returns nil. Otherwise it returns the error that prevents it from
// accepting.
func (s *Server) Serve(ctx context.Context, h Handler) error {
	running, stop := context.WithCancel(ctx)
	defer stop()
	server := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
			if running.Err() != nil {
				panic(http.ErrAbortHandler) // the client sees that nothing was done
			}
			s.answer(w, q, h)
		}),
		Protocols:         clearText(),
		HTTP2:             &http.HTTP2Config{MaxReceiveBufferPerStream: window, MaxReadFrameSize: maxPart},
		MaxHeaderBytes:    2 * maxRequest, // base64, and the other headers
		ReadHeaderTimeout: requestTime,
		IdleTimeout:       requestTime,
		ErrorLog:          log.New(io.Discard, "", 0), // the client reports errors of its connection
		BaseContext:       func(net.Listener) context.Context { return running },
		ConnContext: func(ctx context.Context, _ net.Conn) context.Context {
			ctx, interrupt := context.WithCancel(ctx)
			return context.WithValue(ctx, interruptKey{}, interrupt)
		},
	}
	unhook := context.AfterFunc(ctx, func() { _ = s.listener.Close() })
	defer unhook()
	err := server.Serve(s.listener)
	stop()
	s.commands.Lock()
	leaving, cancel := context.WithTimeout(context.WithoutCancel(ctx), farewell)
	defer cancel()
	_ = errors.Join(server.Shutdown(leaving), server.Close()) // waits no longer for clients that have not read their exit code
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("accept at %s: %w", s.path, err)
}

// clearText selects HTTP/2 without TLS.
func clearText() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

// interruptKey is the context key of the function that ends the command of a connection.
type interruptKey struct{}

// answer runs the command of one client.
func (s *Server) answer(w http.ResponseWriter, q *http.Request, h Handler) {
	var r Request
	text, err := base64.StdEncoding.DecodeString(q.Header.Get(requestHeader))
	switch {
	case q.URL.Path == stopPath:
		q.Context().Value(interruptKey{}).(context.CancelFunc)()
		return
	case q.URL.Path != runPath || err != nil || json.Unmarshal(text, &r) != nil:
		w.WriteHeader(http.StatusNotFound)
		return
	case !s.commands.TryRLock():
		panic(http.ErrAbortHandler)
	}
	defer s.commands.RUnlock()
	control := http.NewResponseController(w)
	w.Header().Set("Trailer", codeTrailer)
	if control.Flush() != nil { // the answer begins
		panic(http.ErrAbortHandler)
	}
	ctx := q.Context()
	out := &answer{w: w, control: control}
	ended := make(chan int, 1)
	go func() { // a panic here ends the process, as elsewhere
		ended <- h(ctx, r, &input{ctx, sync.OnceValue(out.want), q.Body}, out.stream(partOut), out.stream(partErr))
	}()
	var code int
	select {
	case code = <-ended:
	case <-ctx.Done():
		now := clock.System.Now() // the system keeps the deadlines of connections
		_ = errors.Join(control.SetReadDeadline(now), control.SetWriteDeadline(now.Add(farewell)))
		code = <-ended
	}
	w.Header().Set(codeTrailer, strconv.Itoa(code))
}

// input is the standard input of a command.
type input struct {
	ctx  context.Context // of the command
	want func() error    // requests it from the client
	body io.Reader
}

// Read implements io.Reader. After the context has ended, it returns the cause.
func (in *input) Read(p []byte) (int, error) {
	if err := in.want(); err != nil {
		return 0, err
	}
	n, err := in.body.Read(p)
	if err != nil && !errors.Is(err, io.EOF) && in.ctx.Err() != nil {
		err = context.Cause(in.ctx)
	}
	return n, err
}
