package seal

import "encoding/binary"

const (
	// vainBlocks is how many blocks in a row are sealed without trying to compress them.
	vainBlocks = 15
	// sampleBytes is how many bytes of a block are counted, in stretches of stretchBytes from all
	// over it. A shorter block is always tried.
	sampleBytes, stretchBytes = 2048, 64
	// maxPairs is how many pairs of equal bytes the sample of a block that looks random has at the
	// most: 1.05 times what is to be expected of random ones, four deviations. Bytes that have no
	// more could be coded, each by itself, in 0.99 of their length at the best.
	maxPairs = sampleBytes * (sampleBytes - 1) / 2 * 105 / (100 * 256)
)

// Compressor makes blocks, one after the other, and tries to compress those that are worth it: all,
// but for some that look random and stand behind one that compression did not make shorter. It may
// not be used concurrently.
type Compressor struct {
	vain bool // the last try was
	left int  // how many blocks more may be passed over
}

// AppendBlock appends plain, of 1 to MaxBlockBytes, to dst as a block with its head. With try it is
// compressed where that is worth it and makes it shorter.
func (c *Compressor) AppendBlock(dst, plain []byte, try bool) []byte {
	start := len(dst)
	dst, shorter := c.AppendShorter(dst, plain, try)
	if !shorter {
		dst = append(append(dst, make([]byte, BlockOverhead)...), plain...)
		HeadBlock(dst[start:])
	}
	return dst
}

// AppendShorter is AppendBlock for a plaintext that compression makes shorter. Else it returns dst
// as it was, or that with more room.
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

// HeadBlock makes a block that is not compressed where its plaintext stands: b is BlockOverhead
// bytes, which it sets, and behind them the plaintext, of 1 to MaxBlockBytes.
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

// tried says how a try came out.
func (c *Compressor) tried(shorter bool) { c.vain, c.left = !shorter, vainBlocks }

// looksRandom reports whether all bytes are about as frequent. What was compressed or encrypted
// looks so; it can be compressed only where it repeats itself.
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
