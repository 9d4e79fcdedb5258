package pack_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// part gives the pieces of a pack to fn, with content those in spans.
func (w *world) part(ref format.PackRef, spans []format.BlockSpan, fn func(p storage.PlacedPiece, content []byte) error) error {
	r, err := pack.Open(w.t.Context(), w.b, w.sealer, w.names, ref)
	if err != nil {
		return err
	}
	defer r.Close()
	if spans == nil {
		spans = []format.BlockSpan{}
	}
	return r.Each(w.t.Context(), spans, fn)
}

// TestPartsOfPacks reads some blocks of a pack of 20 or so.
func TestPartsOfPacks(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	ps := pieces(1, 300, 17_000)
	refs, places := w.upload(ps)
	if len(refs) != 1 {
		t.Fatalf("%d packs", len(refs))
	}
	ref, blocks := refs[0], places[len(places)-1].Place.Block+1
	read := func(spans ...format.BlockSpan) error {
		n := 0
		return w.part(ref, spans, func(p storage.PlacedPiece, content []byte) error {
			wanted := slices.ContainsFunc(spans, func(s format.BlockSpan) bool { return p.Place.Block >= s.First && p.Place.Block-s.First < s.Count })
			if p != places[n] || wanted != (content != nil) || content != nil && !bytes.Equal(content, findPiece(ps, p.Digest).content) {
				t.Errorf("%v: piece %d is %v with %d bytes", spans, n, p, len(content))
			}
			n++
			return nil
		})
	}
	for name, c := range map[string]struct {
		spans []format.BlockSpan
		gets  int64
	}{
		"nothing":        {nil, 1},
		"all":            {[]format.BlockSpan{{First: 0, Count: blocks}}, 2},
		"the first":      {[]format.BlockSpan{{First: 0, Count: 1}}, 2},
		"some":           {[]format.BlockSpan{{First: 2, Count: 3}, {First: 7, Count: 1}}, 3},
		"the last":       {[]format.BlockSpan{{First: blocks - 2, Count: 2}}, 2},
		"beyond the end": {[]format.BlockSpan{{First: blocks - 1, Count: 10}, {First: blocks + 20, Count: 1}}, 2},
	} {
		before := w.b.Counts()
		if err := read(c.spans...); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		after := w.b.Counts()
		if got := after.B - before.B; got != c.gets {
			t.Errorf("%s: %d requests, want %d", name, got, c.gets)
		}
		if name == "the first" && after.Down-before.Down > int64(ref.Bytes)/8 {
			t.Errorf("%s: %d bytes of %d were read", name, after.Down-before.Down, ref.Bytes)
		}
	}
	stored, _ := w.mem.Content(w.names.Pack(ref.ID))
	damaged := bytes.Clone(stored)
	damaged[24+places[len(places)/2].Place.Offset+100] ^= 1 // in the middle
	w.mem.Replace(w.names.Pack(ref.ID), damaged)
	middle := places[len(places)/2].Place.Block
	if err := read(format.BlockSpan{First: 0, Count: 2}); err != nil {
		t.Errorf("damage in a block that is not read: %v", err)
	}
	if err := read(format.BlockSpan{First: middle, Count: 1}); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a damaged block: %v", err)
	}
	w.mem.Replace(w.names.Pack(ref.ID), stored[:len(stored)-1])
	if err := read(format.BlockSpan{First: 0, Count: 1}); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a pack that was cut: %v", err)
	}
	w.mem.Replace(w.names.Pack(ref.ID), stored)
	ref.Pieces--
	if err := read(); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a pack with more pieces than were announced: %v", err)
	}
	failed := errors.New("failed")
	ref.Pieces++
	for _, spans := range [][]format.BlockSpan{nil, {{First: 0, Count: 1}}} {
		err := w.part(ref, spans, func(storage.PlacedPiece, []byte) error { return failed })
		if !errors.Is(err, failed) {
			t.Errorf("a callback that fails: %v", err)
		}
	}
}
