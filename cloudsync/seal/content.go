package seal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// flagZstd is a flag of a content, in its first byte. Others are reserved.
const flagZstd = 1

// zstdHead is how many bytes precede compressed content: flags and the length of the plaintext.
const zstdHead = 5

// minCompress is the length from which compression is tried; shorter plaintexts have no room for
// zstd's own header.
const minCompress = 32

const (
	encodeWindow = 1 << 20
	decodeWindow = 8 << 20
)

// coder holds the zstd coders. They are made at the first use, start no goroutine and are safe for
// concurrent use.
var coder = sync.OnceValue(func() *codec {
	return &codec{
		must(zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(encodeWindow), zstd.WithEncoderCRC(false))),
		must(zstd.NewReader(nil, zstd.WithDecoderMaxMemory(MaxObjectBytes), zstd.WithDecoderMaxWindow(decodeWindow),
			zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderConcurrency(0))),
	}
})

type codec struct {
	enc *zstd.Encoder
	dec *zstd.Decoder
}

// appendCompressed appends the content of a plaintext that compression makes shorter. Otherwise it
// returns dst with the same content, possibly with more capacity.
func appendCompressed(dst, plain []byte) (content []byte, shorter bool) {
	start := len(dst)
	if len(plain) < minCompress {
		return dst, false
	}
	dst = append(dst, flagZstd)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(plain)))
	if dst = coder().enc.EncodeAll(plain, dst); len(dst)-start < 1+len(plain) {
		return dst, true
	}
	return dst[:start], false
}

// decodeContent returns the plaintext of a content, which the caller then owns. It refuses a
// plaintext beyond limit before it allocates memory.
func decodeContent(content []byte, limit int) ([]byte, error) {
	if len(content) < 1 {
		return nil, errors.New("no flags")
	}
	switch content[0] {
	case 0:
		if len(content)-1 > limit {
			return nil, fmt.Errorf("%d bytes of plaintext, limit %d", len(content)-1, limit)
		}
		return content[1:], nil
	case flagZstd:
		return decompress(content, limit)
	}
	return nil, fmt.Errorf("unknown flags %#x", content[0])
}

func decompress(content []byte, limit int) ([]byte, error) {
	if len(content) <= zstdHead {
		return nil, errors.New("no compressed bytes")
	}
	declared := int64(binary.BigEndian.Uint32(content[1:]))
	if declared > int64(limit) || declared > MaxObjectBytes {
		return nil, fmt.Errorf("%d bytes of plaintext, limit %d", declared, limit)
	}
	if int64(len(content)) >= 1+declared {
		return nil, fmt.Errorf("compression of %d bytes to %d, which is not shorter", declared, len(content))
	}
	plain, err := coder().dec.DecodeAll(content[zstdHead:], make([]byte, 0, declared))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if int64(len(plain)) != declared {
		return nil, fmt.Errorf("%d bytes of plaintext where %d were declared", len(plain), declared)
	}
	return plain, nil
}
