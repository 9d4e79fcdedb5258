package seal

import "encoding/binary"

const (
	// vainBlocks is how many blocks in a row are sealed without trying to compress them.
	vainBlocks = 15
	// sampleBytes is how many bytes of a block are sampled, in stretches of stretchBytes spread
	// over the block. A shorter block is always tried.
	sampleBytes, stretchBytes = 2048, 64
	// maxPairs is the greatest number of pairs of equal bytes in the sample of a block that looks
	// random: 1.05 times the expectation for random bytes, four deviations. Bytes with no more
	// pairs, coded one by one, need at least 0.99 of their length.
	maxPairs = sampleBytes * (sampleBytes - 1) / 2 * 105 / (100 * 256)
)

// Compressor makes blocks, one after the other. It tries to compress all of them, except some that
// look random and follow a block that compression did not shorten. It must not be used
// concurrently.
type Compressor struct {
	vain bool // the last try was
	left int  // how many more blocks may be skipped
}

// AppendBlock appends plain, of 1 to MaxBlockBytes, to dst as a block with its head. With try it
// compresses the block if that seems worthwhile and makes it shorter.
func (c *Compressor) AppendBlock(dst, plain []byte, try bool) []byte {
	start := len(dst)
	dst, shorter := c.AppendShorter(dst, plain, try)
	if !shorter {
		dst = append(append(dst, make([]byte, BlockOverhead)...), plain...)
		HeadBlock(dst[start:])
	}
	return dst
}

// AppendShorter is AppendBlock for a plaintext that compression makes shorter. Otherwise it returns
// dst with the same content, possibly with more capacity.
func (c *Compressor) AppendShorter(dst, plain []byte, try bool) (blocks []byte, shorter bool) {
	if !try || !c.worth(plain) {
		return dst, false
	}
	start := len(dst)
	dst, shorter = appendCompressed(append(dst, make([]byte, blockHead)...), plain)
	c.tried(shorter)
	if !shorter {
		return dst[:start], false
	}
	binary.BigEndian.PutUint32(dst[start:], uint32(len(dst)-start-blockHead))
	return dst, true
}

// HeadBlock makes an uncompressed block in place. b has BlockOverhead bytes, which HeadBlock sets,
// and then the plaintext, of 1 to MaxBlockBytes.
func HeadBlock(b []byte) {
	binary.BigEndian.PutUint32(b, uint32(len(b)-blockHead))
	b[blockHead] = 0
}

// worth reports whether to try a block.
func (c *Compressor) worth(plain []byte) bool {
	if !c.vain || c.left == 0 || !looksRandom(plain) {
		return true
	}
	c.left--
	return false
}

// tried records the result of a try.
func (c *Compressor) tried(shorter bool) { c.vain, c.left = !shorter, vainBlocks }

// looksRandom reports whether all bytes are about equally frequent. Compressed or encrypted data
// looks so; only repetitions make it compressible.
func looksRandom(plain []byte) bool {
	if len(plain) < 2*sampleBytes {
		return false
	}
	var seen [256]uint32
	step := (len(plain) - stretchBytes) / (sampleBytes/stretchBytes - 1)
	pairs := uint32(0)
	for i := range sampleBytes / stretchBytes {
		for _, c := range plain[i*step:][:stretchBytes] {
			pairs += seen[c]
			seen[c]++
		}
	}
	return pairs <= maxPairs
}
