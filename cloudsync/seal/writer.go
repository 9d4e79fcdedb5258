package seal

import (
	"fmt"
	"io"

	"github.com/ledgerd/ledger/internal/base"
)

// Writer makes an object from the plaintext written to it. It holds about two MiB. It must
// not be used concurrently.
//
// The output is no object until Close has returned nil: it lacks the last frame.
type Writer struct {
	w        io.Writer
	ring     *Keyring
	label    Label
	drawn    []byte                                // for the object's id
	known    []byte                                // likewise
	below    interface{ AvailableBuffer() []byte } // w, or nil
	o        *object                               // nil until the first frame is sealed
	compress bool
	blocks   Compressor
	held     []byte // written and not in a block yet
	block    []byte // memory of blocks
	frame    []byte // plaintext of the frame in progress; with room for its tag
	number   uint64
	pad      func(stream int64) int64 // returns the padded length
	plain    int64                    // length of the stream
	at       int64                    // length of the object
	err      error                    // sticky
}

// NewWriter returns a Writer to w of an object with the label l. compress says whether Write tries
// to compress. The object's id comes from random bytes, the first frame, and known: more of the
// content, or nil. So a source of randomness that repeats itself gives different objects different
// ids. known is retained until the first frame is sealed. An error of w is returned by the next
// call of the Writer and all later ones. If w has an AvailableBuffer, as a bytes.Buffer has, frames
// are sealed in that.
func (s *Sealer) NewWriter(w io.Writer, l Label, compress bool, known []byte) *Writer {
	sw := &Writer{w: w, ring: s.ring.Load(), label: l, drawn: s.draw(IDBytes), known: known, compress: compress, pad: Padme, frame: make([]byte, 0, FrameBytes)}
	sw.below, _ = w.(interface{ AvailableBuffer() []byte })
	return sw
}

// begin writes the header with the id, which follows from the first frame.
func (w *Writer) begin(first []byte) {
	w.o = w.ring.newObject(w.label, w.ring.hedgedID(w.drawn, w.known, first))
	w.write(w.o.header())
}

// Ref returns the object's id and key index, after Close.
func (w *Writer) Ref() Ref { return w.o.ref() }

// Write adds p to the plaintext, which is cut into blocks of MaxBlockBytes. p is not retained.
// Errors: base.ErrClosed, those of the underlying writer.
func (w *Writer) Write(p []byte) (int, error) {
	written := 0
	for len(p) > 0 && w.err == nil {
		n := min(len(p), MaxBlockBytes-len(w.held))
		w.held = append(w.held, p[:n]...)
		p, written = p[n:], written+n
		if len(w.held) == MaxBlockBytes {
			w.endHeld()
		}
	}
	return written, w.err
}

// endHeld makes a block of the held plaintext.
func (w *Writer) endHeld() {
	if len(w.held) == 0 || w.err != nil {
		return
	}
	w.block = w.blocks.AppendBlock(w.block[:0], w.held, w.compress)
	w.held = w.held[:0]
	w.add(w.block)
}

// Flush ends the block in progress, and returns the offset of the next block in the stream. The end
// of the block may stay in memory. Errors: as Write.
func (w *Writer) Flush() (offset int64, err error) {
	w.endHeld()
	return w.plain, w.err
}

// AddBlocks adds consecutive blocks that a Compressor has made. They are not retained. Errors: as
// Write.
func (w *Writer) AddBlocks(blocks []byte) error {
	w.endHeld()
	w.add(blocks)
	return w.err
}

// Close writes the rest after the blocks, with the padding that Padme requires. It does not close
// the underlying writer. A second Close returns base.ErrClosed. An abandoned object needs no Close.
func (w *Writer) Close() error {
	w.endHeld()
	if w.err == nil {
		for all := w.pad(w.plain + blockHead); w.plain < all && w.err == nil; {
			w.add(noBytes[:min(all-w.plain, int64(len(noBytes)))])
		}
		w.endFrame(kindLast)
	}
	err := w.err
	w.held, w.block, w.frame = nil, nil, nil
	if w.err == nil {
		w.err = fmt.Errorf("write sealed object: %w", base.ErrClosed)
	}
	return err
}

// noBytes are zeros.
var noBytes [4 << 10]byte

// Size returns how many bytes were passed to the underlying writer: after Close the length of the
// object.
func (w *Writer) Size() int64 { return w.at }

// add adds bytes to the stream. A full frame waits until more bytes or Close show whether it is the
// last one.
func (w *Writer) add(p []byte) {
	for len(p) > 0 && w.err == nil {
		if len(w.frame) == framePlain {
			w.endFrame(kindFrame)
		}
		if len(w.frame) == 0 && len(p) > framePlain { // no copy is needed
			w.sealFrame(kindFrame, p[:framePlain])
			p, w.plain = p[framePlain:], w.plain+framePlain
			continue
		}
		n := min(len(p), framePlain-len(w.frame))
		w.frame = append(w.frame, p[:n]...)
		p, w.plain = p[n:], w.plain+int64(n)
	}
}

// endFrame seals the present frame and writes it.
func (w *Writer) endFrame(kind byte) {
	w.sealFrame(kind, w.frame)
	w.frame = w.frame[:0]
}

// sealFrame seals a frame directly in the buffer of w, or in the memory of the present one, and
// writes it.
func (w *Writer) sealFrame(kind byte, plain []byte) {
	if w.o == nil && w.err == nil {
		w.begin(plain)
	}
	if w.err != nil {
		return
	}
	out := w.frame[:0]
	if w.below != nil {
		if room := w.below.AvailableBuffer(); cap(room) >= FrameBytes {
			out = room[:0]
		}
	}
	w.write(w.o.aead.Seal(out, nonce(kind, w.number), plain, w.o.ad))
	w.number++
}

func (w *Writer) write(b []byte) {
	if w.err != nil {
		return
	}
	n, err := w.w.Write(b)
	if err == nil && n != len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		w.err = fmt.Errorf("write sealed %s: %w", w.label.Role, err)
	}
	w.at += int64(n)
}
