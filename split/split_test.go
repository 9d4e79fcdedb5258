package split_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
)

var update = flag.Bool("update", false, "rewrite the files in testdata")

func TestSizes(t *testing.T) {
	b := random(1, 512<<10)
	sizes := []int{0, 1, 2, 47, 48, 49, 4095, 4096, 4097, 16383, 16384, 16385, 65535, 65536, 65537, 131072, 262143, 262144, 262145, len(b)}
	for n := 0; n < 200<<10; n += 1999 {
		sizes = append(sizes, n)
	}
	for _, n := range sizes {
		checkObject(t, split.DefaultTable(), b[:n])
	}
	checkObject(t, split.NewTable([]byte("secret")), b)
}

func TestSizesEach(t *testing.T) {
	if !tier.Nightly() {
		t.Skip("LEDGER_TIER=2 splits and reads every size up to 200 KiB; TestCutSizes cuts them in any case")
	}
	b := random(2, 200<<10)
	for n := range len(b) + 1 {
		checkObject(t, split.DefaultTable(), b[:n])
	}
}

func TestSizesLarge(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	most, rounds := 16<<20, 2
	if tier.Nightly() {
		most, rounds = 64<<20, 20
	}
	for i := range rounds {
		checkObject(t, split.DefaultTable(), random(byte(i), rng.IntN(most)))
	}
}

// TestReadSizes checks I1.
func TestReadSizes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		n := rapid.IntRange(0, 700<<10).Draw(t, "size")
		rng := rand.New(rand.NewPCG(seed, 0))
		b := random(byte(seed), n)
		if rapid.Bool().Draw(t, "text") {
			for i := range b {
				b[i] = "abcdefgh"[b[i]>>5]
			}
		}
		whole := newStore()
		want, err := split.SplitBytes(context.Background(), split.DefaultTable(), b, whole.emit)
		if err != nil {
			t.Fatal(err)
		}
		readers := map[string]io.Reader{
			"bytes":  bytes.NewReader(b),
			"random": &slicing{b: b, rng: rng},
			"half":   iotest.HalfReader(bytes.NewReader(b)),
			"eof":    iotest.DataErrReader(bytes.NewReader(b)),
		}
		if n < 100<<10 {
			readers["one"] = iotest.OneByteReader(bytes.NewReader(b))
		}
		for name, r := range readers {
			s := newStore()
			root, size, err := split.Split(context.Background(), split.DefaultTable(), r, s.emit)
			if err != nil || root != want || size != uint64(n) {
				t.Fatalf("%s: root %s, size %d, %v; want %s, %d", name, root, size, err, want, n)
			}
			if d := cmp.Diff(whole.order, s.order); d != "" {
				t.Fatalf("%s: I1: pieces differ: %s", name, d)
			}
		}
	})
}

// slicing reads pieces of random length, some of them empty.
type slicing struct {
	b   []byte
	rng *rand.Rand
}

func (s *slicing) Read(p []byte) (int, error) {
	if len(s.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:s.rng.IntN(min(len(p), 100_000)+1)], s.b)
	s.b = s.b[n:]
	return n, nil
}

func TestInsertion(t *testing.T) {
	b := random(5, 4<<20)
	s := newStore()
	mustSplit(t, s, b)
	before := len(s.pieces)
	for _, at := range []int{0, 1, 1 << 20, 2<<20 + 12345, len(b)} {
		edited := bytes.Join([][]byte{b[:at], []byte("inserted"), b[at:]}, nil)
		e := newStore()
		mustSplit(t, e, edited)
		fresh := 0
		for d := range e.pieces {
			if s.pieces[d] == nil {
				fresh++
			}
		}
		if fresh == 0 || fresh > 12 {
			t.Errorf("insertion at %d: %d new pieces of %d", at, fresh, before)
		}
	}
}

