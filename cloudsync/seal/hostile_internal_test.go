package seal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
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

// sealRaw seals content that appendContent would not give.
func sealRaw(t testing.TB, s *Sealer, content []byte) []byte {
	t.Helper()
	o, err := s.newObject(hostile, shapeSingle)
	if err != nil {
		t.Fatal(err)
	}
	b := append(bytes.Clone(o.header()), content...)
	return o.sealContent(b, headerBytes, kindSingle, 0, nil)
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
		"no content":                  {},
		"unknown flag":                append([]byte{2}, "x"...),
		"padding that does not exist": append([]byte{0x80}, "x"...),
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

// TestABombAllocatesLittle opens 10 GiB of zeros, declared honestly and not, and counts what is allocated.
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

// TestContentsOfAHostileMember seals tables of contents that no Writer makes.
func TestContentsOfAHostileMember(t *testing.T) {
	s := member(t, AES256GCM)
	uv := func(vs ...uint64) (b []byte) {
		for _, v := range vs {
			b = binary.AppendUvarint(b, v)
		}
		return b
	}
	const one = FrameOverhead + 5
	for what, contents := range map[string][]byte{
		"empty": {}, "no frames": uv(0), "one of two": uv(1, one, 5), "three of two": uv(3, one, 5, one, 5, one, 5), "2^20+1 frames": append(uv(MaxFrames+1), make([]byte, 3*MaxFrames)...),
		"2^64-1 frames": uv(1<<64-1, one, 5), "counts more than there are": uv(9, one, 5, one, 5), "wrong lengths": uv(2, one+1, 5, one-1, 5), "overflow": uv(2, 1<<63, 5, 1<<63, 5),
		"plain of 2^64-1": uv(2, one, 1<<64-1, one, 5), "sealed longer than plain": uv(2, one, 4, one, 5), "record of 0": uv(2, 0, 0, 2*one, 10), "lengths of the plaintexts swapped": uv(2, one, 6, one, 5),
		"not minimal": append([]byte{0x82, 0}, uv(one, 5, one, 5)...), "number cut": {0x80}, "only lengths of one": uv(2, one, 5, one),
		"table too long": append(uv(2, one, 5, one, 5), make([]byte, MaxTableBytes+1)...),
	} {
		var out bytes.Buffer
		w, err := s.NewWriter(&out, hostile)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte("abcde"))
		_, _ = w.EndFrame()
		_, _ = w.Write([]byte("fghij"))
		w.emitHeld(kindLast)
		record, _ := w.o.sealRecord(nil, kindTable, 0, append([]byte{0}, contents...), true)
		sealed := binary.BigEndian.AppendUint32(append(append(out.Bytes(), record...), w.o.header()...), uint32(len(record)))
		r, err := s.NewReader(bytes.NewReader(sealed), int64(len(sealed)), hostile)
		if err == nil {
			_, err = r.ReadFrame(0)
		}
		if !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: frames: %v", what, err)
		}
		st, err := s.NewStream(bytes.NewReader(sealed), hostile)
		if err == nil {
			_, err = io.Copy(io.Discard, st)
		}
		if !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: stream: %v", what, err)
		}
	}
}

// TestAStreamWithoutEnd: frames for ever, none of them the last one.
func TestAStreamWithoutEnd(t *testing.T) {
	s := member(t, Plain)
	o, err := s.newObject(hostile, shapeFramed)
	if err != nil {
		t.Fatal(err)
	}
	r := &endless{o: o, rest: bytes.Clone(o.header())}
	st, err := s.NewStream(r, hostile)
	if err != nil {
		t.Fatal(err)
	}
	n, err := io.Copy(io.Discard, st)
	if !errors.Is(err, base.ErrCorrupt) || n != MaxFrames || !strings.Contains(err.Error(), "frames") {
		t.Errorf("%d bytes, %v", n, err)
	}
}

type endless struct {
	o      *object
	number uint64
	rest   []byte
}

func (e *endless) Read(p []byte) (int, error) {
	if len(e.rest) == 0 {
		e.rest, _ = e.o.sealRecord(nil, kindFrame, e.number, []byte("\x00x"), true)
		e.number++
	}
	n := copy(p, e.rest)
	e.rest = e.rest[n:]
	return n, nil
}

// FuzzDecodeContent decodes what a hostile member seals. What is given out is within the limit.
func FuzzDecodeContent(f *testing.F) {
	f.Add([]byte{0}, 0)
	f.Add([]byte("\x00plain"), 5)
	f.Add(compressed(100_000, zstdOf(f, make([]byte, 100_000))), 1<<20)
	f.Add(compressed(100_000, streamed(f, make([]byte, 100_000))), 1<<20)
	f.Add(appendContent(nil, bytes.Repeat([]byte("ledger page commit "), 30)), 1000)
	f.Fuzz(func(t *testing.T, content []byte, limit int) {
		limit = min(max(limit, 0), 1<<20)
		plain, err := decodeContent(bytes.Clone(content), limit)
		if err != nil {
			return
		}
		if len(plain) > limit || cap(plain) > max(limit, len(content))+64 {
			t.Fatalf("%d bytes of capacity %d, limit %d", len(plain), cap(plain), limit)
		}
		again, err := decodeContent(appendContent(nil, plain), limit)
		if err != nil || !bytes.Equal(again, plain) {
			t.Fatalf("%v", err)
		}
	})
}

// FuzzParseContents reads the tables of contents of a hostile member: one content, one byte string.
func FuzzParseContents(f *testing.F) {
	f.Add(appendContents(nil, []Frame{{SealedBytes: 26, PlainBytes: 5}, {SealedBytes: 30, PlainBytes: 700}}, []byte("table")), int64(headerBytes+56))
	f.Add([]byte{1, 21, 0}, int64(headerBytes+21))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1}, int64(0))
	f.Fuzz(func(t *testing.T, b []byte, end int64) {
		frames, table, problem := parseContents(b, end)
		if problem != "" {
			return
		}
		if again := appendContents(nil, frames, table); !bytes.Equal(again, b) {
			t.Fatalf("accepted %x, writes %x", b, again)
		}
		at := int64(headerBytes)
		for _, f := range frames {
			if f.Offset != at || f.SealedBytes < FrameOverhead || f.PlainBytes < 0 || f.PlainBytes > MaxFrameBytes {
				t.Fatalf("%+v at %d", f, at)
			}
			at += int64(f.SealedBytes)
		}
		if at != end {
			t.Fatalf("ends at %d, not %d", at, end)
		}
	})
}
