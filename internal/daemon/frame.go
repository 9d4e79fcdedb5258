package daemon

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/ledgerd/ledger/internal/base"
)

// version is that of the frames and of Request.
const version = 3

// maxFrame bounds the payload of a frame, and maxRequest that of the first one.
const (
	maxFrame   = 64 << 10
	maxRequest = 4 << 20
)

// window is how many frames of standard input may be on their way: what is sent is always taken at
// once, so that the client's interrupt, and his end, are not behind it.
const window = 4

// The kinds of frames.
const (
	frameRequest = 'R' // client: Request as JSON
	frameInput   = 'i' // client: bytes of standard input
	frameEnd     = 'e' // client: standard input ends
	frameStop    = 'c' // client: the command is to end, as by an interrupt
	frameBegun   = 'b' // server: the command begins; without it nothing was done
	frameWant    = 'w' // server: one more frame of standard input may come
	frameOut     = '1' // server: bytes of standard output
	frameErr     = '2' // server: bytes of standard error
	frameExit    = 'x' // server: the exit code, one byte
)

// wire writes frames. Its methods may be called concurrently.
type wire struct {
	mu sync.Mutex
	w  io.Writer
}

// send writes a frame, whose payload is at most maxFrame bytes, or maxRequest for a request.
func (x *wire) send(kind byte, payload []byte) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := make([]byte, 5, 5+len(payload))
	b[0] = kind
	binary.BigEndian.PutUint32(b[1:], uint32(len(payload)))
	_, err := x.w.Write(append(b, payload...))
	return err
}

// stream returns a writer that sends frames of a kind.
func (x *wire) stream(kind byte) io.Writer { return &frameWriter{x, kind} }

type frameWriter struct {
	x    *wire
	kind byte
}

// Write implements io.Writer.
func (w *frameWriter) Write(p []byte) (n int, err error) {
	for n < len(p) {
		part := p[n:min(n+maxFrame, len(p))]
		if err := w.x.send(w.kind, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// receive reads a frame of at most limit bytes.
func receive(r io.Reader, limit int) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if uint64(n) > uint64(limit) {
		return 0, nil, fmt.Errorf("frame of %d bytes: %w", n, base.ErrTooLarge)
	}
	payload = make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return 0, nil, err
	}
	return head[0], payload, nil
}
