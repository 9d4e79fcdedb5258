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

func packTable() *wire.PackTable {
	return &wire.PackTable{
		Blocks: []seal.Block{{StoredBytes: 100}, {StoredBytes: 64<<10 + 5}, {StoredBytes: 306}},
		Pieces: []wire.PackPiece{
			{Digest: object.Sum(object.Chunk, []byte("a")), Block: 0, At: 0, Bytes: 400},
			{Digest: object.Sum(object.Index, []byte("b")), Block: 0, At: 400, Bytes: 300},
			{Digest: object.Sum(object.Chunk, []byte("c")), Block: 1, At: 0, Bytes: 64 << 10},
			{Digest: object.Sum(object.Chunk, []byte("d")), Block: 2, At: 0, Bytes: 300},
			{Digest: object.Sum(object.Chunk, []byte("e")), Block: 2, At: 300, Bytes: 1},
		},
	}
}

func TestPackTableRoundTrip(t *testing.T) {
	want := packTable()
	b := want.Encode()
	got, err := wire.ReadPackTable(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" || got.Blocks[0].Offset != int64(len(b)+seal.BlockOverhead) {
		t.Error(diff)
	}
}

// headed is a table behind its length.
func headed(b []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...) }

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
	good := packTable().Encode()[4:]
	spoilt := func(spoil func(t *wire.PackTable)) []byte {
		table := packTable()
		spoil(table)
		return table.Encode()[4:]
	}
	for name, b := range map[string][]byte{
		"empty":           nil,
		"version 0":       append([]byte{0}, good[1:]...),
		"version 2":       append([]byte{2}, good[1:]...),
		"no blocks":       {1, 0},
		"no pieces":       {1, 1, 100, 0},
		"more":            append(bytes.Clone(good), 0),
		"too many":        append(binary.AppendUvarint([]byte{1, 1, 100}, wire.MaxPackPieces+1), make([]byte, 35*(wire.MaxPackPieces+1))...),
		"too many blocks": binary.AppendUvarint([]byte{1}, 1<<40),
		"longer block":    spoilt(func(t *wire.PackTable) { t.Blocks[2].StoredBytes++ }),
		"block of 4":      spoilt(func(t *wire.PackTable) { t.Blocks[0].StoredBytes = 4 }),
		"twice":           spoilt(func(t *wire.PackTable) { t.Pieces[3].Digest = t.Pieces[0].Digest }),
		"node":            spoilt(func(t *wire.PackTable) { t.Pieces[0].Digest[0] = byte(object.Node) }),
		"reserved digest": spoilt(func(t *wire.PackTable) { t.Pieces[0].Digest[0] = 4 }),
		"zero digest":     spoilt(func(t *wire.PackTable) { t.Pieces[0].Digest = object.Digest{} }),
		"piece of 0":      spoilt(func(t *wire.PackTable) { t.Pieces[0].Bytes = 0 }),
		"piece too long":  spoilt(func(t *wire.PackTable) { t.Pieces[2].Bytes = 64<<10 + 1 }),
	} {
		_, err := wire.ReadPackTable(bytes.NewReader(headed(b)))
		mustRefuse(t, name, "pack", err)
	}
	for n := range good {
		_, err := wire.ReadPackTable(bytes.NewReader(headed(good[:n])))
		mustRefuse(t, "cut", "pack", err)
		_, err = wire.ReadPackTable(bytes.NewReader(headed(good)[:4+n]))
		mustRefuse(t, "cut behind its length", "pack", err)
	}
	_, err := wire.ReadPackTable(bytes.NewReader([]byte{0xff, 0xff, 0xff, 0xff}))
	mustRefuse(t, "4 GiB", "pack", err)
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
	bounded(t, len(b), func() {
		if _, err := wire.ReadPackTable(bytes.NewReader(b)); err != nil {
			t.Error(err)
		}
	})
}

func FuzzDecodePackTable(f *testing.F) {
	f.Add(packTable().Encode()[4:])
	f.Add([]byte{1, 0xff, 0xff, 0x03})
	f.Fuzz(func(t *testing.T, b []byte) {
		b = headed(b)
		var table *wire.PackTable
		var err error
		bounded(t, len(b), func() { table, err = wire.ReadPackTable(bytes.NewReader(b)) })
		if err != nil {
			mustRefuse(t, "table", "pack", err)
			return
		}
		if again := table.Encode(); !bytes.Equal(again, b) {
			t.Errorf("accepted %x, encodes as %x", b, again)
		}
		at, plain := table.Blocks[0].Offset, make([]uint32, len(table.Blocks))
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
	})
}
