package seal

import "bytes"

// Sizes of objects. They are part of the format.
const (
	// FrameBytes is the sealed length of each frame. Only the last frame may be shorter.
	FrameBytes = 16 << 10
	// framePlain is the plaintext of a full frame.
	framePlain = FrameBytes - tagBytes
	// MaxBlockBytes is the greatest plaintext of a block.
	MaxBlockBytes = 1 << 20
	// BlockOverhead is by how many bytes a stored block exceeds its plaintext, unless compression
	// makes it shorter.
	BlockOverhead = blockHead + 1
	blockHead     = 4
)

// Block is a part of the stream of an object: plaintext that is compressed by itself.
type Block struct {
	// Offset is the offset of its head in the stream, and StoredBytes its length there, including
	// the head.
	Offset      int64
	StoredBytes int
}

// ObjectBytes returns the length of an object whose stream has so many bytes.
func ObjectBytes(plain int64) int64 {
	return headerBytes + plain + tagBytes*((plain+framePlain-1)/framePlain)
}

// StreamBytes returns the length of the stream of an object of size bytes, or 0 if no object has
// that length.
func StreamBytes(size int64) int64 {
	sealed := size - headerBytes
	if sealed <= 0 {
		return 0
	}
	plain := sealed / FrameBytes * framePlain
	if rest := sealed % FrameBytes; rest > tagBytes {
		plain += rest - tagBytes
	} else if rest > 0 {
		return 0
	}
	if plain < blockHead { // the mark after the blocks
		return 0
	}
	return plain
}

// Cover returns which frames hold n bytes of a stream from off on, n at least 1: the number of the
// first frame, its offset in the object, and the sealed length of all of them. The object may end
// earlier.
func Cover(off, n int64) (first, at, length int64) {
	first = off / framePlain
	last := (off + n - 1) / framePlain
	return first, headerBytes + first*FrameBytes, (last - first + 1) * FrameBytes
}

// isZero reports whether all bytes are zero.
func isZero(b []byte) bool { return len(bytes.TrimLeft(b, "\x00")) == 0 }
