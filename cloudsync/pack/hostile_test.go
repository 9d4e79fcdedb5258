package pack_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// forge seals blocks and a table as a pack of a page, as who has the keys can, and anybody in a
// plaintext bucket. It returns what an honest table of the blocks would give as ref and places.
func (w *world) forge(n wire.Names, blocks [][]piece, table []byte) (wire.Pack, []storage.PlacedPiece) {
	w.t.Helper()
	var b bytes.Buffer
	sw := w.sealer.NewWriter(&b, n.PackLabel(inEpoch), false, table)
	if _, err := sw.Write(table); err != nil {
		w.t.Fatal(err)
	}
	var places []storage.PlacedPiece
	for i, block := range blocks {
		stored := storedBlock(block)
		at, err := sw.Flush()
		if err == nil {
			err = sw.AddBlocks(stored)
		}
		if err != nil {
			w.t.Fatal(err)
		}
		place := storage.CloudPlace{Block: uint32(i), Offset: at, StoredBytes: uint32(len(stored))}
		for _, p := range block {
			place.Bytes = uint32(len(p.content))
			places = append(places, storage.PlacedPiece{Digest: p.d, Place: place})
			place.At += place.Bytes
		}
	}
	if err := sw.Close(); err != nil {
		w.t.Fatal(err)
	}
	for i := range places {
		places[i].Place.KeyIndex, places[i].Place.Pack = sw.Ref().KeyIndex, sw.Ref().ID
	}
	ref := wire.Pack{Epoch: inEpoch, ID: epoch.ID(sw.Ref().ID), Bytes: uint64(b.Len()), Pieces: uint32(len(places))}
	w.mem.Replace(w.names.Pack(ref.Epoch, ref.ID), b.Bytes())
	return ref, places
}

// storedBlock is a block that holds pieces.
func storedBlock(ps []piece) []byte {
	var plain []byte
	for _, p := range ps {
		plain = append(plain, p.content...)
	}
	return new(seal.Compressor).AppendBlock(nil, plain, true)
}

// tableOf is the table of a pack with the given pieces, as many in each block as stand there.
func tableOf(blocks [][]piece, ps ...piece) []byte {
	var t wire.PackTable
	for i, block := range blocks {
		n := min(len(block), len(ps))
		if i == len(blocks)-1 {
			n = len(ps)
		}
		for _, p := range ps[:n] {
			t.Pieces = append(t.Pieces, wire.PackPiece{Digest: p.d, Block: uint32(i), Bytes: uint32(len(p.content))})
		}
		t.Blocks = append(t.Blocks, seal.Block{StoredBytes: len(storedBlock(block))})
		ps = ps[n:]
	}
	return t.Encode()
}

// resized is a piece that says to have n bytes more.
func resized(p piece, n int) piece {
	return piece{p.d, make([]byte, len(p.content)+n)}
}

