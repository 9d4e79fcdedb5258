package index_test

import (
	"encoding/binary"
	"path/filepath"
	"testing"

	"github.com/ledgerd/ledger/storage/index"
)

// big writes a file of some 15 MB: 100 000 rows of 33 + 40 bytes, sorted within batches.
func big(b *testing.B) string {
	path := filepath.Join(b.TempDir(), "page.db")
	f := open(b, path)
	defer f.Close()
	k, n := make([]byte, 33), uint64(0)
	for range 10 {
		if err := f.Update(func(tx index.Tx) error {
			bk := tx.Bucket("objects")
			for range 10_000 {
				n++
				binary.BigEndian.PutUint64(k, n*0x9e3779b97f4a7c15)
				if err := bk.Put(append([]byte(nil), k...), make([]byte, 40)); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			b.Fatal(err)
		}
	}
	_, size, err := f.FreeBytes()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(size)/1e6, "MB")
	return path
}

func BenchmarkOpenFile(b *testing.B) {
	path := big(b)
	for b.Loop() {
		if err := open(b, path).Close(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	f := open(b, big(b))
	defer f.Close()
	b.ReportAllocs()
	_ = f.View(func(tx index.Tx) error {
		bk, k := tx.Bucket("objects"), make([]byte, 33)
		n := uint64(0)
		for b.Loop() {
			n = n%100_000 + 1
			binary.BigEndian.PutUint64(k, n*0x9e3779b97f4a7c15)
			if bk.Get(k) == nil {
				b.Fatal("missing")
			}
		}
		return nil
	})
}

func BenchmarkView(b *testing.B) {
	f := open(b, big(b))
	defer f.Close()
	b.ReportAllocs()
	k := binary.BigEndian.AppendUint64(nil, 0x9e3779b97f4a7c15)
	for b.Loop() {
		if err := f.View(func(tx index.Tx) error { tx.Bucket("objects").Get(k); return nil }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScan(b *testing.B) {
	f := open(b, big(b))
	defer f.Close()
	b.ReportAllocs()
	for b.Loop() {
		_ = f.View(func(tx index.Tx) error {
			c := tx.Bucket("objects").Cursor()
			for k, _ := c.First(); k != nil; k, _ = c.Next() {
			}
			return nil
		})
	}
}