func TestSecrets(t *testing.T) {
	b := random(6, 2<<20)
	chunks := make(map[object.Digest]string)
	for _, secret := range []string{"", "a", "b", strings.Repeat("s", 32)} {
		for range 2 { // a table depends on nothing but the secret
			s := newStore()
			root, err := split.SplitBytes(t.Context(), split.NewTable([]byte(secret)), b, s.emit)
			if err != nil {
				t.Fatal(err)
			}
			if old, ok := chunks[root]; ok && old != secret {
				t.Errorf("secrets %q and %q give one root", old, secret)
			}
			chunks[root] = secret
		}
	}
	if len(chunks) != 4 {
		t.Errorf("%d roots for 4 secrets", len(chunks))
	}
}

// TestConstant pins that runs of one byte are cut at the greatest length.
func TestConstant(t *testing.T) {
	for _, table := range []*split.Table{split.DefaultTable(), split.NewTable([]byte("1")), split.NewTable([]byte("2"))} {
		for c := range 256 {
			b := bytes.Repeat([]byte{byte(c)}, 3*split.MaxChunkBytes+5)
			var got []int
			_, err := split.SplitBytes(t.Context(), table, b, func(_ context.Context, p split.Piece) error {
				if !p.Digest.Kind().IsIndex() {
					got = append(got, len(p.Content))
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			const m = split.MaxChunkBytes
			if d := cmp.Diff([]int{m, m, m, 5}, got); d != "" {
				t.Fatalf("byte %#x: %s", c, d)
			}
		}
	}
}

// TestZeros pins that a run of zeros far longer than an index piece costs few distinct pieces.
func TestZeros(t *testing.T) {
	n := int64(300 << 20)
	if !tier.Nightly() {
		n = 110 << 20 // more than MaxIndexChildren chunks
	}
	s := newStore()
	root, size, err := split.Split(t.Context(), split.DefaultTable(), io.LimitReader(zeros{}, n+1), s.emit)
	if err != nil || size != uint64(n)+1 {
		t.Fatal(size, err)
	}
	if len(s.pieces) > 6 {
		t.Errorf("%d distinct pieces", len(s.pieces))
	}
	var last [3]byte
	if k, err := split.NewReader(t.Context(), s, root, size).ReadAt(last[:], n-1); k != 2 || err != io.EOF {
		t.Errorf("ReadAt at the end = %d, %v", k, err)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// TestPeriodic pins that periodic content is cut at the first place of a period that matches, once
// from the least length and once from the target on, and at the greatest length when no place
// matches.
func TestPeriodic(t *testing.T) {
	for p := 2; p <= 300; p++ {
		b := bytes.Repeat(random(byte(p), p), 400_000/p)
		checked, left := 0, len(b)
		s := newStore()
		mustSplit(t, s, b)
		for _, d := range s.order {
			n := len(s.pieces[d])
			if d.Kind().IsIndex() {
				continue
			}
			if left -= n; left == 0 {
				continue
			}
			checked++
			if !(n < split.MinChunkBytes+p || n > split.TargetChunkBytes && n <= split.TargetChunkBytes+p || n == split.MaxChunkBytes) {
				t.Errorf("period %d: chunk of %d bytes", p, n)
			}
		}
		if checked < 5 {
			t.Errorf("period %d: %d chunks", p, checked)
		}
	}
}

func TestSplitErrors(t *testing.T) {
	b := random(7, 1<<20)
	boom := errors.New("boom")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	ok := func(context.Context, split.Piece) error { return nil }
	bad := func(context.Context, split.Piece) error { return boom }
	for name, c := range map[string]struct {
		ctx  context.Context
		r    io.Reader
		emit split.Emit
		want error
	}{
		"no emit":     {t.Context(), bytes.NewReader(b), nil, base.ErrInvalid},
		"canceled":    {canceled, bytes.NewReader(b), ok, context.Canceled},
		"emit":        {t.Context(), bytes.NewReader(b), bad, boom},
		"emit empty":  {t.Context(), strings.NewReader(""), bad, boom},
		"reader":      {t.Context(), io.MultiReader(bytes.NewReader(b[:300_000]), iotest.ErrReader(boom)), ok, boom},
		"unexpected":  {t.Context(), iotest.ErrReader(io.ErrUnexpectedEOF), ok, io.ErrUnexpectedEOF},
		"no progress": {t.Context(), io.MultiReader(bytes.NewReader(b), stuck{}), ok, io.ErrNoProgress},
		"liar":        {t.Context(), liar(1), ok, base.ErrInvalid},
		"negative":    {t.Context(), liar(-1 << 30), ok, base.ErrInvalid},
	} {
		root, size, err := split.Split(c.ctx, split.DefaultTable(), c.r, c.emit)
		if !errors.Is(err, c.want) || !root.IsZero() || size != 0 {
			t.Errorf("%s: %s, %d, %v; want %v", name, root, size, err, c.want)
		}
		if err == c.want {
			t.Errorf("%s: %v is not wrapped", name, err)
		}
	}
	if _, err := split.SplitBytes(canceled, split.DefaultTable(), b, ok); !errors.Is(err, context.Canceled) {
		t.Errorf("SplitBytes: %v", err)
	}
	if _, err := split.SplitBytes(t.Context(), split.DefaultTable(), b, bad); !errors.Is(err, boom) {
		t.Errorf("SplitBytes: %v", err)
	}
	if _, err := split.SplitBytes(t.Context(), nil, b, ok); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("SplitBytes without table: %v", err)
	}
	checkObject(t, split.DefaultTable(), b) // failures leave nothing behind
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }

type liar int

func (l liar) Read(b []byte) (int, error) { return len(b) + int(l), nil }

// TestSplitMemory checks I5.
func TestSplitMemory(t *testing.T) {
	const n = 64 << 20
	run := func(n int64) (total uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := io.LimitReader(rand.NewChaCha8([32]byte{9}), n)
		_, _, err := split.Split(t.Context(), split.DefaultTable(), r, func(context.Context, split.Piece) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	// The buffer of 1 MiB and the index pieces, nothing for a chunk.
	if got := run(n); got > 2<<20 {
		t.Errorf("%d bytes allocated for %d bytes of content", got, n)
	}
}

func TestGolden(t *testing.T) {
	var out strings.Builder
	text := bytes.Repeat([]byte("the quick brown fox jumps over the lazy dog\n"), 50_000)
	for i := range text {
		if i%1000 == 0 {
			copy(text[i:], fmt.Sprint(i*i))
		}
	}
	inputs := []struct {
		name string
		b    []byte
	}{
		{"empty", nil}, {"one byte", []byte("x")}, {"4 KiB", random(1, 4096)}, {"64 KiB", random(2, 65536)}, {"64 KiB and 1", random(2, 65537)},
		{"3 MiB", random(3, 3<<20)}, {"5 MiB of zeros", make([]byte, 5<<20)}, {"text", text},
	}
	tables := []struct {
		name  string
		table *split.Table
	}{{"default", split.DefaultTable()}, {"secret", split.NewTable([]byte("secret"))}}
	for _, in := range inputs {
		for _, tb := range tables {
			s := newStore()
			root, err := split.SplitBytes(t.Context(), tb.table, in.b, s.emit)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(&out, "%s, %d bytes, %s table: %d pieces, %s\n", in.name, len(in.b), tb.name, len(s.order), root)
		}
	}
	const file = "testdata/roots.txt"
	if *update {
		if err := os.WriteFile(file, []byte(out.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), out.String()); d != "" {
		t.Errorf("roots changed: equal content would get another name (-want +got):\n%s", d)
	}
}

func FuzzSplitRoundTrip(f *testing.F) {
	f.Add([]byte(""), uint16(0), uint8(0))
	f.Add([]byte("x"), uint16(1), uint8(1))
	f.Add(random(1, 1000), uint16(200), uint8(7))
	f.Add([]byte("ab"), uint16(60_000), uint8(3))
	f.Fuzz(func(t *testing.T, unit []byte, times uint16, step uint8) {
		if len(unit) == 0 || len(unit)*int(times) > 1<<20 {
			times = min(times, 16)
		}
		b := bytes.Repeat(unit, int(times))
		for i := range b { // else all inputs are periodic
			b[i] += byte(i / 256 * int(step))
		}
		checkObject(t, split.DefaultTable(), b)
	})
}
