package multihash

import (
	"bytes"
	"crypto/sha256"
	"math/rand/v2"
	"testing"
)

func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

func check(t *testing.T, contents [][]byte) {
	t.Helper()
	sums := make([][sha256.Size]byte, len(contents))
	messages := make([]Message, len(contents))
	for i := range contents {
		messages[i] = Message{Content: contents[i], Sum: &sums[i], Prefix: byte(i)}
	}
	Sum(messages)
	for i, c := range contents {
		if want := sha256.Sum256(append([]byte{byte(i)}, c...)); sums[i] != want {
			t.Errorf("message %d of %d, %d bytes: sum %x, want %x", i, len(contents), len(c), sums[i], want)
		}
	}
}

// TestSumEveryLength has every length around the borders of blocks, in groups that fill the lanes
// in part, wholly and more than once.
func TestSumEveryLength(t *testing.T) {
	all := random(1, 1<<10)
	for _, group := range []int{1, 2, fewMessages, 15, 16, 17, 33} {
		for from := 0; from < 300; from += group {
			var contents [][]byte
			for n := from; n < from+group; n++ {
				contents = append(contents, all[n%7:n%7+n])
			}
			check(t, contents)
		}
	}
	check(t, nil)
}

func TestSumManyLengths(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	all := random(2, 70<<10)
	for range 200 {
		var contents [][]byte
		for range rng.IntN(60) {
			n := rng.IntN(1 << rng.IntN(17))
			from := rng.IntN(len(all) - n)
			contents = append(contents, all[from:from+n])
		}
		check(t, contents)
	}
}

func FuzzSum(f *testing.F) {
	f.Add([]byte("abc"), uint16(3), uint8(17))
	f.Add(bytes.Repeat([]byte{0x80}, 200), uint16(61), uint8(4))
	f.Fuzz(func(t *testing.T, all []byte, step uint16, n uint8) {
		var contents [][]byte
		for i := range int(n) {
			from := i * int(step) % (len(all) + 1)
			to := from + (i+1)*int(step)%(len(all)-from+1)
			contents = append(contents, all[from:to])
		}
		check(t, contents)
	})
}

func BenchmarkSum(b *testing.B) {
	for _, size := range []int{256, 2 << 10, 16 << 10} {
		data := random(3, 1<<20)
		var messages []Message
		for from := 0; from+size <= len(data); from += size {
			messages = append(messages, Message{Content: data[from : from+size], Sum: new([sha256.Size]byte)})
		}
		b.Run("many/"+itoa(size), func(b *testing.B) {
			b.SetBytes(int64(len(messages) * size))
			for b.Loop() {
				Sum(messages)
			}
		})
		b.Run("single/"+itoa(size), func(b *testing.B) {
			b.SetBytes(int64(len(messages) * size))
			for b.Loop() {
				for i := range messages {
					one(&messages[i])
				}
			}
		})
	}
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}
