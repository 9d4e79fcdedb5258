package seal

const (
	// vainFrames is how many frames in a row are sealed without trying to compress them.
	vainFrames = 15
	// sampleBytes is how many bytes of a frame are counted, in stretches of stretchBytes from all over it. A shorter frame is always tried.
	sampleBytes, stretchBytes = 2048, 64
	// maxPairs is how many pairs of equal bytes the sample of a frame that looks random has at the most: 1.05 times what is to be expected of random ones, four
	// deviations. Bytes that have no more could be coded, each by itself, in 0.99 of their length at the best.
	maxPairs = sampleBytes * (sampleBytes - 1) / 2 * 105 / (100 * 256)
)

// hope says which frames of an object are worth trying to compress: all, but for some that look random and stand behind one that compression did not make shorter. It
// follows from the frames.
type hope struct {
	vain bool // the last try was
	left int  // how many frames more may be passed over
}

// worth reports whether to try a frame.
func (h *hope) worth(plain []byte) bool {
	if !h.vain || h.left == 0 || !looksRandom(plain) {
		return true
	}
	h.left--
	return false
}

// tried says how a try came out.
func (h *hope) tried(shorter bool) { h.vain, h.left = !shorter, vainFrames }

// looksRandom reports whether all bytes are about as frequent. What was compressed or encrypted looks so; it can be compressed only where it repeats itself.
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
