package seal

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"runtime"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
)

// allocated returns how many bytes fn allocates.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestLengthsAreComparedBeforeAllocating(t *testing.T) {
	s := member(t, AES256GCM)
	sealed, _, err := s.Seal(hostile, bytes.Repeat([]byte{1, 2, 3, 5, 8, 13, 21}, 4), Form{})
	if err != nil {
		t.Fatal(err)
	}
	long := append(sealed, make([]byte, 16<<20)...)
	if got := allocated(func() { _, _, err = s.Open(hostile, long, 10) }); got > 1<<20 || !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("beyond the limit: allocated %d, %v", got, err)
	}
	if plain, err := decodeContent(make([]byte, 12), 10); err == nil {
		t.Errorf("content of %d bytes, limit 10", len(plain))
	}
	block := sealStream(t, s, append([]byte{0x7f, 0xff, 0xff, 0xff}, make([]byte, 100)...))
	got := allocated(func() {
		var st *Stream
		if st, err = s.NewStream(bytes.NewReader(block), int64(len(block)), hostile, nil); err == nil {
			_, err = st.Next()
		}
	})
	if got > 1<<20 || !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("block of 2 GiB: allocated %d, %v", got, err)
	}
}

// rle is a zstd frame of 100 000 zeros that declares a window of 1 KiB << exponent.
func rle(exponent byte) []byte {
	const block = 100_000<<3 | 1<<1 | 1
	return []byte{0x28, 0xb5, 0x2f, 0xfd, 0, exponent << 3, block & 0xff, block >> 8 & 0xff, block >> 16, 0}
}

func TestWindowsAreBounded(t *testing.T) {
	for exponent, ok := range map[byte]bool{10: true, 13: true, 14: false, 16: false, 31: false} {
		plain, err := decodeContent(compressed(100_000, rle(exponent)), 100_000)
		if (err == nil) != ok || ok && !bytes.Equal(plain, make([]byte, 100_000)) {
			t.Errorf("window of 2^%d bytes: %v", 10+exponent, err)
		}
	}
}

func TestPlaintextHeadersAreCanonical(t *testing.T) {
	s := member(t, Plain)
	o, err := s.Keyring().object(hostile, header{algorithm: Plain, keyIndex: 1, id: ID{1}})
	if err != nil {
		t.Fatal(err)
	}
	sealed := o.aead.Seal(bytes.Clone(o.header()), nonce(kindLast, 0), []byte{0, 0, 0, 2, 0, 'x', 0, 0, 0, 0}, o.ad)
	if _, _, err := s.Open(hostile, sealed, 10); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("key index in plaintext: %v", err)
	}
}

// TestPlaintextKeyringsAreCanonical changes what is not used, and makes tag and checksum anew, as
// anybody can.
func TestPlaintextKeyringsAreCanonical(t *testing.T) {
	good, _, err := member(t, Plain).Keyring().Found(NewSlot{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const contentAt, tail = ringHeadBytes + 4, tagBytes + signatureBytes + sumBytes
	again := func(at int) []byte {
		b := bytes.Clone(good[:len(good)-tail])
		if at >= 0 {
			b[at]++
		}
		b = append(b, plainTag(nonce(kindRing, 0), b[contentAt:], b[:contentAt])...)
		b = append(b, make([]byte, signatureBytes)...)
		sum := sha256.Sum256(b)
		return append(b, sum[:]...)
	}
	if !bytes.Equal(again(-1), good) {
		t.Fatal("the test does not make rings as Found does")
	}
	free := func(at int) bool { // bucket id and keys
		return at >= ringBucketAt && at < ringNumberAt || at >= contentAt && at < contentAt+2*keyBytes
	}
	for at := range len(good) - tail {
		c, err := ParseChain([][]byte{again(at)})
		if err == nil {
			_, err = c.Open(MasterKey{})
		}
		if free(at) != (err == nil) || err != nil && !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) && !errors.Is(err, ErrWrongKey) {
			t.Errorf("byte %d: %v", at, err)
		}
	}
}
