package seal_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

var pack = seal.Label{Role: "pack", Name: "fedcba9876543210"}

// framed seals parts, each as a frame of its own, and table.
func framed(t testing.TB, s *seal.Sealer, l seal.Label, table []byte, parts ...[]byte) ([]byte, *seal.Writer) {
	t.Helper()
	var out bytes.Buffer
	w, err := s.NewWriter(&out, l)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range parts {
		if n, err := w.Write(p); n != len(p) || err != nil {
			t.Fatal(n, err)
		}
		if _, err := w.EndFrame(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.SetTable(table); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if w.Size() != int64(out.Len()) {
		t.Fatalf("size %d, written %d", w.Size(), out.Len())
	}
	return out.Bytes(), w
}

// readAll reads an object by frames, and by stream, and fails if they differ.
func readAll(s *seal.Sealer, l seal.Label, sealed []byte) (plain, table []byte, err error) {
	byFrames, table, err1 := readFrames(s, l, sealed)
	byStream, streamTable, err2 := readStream(s, l, sealed)
	switch {
	case (err1 == nil) != (err2 == nil):
		return nil, nil, fmt.Errorf("frames say %w, the stream %w", err1, err2)
	case err1 != nil:
		return nil, nil, err1
	case !bytes.Equal(byFrames, byStream) || !bytes.Equal(table, streamTable):
		return nil, nil, errors.New("frames and stream differ")
	}
	return byFrames, table, nil
}

func readFrames(s *seal.Sealer, l seal.Label, sealed []byte) (plain, table []byte, err error) {
	r, err := s.NewReader(bytes.NewReader(sealed), int64(len(sealed)), l)
	if err != nil {
		return nil, nil, err
	}
	for i := range r.Frames() {
		p, err := r.ReadFrame(i)
		if err != nil {
			return nil, nil, err
		}
		plain = append(plain, p...)
	}
	if int64(len(plain)) != r.PlainBytes() {
		return nil, nil, errors.New("wrong length")
	}
	return plain, r.Table(), nil
}

func readStream(s *seal.Sealer, l seal.Label, sealed []byte) (plain, table []byte, err error) {
	st, err := s.NewStream(iotest.HalfReader(bytes.NewReader(sealed)), l)
	if err != nil {
		return nil, nil, err
	}
	plain, err = io.ReadAll(st)
	return plain, st.Table(), err
}

func TestFramesRoundTrip(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a seal.Algorithm) {
		s := newSealer(t, a, 20)
		rapid.Check(t, func(rt *rapid.T) {
			parts := rapid.SliceOfN(contents(3000), 0, 12).Draw(rt, "parts")
			table := contents(500).Draw(rt, "table")
			sealed, w := framed(t, s, pack, table, parts...)
			plain, gotTable, err := readAll(s, pack, sealed)
			if err != nil || !bytes.Equal(plain, bytes.Join(parts, nil)) || !bytes.Equal(gotTable, table) {
				rt.Fatalf("read %d bytes: %v", len(plain), err)
			}
			full := slices.DeleteFunc(slices.Clone(parts), func(p []byte) bool { return len(p) == 0 })
			if len(full) == 0 {
				full = [][]byte{nil}
			}
			for i, f := range w.Frames() {
				got, err := s.OpenFrame(pack, w.Ref(), i, sealed[f.Offset:f.Offset+int64(f.SealedBytes)])
				if err != nil || !bytes.Equal(got, full[i]) || f.PlainBytes != len(full[i]) || f.SealedBytes > f.PlainBytes+seal.FrameOverhead {
					rt.Fatalf("frame %d: %d bytes, %v", i, len(got), err)
				}
				got, err = s.OpenFrameInPlace(pack, w.Ref(), i, bytes.Clone(sealed[f.Offset:f.Offset+int64(f.SealedBytes)]))
				if err != nil || !bytes.Equal(got, full[i]) {
					rt.Fatalf("frame %d in place: %d bytes, %v", i, len(got), err)
				}
			}
		})
	})
}

func TestLongObjectsAreCutIntoFrames(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 21)
	for _, n := range []int{0, 1, seal.MaxFrameBytes - 1, seal.MaxFrameBytes, seal.MaxFrameBytes + 1, 3*seal.MaxFrameBytes + 5} {
		plain := noise(22, n)
		sealed, w := framed(t, s, pack, nil, plain)
		want := max(1, (n+seal.MaxFrameBytes-1)/seal.MaxFrameBytes)
		if len(w.Frames()) != want {
			t.Errorf("%d bytes in %d frames, want %d", n, len(w.Frames()), want)
		}
		got, _, err := readAll(s, pack, sealed)
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes: read %d, %v", n, len(got), err)
		}
		if over := len(sealed) - n; over > want*(seal.FrameOverhead+8)+100 {
			t.Errorf("%d bytes grew by %d", n, over)
		}
	}
}

