package pack_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// TestPartsOfPacks reads some frames of a pack of 20 or so.
func TestPartsOfPacks(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	ps := pieces(1, 300, 17_000)
	refs, places := w.upload(ps)
	if len(refs) != 1 {
		t.Fatalf("%d packs", len(refs))
	}
	ref, frames := refs[0], places[len(places)-1].Place.Frame+1
	read := func(spans ...format.FrameSpan) error {
		n := 0
		return pack.StreamPart(t.Context(), w.b, w.sealer, w.names, ref, spans, func(p storage.PlacedPiece, content []byte) error {
			want := &format.PartialPack{Spans: spans}
			if p != places[n] || want.Has(p.Place.Frame) != (content != nil) || content != nil && !bytes.Equal(content, ps[n].content) {
				t.Errorf("%v: piece %d is %v with %d bytes", spans, n, p, len(content))
			}
			n++
			return nil
		})
	}
	for name, c := range map[string]struct {
		spans []format.FrameSpan
		gets  int64
	}{
		"nothing":        {nil, 1},
		"all":            {[]format.FrameSpan{{First: 0, Count: frames}}, 2},
		"the first":      {[]format.FrameSpan{{First: 0, Count: 1}}, 2},
		"some":           {[]format.FrameSpan{{First: 2, Count: 3}, {First: 7, Count: 1}}, 3},
		"the last":       {[]format.FrameSpan{{First: frames - 2, Count: 2}}, 2},
		"beyond the end": {[]format.FrameSpan{{First: frames - 1, Count: 10}, {First: frames + 20, Count: 1}}, 2},
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
	damaged[places[len(places)/2].Place.Offset+100] ^= 1 // in the middle
	w.mem.Replace(w.names.Pack(ref.ID), damaged)
	middle := places[len(places)/2].Place.Frame
	if err := read(format.FrameSpan{First: 0, Count: 2}); err != nil {
		t.Errorf("damage in a frame that is not read: %v", err)
	}
	if err := read(format.FrameSpan{First: middle, Count: 1}); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a damaged frame: %v", err)
	}
	w.mem.Replace(w.names.Pack(ref.ID), stored[:len(stored)-1])
	if err := read(format.FrameSpan{First: 0, Count: 1}); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a pack that was cut: %v", err)
	}
	w.mem.Replace(w.names.Pack(ref.ID), stored)
	ref.Pieces--
	if err := read(); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a pack with more pieces than were announced: %v", err)
	}
	failed := errors.New("failed")
	ref.Pieces++
	for _, spans := range [][]format.FrameSpan{nil, {{First: 0, Count: 1}}} {
		err := pack.StreamPart(t.Context(), w.b, w.sealer, w.names, ref, spans, func(storage.PlacedPiece, []byte) error { return failed })
		if !errors.Is(err, failed) {
			t.Errorf("a callback that fails: %v", err)
		}
	}
}
