package pack

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// Spans bring exactly the blocks that are wanted, once, within bounds, and no two of them could
// have been one.
func TestPlanSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const packs, blocks = 3, 60
		offsets := make([][]int64, packs)
		for i := range offsets {
			at := int64(24)
			for range blocks + 1 {
				offsets[i] = append(offsets[i], at)
				at += rapid.Int64Range(21, 300<<10).Draw(t, "stored")
			}
		}
		want := make(map[object.Digest]storage.CloudPlace)
		var wanted []storage.PlacedPiece
		for i := range rapid.IntRange(0, 80).Draw(t, "pieces") {
			p, f := rapid.IntRange(0, packs-1).Draw(t, "pack"), rapid.IntRange(0, blocks-1).Draw(t, "block")
			place := storage.CloudPlace{Pack: [16]byte{byte(p)}, Block: uint32(f), Offset: offsets[p][f], StoredBytes: uint32(offsets[p][f+1] - offsets[p][f]), At: uint32(i), Bytes: 10}
			d := object.Digest{1: byte(i)}
			want[d] = place
			wanted = append(wanted, storage.PlacedPiece{Digest: d, Place: place})
		}
		spans := planSpans(wanted)
		for i := range spans {
			s := &spans[i]
			first, last := s.blocks[0].place, s.blocks[len(s.blocks)-1].place
			if s.off != first.Offset || s.off+s.size != last.Offset+int64(last.StoredBytes) || s.size > maxSpanBytes {
				t.Fatalf("span of %d bytes at %d", s.size, s.off)
			}
			var bytes int64
			for k, f := range s.blocks {
				if k > 0 && f.place.Block-s.blocks[k-1].place.Block > 2 {
					t.Fatal("gap of more than one block")
				}
				for _, p := range f.pieces {
					if want[p.Digest] != p.Place || p.Place.Block != f.place.Block || p.Place.Pack != s.pack {
						t.Fatalf("piece %v in a span of pack %x", p, s.pack)
					}
					delete(want, p.Digest)
					bytes += int64(p.Place.Bytes)
				}
			}
			if bytes != s.bytes {
				t.Fatalf("%d bytes, want %d", s.bytes, bytes)
			}
			if i > 0 {
				before := &spans[i-1]
				end := before.blocks[len(before.blocks)-1].place
				if before.pack == s.pack && first.Block-end.Block <= 2 && first.Offset+int64(first.StoredBytes)-before.off <= maxSpanBytes {
					t.Fatal("two spans that could be one")
				}
			}
		}
		if len(want) != 0 {
			t.Fatalf("%d pieces in no span", len(want))
		}
	})
}

// The budget is never exceeded, nobody waits for ever, and who leaves takes nothing along.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewFetcher(FetchOptions{MemoryBytes: 100})
		all, err := b.take(t.Context(), 1000) // all there is
		if err != nil || b.memory.TryAcquire(1) {
			t.Fatal("more than all there is", err)
		}
		all()
		half, err := b.take(t.Context(), 50)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan error, 1)
		go func() { left <- second(b.take(ctx, 90)) }()
		synctest.Wait()
		got := make(chan func(), 1)
		go func() {
			r, _ := b.take(t.Context(), 20) // behind the one who waits for 90
			got <- r
		}()
		synctest.Wait()
		if len(got) != 0 {
			t.Error("one who came later was first")
		}
		cancel()
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		(<-got)()
		half()
		var wg sync.WaitGroup
		var used atomic.Int64
		for i := range int64(200) {
			wg.Go(func() {
				n := i%60 + 1
				r, err := b.take(t.Context(), n)
				if err != nil || used.Add(n) > 100 {
					t.Errorf("%d used, %v", used.Load(), err)
				}
				used.Add(-n)
				r()
			})
		}
		wg.Wait()
		if !b.memory.TryAcquire(100) {
			t.Error("some was not given back")
		}
	})
}

func second[T any](_ T, err error) error { return err }

// The cache has the newest table, and keeps within its bound.
func TestCaches(t *testing.T) {
	var tables tableCache
	big := &contents{pieces: make([]wire.PackPiece, cachedPieces/3)}
	for i := range byte(4) {
		tables.add(epoch.ID{i + 1}, big)
		if tables.get(epoch.ID{i + 1}) == nil || i == 1 && tables.get(epoch.ID{1}) == nil || tables.pieces > cachedPieces {
			t.Errorf("%d tables of %d pieces", len(tables.tables), tables.pieces)
		}
	}
	tables.add(epoch.ID{9}, &contents{pieces: make([]wire.PackPiece, 2*cachedPieces)})
	if len(tables.tables) != 1 || tables.get(epoch.ID{9}) == nil {
		t.Errorf("%d tables beside a large one", len(tables.tables))
	}
}

// The set of recent pieces has the last ones, and is bounded.
func TestRecent(t *testing.T) {
	var r recent
	digest := func(i int) (d object.Digest) {
		d[1], d[2], d[3] = byte(i), byte(i>>8), byte(i>>16)
		return d
	}
	const packPieces = 1000
	for i := 0; i < 5*recentPieces; i += packPieces {
		for k := range packPieces {
			r.add(digest(i + k))
		}
		for k := max(0, i+packPieces-recentPieces); k < i+packPieces; k += 97 {
			if !r.has(digest(k)) {
				t.Fatalf("after %d pieces, %d is forgotten", i, k)
			}
		}
	}
	if n := len(r.newer) + len(r.older); n > 2*recentPieces {
		t.Errorf("%d remembered", n)
	}
}