func TestALongTableIsRead(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 23)
	table := noise(24, seal.MaxTableBytes)
	sealed, _ := framed(t, s, pack, table, []byte("a"), []byte("b"))
	if plain, got, err := readAll(s, pack, sealed); err != nil || string(plain) != "ab" || !bytes.Equal(got, table) {
		t.Errorf("%q, %d bytes of table, %v", plain, len(got), err)
	}
}

func TestEachChangeOfAFramedObjectIsSeen(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a seal.Algorithm) {
		s := newSealer(t, a, 25)
		sealed, w := framed(t, s, pack, []byte("the table"), []byte("first"), bytes.Repeat([]byte("second "), 20), []byte("third"))
		changes(sealed, func(what string, changed []byte) {
			for how, read := range map[string]func(*seal.Sealer, seal.Label, []byte) ([]byte, []byte, error){"frames": readFrames, "stream": readStream} {
				_, _, err := read(s, pack, changed)
				mustRefuse(t, what+" by "+how, pack, err)
			}
		})
		for i, f := range w.Frames() {
			changes(sealed[f.Offset:f.Offset+int64(f.SealedBytes)], func(what string, changed []byte) {
				_, err := s.OpenFrame(pack, w.Ref(), i, changed)
				mustRefuse(t, fmt.Sprintf("frame %d, %s", i, what), pack, err)
				_, err = s.OpenFrameInPlace(pack, w.Ref(), i, bytes.Clone(changed))
				mustRefuse(t, fmt.Sprintf("frame %d in place, %s", i, what), pack, err)
			})
		}
	})
}

// TestFramesAreBoundToTheirPlace puts every record at every other place, of its own object and of another one.
func TestFramesAreBoundToTheirPlace(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a seal.Algorithm) {
		s := newSealer(t, a, 26)
		parts := [][]byte{[]byte("one"), []byte("two"), []byte("tri"), []byte("for")}
		sealed, w := framed(t, s, pack, nil, parts...)
		other, _ := framed(t, s, pack, nil, []byte("un."), []byte("due"), []byte("tre"), []byte("qtr"))
		frames := w.Frames()
		record := func(b []byte, i int) []byte {
			return b[frames[i].Offset : frames[i].Offset+int64(frames[i].SealedBytes)]
		}
		end := frames[3].Offset + int64(frames[3].SealedBytes)
		try := func(what string, b []byte) {
			t.Helper()
			_, _, err := readFrames(s, pack, b)
			mustRefuse(t, what+" by frames", pack, err)
			_, _, err = readStream(s, pack, b)
			mustRefuse(t, what+" by stream", pack, err)
		}
		for i := range frames {
			for j := range frames {
				if i != j {
					swapped := bytes.Clone(sealed)
					copy(record(swapped, i), record(sealed, j))
					try(fmt.Sprintf("frame %d also at %d", j, i), swapped)
					copy(record(swapped, j), record(sealed, i))
					try(fmt.Sprintf("frames %d and %d swapped", i, j), swapped)
				}
				if _, err := s.OpenFrame(pack, w.Ref(), i, record(sealed, j)); (err == nil) != (i == j) {
					t.Errorf("frame %d as number %d: %v", j, i, err)
				}
			}
			foreign := bytes.Clone(sealed)
			copy(record(foreign, i), record(other, i))
			try(fmt.Sprintf("frame %d of another object", i), foreign)
			try(fmt.Sprintf("without frame %d", i), slices.Concat(sealed[:frames[i].Offset], sealed[frames[i].Offset+int64(frames[i].SealedBytes):]))
			try(fmt.Sprintf("frame %d twice", i), slices.Concat(sealed[:frames[i].Offset], record(sealed, i), sealed[frames[i].Offset:]))
		}
		try("end of another object", slices.Concat(sealed[:end], other[end:]))
		try("frames of another object", slices.Concat(sealed[:24], other[24:]))
		_, _, err := s.Open(pack, sealed, 1000)
		mustRefuse(t, "framed as single", pack, err)
		try("single as framed", mustSeal(t, s, pack, noise(1, 200)))
		l := seal.Label{Role: "diff", Name: pack.Name}
		_, _, err = readFrames(s, l, sealed)
		mustRefuse(t, "another role", l, err)
		l = seal.Label{Role: pack.Role, Name: "fedcba9876543211"}
		_, _, err = readStream(s, l, sealed)
		mustRefuse(t, "another name", l, err)
	})
}

// TestAnObjectWithoutItsEndIsNone: what a killed upload leaves, at the boundary of every frame.
func TestAnObjectWithoutItsEndIsNone(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 27)
	var out bytes.Buffer
	w, err := s.NewWriter(&out, pack)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if _, err := w.Write([]byte("some bytes")); err != nil {
			t.Fatal(err)
		}
		if _, err := w.EndFrame(); err != nil {
			t.Fatal(err)
		}
		_, _, err := readStream(s, pack, out.Bytes())
		mustRefuse(t, "by stream", pack, err)
		_, _, err = readFrames(s, pack, out.Bytes())
		mustRefuse(t, "by frames", pack, err)
	}
}

var errBroken = errors.New("connection reset")