// Whatever stands under the name of a pack, an error names it, and nothing of it is stored.
func TestHostile(t *testing.T) {
	ps := pieces(1, 6, 4<<10)
	other := pieces(2, 1, 4<<10)[0]
	blocks := [][]piece{ps[:2], ps[2:4], ps[4:]}
	liar := piece{other.d, ps[2].content}
	type made struct {
		ref    wire.Pack
		places []storage.PlacedPiece
	}
	forged := func(blocks [][]piece, table ...piece) func(*world) made {
		return func(w *world) made {
			ref, places := w.forge(w.names, blocks, tableOf(blocks, table...))
			return made{ref, places}
		}
	}
	edited := func(edit func(w *world, m *made, b []byte) []byte) func(*world) made {
		return func(w *world) made {
			ref, places := w.forge(w.names, blocks, tableOf(blocks, ps...))
			m := made{ref, places}
			b, _ := w.mem.Content(w.names.Pack(ref.Epoch, ref.ID))
			w.mem.Replace(w.names.Pack(ref.Epoch, ref.ID), edit(w, &m, b))
			return m
		}
	}
	tests := map[string]struct {
		make func(*world) made
		// streamOnly says that only who reads all of the pack can notice, or reads its
		// announcement.
		streamOnly, refOnly bool
	}{
		"longer piece":  {make: forged(blocks, ps[0], resized(ps[1], 1), ps[2], ps[3], ps[4], ps[5])},
		"shorter piece": {make: forged(blocks, ps[0], resized(ps[1], -1), ps[2], ps[3], ps[4], ps[5])},
		"moved border":  {make: forged(blocks, resized(ps[0], 1), resized(ps[1], -1), ps[2], ps[3], ps[4], ps[5])},
		"too few":       {make: forged(blocks, ps[0], ps[1], ps[2], ps[3], ps[4])},
		"too many": {make: func(w *world) made {
			ref, places := w.forge(w.names, blocks, tableOf(blocks, ps[0], ps[1], ps[2], ps[3], ps[4], ps[5], other))
			ref.Pieces++
			return made{ref, places}
		}},
		"other order":    {make: forged(blocks, ps[1], ps[0], ps[2], ps[3], ps[4], ps[5])},
		"twice":          {make: forged([][]piece{ps[:2], ps[2:4], {ps[4], ps[2]}}, ps[0], ps[1], ps[2], ps[3], ps[4], ps[2])},
		"no table":       {make: func(w *world) made { r, p := w.forge(w.names, blocks, nil); return made{r, p} }},
		"another digest": {make: forged([][]piece{ps[:2], {liar, ps[3]}, ps[4:]}, ps[0], ps[1], liar, ps[3], ps[4], ps[5])},
		"pack of another page": {make: func(w *world) made {
			r, p := w.forge(wire.Names{Dir: "l/other"}, blocks, tableOf(blocks, ps...))
			return made{r, p}
		}},
		"another pack": {make: edited(func(w *world, m *made, _ []byte) []byte {
			ref, _ := w.forge(w.names, blocks, tableOf(blocks, ps...))
			b, _ := w.mem.Content(w.names.Pack(ref.Epoch, ref.ID))
			return b
		})},
		"cut":           {make: edited(func(_ *world, _ *made, b []byte) []byte { return b[:len(b)-1] })},
		"empty":         {make: edited(func(*world, *made, []byte) []byte { return nil })},
		"flipped table": {make: edited(func(_ *world, _ *made, b []byte) []byte { b[60] ^= 1; return b })},
		"flipped byte": {make: edited(func(_ *world, m *made, b []byte) []byte {
			b[24+m.places[2].Place.Offset+30] ^= 1
			return b
		})},
		"another length of a block": {make: func(w *world) made {
			r, p := w.forge(w.names, blocks, tableOf([][]piece{blocks[1], blocks[0], blocks[2]}, ps...))
			return made{r, p}
		}},
		"longer than announced":  {make: edited(func(_ *world, m *made, b []byte) []byte { m.ref.Bytes--; return b }), refOnly: true},
		"shorter than announced": {make: edited(func(_ *world, m *made, b []byte) []byte { m.ref.Bytes++; return b }), refOnly: true},
		"more pieces announced":  {make: edited(func(_ *world, m *made, b []byte) []byte { m.ref.Pieces++; return b }), refOnly: true},
		"far too long":           {make: edited(func(_ *world, m *made, b []byte) []byte { m.ref.Bytes = 1 << 60; return b }), refOnly: true},
	}
	for name, test := range tests {
		for _, algorithm := range []seal.Algorithm{seal.Plain, seal.AES256GCM} {
			t.Run(name+", "+algorithm.String(), func(t *testing.T) {
				w := newWorld(t, algorithm)
				m := test.make(w)
				_, _, err := w.stream(m.ref)
				wantCorrupt(t, err, m.ref.ID)
				_, tableErr := w.table(m.ref)
				if tableErr != nil {
					wantCorrupt(t, tableErr, m.ref.ID)
				}
				if test.refOnly {
					return
				}
				for i := range m.places { // places as an honest device would have recorded them: some of them may still be good
					store := newPage(m.places...)
					f := w.fetcher(store, nil)
					content, err := f.Fetch(t.Context(), m.places[i].Digest, m.places[i].Place)
					f.Close()
					if err == nil {
						if err := m.places[i].Digest.Verify(content); err != nil {
							t.Errorf("piece %d: %v", i, err)
						}
						continue
					}
					wantCorrupt(t, err, m.ref.ID)
					if store.heldPieces() != 0 {
						t.Errorf("piece %d: %d pieces stored beside the error %v", i, store.heldPieces(), err)
					}
				}
				store := newPage(m.places[2:4]...)
				if err := second(w.fetcher(store, nil).Fetch(t.Context(), m.places[2].Digest, m.places[2].Place)); err == nil && tableErr != nil {
					t.Errorf("fetched by a table that does not open: %v", tableErr)
				}
			})
		}
	}
}

// Places that lie give errors that name the pack.
func TestHostilePlaces(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	ps := pieces(1, 40, 64<<10)
	_, places := w.upload(ps)
	last := len(places) - 1
	for name, edit := range map[string]func(*storage.CloudPlace){
		"block":      func(p *storage.CloudPlace) { p.Block-- },
		"far block":  func(p *storage.CloudPlace) { p.Block = 1 << 31 },
		"offset":     func(p *storage.CloudPlace) { p.Offset++ },
		"far offset": func(p *storage.CloudPlace) { p.Offset = 1 << 62 },
		"below zero": func(p *storage.CloudPlace) { p.Offset = -1 << 62 },
		"length":     func(p *storage.CloudPlace) { p.StoredBytes-- },
		"far length": func(p *storage.CloudPlace) { p.StoredBytes = 1<<32 - 1 },
		"no length":  func(p *storage.CloudPlace) { p.StoredBytes = 0 },
		"key":        func(p *storage.CloudPlace) { p.KeyIndex++ },
	} {
		t.Run(name, func(t *testing.T) {
			place := places[last]
			edit(&place.Place)
			store := newPage(place)
			f := w.fetcher(store, nil)
			wantCorrupt(t, second(f.Fetch(t.Context(), place.Digest, place.Place)), place.Place.Pack)
			if strings.HasSuffix(name, "block") { // its number is for the table alone
				return
			}
			wantCorrupt(t, second(f.FetchAll(t.Context(), []object.Digest{place.Digest})), place.Place.Pack)
			if store.heldPieces() != 0 {
				t.Error("stored")
			}
		})
	}
	for name, edit := range map[string]func(*storage.CloudPlace){
		"at":     func(p *storage.CloudPlace) { p.At++ },
		"far at": func(p *storage.CloudPlace) { p.At = 1<<32 - 1 },
		"bytes":  func(p *storage.CloudPlace) { p.Bytes-- },
	} {
		t.Run(name, func(t *testing.T) {
			place := places[last]
			edit(&place.Place)
			f := w.fetcher(newPage(place), nil)
			wantCorrupt(t, second(f.FetchAll(t.Context(), []object.Digest{place.Digest})), place.Place.Pack)
		})
	}
}
