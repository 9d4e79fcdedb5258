package seal

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/internal/base"
)

// Writer makes a framed object while its plaintext is written. It holds about three MiB, and twelve bytes and more for
// each frame. It may not be used concurrently.
//
// What was written before Close has returned nil is no object: it lacks the last frame's mark and the table.
type Writer struct {
	w      io.Writer
	o      *object
	held   []byte // the content of the frame that is being filled: a byte of room and plaintext; or empty
	ended  bool   // the frame is complete, and waits to be told whether it is the last
	last   bool   // the last frame has been written
	out    []byte
	hope   hope
	frames []Frame
	table  []byte
	at     int64
	err    error // sticks; errWriterClosed after Close
}

// NewWriter returns a Writer of an object that l says, with an id that is drawn for it, and writes its header to w. Whatever w
// returns as an error is returned by the next call of the Writer and all after it. If w has an AvailableBuffer, as a bytes.Buffer has, frames are sealed in that.
func (s *Sealer) NewWriter(w io.Writer, l Label) (*Writer, error) {
	o, err := s.newObject(l, shapeFramed)
	if err != nil {
		return nil, err
	}
	sw := &Writer{w: w, o: o}
	sw.write(o.header())
	if sw.err != nil {
		return nil, sw.err
	}
	return sw, nil
}

// Ref returns the object's id and key index.
func (w *Writer) Ref() Ref { return Ref{ID: w.o.id, KeyIndex: w.o.index} }

// Write adds p to the plaintext. Frames end every MaxFrameBytes, and where EndFrame says. p is not retained. Errors:
// base.ErrClosed, base.ErrTooLarge beyond MaxFrames, those of the writer below.
func (w *Writer) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 && w.err == nil {
		if w.ended {
			w.emitHeld(kindFrame)
			continue
		}
		if w.last {
			return written, errBehindLast
		}
		if len(w.held) == 0 {
			w.held = append(w.held, 0)
		}
		n := min(len(p), maxContent-len(w.held))
		w.held = append(w.held, p[:n]...)
		w.ended = len(w.held) == maxContent
		p, written = p[n:], written+n
	}
	return written, w.err
}

// EndFrame ends the present frame, so that what is written next begins another one, and returns the number of the frame
// that ended. Without anything written since the last frame ended, it does nothing and returns the number of that one; at
// the start of an object it is -1.
func (w *Writer) EndFrame() (int, error) {
	if len(w.held) > 0 {
		w.ended = true
		return len(w.frames), w.err
	}
	return len(w.frames) - 1, w.err
}

// WriteFrame adds a frame and returns its number. content is a byte of room and the plaintext behind it, of at most MaxFrameBytes. WriteFrame seals it where it stands, for which
// FrameOverhead bytes more of capacity are enough, so that afterwards there is something else in it. What was written before is a frame by itself. last says that the frame is the last one of the object: nothing can be written behind it. content is not retained. Errors: as
// Write; base.ErrInvalid for no byte of room.
func (w *Writer) WriteFrame(content []byte, last bool) (int, error) {
	if len(w.held) > 0 {
		w.emitHeld(kindFrame)
	}
	switch {
	case w.err != nil:
		return 0, w.err
	case w.last:
		return 0, errBehindLast
	case len(content) == 0:
		return 0, fmt.Errorf("seal frame without a byte of room: %w", base.ErrInvalid)
	case len(content) > maxContent:
		return 0, fmt.Errorf("seal frame of %d bytes, limit %d: %w", len(content)-1, MaxFrameBytes, base.ErrTooLarge)
	}
	kind := byte(kindFrame)
	if last {
		kind, w.last = kindLast, true
	}
	w.emit(kind, content)
	return len(w.frames) - 1, w.err
}

// errBehindLast is for who writes behind the last frame.
var errBehindLast = fmt.Errorf("write behind the last frame of a sealed object: %w", base.ErrClosed)

// SetTable gives what Reader.Table returns: at most MaxTableBytes that are sealed with the table of contents at the end, so
// that who reads that has both. table is not copied, and must not be changed before Close has returned.
func (w *Writer) SetTable(table []byte) error {
	if len(table) > MaxTableBytes {
		return fmt.Errorf("seal table of %d bytes, limit %d: %w", len(table), MaxTableBytes, base.ErrTooLarge)
	}
	w.table = table
	return w.err
}

// Close writes the last frame, which is empty if nothing was written, and the table of contents. It does not close the writer
// below. A second Close returns base.ErrClosed. Who gives an object up need not call it.
func (w *Writer) Close() error {
	if w.err == nil && !w.last {
		w.emitHeld(kindLast)
	}
	if w.err == nil {
		w.out, _ = w.o.sealRecord(w.out[:0], kindTable, 0, appendContents([]byte{0}, w.frames, w.table), true)
		tableBytes := len(w.out)
		w.out = append(w.out, w.o.header()...)
		w.out = binary.BigEndian.AppendUint32(w.out, uint32(tableBytes))
		w.write(w.out)
	}
	err := w.err
	w.held, w.out, w.table = nil, nil, nil
	if w.err == nil {
		w.err = fmt.Errorf("write sealed object: %w", base.ErrClosed)
	}
	return err
}

// Frames returns where the frames are that have been written: all of them after Close. The slice is the Writer's.
func (w *Writer) Frames() []Frame { return w.frames }

// Size returns how many bytes have gone to the writer below: after Close the length of the object.
func (w *Writer) Size() int64 { return w.at }

// emitHeld seals and writes the frame that is being filled.
func (w *Writer) emitHeld(kind byte) {
	if len(w.held) == 0 {
		w.held = append(w.held, 0)
	}
	w.emit(kind, w.held)
	w.held, w.ended = w.held[:0], false
}

// emit seals and writes a frame.
func (w *Writer) emit(kind byte, content []byte) {
	if len(w.frames) == MaxFrames {
		w.err = fmt.Errorf("seal %s of more than %d frames: %w", w.o.label.Role, MaxFrames, base.ErrTooLarge)
		return
	}
	var out []byte
	below, ok := w.w.(interface{ AvailableBuffer() []byte })
	if ok {
		out = below.AvailableBuffer()
	}
	if ok = cap(out) >= len(content)-1+FrameOverhead; !ok {
		out = w.out[:0]
	}
	try := w.hope.worth(content[1:])
	out, shorter := w.o.sealRecord(out, kind, uint64(len(w.frames)), content, try)
	if try {
		w.hope.tried(shorter)
	}
	if !ok {
		w.out = out
	}
	w.frames = append(w.frames, Frame{Offset: w.at, SealedBytes: len(out), PlainBytes: len(content) - 1})
	w.write(out)
}

func (w *Writer) write(b []byte) {
	n, err := w.w.Write(b)
	if err == nil && n != len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = fmt.Errorf("write sealed %s: %w", w.o.label.Role, err)
	}
	w.at += int64(n)
}
