package split

import (
	"bytes"
	"context"
	"go/build"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chmduquesne/rollinghash/buzhash64"

	"github.com/ledgerd/ledger/object"
)

// sourceCode returns up to most bytes of distinct files of the Go tree and, when that is shorter,
// of the module cache.
func sourceCode(b *testing.B, most int) []byte {
	b.Helper()
	var all []byte
	for _, dir := range []string{filepath.Join(build.Default.GOROOT, "src"), filepath.Join(build.Default.GOPATH, "pkg", "mod")} {
		_ = filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
			if err != nil || !e.Type().IsRegular() || len(all) >= most {
				return nil // what cannot be read is left out
			}
			if c, err := os.ReadFile(name); err == nil {
				all = append(all, c...)
			}
			return nil
		})
	}
	if len(all) < 1<<20 {
		b.Skip("no Go source tree here")
	}
	return all[:min(len(all), most)]
}

// BenchmarkCut compares the scanning loop with the library's, rolled over every byte, on the same
// data in turns. The ratio is the median of the rounds; the rates are of all.
//
//	go test -run '^$' -bench Cut -benchtime 40x -cpu 1 ./split
func BenchmarkCut(b *testing.B) {
	const size = 4 << 20
	for _, in := range []struct {
		name string
		data []byte
	}{{"random", randomBytes(1, size, 256)}, {"source", sourceCode(b, size)}} {
		b.Run(in.name, func(b *testing.B) {
			var ratios []float64
			var own, theirs float64
			for b.Loop() {
				t0 := b.Elapsed()
				cutAll(in.data)
				t1 := b.Elapsed()
				rollAll(in.data)
				t2 := b.Elapsed()
				own, theirs = own+(t1-t0).Seconds(), theirs+(t2-t1).Seconds()
				ratios = append(ratios, float64(t2-t1)/float64(t1-t0))
			}
			slices.Sort(ratios)
			total := float64(len(in.data)*len(ratios)) / 1e6
			b.ReportMetric(ratios[len(ratios)/2], "ratio")
			b.ReportMetric(total/own, "cut-MB/s")
			b.ReportMetric(total/theirs, "rollinghash-MB/s")
			b.ReportMetric(0, "ns/op")
		})
	}
}

func cutAll(b []byte) (n int) {
	for ; len(b) > 0; n++ {
		k, _ := defaultTable.cut(b)
		b = b[k:]
	}
	return n
}

func rollAll(b []byte) (n int) {
	r := buzhash64.NewFromUint64Array(defaultTable.in)
	_, _ = r.Write(b[:window])
	for _, c := range b[window:] {
		r.Roll(c)
		if r.Sum64()&easyMask == 0 {
			n++
		}
	}
	return n
}

// BenchmarkSplit measures Split as a whole: reading, cutting, digests, index pieces.
func BenchmarkSplit(b *testing.B) {
	data := randomBytes(1, 16<<20, 256)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	none := func(context.Context, Piece) error { return nil }
	for b.Loop() {
		if _, _, err := Split(b.Context(), defaultTable, bytes.NewReader(data), none); err != nil {
			b.Fatal(err)
		}
	}
}

// pieceMap is a Source and takes pieces.
type pieceMap map[object.Digest][]byte

func (m pieceMap) Piece(_ context.Context, d object.Digest) ([]byte, error) { return m[d], nil }

func (m pieceMap) emit(_ context.Context, p Piece) error {
	m[p.Digest] = bytes.Clone(p.Content)
	return nil
}

// BenchmarkRead measures reading from pieces in memory, without proof of their digests.
func BenchmarkRead(b *testing.B) {
	data := randomBytes(1, 16<<20, 256)
	m := make(pieceMap)
	root, err := SplitBytes(b.Context(), defaultTable, data, m.emit)
	if err != nil {
		b.Fatal(err)
	}
	r := NewReader(b.Context(), m, root, uint64(len(data)))
	b.Run("WriteTo", func(b *testing.B) {
		b.SetBytes(int64(len(data)))
		b.ReportAllocs()
		for b.Loop() {
			_, _ = r.Seek(0, io.SeekStart)
			if _, err := r.WriteTo(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("ReadAt4KiB", func(b *testing.B) {
		rng := rand.New(rand.NewPCG(1, 0))
		p := make([]byte, 4<<10)
		b.SetBytes(int64(len(p)))
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.ReadAt(p, rng.Int64N(int64(len(data)-len(p)))); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkDedup splits source code, makes small edits at random places, 1000 for 256 MiB, and
// reports how much of the edited content is in pieces that are there already, and how much each
// edit adds, without and with index pieces.
//
//	go test -run '^$' -bench Dedup -benchtime 1x ./split
func BenchmarkDedup(b *testing.B) {
	const full = 256 << 20
	data := sourceCode(b, full)
	edits := max(1, int(1000*int64(len(data))/full))
	for b.Loop() {
		before, after := make(sizes), make(sizes)
		n := before.split(b, bytes.NewReader(data))
		chunks, index := before.minus(nil)
		n2 := after.split(b, edited(data, edits))
		freshChunks, freshIndex := after.minus(before)
		perEdit := func(n uint64) float64 { return float64(n) / 1024 / float64(edits) }
		b.ReportMetric(100*(1-float64(freshChunks)/float64(n2)), "dedup-%")
		b.ReportMetric(perEdit(freshChunks), "KiB/edit")
		b.ReportMetric(perEdit(freshChunks+freshIndex), "KiB/edit-with-index")
		b.ReportMetric(float64(chunks)/float64(before.count(false)), "B/chunk")
		b.ReportMetric(float64(index)/float64(before.count(true)), "B/index-piece")
		b.ReportMetric(float64(n)/(1<<20), "MiB")
		b.ReportMetric(float64(edits), "edits")
	}
}

// sizes are the lengths of distinct pieces.
type sizes map[object.Digest]int

func (s sizes) split(b *testing.B, r io.Reader) uint64 {
	_, n, err := Split(b.Context(), defaultTable, r, func(_ context.Context, p Piece) error {
		s[p.Digest] = len(p.Content)
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	return n
}

func (s sizes) count(index bool) (n int) {
	for d := range s {
		if d.Kind().IsIndex() == index {
			n++
		}
	}
	return n
}

func (s sizes) minus(old sizes) (chunks, index uint64) {
	for d, n := range s {
		if _, ok := old[d]; ok {
			continue
		}
		if d.Kind().IsIndex() {
			index += uint64(n)
		} else {
			chunks += uint64(n)
		}
	}
	return chunks, index
}

// edited reads data with insertions, deletions and replacements of 1 to 100 bytes.
func edited(data []byte, edits int) io.Reader {
	rng := rand.New(rand.NewPCG(7, 0))
	places := make([]int, edits)
	for i := range places {
		places[i] = rng.IntN(len(data) - 100)
	}
	slices.Sort(places)
	var parts []io.Reader
	from := 0
	for _, at := range places {
		at = max(at, from)
		parts = append(parts, bytes.NewReader(data[from:at]))
		n, kind := 1+rng.IntN(100), rng.IntN(3)
		if kind != 0 {
			at = min(at+n, len(data))
		}
		if kind != 1 {
			parts = append(parts, bytes.NewReader(randomBytes(rng.Uint64(), n, 256)))
		}
		from = at
	}
	return io.MultiReader(append(parts, bytes.NewReader(data[from:]))...)
}
