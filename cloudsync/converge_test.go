package cloudsync_test

import (
	"maps"
	"testing"
)

func TestTwoDevicesConverge(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	a.commit(edit{"one": text("A"), "big": noise(1, 300_000)})
	b.commit(edit{"two": text("B")})
	sync(t, a, b, a)
	sameHeads(t, a, b)
	a.commit(edit{"both": text("A"), "one": nil})
	b.commit(edit{"both": text("B"), "lazy": append([]byte("lazy:"), noise(2, 200_000)...)})
	sync(t, a, b, a)
	sameHeads(t, a, b)
	got, want := b.content(), a.content()
	if !maps.Equal(got, want) || len(got) != 4 || got["two"] != "B" {
		t.Errorf("contents differ: %d and %d keys", len(got), len(want))
	}
	if b.arrived == 0 {
		t.Error("nobody was told of heads that came")
	}
}

func TestThreeDevicesConvergeAfterLongOffline(t *testing.T) {
	w := newWorld(t)
	ps := []*page{w.device(), w.device(), w.device()}
	for round := range 3 {
		for i, p := range ps {
			for n := range 40 {
				p.commit(edit{key(100*i + n): text(key(round)), "shared": text(key(i))})
			}
		}
		sync(t, ps...)
		sync(t, ps...)
		sameHeads(t, ps...)
	}
	if n := len(ps[2].content()); n != 121 {
		t.Errorf("%d keys", n)
	}
}
