package split

import (
	"bytes"
	"context"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/chmduquesne/rollinghash/buzhash64"

	"github.com/ledgerd/ledger/internal/tier"
)

// refCut is cut as the design says it, with the rolling hash of the library, rolled from the first
// byte on.
func refCut(t *Table, b []byte) (n int, h uint64) {
	b = b[:min(len(b), MaxChunkBytes)]
	if len(b) < MinChunkBytes {
		return len(b), 0
	}
	roll := buzhash64.NewFromUint64Array(t.in)
	_, _ = roll.Write(b[:window])
	for i, c := range b[window:] {
		roll.Roll(c)
		n, h = window+i+1, roll.Sum64()
		if n < MinChunkBytes {
			continue
		}
		mask := easyMask
		if n <= TargetChunkBytes {
			mask = hardMask
		}
		if h&mask == 0 {
			break
		}
	}
	return n, h
}

func testTables() map[string]*Table {
	return map[string]*Table{"default": DefaultTable(), "secret": NewTable([]byte("secret"))}
}

func randomBytes(seed uint64, n, values int) []byte {
	rng := rand.New(rand.NewPCG(seed, 0))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.IntN(values))
	}
	return b
}

// TestReferenceSums compares every sum of scan with the library's, from every beginning modulo the
// steps of the loop.
func TestReferenceSums(t *testing.T) {
	for name, table := range testTables() {
		b := randomBytes(1, 1000, 256)
		for start := window; start < window+9; start++ {
			roll := buzhash64.NewFromUint64Array(table.in)
			_, _ = roll.Write(b[start-window : start])
			warm := roll.Sum64()
			for end := start + 1; end <= len(b); end++ {
				roll.Roll(b[end-1])
				// A mask of all bits matches next to never, so scan goes to the end.
				n, h, ok := table.scan(b[:end], start, warm, ^uint64(0))
				if n != end || h != roll.Sum64() || ok {
					t.Fatalf("%s: scan %d to %d = %d, %#x, %v; want %#x", name, start, end, n, h, ok, roll.Sum64())
				}
			}
		}
	}
}

// TestReferenceCuts compares places and sums of cuts with those of the reference.
func TestReferenceCuts(t *testing.T) {
	size := 3 << 20
	if tier.Nightly() {
		size = 200 << 20
	}
	for name, table := range testTables() {
		for _, values := range []int{256, 8, 2} {
			hard, easy, forced := 0, 0, 0
			for b := randomBytes(2, size, values); len(b) > 0; {
				n, h := table.cut(b)
				if wn, wh := refCut(table, b); n != wn || h != wh {
					t.Fatalf("%s, %d values: %d bytes left: cut = %d, %#x; want %d, %#x", name, values, len(b), n, h, wn, wh)
				}
				b = b[n:]
				switch {
				case n == MaxChunkBytes:
					forced++
				case n > TargetChunkBytes:
					easy++
				default:
					hard++
				}
			}
			if hard < easy/10 || easy < hard || forced > easy/5 {
				t.Errorf("%s, %d values: %d cuts before the target, %d after it, %d forced", name, values, hard, easy, forced)
			}
		}
	}
}

// TestCutSizes cuts content of every size up to 200 KiB. A chunk that does not end its content must
// be the chunk that the same place has in longer content.
func TestCutSizes(t *testing.T) {
	b := randomBytes(3, 200<<10+MaxChunkBytes, 256)
	start, next := 0, 0
	for n := 0; n <= 200<<10; n++ {
		if start == next {
			k, _ := DefaultTable().cut(b[start:])
			next = start + k
		}
		k, h := DefaultTable().cut(b[start:n])
		if start+k != min(n, next) {
			t.Fatalf("size %d: chunk at %d has %d bytes, want %d", n, start, k, min(n, next)-start)
		}
		if n%1009 == 0 {
			if wk, wh := refCut(DefaultTable(), b[start:n]); k != wk || h != wh {
				t.Fatalf("size %d: chunk at %d: %d, %#x; want %d, %#x", n, start, k, h, wk, wh)
			}
		}
		if n == next {
			start = next
		}
	}
	if start < 150<<10 {
		t.Errorf("last chunk begins at %d", start)
	}
}

const secretFirst = 0x828460884460b131

// TestTables checks that no table cuts a run of one byte before the greatest length, and that the
// values of bytes differ.
func TestTables(t *testing.T) {
	tables := testTables()
	for i := range 50 {
		tables[string(rune('a'+i))] = NewTable([]byte{byte(i)})
	}
	for name, table := range tables {
		used := make(map[uint64]bool)
		for c, v := range table.in {
			if used[v] {
				t.Errorf("%s: two bytes have the value %#x", name, v)
			}
			used[v] = true
			if h := runHash(v); h&easyMask == 0 {
				t.Errorf("%s: runs of %#x have the hash %#x", name, c, h)
			}
		}
	}
	if DefaultTable().in != buzhash64.GenerateHashes(1) {
		t.Error("the default table is not that of the library")
	}
	// The derivation from the secret is part of what a repository is: other values would be other
	// cuts.
	if got, want := NewTable([]byte("secret")).in[0], uint64(secretFirst); got != want {
		t.Errorf("first value of the table of a secret = %#x, want %#x", got, want)
	}
}

