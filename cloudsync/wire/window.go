package wire

import (
	"errors"
	"fmt"
	"io"
)

// errEarly reports a stream that ends before the part that is read of it.
var errEarly = errors.New("it ends early")

// windowBytes is what a window holds.
const windowBytes = 64 << 10

// window reads a part of a stream through a bounded buffer, and takes nothing behind that part.
type window struct {
	r    io.Reader
	more int64  // bytes of the part that are still in r
	buf  []byte // of which buf[at:] is not consumed
	at   int
}

// left returns how many bytes of the part are not consumed.
func (w *window) left() int64 { return int64(len(w.buf)-w.at) + w.more }

// rest returns what the buffer holds.
func (w *window) rest() []byte { return w.buf[w.at:] }

// fill makes rest hold at least so many bytes, at most windowBytes, or all that are left. What rest
// returned before is no longer valid. A stream that ends early gives errEarly.
func (w *window) fill(least int) error {
	have := len(w.buf) - w.at
	if w.more == 0 || have >= least {
		return nil
	}
	if w.buf == nil {
		w.buf = make([]byte, 0, min(w.more, windowBytes))
	}
	copy(w.buf[:have], w.buf[w.at:])
	w.buf, w.at = w.buf[:have], 0
	room := w.buf[have : have+int(min(w.more, int64(cap(w.buf)-have)))]
	n, err := io.ReadAtLeast(w.r, room, min(len(room), least-have))
	w.buf, w.more = w.buf[:have+n], w.more-int64(n)
	return early(err)
}

// early returns errEarly for what io.ReadFull and its like say of a stream that ends, which they do
// not wrap; a reader's own error is.
func early(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errEarly
	}
	return err
}

// readError returns the error of a read of where: a *base.CorruptError when it ends early.
func readError(where string, err error) error {
	if err == errEarly {
		return corrupt(where, err)
	}
	return fmt.Errorf("read %s: %w", where, err)
}
