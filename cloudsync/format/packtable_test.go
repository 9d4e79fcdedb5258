package format_test

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

var packFrames = []seal.Frame{{PlainBytes: 700}, {PlainBytes: 64 << 10}, {PlainBytes: 301}}

func packTable() *format.PackTable {
	return &format.PackTable{Pieces: []format.PackPiece{
		{Digest: object.Sum(object.Chunk, []byte("a")), Frame: 0, At: 0, Bytes: 400},
		{Digest: object.Sum(object.IndexBit, []byte("b")), Frame: 0, At: 400, Bytes: 300},
		{Digest: object.Sum(object.Chunk, []byte("c")), Frame: 1, At: 0, Bytes: 64 << 10},
		{Digest: object.Sum(object.Chunk, []byte("d")), Frame: 2, At: 0, Bytes: 300},
		{Digest: object.Sum(object.Chunk, []byte("e")), Frame: 2, At: 300, Bytes: 1},
	}}
}

func TestPackTableRoundTrip(t *testing.T) {
	b := packTable().Encode()
	got, err := format.ParsePackTable(b, packFrames)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(packTable(), got); diff != "" {
		t.Error(diff)
	}
}

func TestBadPackTables(t *testing.T) {
	good := packTable().Encode()
	spoilt := func(spoil func(p []format.PackPiece)) []byte {
		table := packTable()
		spoil(table.Pieces)
		return table.Encode()
	}
	for name, c := range map[string]struct {
		b      []byte
		frames []seal.Frame
	}{
		"empty":           {nil, packFrames},
		"version 0":       {append([]byte{0}, good[1:]...), packFrames},
		"version 2":       {append([]byte{2}, good[1:]...), packFrames},
		"no pieces":       {[]byte{1, 0}, nil},
		"more":            {append(bytes.Clone(good), 0), packFrames},
		"too many":        {append(binary.AppendUvarint([]byte{1}, format.MaxPackPieces+1), make([]byte, 35*(format.MaxPackPieces+1))...), packFrames},
		"no frames":       {good, nil},
		"fewer frames":    {good, packFrames[:2]},
		"more frames":     {good, append(packFrames[:3:3], seal.Frame{PlainBytes: 1})},
		"empty frame":     {good, append(packFrames[:3:3], seal.Frame{})},
		"longer frame":    {good, []seal.Frame{packFrames[0], packFrames[1], {PlainBytes: 302}}},
		"over a frame":    {good, []seal.Frame{{PlainBytes: 701}, {PlainBytes: 64<<10 - 1}, {PlainBytes: 301}}},
		"twice":           {spoilt(func(p []format.PackPiece) { p[3].Digest = p[0].Digest }), packFrames},
		"node":            {spoilt(func(p []format.PackPiece) { p[0].Digest[0] = byte(object.NodeBit) }), packFrames},
		"reserved digest": {spoilt(func(p []format.PackPiece) { p[0].Digest[0] = 4 }), packFrames},
		"zero digest":     {spoilt(func(p []format.PackPiece) { p[0].Digest = object.Digest{} }), packFrames},
		"piece of 0":      {spoilt(func(p []format.PackPiece) { p[0].Bytes = 0 }), packFrames},
		"piece too long":  {spoilt(func(p []format.PackPiece) { p[2].Bytes = 64<<10 + 1 }), packFrames},
	} {
		_, err := format.ParsePackTable(c.b, c.frames)
		mustRefuse(t, name, "pack", err)
	}
	for n := range good {
		_, err := format.ParsePackTable(good[:n], packFrames)
		mustRefuse(t, "cut", "pack", err)
	}
}

// TestFullPackTableFits: I3, and that the greatest table can be sealed.
func TestFullPackTableFits(t *testing.T) {
	table := &format.PackTable{Pieces: make([]format.PackPiece, format.MaxPackPieces)}
	frames := make([]seal.Frame, format.MaxPackPieces/2)
	for i := range table.Pieces {
		binary.BigEndian.PutUint32(table.Pieces[i].Digest[1:], uint32(i+1))
		table.Pieces[i].Bytes = 64 << 10
		frames[i/2].PlainBytes += 64 << 10
	}
	b := table.Encode()
	if len(b) > seal.MaxTableBytes {
		t.Errorf("a table of %d pieces has %d bytes", format.MaxPackPieces, len(b))
	}
	bounded(t, len(b), func() {
		if _, err := format.ParsePackTable(b, frames); err != nil {
			t.Error(err)
		}
	})
}

