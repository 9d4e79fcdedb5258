package cloudsync_test

import (
	"maps"
	"testing"
)

// TestValueThatWasGoneAtTheCheckpoint puts a value again that stands in the log before the checkpoint, where nothing referred to it any more: a new device must find it all the same.
func TestValueThatWasGoneAtTheCheckpoint(t *testing.T) {
	for name, size := range map[string]int{"in an entry": 400_000, "in packs": 3 << 20} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b := w.device(), w.device()
			a.commit(edit{"x": noise(1, size)})
			sync(t, a, b)
			a.commit(edit{"x": text("short")})
			sync(t, a, b)
			if err := a.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			b.commit(edit{"again": noise(1, size), "part": noise(1, size/3)})
			sync(t, b, a)
			c := w.device()
			got := c.counts(func() { sync(t, c) })
			sameHeads(t, a, b, c)
			if !maps.Equal(a.content(), c.content()) {
				t.Error("contents differ")
			}
			t.Logf("first sync %+v", got)
			b.commit(edit{"more": noise(2, 2000)})
			sync(t, b)
			if got := c.counts(func() { sync(t, c) }); got.B > 3 {
				t.Errorf("a later sync cost %+v", got)
			}
		})
	}
}
