package storage

import (
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/object"
)

// TestOverlayFindsPieces shows, settles and hides records of pieces whose digests have one key. The
// overlay finds a record of each piece that has one, and a durable one if there is such.
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
				shown[i].content = nil
				ov.showPieceLocked(shown[i])
			default:
				ov.hidePieceLocked(shown[i])
				shown = append(shown[:i], shown[i+1:]...)
			}
			for b := range byte(4) {
				d, known, durable, n := object.Digest{32: b}, false, false, 0
				for _, o := range shown {
					if o.digest == d {
						known, durable, n = true, durable || o.content == nil, n+1
					}
				}
				o := ov.storedLocked(&d)
				if (o != nil) != known || known && (o.digest != d || (o.content == nil) != durable) {
					t.Fatalf("piece %d: found %+v, known %v, durable %v", b, o, known, durable)
				}
				for ; o != nil; o = o.next {
					if o.digest == d {
						n--
					}
				}
				if n != 0 {
					t.Fatalf("piece %d: %d records more than are found", b, n)
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