func TestErrorsOfTheReaderBelowAreNoCorruption(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 28)
	sealed, _ := framed(t, s, pack, []byte("table"), []byte("one"), []byte("two"))
	for _, broken := range []error{errBroken, io.ErrUnexpectedEOF} {
		for n := range sealed {
			r := io.MultiReader(bytes.NewReader(sealed[:n]), iotest.ErrReader(broken))
			st, err := s.NewStream(r, pack)
			if err == nil {
				_, err = io.ReadAll(st)
			}
			if !errors.Is(err, broken) || errors.Is(err, base.ErrCorrupt) {
				t.Fatalf("broken after %d bytes: %v", n, err)
			}
		}
	}
	if _, err := s.NewReader(bytes.NewReader(sealed), int64(len(sealed))+10, pack); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("shorter than its size: %v", err)
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
	whole, _ := framed(t, s, pack, nil, []byte("one"), []byte("two"))
	for n := range whole {
		f := failing(n)
		w, err := s.NewWriter(&f, pack)
		if err == nil {
			_, _ = w.Write([]byte("one"))
			_, _ = w.EndFrame()
			_, _ = w.Write([]byte("two"))
			err = w.Close()
		}
		if !errors.Is(err, errBroken) {
			t.Fatalf("failing after %d bytes: %v", n, err)
		}
	}
	w, err := s.NewWriter(io.Discard, pack)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.SetTable(make([]byte, seal.MaxTableBytes+1)); !errors.Is(err, base.ErrTooLarge) {
		t.Error(err)
	}
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

// TestFramesAreWrittenWhole seals the same frames with WriteFrame and otherwise, mixed, and into buffers with and without room.
func TestFramesAreWrittenWhole(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a seal.Algorithm) {
		s := newSealer(t, a, 31)
		rapid.Check(t, func(rt *rapid.T) {
			parts := rapid.SliceOfN(contents(3000), 1, 12).Draw(rt, "parts")
			out := bytes.NewBuffer(make([]byte, 0, rapid.IntRange(0, 40_000).Draw(rt, "room")))
			var to io.Writer = out
			if rapid.Bool().Draw(rt, "without room") {
				to = struct{ io.Writer }{out}
			}
			w, err := s.NewWriter(to, pack)
			if err != nil {
				rt.Fatal(err)
			}
			ended, whole := false, false // whether the last frame was said to be that, and written whole
			var want [][]byte
			for i, p := range parts {
				switch {
				case i > 0 && rapid.Bool().Draw(rt, "by parts"):
					if _, err = w.Write(p); err == nil {
						_, err = w.EndFrame()
					}
					if len(p) > 0 {
						want, whole = append(want, p), false
					}
				default:
					ended, whole = i == len(parts)-1 && rapid.Bool().Draw(rt, "said"), true
					want = append(want, p)
					var n int
					if n, err = w.WriteFrame(append([]byte{7}, p...), ended); n != len(want)-1 {
						rt.Errorf("frame %d, want %d", n, len(want)-1)
					}
				}
				if err != nil {
					rt.Fatal(err)
				}
			}
			if ended {
				_, err1 := w.Write([]byte("more"))
				_, err2 := w.WriteFrame([]byte{0}, true)
				if !errors.Is(err1, base.ErrClosed) || !errors.Is(err2, base.ErrClosed) {
					rt.Errorf("behind the last frame: %v, %v", err1, err2)
				}
			}
			if err := w.Close(); err != nil {
				rt.Fatal(err)
			}
			if whole && !ended {
				want = append(want, nil) // the last frame is empty
			}
			if len(w.Frames()) != len(want) {
				rt.Errorf("%d frames, want %d", len(w.Frames()), len(want))
			}
			plain, _, err := readAll(s, pack, out.Bytes())
			if err != nil || !bytes.Equal(plain, bytes.Join(parts, nil)) {
				rt.Fatalf("read %d bytes: %v", len(plain), err)
			}
		})
	})
	s := newSealer(t, seal.AES256GCM, 32)
	w, err := s.NewWriter(io.Discard, pack)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteFrame(make([]byte, 1+seal.MaxFrameBytes+1), false); !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("a frame that is too long: %v", err)
	}
	if _, err := w.WriteFrame(nil, false); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("a frame without room: %v", err)
	}
}

func TestEndFrameCounts(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 30)
	w, err := s.NewWriter(io.Discard, pack)
	if err != nil {
		t.Fatal(err)
	}
	for step, want := range []int{-1, 0, 0, 1, 3, 3} {
		if step != 0 && step != 2 && step != 5 {
			n := 10
			if step == 4 {
				n = seal.MaxFrameBytes + 1
			}
			if _, err := w.Write(make([]byte, n)); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := w.EndFrame(); got != want || err != nil {
			t.Errorf("step %d: frame %d, %v, want %d", step, got, err, want)
		}
	}
	if r, err := s.NewReader(bytes.NewReader(nil), 0, pack); r != nil || !errors.Is(err, base.ErrCorrupt) {
		t.Error(err)
	}
}
