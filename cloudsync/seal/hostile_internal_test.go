package seal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/ledgerd/ledger/internal/base"
)

// member is somebody who has the keys and seals what he likes.
func member(t testing.TB, a Algorithm) *Sealer {
	t.Helper()
	source := rand.NewChaCha8([32]byte{1})
	ring, err := NewKeyring(a, source)
	if err != nil {
		t.Fatal(err)
	}
	return NewSealer(ring, source)
}

var hostile = Label{Role: "entry", Name: "hostile"}

// sealRaw seals a block with content that no Writer gives.
func sealRaw(t testing.TB, s *Sealer, content []byte) []byte {
	t.Helper()
	b := binary.BigEndian.AppendUint32(nil, uint32(len(content)))
	return sealStream(t, s, append(append(b, content...), 0, 0, 0, 0))
}

// compressed is content that declares a length, whatever it has.
func compressed(declared uint32, frames ...[]byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte{flagZstd}, declared)
	return append(b, bytes.Join(frames, nil)...)
}

func zstdOf(t testing.TB, plain []byte, opts ...zstd.EOption) []byte {
	t.Helper()
	e, err := zstd.NewWriter(nil, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	return e.EncodeAll(plain, nil)
}

// streamed is a zstd frame without a content size.
func streamed(t testing.TB, plain []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	e, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	for p := plain; len(p) > 0; p = p[min(len(p), 64<<10):] {
		if _, err := e.Write(p[:min(len(p), 64<<10)]); err != nil {
			t.Fatal(err)
		}
		if err := e.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestContentOfAHostileMember(t *testing.T) {
	zeros := make([]byte, 100_000)
	z := zstdOf(t, zeros)
	skippable := append([]byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0}, "junk"...)
	cases := map[string][]byte{
		"unknown flag":                append([]byte{4}, "x"...),
		"a flag that does not exist":  append([]byte{0x80}, "x"...),
		"compressed, no length":       {flagZstd, 0, 0},
		"compressed, no bytes":        compressed(100_000),
		"no zstd":                     compressed(100_000, []byte("no zstd at all")),
		"declares less":               compressed(99_999, z),
		"declares more":               compressed(100_001, z),
		"declares 4 GiB":              compressed(1<<32-1, z),
		"declares the format's limit": compressed(MaxObjectBytes, z),
		"two frames":                  compressed(150_000, z, z),
		"two frames, first declared":  compressed(100_000, z, z),
		"frame without size, longer":  compressed(100_000, streamed(t, make([]byte, 100_001))),
		"frame without size, shorter": compressed(100_000, streamed(t, make([]byte, 99_999))),
		"cut":                         compressed(100_000, z[:len(z)-1]),
		"not shorter":                 compressed(4, zstdOf(t, []byte("abcd"))),
		"empty":                       compressed(0, zstdOf(t, nil, zstd.WithZeroFrames(true))),
		"window of 512 MiB":           compressed(100_000, []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 19 << 3, 1, 0, 0}),
		"only a skippable frame":      compressed(100_000, skippable),
	}
	for _, a := range []Algorithm{AES256GCM, Plain} {
		s := member(t, a)
		for what, content := range cases {
			plain, _, err := s.Open(hostile, sealRaw(t, s, content), 200_000)
			if !errors.Is(err, base.ErrCorrupt) || plain != nil {
				t.Errorf("%s, %s: %d bytes, %v", a, what, len(plain), err)
			}
		}
		if plain, _, err := s.Open(hostile, sealRaw(t, s, compressed(100_000, z)), 200_000); err != nil || !bytes.Equal(plain, zeros) {
			t.Errorf("the good one: %v", err)
		}
	}
}

// TestABombAllocatesLittle opens 10 GiB of zeros, declared honestly and not, and counts what is
// allocated.
func TestABombAllocatesLittle(t *testing.T) {
	s := member(t, AES256GCM)
	const limit = 1 << 20
	bomb := bytes.Repeat(zstdOf(t, make([]byte, 8<<20)), 200)
	if _, _, err := s.Open(hostile, sealRaw(t, s, compressed(10, zstdOf(t, nil))), limit); err == nil {
		t.Fatal("opened") // and the coders are made
	}
	for what, content := range map[string][]byte{
		"honest": compressed(1<<31, bomb), "just in the limit": compressed(limit, bomb), "without size": compressed(limit, streamed(t, make([]byte, 64<<20))),
	} {
		sealed := sealRaw(t, s, content)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, err := s.Open(hostile, sealed, limit)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > uint64(len(sealed))+2*limit+4<<20 {
			t.Errorf("%s: allocated %d bytes to open %d", what, got, len(sealed))
		}
	}
}

// sealStream seals a stream that no Writer makes.
func sealStream(t testing.TB, s *Sealer, stream []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := s.NewWriter(&out, hostile, false, nil)
	w.add(stream)
	w.endFrame(kindLast)
	if w.err != nil {
		t.Fatal(w.err)
	}
	return out.Bytes()
}

// TestStreamsOfAHostileMember reads streams with other lengths, marks and padding than a Writer
// makes.
func TestStreamsOfAHostileMember(t *testing.T) {
	s := member(t, AES256GCM)
	block := new(Compressor).AppendBlock(nil, bytes.Repeat([]byte("abcde"), 20), false)
	n := len(block)
	length := int(Padme(int64(n + blockHead)))
	if length == n+blockHead {
		t.Fatal("there is no padding to damage")
	}
	stream := func(blocks []byte, length int) []byte {
		return append(bytes.Clone(blocks), make([]byte, length-len(blocks))...)
	}
	read := func(b []byte) error {
		sealed := sealStream(t, s, b)
		st, err := s.NewStream(bytes.NewReader(sealed), int64(len(sealed)), hostile, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, st)
		}
		return err
	}
	good := stream(block, length)
	if err := read(good); err != nil {
		t.Fatal(err)
	}
	dirty := bytes.Clone(good)
	dirty[length-1]++
	marked := bytes.Clone(good)
	marked[n+3]++
	for what, b := range map[string][]byte{
		"padding that is not zero": dirty, "a mark that is not zero": marked,
		"no mark": block, "no room for a mark": block[:n-1], "block that is too long": stream(append([]byte{0xff, 0xff, 0xff, 0xff}, block...), length+4),
		"empty block": stream([]byte{0, 0, 0, 1, 0}, 10),
	} {
		if err := read(b); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestAStreamOfPaddingTakesLittleMemory: frames of zeros, none of them the last one for long.
func TestAStreamOfPaddingTakesLittleMemory(t *testing.T) {
	s := member(t, Plain)
	var st *Stream
	var err error
	sealed := sealStream(t, s, make([]byte, 64<<20))
	got := allocated(func() {
		if st, err = s.NewStream(bytes.NewReader(sealed), int64(len(sealed)), hostile, nil); err == nil {
			_, err = io.Copy(io.Discard, st)
		}
	})
	if err != nil || got > 16<<20 {
		t.Errorf("allocated %d, %v", got, err)
	}
}

// FuzzDecodeContent decodes what a hostile member seals. What is given out is within the limit.
func FuzzDecodeContent(f *testing.F) {
	f.Add([]byte{0}, 0)
	f.Add([]byte("\x00plain"), 5)
	f.Add(compressed(100_000, zstdOf(f, make([]byte, 100_000))), 1<<20)
	f.Add(compressed(100_000, streamed(f, make([]byte, 100_000))), 1<<20)
	f.Add(new(Compressor).AppendBlock(nil, bytes.Repeat([]byte("ledger page commit "), 30), true)[blockHead:], 1000)
	f.Fuzz(func(t *testing.T, content []byte, limit int) {
		limit = min(max(limit, 0), 1<<20)
		plain, err := decodeContent(bytes.Clone(content), limit)
		if err != nil {
			return
		}
		if len(plain) > limit || cap(plain) > 2*max(limit, len(content))+64 {
			t.Fatalf("%d bytes of capacity %d, limit %d", len(plain), cap(plain), limit)
		}
	})
}
