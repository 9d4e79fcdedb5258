package wire_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/object"
)

// packBytes is where the blocks of packTable end.
const packBytes = 100 + (64<<10 + 5) + 306

func packTable() *wire.PackTable {
	return &wire.PackTable{
		Blocks: []seal.Block{{Offset: 0, StoredBytes: 100}, {Offset: 100, StoredBytes: 64<<10 + 5}, {Offset: 100 + 64<<10 + 5, StoredBytes: 306}},
		Pieces: []wire.PackPiece{
			{Digest: object.Sum(object.Chunk, []byte("a")), Block: 0, At: 0, Bytes: 400},
			{Digest: object.Sum(object.IndexBit, []byte("b")), Block: 0, At: 400, Bytes: 300},
			{Digest: object.Sum(object.Chunk, []byte("c")), Block: 1, At: 0, Bytes: 64 << 10},
			{Digest: object.Sum(object.Chunk, []byte("d")), Block: 2, At: 0, Bytes: 300},
			{Digest: object.Sum(object.Chunk, []byte("e")), Block: 2, At: 300, Bytes: 1},
		},
	}
}

func TestPackTableRoundTrip(t *testing.T) {
	b := packTable().Encode()
	got, err := wire.ParsePackTable(b, packBytes)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(packTable(), got); diff != "" {
		t.Error(diff)
	}
}

// TestGoldenPackTable has the bytes of a table as they were released.
func TestGoldenPackTable(t *testing.T) {
	want, err := os.ReadFile("testdata/packtable.golden")
	if err != nil {
		t.Fatal(err)
	}
	if got := packTable().Encode(); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

func TestBadPackTables(t *testing.T) {
	good := packTable().Encode()
	spoilt := func(spoil func(t *wire.PackTable)) []byte {
		table := packTable()
		spoil(table)
		return table.Encode()
	}
	for name, c := range map[string]struct {
		b   []byte
		end int64
	}{
		"empty":             {nil, packBytes},
		"version 0":         {append([]byte{0}, good[1:]...), packBytes},
		"version 2":         {append([]byte{2}, good[1:]...), packBytes},
		"no blocks":         {[]byte{1, 0}, 0},
		"no pieces":         {[]byte{1, 1, 100, 0}, 100},
		"more":              {append(bytes.Clone(good), 0), packBytes},
		"too many":          {append(binary.AppendUvarint([]byte{1, 1, 100}, wire.MaxPackPieces+1), make([]byte, 35*(wire.MaxPackPieces+1))...), 100},
		"too many blocks":   {binary.AppendUvarint([]byte{1}, 1<<40), packBytes},
		"blocks end before": {good, packBytes + 1},
		"blocks end behind": {good, packBytes - 1},
		"longer block":      {spoilt(func(t *wire.PackTable) { t.Blocks[2].StoredBytes++ }), packBytes + 1},
		"block of 4":        {spoilt(func(t *wire.PackTable) { t.Blocks[0].StoredBytes = 4 }), packBytes - 96},
		"twice":             {spoilt(func(t *wire.PackTable) { t.Pieces[3].Digest = t.Pieces[0].Digest }), packBytes},
		"node":              {spoilt(func(t *wire.PackTable) { t.Pieces[0].Digest[0] = byte(object.NodeBit) }), packBytes},
		"reserved digest":   {spoilt(func(t *wire.PackTable) { t.Pieces[0].Digest[0] = 4 }), packBytes},
		"zero digest":       {spoilt(func(t *wire.PackTable) { t.Pieces[0].Digest = object.Digest{} }), packBytes},
		"piece of 0":        {spoilt(func(t *wire.PackTable) { t.Pieces[0].Bytes = 0 }), packBytes},
		"piece too long":    {spoilt(func(t *wire.PackTable) { t.Pieces[2].Bytes = 64<<10 + 1 }), packBytes},
	} {
		_, err := wire.ParsePackTable(c.b, c.end)
		mustRefuse(t, name, "pack", err)
	}
	for n := range good {
		_, err := wire.ParsePackTable(good[:n], packBytes)
		mustRefuse(t, "cut", "pack", err)
	}
}

// TestFullPackTableFits: I3, and that the greatest table can be sealed.
func TestFullPackTableFits(t *testing.T) {
	table := &wire.PackTable{Pieces: make([]wire.PackPiece, wire.MaxPackPieces)}
	for i := range table.Pieces {
		binary.BigEndian.PutUint32(table.Pieces[i].Digest[1:], uint32(i+1))
		table.Pieces[i].Bytes, table.Pieces[i].Block = 64<<10, uint32(i)
		table.Blocks = append(table.Blocks, seal.Block{Offset: int64(i) * 1000, StoredBytes: 1000})
	}
	b := table.Encode()
	if len(b) > seal.MaxTableBytes {
		t.Errorf("a table of %d pieces has %d bytes", wire.MaxPackPieces, len(b))
	}
	bounded(t, len(b), func() {
		if _, err := wire.ParsePackTable(b, 1000*wire.MaxPackPieces); err != nil {
			t.Error(err)
		}
	})
}

func FuzzDecodePackTable(f *testing.F) {
	f.Add(packTable().Encode(), int64(packBytes))
	f.Add([]byte{1, 0xff, 0xff, 0x03}, int64(1))
	f.Fuzz(func(t *testing.T, b []byte, end int64) {
		var table *wire.PackTable
		var err error
		bounded(t, len(b), func() { table, err = wire.ParsePackTable(b, end) })
		if err != nil {
			mustRefuse(t, "table", "pack", err)
			return
		}
		if again := table.Encode(); !bytes.Equal(again, b) {
			t.Errorf("accepted %x, encodes as %x", b, again)
		}
		at, plain := int64(0), make([]uint32, len(table.Blocks))
		for _, b := range table.Blocks {
			if b.Offset != at {
				t.Errorf("block %v at %d", b, at)
			}
			at += int64(b.StoredBytes)
		}
		for _, p := range table.Pieces {
			if p.At != plain[p.Block] {
				t.Errorf("piece %v at %d", p, plain[p.Block])
			}
			plain[p.Block] += p.Bytes
		}
		if at != end {
			t.Errorf("blocks end at %d, not %d", at, end)
		}
	})
}