// sealPack returns a pack as package pack writes it, and its id.
func sealPack(t testing.TB, s *seal.Sealer, pieces ...format.InlinePiece) ([]byte, format.ID) {
	t.Helper()
	var b bytes.Buffer
	w, err := s.NewWriter(&b, namesOf(s).PackLabel())
	if err != nil {
		t.Fatal(err)
	}
	table := &format.PackTable{}
	for _, p := range pieces {
		if _, err := w.Write(p.Content); err != nil {
			t.Fatal(err)
		}
		if _, err := w.EndFrame(); err != nil {
			t.Fatal(err)
		}
		table.Pieces = append(table.Pieces, format.PackPiece{Digest: p.Digest, Bytes: uint32(len(p.Content))})
	}
	if err := w.SetTable(table.Encode()); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes(), format.ID(w.Ref().ID)
}

// openPack reads a pack wholly.
func openPack(s *seal.Sealer, id format.ID, stored []byte) error {
	r, err := s.NewReader(bytes.NewReader(stored), int64(len(stored)), namesOf(s).PackLabel())
	if err != nil {
		return err
	}
	if format.ID(r.Ref().ID) != id {
		return &base.CorruptError{Where: "pack", Key: id.String(), Got: r.Ref().ID.String()}
	}
	table, err := format.ParsePackTable(r.Table(), r.Frames())
	if err != nil {
		return err
	}
	for _, p := range table.Pieces {
		frame, err := r.ReadFrame(int(p.Frame))
		if err != nil {
			return err
		}
		if err := p.Digest.Verify(frame[p.At : p.At+p.Bytes]); err != nil {
			return err
		}
	}
	return nil
}

// TestPacksOfARow reads lists of packs back, and refuses what is none.
func TestPacksOfARow(t *testing.T) {
	if b := format.EncodePacks(nil); b != nil {
		t.Errorf("no packs are %x", b)
	}
	if packs, err := format.ParsePacks(nil); packs != nil || err != nil {
		t.Errorf("nothing is %v, %v", packs, err)
	}
	packs := []format.PackRef{{ID: id(3), Bytes: 1000, Pieces: 3, Eager: true}, {ID: id(2), Bytes: 1, Pieces: 1}}
	b := format.EncodePacks(slices.Clone(packs))
	slices.Reverse(packs)
	if got, err := format.ParsePacks(b); err != nil || !slices.Equal(got, packs) {
		t.Errorf("read %v, %v", got, err)
	}
	for n := range b {
		if n > 0 {
			_, err := format.ParsePacks(b[:n])
			mustRefuse(t, "cut", "list of packs", err)
		}
	}
	_, err := format.ParsePacks(append(slices.Clone(b), 0))
	mustRefuse(t, "longer", "list of packs", err)
	_, err = format.ParsePacks(format.EncodePacks(append(packs, packs[0])))
	mustRefuse(t, "twice", "list of packs", err)
	if _, err := format.ParsePacks(append([]byte{2}, b[1:]...)); !isA[*base.FormatError](err) {
		t.Errorf("newer version: %v", err)
	}
}

func FuzzDecodePackTable(f *testing.F) {
	f.Add(packTable().Encode(), uint32(700), uint32(64<<10), uint32(301))
	f.Add([]byte{1, 0xff, 0xff, 0x03}, uint32(1), uint32(0), uint32(0))
	f.Fuzz(func(t *testing.T, b []byte, x, y, z uint32) {
		frames := []seal.Frame{{PlainBytes: int(x >> 1)}, {PlainBytes: int(y >> 1)}, {PlainBytes: int(z >> 1)}}
		var table *format.PackTable
		var err error
		bounded(t, len(b), func() { table, err = format.ParsePackTable(b, frames) })
		if err != nil {
			mustRefuse(t, "table", "pack", err)
			return
		}
		if again := table.Encode(); !bytes.Equal(again, b) {
			t.Errorf("accepted %x, encodes as %x", b, again)
		}
		for _, p := range table.Pieces {
			if int(p.At+p.Bytes) > frames[p.Frame].PlainBytes {
				t.Errorf("piece %v stands outside of its frame", p)
			}
		}
	})
}
