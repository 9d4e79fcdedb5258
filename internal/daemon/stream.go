package daemon

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"github.com/ledgerd/ledger/internal/base"
)

// The parts of the body of an answer.
const (
	partOut  = 1 // bytes of standard output
	partErr  = 2 // bytes of standard error
	partWant = 3 // empty: the command reads standard input
)

// maxPart bounds the length of a part.
const maxPart = 64 << 10

// answer writes parts. Its streams may be written concurrently.
type answer struct {
	mu      sync.Mutex
	w       io.Writer
	control *http.ResponseController
}

// stream returns a writer of parts of one kind, which it sends at once.
func (a *answer) stream(kind byte) io.Writer { return &stream{a, kind} }

// want tells the client that the command reads standard input.
func (a *answer) want() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.send(partWant, nil)
}

// send sends a part. mu is held.
func (a *answer) send(kind byte, part []byte) error {
	if _, err := a.w.Write(binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(part)))); err != nil {
		return err
	}
	if _, err := a.w.Write(part); err != nil {
		return err
	}
	return a.control.Flush()
}

type stream struct {
	answer *answer
	kind   byte
}

// Write implements io.Writer.
func (s *stream) Write(p []byte) (n int, err error) {
	s.answer.mu.Lock()
	defer s.answer.mu.Unlock()
	for n < len(p) {
		part := p[n:min(n+maxPart, len(p))]
		if err := s.answer.send(s.kind, part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// outputError is an error of the client's own standard output or standard error.
type outputError struct{ error }

// split writes the parts of r, up to its end, to the stream of their kind. It calls want when the
// command reads.
func split(r io.Reader, stdout, stderr io.Writer, want func()) error {
	var head [5]byte
	part := make([]byte, maxPart)
	for {
		if _, err := io.ReadFull(r, head[:]); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		n := binary.BigEndian.Uint32(head[1:])
		if n > maxPart {
			return fmt.Errorf("part of %d bytes: %w", n, base.ErrTooLarge)
		}
		if _, err := io.ReadFull(r, part[:n]); err != nil {
			return err
		}
		to := stdout
		switch head[0] {
		case partErr:
			to = stderr
		case partWant:
			want()
			continue
		}
		if _, err := to.Write(part[:n]); err != nil {
			return outputError{err}
		}
	}
}
