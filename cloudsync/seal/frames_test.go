package seal_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

var pack = seal.Label{Role: "pack", Name: "fedcba9876543210"}

// headerBytes is the length of an object's head.
const headerBytes = 24

// framePlain is the plaintext of a full frame.
const framePlain = seal.FrameBytes - 16

// framed seals parts, each as a block of its own.
func framed(t testing.TB, s *seal.Sealer, l seal.Label, parts ...[]byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := s.NewWriter(&out, l, false, nil)
	var c seal.Compressor
	for _, p := range parts {
		if err := w.AddBlocks(c.AppendBlock(nil, p, true)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.Size() != int64(out.Len()) {
		t.Fatalf("size %d, written %d", w.Size(), out.Len())
	}
	return out.Bytes()
}

func readStream(s *seal.Sealer, l seal.Label, sealed []byte) (plain []byte, err error) {
	st, err := s.NewStream(iotest.HalfReader(bytes.NewReader(sealed)), int64(len(sealed)), l, nil)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(st)
}

// blockParts generates plaintexts of blocks.
func blockParts(t *rapid.T) [][]byte {
	return slices.DeleteFunc(rapid.SliceOfN(contents(90_000), 0, 8).Draw(t, "parts"), func(p []byte) bool { return len(p) == 0 })
}

func TestFramesRoundTrip(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a seal.Algorithm) {
		s := newSealer(t, a, 20)
		rapid.Check(t, func(rt *rapid.T) {
			parts := blockParts(rt)
			sealed := framed(t, s, pack, parts...)
			if plain, err := readStream(s, pack, sealed); err != nil || !bytes.Equal(plain, bytes.Join(parts, nil)) {
				rt.Fatalf("read %d bytes: %v", len(plain), err)
			}
		})
	})
}

// Blocks that stand together are read with one range, and no more of the object.
func TestPartsAreReadAlone(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a seal.Algorithm) {
		s := newSealer(t, a, 34)
		parts := [][]byte{noise(1, 100_000), noise(2, 10), noise(3, 200_000), noise(4, framePlain)}
		ends := []int64{0}
		for _, p := range parts {
			ends = append(ends, ends[len(ends)-1]+int64(len(p)+seal.BlockOverhead))
		}
		sealed := framed(t, s, pack, parts...)
		ref, _, err := seal.Inspect(pack, sealed)
		if err != nil {
			t.Fatal(err)
		}
		read := func(from, first, off, n int64) ([]byte, error) {
			st, err := s.NewPart(iotest.HalfReader(bytes.NewReader(sealed[from:])), int64(len(sealed)), pack, ref, first, off, n)
			if err != nil {
				return nil, err
			}
			return io.ReadAll(st)
		}
		for i := range parts {
			for j := i; j <= len(parts); j++ {
				off, n := ends[i], ends[j]-ends[i]
				first, at, _ := seal.Cover(off, max(n, 1))
				want := bytes.Join(parts[i:j], nil)
				if got, err := read(at, first, off, n); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes from %d on: %d of %d, %v", n, off, len(got), len(want), err)
				}
				_, begin, _ := seal.Cover(0, 1)
				if got, err := read(begin, 0, off, n); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%d bytes from %d on, read from the beginning: %d of %d, %v", n, off, len(got), len(want), err)
				}
			}
		}
		first, at, _ := seal.Cover(ends[1], 1)
		for what, c := range map[string][4]int64{
			"other frame": {at, first + 1, ends[1] + framePlain, ends[2] - ends[1]}, "within a block": {at, first, ends[1] + 1, ends[2] - ends[1]},
			"cut block": {at, first, ends[1], ends[2] - ends[1] - 1}, "too long": {at, first, ends[1], int64(len(sealed))},
			"before": {at, first, -1, 1}, "none": {at, first, ends[1], -1}, "far": {at, first, 1 << 62, 1 << 62},
		} {
			if _, err := read(c[0], c[1], c[2], c[3]); !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("%s: %v", what, err)
			}
		}
	})
}

