package pack_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// TestPacksThatAreOthers reads packs that are damaged, cut, or others than those announced.
func TestPacksThatAreOthers(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	refs, places := w.upload(pieces(1, 300, 17_000))
	if len(refs) != 1 {
		t.Fatalf("%d packs", len(refs))
	}
	ref := refs[0]
	table := func() error {
		r, err := pack.Open(t.Context(), w.b, w.sealer, w.names, ref)
		if err == nil {
			r.Close()
		}
		return err
	}
	whole := func(fn func(storage.PlacedPiece, []byte) error) error {
		r, err := pack.OpenWhole(t.Context(), w.b, w.sealer, w.names, ref)
		if err != nil {
			return err
		}
		defer r.Close()
		return r.Each(t.Context(), fn)
	}
	pass := func(storage.PlacedPiece, []byte) error { return nil }
	before := w.b.Counts()
	if err := errors.Join(table(), whole(pass)); err != nil {
		t.Error(err)
	}
	if n := w.b.Counts().B - before.B; n != 2 {
		t.Errorf("%d requests", n)
	}
	stored, _ := w.mem.Content(w.names.Pack(ref.Epoch, ref.ID))
	damaged := bytes.Clone(stored)
	damaged[24+places[len(places)/2].Place.Offset+100] ^= 1 // in the middle
	w.mem.Replace(w.names.Pack(ref.Epoch, ref.ID), damaged)
	if err := table(); err != nil {
		t.Errorf("damage in a block that is not read: %v", err)
	}
	if err := whole(pass); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a damaged block: %v", err)
	}
	w.mem.Replace(w.names.Pack(ref.Epoch, ref.ID), stored[:len(stored)-1])
	for _, err := range []error{table(), whole(pass)} {
		if !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("a pack that was cut: %v", err)
		}
		if text := err.Error(); strings.Count(text, "corrupt") != 1 {
			t.Errorf("it is named more than once: %s", text)
		}
	}
	w.mem.Replace(w.names.Pack(ref.Epoch, ref.ID), stored)
	ref.Pieces--
	for _, err := range []error{table(), whole(pass)} {
		if !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("a pack with more pieces than were announced: %v", err)
		}
	}
	ref.Pieces++
	failed := errors.New("failed")
	if err := whole(func(storage.PlacedPiece, []byte) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a callback that fails: %v", err)
	}
}

// TestTableOfManyShortPieces reads packs whose tables are longer than their first frame, though the
// packs are short.
func TestTableOfManyShortPieces(t *testing.T) {
	for _, most := range []int{4, 600, 4000} {
		w := newWorld(t, seal.AES256GCM)
		ps := chunks(1, 2000, most)
		refs, places := w.upload(ps)
		got := 0
		for _, ref := range refs {
			all, err := w.table(ref)
			if err != nil {
				t.Fatalf("pieces of up to %d bytes, a pack of %d: %v", most, ref.Bytes, err)
			}
			got += len(all)
		}
		if got != len(places) {
			t.Errorf("the tables have %d pieces, want %d", got, len(places))
		}
		f := w.fetcher(newPage(places...), nil)
		last := places[len(places)-1]
		if content, err := f.Fetch(t.Context(), last.Digest, last.Place); err != nil || !bytes.Equal(content, findPiece(ps, last.Digest).content) {
			t.Errorf("fetch of the last piece: %d bytes, %v", len(content), err)
		}
		f.Close()
	}
}
