package seal

import (
	"bytes"
	"encoding/base64"
	"math/rand/v2"
	"testing"

	"github.com/klauspost/compress/zstd"
)

func noiseOf(seed byte, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{seed}).Read(b)
	return b
}

func TestLooksRandom(t *testing.T) {
	const n = 128 << 10
	text := bytes.Repeat([]byte("some text of a few letters, "), n/20)[:n]
	for seed := range byte(200) {
		if !looksRandom(noiseOf(seed, n)) {
			t.Errorf("noise %d does not look random", seed)
		}
	}
	enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedBestCompression))
	if err != nil {
		t.Fatal(err)
	}
	long := []byte(base64.StdEncoding.EncodeToString(noiseOf(9, 1<<20)))
	for name, c := range map[string]struct {
		plain []byte
		want  bool
	}{
		"noise":             {noiseOf(1, n), true},
		"short noise":       {noiseOf(1, 2*sampleBytes-1), false},
		"the shortest":      {noiseOf(2, 2*sampleBytes), true},
		"compressed":        {enc.EncodeAll(long, nil)[:n], true},
		"text":              {text, false},
		"base64":            {long[:n], false},
		"zeros":             {make([]byte, n), false},
		"an eighth is text": {append(noiseOf(3, n*7/8), text[:n/8]...), false},
		"records":           {bytes.Repeat(append(noiseOf(4, 28), 0, 0, 0, 1), n/32), false},
		"nothing":           {nil, false},
	} {
		if got := looksRandom(c.plain); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestBlocksThatAreWorthCompressing says which blocks are compressed: what looks as if it could be,
// always; what looks random and repeats itself, where the try comes to it.
func TestBlocksThatAreWorthCompressing(t *testing.T) {
	const n = 64 << 10
	noise := noiseOf(5, n)
	text := bytes.Repeat([]byte("some text of a few letters, "), n/20)[:n]
	double := append(bytes.Clone(noise[:n/2]), noise[:n/2]...)
	var c Compressor
	number := 0
	block := func(what string, plain []byte, want bool) {
		t.Helper()
		stored := c.AppendBlock([]byte("before"), plain, true)[len("before"):]
		if got := len(stored) < len(plain); got != want {
			t.Errorf("block %d, %s: compressed %v, want %v", number, what, got, want)
		}
		if got, err := decodeContent(stored[blockHead:], MaxBlockBytes); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("block %d, %s: %v", number, what, err)
		}
		number++
	}
	block("the first", double, true)
	block("behind one that was compressed", double, true)
	block("noise", noise, false)
	for range vainBlocks {
		block("behind noise", double, false)
	}
	block("the next try", double, true)
	block("behind the next try", double, true)
	block("noise", noise, false)
	block("text behind noise", text, true)
	block("behind text", double, true)
	if got := len(c.AppendBlock(nil, text, false)); got != n+BlockOverhead {
		t.Errorf("without compression %d bytes, want %d", got, n+BlockOverhead)
	}
}