// Blocks are read with the range of their frames alone.
func TestRangesAreReadAlone(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a seal.Algorithm) {
		s := newSealer(t, a, 33)
		parts := [][]byte{noise(1, 100_000), noise(2, 10), noise(3, 200_000), noise(4, framePlain)}
		ends := []int64{0}
		for _, p := range parts {
			ends = append(ends, ends[len(ends)-1]+int64(len(p)+seal.BlockOverhead))
		}
		sealed := framed(t, s, pack, parts...)
		ref, _, err := seal.Inspect(pack, sealed)
		if err != nil {
			t.Fatal(err)
		}
		rapid.Check(t, func(rt *rapid.T) {
			i := rapid.IntRange(0, len(parts)-1).Draw(rt, "first")
			j := rapid.IntRange(i+1, len(parts)).Draw(rt, "behind the last")
			off, n := ends[i], ends[j]-ends[i]
			first, at, length := seal.Cover(off, n)
			read := func(first int64) ([]byte, error) {
				got := bytes.NewReader(sealed[at:min(at+length, int64(len(sealed)))])
				st, err := s.NewPart(got, int64(len(sealed)), pack, ref, first, off, n)
				if err != nil {
					return nil, err
				}
				return io.ReadAll(st)
			}
			want := bytes.Join(parts[i:j], nil)
			if got, err := read(first); err != nil || !bytes.Equal(got, want) {
				rt.Fatalf("%d bytes at %d: %v", n, off, err)
			}
			if length > n+2*seal.FrameBytes+16*(n/framePlain) {
				rt.Fatalf("%d bytes are read for %d", length, n)
			}
			for _, wrong := range []int64{first + 1, first - 1} {
				_, err := read(wrong)
				mustRefuse(t, "frame under another number", pack, err)
			}
		})
	})
}

// Lengths say nothing but the padded length of the whole.
func TestLengthsAreThoseOfThePaddedStream(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 21)
	for _, n := range []int{0, 1, framePlain - 34, framePlain - 33, framePlain - 10, framePlain - 9, framePlain, 4*framePlain - 9, seal.MaxBlockBytes - 1, seal.MaxBlockBytes, seal.MaxBlockBytes + 1, 3*seal.MaxBlockBytes + 5} {
		plain := noise(22, n)
		var out bytes.Buffer
		w := s.NewWriter(&out, pack, true, nil)
		for p := plain; len(p) > 0; p = p[min(len(p), 70_001):] {
			if _, err := w.Write(p[:min(len(p), 70_001)]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := readStream(s, pack, out.Bytes())
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes: read %d, %v", n, len(got), err)
		}
		blocks := (n + seal.MaxBlockBytes - 1) / seal.MaxBlockBytes
		want := seal.ObjectBytes(seal.Padme(int64(n + blocks*seal.BlockOverhead + 4)))
		if int64(out.Len()) != want || seal.ObjectBytes(seal.StreamBytes(want)) != want {
			t.Errorf("%d bytes are sealed in %d, want %d", n, out.Len(), want)
		}
	}
}

func TestPadding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<40).Draw(t, "n")
		p := seal.Padme(n)
		if p < n || p-n > n*12/100 || seal.Padme(p) != p || n > 0 && seal.Padme(n-1) > p {
			t.Fatalf("Padme of %d is %d", n, p)
		}
		small := int(n % (1 << 30))
		q := seal.Quarters(small)
		if q < small || q < 512 || q > 512 && q-small > small/4 || seal.Quarters(q) != q {
			t.Fatalf("Quarters of %d is %d", small, q)
		}
	})
	// The example of the paper, and the steps.
	for n, want := range map[int64]int64{9: 10, 1<<20 + 1: 1<<20 + 1<<15, 16 << 20: 16 << 20, 16<<20 - 1: 16 << 20} {
		if got := seal.Padme(n); got != want {
			t.Errorf("Padme of %d is %d, want %d", n, got, want)
		}
	}
	for n, want := range map[int]int{0: 512, 512: 512, 513: 640, 640: 640, 641: 768, 897: 1024, 1025: 1280, 4096: 4096, 4097: 4352} {
		if got := seal.Quarters(n); got != want {
			t.Errorf("Quarters of %d is %d, want %d", n, got, want)
		}
	}
}

func TestEachChangeOfAFramedObjectIsSeen(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a seal.Algorithm) {
		s := newSealer(t, a, 25)
		sealed := framed(t, s, pack, []byte("first"), bytes.Repeat([]byte("second "), 20), []byte("third"))
		changes(sealed, func(what string, changed []byte) {
			_, err := readStream(s, pack, changed)
			mustRefuse(t, what, pack, err)
		})
	})
}

