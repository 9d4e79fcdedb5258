package seal_test

import (
	"bytes"
	"io"
	"os"
	"slices"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/secret"
)

// inputs are what benchmarks seal: bytes that do not compress, and text that does.
func inputs(b *testing.B, n int) map[string][]byte {
	b.Helper()
	var text []byte
	for _, name := range []string{"doc.go", "seal.go", "object.go", "ring.go", "stream.go"} {
		t, err := os.ReadFile(name)
		if err != nil {
			b.Fatal(err)
		}
		text = append(text, t...)
	}
	return map[string][]byte{"noise": noise(1, n), "text": bytes.Repeat(text, n/len(text)+1)[:n]}
}

func BenchmarkSeal(b *testing.B) {
	for _, size := range []struct {
		name string
		n    int
	}{{"200B", 200}, {"16KiB", 16 << 10}, {"1MiB", 1 << 20}} {
		for _, a := range algorithms {
			s := newSealer(b, a, 1)
			for what, plain := range inputs(b, size.n) {
				b.Run(a.String()+"/"+what+"/"+size.name, func(b *testing.B) {
					b.SetBytes(int64(size.n))
					b.ReportAllocs()
					for b.Loop() {
						if _, _, err := s.Seal(entry, plain, seal.Form{Parts: whole(plain)}); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

func BenchmarkOpen(b *testing.B) {
	for _, size := range []struct {
		name string
		n    int
	}{{"200B", 200}, {"16KiB", 16 << 10}, {"1MiB", 1 << 20}} {
		s := newSealer(b, seal.AES256GCM, 1)
		for what, plain := range inputs(b, size.n) {
			sealed := mustSeal(b, s, entry, plain)
			b.Run(what+"/"+size.name, func(b *testing.B) {
				b.SetBytes(int64(size.n))
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := s.Open(entry, sealed, size.n); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkWriter seals 64 MiB.
func BenchmarkWriter(b *testing.B) {
	const total = 64 << 20
	s := newSealer(b, seal.AES256GCM, 1)
	for what, plain := range inputs(b, total) {
		b.Run(what, func(b *testing.B) {
			b.SetBytes(total)
			b.ReportAllocs()
			for b.Loop() {
				w := s.NewWriter(io.Discard, pack, true, nil)
				_, err := w.Write(plain)
				if err == nil {
					err = w.Close()
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkStream(b *testing.B) {
	s := newSealer(b, seal.AES256GCM, 1)
	for what, plain := range inputs(b, 16<<20) {
		sealed := framed(b, s, pack, slices.Collect(slices.Chunk(plain, seal.MaxBlockBytes))...)
		b.Run(what, func(b *testing.B) {
			b.SetBytes(int64(len(plain)))
			b.ReportAllocs()
			for b.Loop() {
				st, err := s.NewStream(bytes.NewReader(sealed), int64(len(sealed)), pack, nil)
				if err != nil {
					b.Fatal(err)
				}
				for {
					if _, err := st.Next(); err == io.EOF {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
		})
	}
}

func BenchmarkDerive(b *testing.B) {
	kdf := seal.NewKDF(nil)
	for b.Loop() {
		if _, err := kdf.Derive(secret.FromString("correct horse battery staple")); err != nil {
			b.Fatal(err)
		}
	}
}
