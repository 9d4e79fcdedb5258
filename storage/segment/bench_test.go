package segment_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/ledgerd/ledger/internal/clock"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/storage/segment"
)

// BenchmarkAppend appends batches, each beside a plain write and fdatasync of as many bytes to
// another file, so that both see the same disk; ratio is the time of a batch divided by that of the
// plain write.
//
//	go test -run '^$' -bench Append -benchtime 300x ./storage/segment
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{4 << 10, 4 << 20} {
		b.Run(fmt.Sprintf("%dKiB", size>>10), func(b *testing.B) { benchmarkAppend(b, size) })
	}
}

func benchmarkAppend(b *testing.B, size int) {
	dir := b.TempDir()
	l, _, err := segment.Open(b.Context(), segment.Options{Dir: filepath.Join(dir, "log"), Page: page}, nil, nil)
	must(b, err)
	defer func() { must(b, l.Close()) }()
	f, err := vfs.OS.Create(filepath.Join(dir, "plain"))
	must(b, err)
	defer func() { must(b, f.Close()) }()
	payload := make([]byte, 4<<10)
	for i := range payload {
		payload[i] = byte(i * i)
	}
	plain := make([]byte, 0, size)
	batch := segment.NewBatch()
	var off int64
	var spent, spentPlain time.Duration
	b.SetBytes(int64(size))
	for b.Loop() {
		begin := clock.System.Now()
		batch.Reset()
		for batch.Bytes() < size {
			batch.Add(1, payload)
		}
		_, err := l.Main().Append(batch)
		must(b, err)
		middle := clock.System.Now()
		plain = plain[:0]
		for len(plain) < size {
			plain = append(plain, payload...)
		}
		_, err = f.WriteAt(plain, off)
		must(b, err)
		must(b, f.Sync())
		spent += middle.Sub(begin)
		spentPlain += clock.System.Now().Sub(middle)
		if off += int64(size); off > segment.DefaultSegmentBytes {
			must(b, f.Truncate(0)) // no more disk than one segment
			must(b, f.Sync())
			off = 0
		}
	}
	b.ReportMetric(float64(spent)/float64(spentPlain), "ratio")
	b.ReportMetric(float64(spent.Microseconds())/float64(b.N), "us/append")
}

// BenchmarkOpen opens a log from its position with many segments beneath it: the cost is that of
// listing them, whatever they hold.
//
//	go test -run '^$' -bench Open -benchtime 200x ./storage/segment
func BenchmarkOpen(b *testing.B) {
	for _, segments := range []int{0, 16, 1024} {
		b.Run(fmt.Sprintf("%d", segments), func(b *testing.B) {
			dir := b.TempDir()
			o := segment.Options{Dir: dir, Page: page, SegmentBytes: 100}
			l, _, err := segment.Open(b.Context(), o, nil, nil)
			must(b, err)
			batch := segment.NewBatch()
			batch.Add(1, make([]byte, 200))
			for range segments {
				_, err := l.Main().Append(batch)
				must(b, err)
			}
			p := l.Position(l.Complete())
			must(b, l.Close())
			for b.Loop() {
				l, _, err := segment.Open(b.Context(), o, &p, nil)
				must(b, err)
				must(b, l.Close())
			}
		})
	}
}

// BenchmarkRead reads payloads of 16 KiB.
func BenchmarkRead(b *testing.B) {
	l, _, err := segment.Open(b.Context(), segment.Options{Dir: b.TempDir(), Page: page}, nil, nil)
	must(b, err)
	defer func() { must(b, l.Close()) }()
	batch := segment.NewBatch()
	for range 1024 {
		batch.Add(1, make([]byte, 16<<10))
	}
	a, err := l.Main().Append(batch)
	must(b, err)
	buf := make([]byte, 0, 16<<10)
	b.SetBytes(16 << 10)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		if _, err := l.Read(a.Places[i*7%1024], buf); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
