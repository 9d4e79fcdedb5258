package storage

import (
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/object"
)

// TestOverlayFindsPieces shows, settles and hides records of pieces whose digests have one key. The
// overlay finds the first and the last record in the log of each piece that has one.
func TestOverlayFindsPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ov := newOverlay(new(sync.RWMutex))
		var shown []*op
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			switch i := rapid.IntRange(0, 3*len(shown)/2).Draw(t, "record"); {
			case i >= len(shown):
				d := object.Digest{32: byte(rapid.IntRange(0, 3).Draw(t, "digest"))}
				shown = append(shown, &op{digest: d, content: []byte{}})
				ov.showPieceLocked(shown[len(shown)-1])
			case shown[i].content != nil:
				shown[i].content, shown[i].number = nil, rapid.Uint64Range(1, 1000).Draw(t, "number")
				ov.showPieceLocked(shown[i])
			default:
				ov.hidePieceLocked(shown[i])
				shown = append(shown[:i], shown[i+1:]...)
			}
			for b := range byte(4) {
				d := object.Digest{32: b}
				var of []*op
				for _, o := range shown {
					if o.digest == d {
						of = append(of, o)
					}
				}
				slices.SortStableFunc(of, (*op).compare)
				first := ov.storedLocked(&d)
				last, known := ov.lastPiece(&d)
				if n := len(of); (first != nil) != (n > 0) || known != (n > 0) ||
					n > 0 && (first.digest != d || first.compare(of[0]) != 0 || last.digest != d || last.compare(of[n-1]) != 0) {
					t.Fatalf("piece %d: found %+v and %+v, of %d", b, first, last, n)
				}
				if n := len(ov.eventsLocked(&d)); n != len(of) {
					t.Fatalf("piece %d: %d records, of %d", b, n, len(of))
				}
			}
		}
		for _, o := range shown {
			ov.hidePieceLocked(o)
		}
		if len(ov.pieces) != 0 {
			t.Fatalf("%d pieces are left", len(ov.pieces))
		}
	})
}
