package outgoing

import (
	"maps"
	"slices"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/storage"
)

// livePackOf returns a pack of which the given frames have so many live pieces of 1000 bytes. A
// frame has 128 of them.
func livePackOf(live map[uint32]int) *livePack {
	k := &livePack{}
	for frame, n := range live {
		for i := range n {
			for range 2 { // the second time it does not count
				k.add(&storage.CloudPlace{Block: frame, Offset: int64(frame) * 128_000, StoredBytes: 128_000, At: uint32(i * 1000), Bytes: 1000})
			}
		}
	}
	return k
}

func TestHowPacksAreRead(t *testing.T) {
	ref := format.PackRef{ID: format.ID{1}, Bytes: 100 * 128_000, Pieces: 12_800, Eager: true}
	all := map[uint32]int{}
	for i := range uint32(100) {
		all[i] = 128
	}
	without := func(from, to uint32) map[uint32]int {
		m := maps.Clone(all)
		maps.DeleteFunc(m, func(i uint32, _ int) bool { return i >= from && i < to })
		return m
	}
	for name, c := range map[string]struct {
		frames map[uint32]int
		spans  []format.BlockSpan
		live   int64
	}{
		"all":               {all, nil, 12_800_000},
		"a small gap":       {without(50, 52), nil, 98 * 128_000},
		"a gap":             {without(30, 70), []format.BlockSpan{{First: 0, Count: 30}, {First: 70, Count: 30}}, 60 * 128_000},
		"the beginning":     {without(0, 60), []format.BlockSpan{{First: 60, Count: 40}}, 40 * 128_000},
		"gaps near another": {map[uint32]int{3: 1, 5: 1, 7: 2, 50: 128}, []format.BlockSpan{{First: 3, Count: 5}, {First: 50, Count: 1}}, 132_000},
	} {
		r := readOf(&ref, livePackOf(c.frames))
		if r.live != c.live || !slices.Equal(r.spans, c.spans) {
			t.Errorf("%s: %+v, want %d bytes of %v", name, r, c.live, c.spans)
		}
		read, requests := int64(ref.Bytes), 1
		if c.spans != nil {
			read, requests = pieceTable*12_800, 1+len(c.spans)
			for _, s := range c.spans {
				read += int64(s.Count) * 128_000
			}
		}
		if r.bytes != read || r.requests != requests {
			t.Errorf("%s: %d bytes with %d requests, want %d with %d", name, r.bytes, r.requests, read, requests)
		}
	}
	if r := readOf(&ref, &livePack{whole: true}); r.spans != nil || r.live != r.bytes || !r.fixed {
		t.Errorf("a new pack: %+v", r)
	}
}

func TestWhichPacksAreLeft(t *testing.T) {
	pack := func(id byte, live, bytes int64) packRead {
		return packRead{id: format.ID{id}, live: live, bytes: bytes, requests: 1}
	}
	const mib = 1 << 20
	var small, full []packRead
	for i := range byte(100) {
		small, full = append(small, pack(i, mib, mib)), append(full, pack(i, 16*mib, 16*mib))
	}
	fresh := pack(9, 0, 16*mib)
	fresh.fixed = true
	for name, c := range map[string]struct {
		rs    []packRead
		other uint64
		want  int // how many, the first ones
	}{
		"nothing":               {nil, 0, 0},
		"full ones":             {full, 0, 0},
		"one that is half dead": {[]packRead{pack(0, 8*mib, 16*mib), pack(1, 16*mib, 16*mib)}, 0, 1},
		"the worst is enough":   {[]packRead{pack(0, 1*mib, 16*mib), pack(1, 14*mib, 16*mib), pack(2, 16*mib, 16*mib), pack(3, 16*mib, 16*mib)}, 0, 1},
		"little beside others":  {[]packRead{pack(0, 8*mib, 16*mib)}, 200 * mib, 0},
		"a new one":             {[]packRead{fresh}, 0, 0},
		"many small ones":       {small, 0, 45}, // of 100 requests 25 for 100 MiB and 32 more are right; 2 are for the new packs
		"few small ones":        {small[:30], 0, 0},
	} {
		slices.SortFunc(c.rs, func(a, b packRead) int { return int(b.id[0]) - int(a.id[0]) }) // the order is of no account
		left := leave(c.rs, c.other)
		if len(left) != c.want {
			t.Errorf("%s: %d are left, want %d", name, len(left), c.want)
		}
		for i := range c.want {
			if _, ok := left[format.ID{byte(i)}]; !ok && name != "many small ones" {
				t.Errorf("%s: pack %d is not left", name, i)
			}
		}
	}
}