// TestBits checks that all bits of the hash that decide are even: each is set in half of the
// windows, of random content and of text over a few letters.
func TestBits(t *testing.T) {
	for name, table := range testTables() {
		for _, values := range []int{256, 26, 4} {
			b := randomBytes(4, 200_000, values)
			var ones [64]int
			var levels [maxLevel + 1]int
			var h uint64
			for i := window; i < len(b); i++ {
				_, h, _ = table.scan(b[:i+1], i, h, ^uint64(0))
				for k := range ones {
					ones[k] += int(h >> k & 1)
				}
				levels[level(h)]++
			}
			total := len(b) - window
			for k, n := range ones {
				if n < total*48/100 || n > total*52/100 {
					t.Errorf("%s, %d values: bit %d is set in %d of %d", name, values, k, n, total)
				}
			}
			if want := total / 32; total-levels[0] < want*9/10 || total-levels[0] > want*11/10 {
				t.Errorf("%s, %d values: %d of %d cuts above level 0", name, values, total-levels[0], total)
			}
		}
	}
}

// matchingWindow returns a window of random bytes whose hash has no bit of mask but some bit of
// not.
func matchingWindow(t *testing.T, table *Table, mask, not uint64) []byte {
	t.Helper()
	b := randomBytes(5, 4<<20, 256)
	for i := window; i < len(b); {
		var h uint64
		for _, c := range b[i-window : i] {
			h = bits.RotateLeft64(h, 1) ^ table.in[c]
		}
		n, h, ok := table.scan(b, i, h, mask)
		if ok && (not == 0 || h&not != 0) {
			return b[n-window : n]
		}
		i = n
	}
	t.Fatal("no window matches")
	return nil
}

// TestCutEdges puts windows that match where the rules change.
func TestCutEdges(t *testing.T) {
	for name, table := range testTables() {
		hard := matchingWindow(t, table, hardMask, 0)
		easy := matchingWindow(t, table, easyMask, hardMask)
		for _, c := range []struct {
			window    []byte
			end, want int
		}{
			{hard, MinChunkBytes - 1, MaxChunkBytes}, {hard, MinChunkBytes, MinChunkBytes}, {hard, MinChunkBytes + 1, MinChunkBytes + 1},
			{easy, MinChunkBytes, MaxChunkBytes}, {easy, TargetChunkBytes, MaxChunkBytes}, {hard, TargetChunkBytes, TargetChunkBytes},
			{easy, TargetChunkBytes + 1, TargetChunkBytes + 1}, {easy, MaxChunkBytes - 1, MaxChunkBytes - 1}, {easy, MaxChunkBytes, MaxChunkBytes},
			{easy, MaxChunkBytes + 1, MaxChunkBytes},
		} {
			b := make([]byte, 2*MaxChunkBytes)
			copy(b[c.end-window:], c.window)
			if n, _ := table.cut(b); n != c.want {
				t.Errorf("%s: window that ends at %d: chunk of %d bytes, want %d", name, c.end, n, c.want)
			}
		}
	}
}

// TestBufferEdge splits content of which the buffer ends one byte before, at and after the greatest
// length of a chunk, and compares with cuts that no buffer disturbs.
func TestBufferEdge(t *testing.T) {
	easy := matchingWindow(t, defaultTable, easyMask, hardMask)
	for _, first := range []int{32767, 32768, 32769, 32770, 40000} {
		b := make([]byte, 3*bufferBytes)
		copy(b[first-window:], easy)
		copy(b[first+32768-window:], easy)
		var want, got, whole []int
		for rest := b; len(rest) > 0; {
			n, _ := defaultTable.cut(rest)
			want = append(want, n)
			rest = rest[n:]
		}
		if want[0] != first || want[1] != 32768 {
			t.Fatalf("chunks of %v bytes", want)
		}
		record := func(to *[]int) Emit {
			return func(_ context.Context, p Piece) error {
				if !p.Digest.Kind().IsIndex() {
					*to = append(*to, len(p.Content))
				}
				return nil
			}
		}
		if _, _, err := Split(t.Context(), defaultTable, bytes.NewReader(b), record(&got)); err != nil {
			t.Fatal(err)
		}
		if _, err := SplitBytes(t.Context(), defaultTable, b, record(&whole)); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) || !slices.Equal(whole, want) {
			t.Errorf("first chunk of %d bytes: Split cuts %v, SplitBytes %v, want %v", first, got, whole, want)
		}
	}
}
