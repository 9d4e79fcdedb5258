package ingest_test

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// TestMalformedIndexInPack reads a LAZY value whose index piece is none: the read fails, and the
// page stays usable.
func TestMalformedIndexInPack(t *testing.T) {
	w := newWorld(t)
	h := &hostile{device: w.device(t)}
	h.base = h.commit(edit{"k": []byte("v")})
	h.second = h.commit(edit{"l": []byte("v")})
	h.push()
	b := w.device(t)
	b.pull()
	content := []byte("this is no index piece")
	x := format.InlinePiece{Digest: object.Sum(object.IndexBit, content), Content: content}
	body := h.value(x.Digest, 5000, object.Lazy)
	body.Packs = h.packOf(x)
	w.append(body)
	b.pull()
	b.s.SetFetcher(b.fetcher)
	if _, err := b.s.Piece(t.Context(), x.Digest); err != nil {
		t.Logf("read: %v", err)
	}
	if err := b.s.Fold(t.Context()); err != nil {
		t.Fatalf("the page cannot fold any more: %v", err)
	}

	// When the value becomes EAGER, the entry is bad.
	body = h.value(x.Digest, 5000, object.Eager)
	bad := w.entry(body)
	if _, err := b.apply(bad); !errors.Is(err, base.ErrCorrupt) {
		t.Fatalf("error %v", err)
	}
}
