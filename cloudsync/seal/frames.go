package seal

import (
	"encoding/binary"
	"fmt"
)

const (
	recordHead   = 4
	trailerBytes = headerBytes + 4
	// FrameOverhead is by how much a record is longer than the plaintext of its frame, unless compression makes it shorter.
	FrameOverhead = recordHead + 1 + tagBytes
	// maxContent is the greatest length of a frame's content: flags and plaintext.
	maxContent = 1 + MaxFrameBytes
	// maxTableContent is the greatest length of the content of a table of contents.
	maxTableContent = 1<<24 - 1
)

// Frame is a part of a framed object that is opened by itself.
type Frame struct {
	// Offset is where its record begins in the object, and SealedBytes how long the record is.
	Offset      int64
	SealedBytes int
	// PlainBytes is the length of its plaintext: 0 to MaxFrameBytes.
	PlainBytes int
}

// appendRecordHead appends the kind of a record and the length of its content.
func appendRecordHead(b []byte, kind byte, contentBytes int) []byte {
	return append(b, kind, byte(contentBytes>>16), byte(contentBytes>>8), byte(contentBytes))
}

// parseRecordHead returns the kind of a record and its whole length, head and tag included.
func parseRecordHead(b []byte) (kind byte, recordBytes int) {
	return b[0], recordHead + int(b[1])<<16 + int(b[2])<<8 + int(b[3]) + tagBytes
}

// sealRecord appends a record to dst. content is a byte of room and a plaintext, which is so short that it fits the head. With try the plaintext
// is compressed where that makes it shorter, which it reports. Else it is sealed where it stands, and copied: sealing into memory that is not in the processor's cache takes longer than both.
func (o *object) sealRecord(dst []byte, kind byte, number uint64, content []byte, try bool) (sealed []byte, shorter bool) {
	start := len(dst)
	if try {
		dst = append(dst, 0, 0, 0, 0)
		if dst, shorter = appendCompressed(dst, content[1:]); shorter {
			head := appendRecordHead(nil, kind, len(dst)-start-recordHead)
			copy(dst[start:], head)
			return o.sealContent(dst, start+recordHead, kind, number, head), true
		}
	}
	content[0] = 0
	dst = appendRecordHead(dst[:start], kind, len(content))
	return append(dst, o.aead.Seal(content[:0], nonce(kind, number), content, o.bind(dst[start:]))...), false
}

// openRecord opens a whole record. Which kinds are allowed is for the caller to say. dst is empty, and has room for the content or not, as with open.
func (o *object) openRecord(dst []byte, number uint64, record []byte, limit int, kinds ...byte) ([]byte, error) {
	if len(record) < recordHead {
		return nil, o.label.corrupt("a record", fmt.Sprintf("%d bytes", len(record)), nil)
	}
	kind, n := parseRecordHead(record)
	if n != len(record) {
		return nil, o.label.corrupt(fmt.Sprintf("record %d of %d bytes", number, len(record)), fmt.Sprintf("%d in its head", n), nil)
	}
	for _, k := range kinds {
		if k == kind {
			return o.open(dst, kind, number, record[:recordHead], record[recordHead:], limit)
		}
	}
	return nil, o.label.corrupt(fmt.Sprintf("record %d of kind %d", number, kinds), fmt.Sprint(kind), nil)
}

// OpenFrame returns the plaintext of one frame, given its record alone: the bytes at the Offset of frame number of the
// object that l and ref say. record is neither changed nor retained. So a part of an object whose place is known costs one
// range, without header and table. Errors: as Open.
func (s *Sealer) OpenFrame(l Label, ref Ref, number int, record []byte) ([]byte, error) {
	return s.openFrame(l, ref, number, record, nil)
}

// OpenFrameInPlace is OpenFrame for who does not need the record any more: the plaintext stands in it, unless it was compressed. After an error
// there is nothing in it.
func (s *Sealer) OpenFrameInPlace(l Label, ref Ref, number int, record []byte) ([]byte, error) {
	return s.openFrame(l, ref, number, record, record[min(recordHead, len(record)):][:0])
}

func (s *Sealer) openFrame(l Label, ref Ref, number int, record, dst []byte) ([]byte, error) {
	if err := l.check(); err != nil {
		return nil, err
	}
	o, err := s.ring.object(l, header{algorithm: s.ring.algorithm, shape: shapeFramed, keyIndex: ref.KeyIndex, id: ref.ID})
	if err != nil {
		return nil, err
	}
	return o.openRecord(dst, uint64(number), record, MaxFrameBytes, kindFrame, kindLast)
}

// appendContents appends the table of contents: the number of frames, for each the length of its record and of its
// plaintext, then the caller's table.
func appendContents(b []byte, frames []Frame, table []byte) []byte {
	b = binary.AppendUvarint(b, uint64(len(frames)))
	for _, f := range frames {
		b = binary.AppendUvarint(b, uint64(f.SealedBytes))
		b = binary.AppendUvarint(b, uint64(f.PlainBytes))
	}
	return append(b, table...)
}

// parseContents is the inverse of appendContents. end is where the last record must end.
func parseContents(b []byte, end int64) (frames []Frame, table []byte, problem string) {
	n, b, ok := cutUvarint(b)
	if !ok || n < 1 || n > MaxFrames || n > uint64(len(b)/2) {
		return nil, nil, "number of frames"
	}
	frames = make([]Frame, n)
	at := int64(headerBytes)
	for i := range frames {
		var sealed, plain uint64
		var ok1, ok2 bool
		sealed, b, ok1 = cutUvarint(b)
		plain, b, ok2 = cutUvarint(b)
		if !ok1 || !ok2 || sealed < FrameOverhead || sealed > FrameOverhead+MaxFrameBytes || plain > MaxFrameBytes || plain+FrameOverhead < sealed {
			return nil, nil, fmt.Sprintf("lengths of frame %d", i)
		}
		frames[i] = Frame{Offset: at, SealedBytes: int(sealed), PlainBytes: int(plain)}
		at += int64(sealed)
	}
	if at != end {
		return nil, nil, fmt.Sprintf("frames that end at %d, not %d", at, end)
	}
	if len(b) > MaxTableBytes {
		return nil, nil, fmt.Sprintf("table of %d bytes", len(b))
	}
	return frames, b, ""
}

// cutUvarint reads a minimal uvarint.
func cutUvarint(b []byte) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 || n > 1 && b[n-1] == 0 {
		return 0, b, false
	}
	return v, b[n:], true
}