// TestFramesAreBoundToTheirPlace puts every frame at every other place, of its own object and of
// another one.
func TestFramesAreBoundToTheirPlace(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a seal.Algorithm) {
		s := newSealer(t, a, 26)
		const n = 4 * framePlain // padded to whole frames: all four are full
		plain := noise(34, n-4-5)
		sealed, other := framed(t, s, pack, plain), framed(t, s, pack, noise(35, len(plain)))
		frame := func(b []byte, i int) []byte { return b[headerBytes+i*seal.FrameBytes:][:seal.FrameBytes] }
		try := func(what string, b []byte) {
			t.Helper()
			_, err := readStream(s, pack, b)
			mustRefuse(t, what, pack, err)
		}
		frames := (len(sealed) - headerBytes) / seal.FrameBytes
		for i := range frames {
			for j := range frames {
				if i != j {
					swapped := bytes.Clone(sealed)
					copy(frame(swapped, i), frame(sealed, j))
					try(fmt.Sprintf("frame %d also at %d", j, i), swapped)
					copy(frame(swapped, j), frame(sealed, i))
					try(fmt.Sprintf("frames %d and %d swapped", i, j), swapped)
				}
			}
			foreign := bytes.Clone(sealed)
			copy(frame(foreign, i), frame(other, i))
			try(fmt.Sprintf("frame %d of another object", i), foreign)
			at := headerBytes + i*seal.FrameBytes
			try(fmt.Sprintf("without frame %d", i), slices.Concat(sealed[:at], sealed[at+seal.FrameBytes:]))
			try(fmt.Sprintf("frame %d twice", i), slices.Concat(sealed[:at], frame(sealed, i), sealed[at:]))
			try(fmt.Sprintf("up to frame %d", i), sealed[:at])
		}
		try("frames of another object", slices.Concat(sealed[:headerBytes], other[headerBytes:]))
		l := seal.Label{Role: "diff", Name: pack.Name}
		_, err := readStream(s, l, sealed)
		mustRefuse(t, "another role", l, err)
		l = seal.Label{Role: pack.Role, Name: "fedcba9876543211"}
		_, err = readStream(s, l, sealed)
		mustRefuse(t, "another name", l, err)
	})
}

// TestAnObjectWithoutItsEndIsNone: what a killed upload leaves.
func TestAnObjectWithoutItsEndIsNone(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 27)
	var out bytes.Buffer
	w := s.NewWriter(&out, pack, false, nil)
	for range 3 {
		if _, err := w.Write(noise(1, seal.MaxBlockBytes)); err != nil {
			t.Fatal(err)
		}
		_, err := readStream(s, pack, out.Bytes())
		mustRefuse(t, "without its end", pack, err)
	}
}

// An object of another version is damaged, and the message says why: which version a bucket has say
// its rings. One whose first byte anybody has set is none that a newer program has written.
func TestObjectsOfOtherVersionsAreRefused(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 36)
	b := framed(t, s, pack, []byte("x"))
	for _, version := range []byte{0, 1, 2, 255} {
		b[0] = version
		_, err := readStream(s, pack, b)
		if !errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrUnsupported) || !strings.Contains(err.Error(), fmt.Sprintf("want format version 3, got %d", version)) {
			t.Error(err)
		}
	}
}

var errBroken = errors.New("connection reset")

func TestErrorsOfTheReaderBelowAreNoCorruption(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 28)
	sealed := framed(t, s, pack, []byte("one"), []byte("two"))
	for _, broken := range []error{errBroken, io.ErrUnexpectedEOF} {
		for n := range sealed {
			r := io.MultiReader(bytes.NewReader(sealed[:n]), iotest.ErrReader(broken))
			st, err := s.NewStream(r, int64(len(sealed)), pack, nil)
			if err == nil {
				_, err = io.ReadAll(st)
			}
			if !errors.Is(err, broken) || errors.Is(err, base.ErrCorrupt) {
				t.Fatalf("broken after %d bytes: %v", n, err)
			}
		}
	}
}

// failing is a writer that fails after so many bytes.
type failing int

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > int(*f) {
		n := int(*f)
		*f = 0
		return n, errBroken
	}
	*f -= failing(len(p))
	return len(p), nil
}

func TestErrorsOfTheWriterBelowStick(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 29)
	whole := framed(t, s, pack, []byte("onetwo"))
	for n := range whole {
		f := failing(n)
		w := s.NewWriter(&f, pack, true, nil)
		_, _ = w.Write([]byte("one"))
		_, _ = w.Write([]byte("two"))
		if err := w.Close(); !errors.Is(err, errBroken) {
			t.Fatalf("failing after %d bytes: %v", n, err)
		}
	}
	w := s.NewWriter(io.Discard, pack, true, nil)
	if err := w.Close(); err != nil {
		t.Error(err)
	}
	if _, err := w.Write([]byte("x")); !errors.Is(err, base.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
	if err := w.Close(); !errors.Is(err, base.ErrClosed) {
		t.Errorf("close after close: %v", err)
	}
}
