package ingest_test

import (
	"errors"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// FuzzApply applies bodies that decode, whatever they mean: a page takes them wholly or not at all,
// and is sound afterwards.
func FuzzApply(f *testing.F) {
	seed := func(make func(w *world, h *hostile) *format.Body) {
		w, h := fuzzWorld(f)
		plain, err := make(w, h).Encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(plain)
	}
	seed(func(_ *world, h *hostile) *format.Body {
		return h.device.body(h.commit(edit{"k": noise(1, 9000), "l": nil, "m": []byte("v")}))
	})
	seed(func(_ *world, h *hostile) *format.Body {
		left, right := h.commit(edit{"a": []byte("v")}, h.second), h.commit(edit{"b": []byte("w")}, h.second)
		b := h.device.body(left, right, h.merge(left, right))
		b.Tags = []format.TagChange{{Name: "t", Commit: left.ID}}
		return b
	})
	seed(func(_ *world, h *hostile) *format.Body {
		return &format.Body{Device: h.id, Condemned: &format.Condemnation{Below: 2}, Retention: &format.Retention{Commits: 3}}
	})
	for _, group := range [][]hostileCase{hostileCommits, hostileDiffs, hostileValues, hostileRest} {
		for _, c := range group {
			_, h := fuzzWorld(f)
			if plain, err := c.make(h).Encode(); err == nil {
				f.Add(plain)
			}
		}
	}
	w, _ := fuzzWorld(f) // its log is the same for all
	f.Fuzz(func(t *testing.T, plain []byte) {
		body, err := format.ParseBody(plain)
		if err != nil {
			return
		}
		d := w.device(t)
		d.pull()
		before := d.rows()
		_, err = d.apply(w.entry(body))
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrNotFound) && !errors.Is(err, base.ErrNeedsFetch) && !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrUnsupported) {
				t.Fatalf("error %v", err)
			}
			if after := d.rows(); after != before && len(body.Packs) == 0 {
				t.Fatalf("rows changed from\n%s\nto\n%s", before, after)
			}
		}
		for _, c := range d.s.Heads() {
			d.wholly(c)
		}
		d.check()
	})
}

// fuzzWorld returns a log with two commits, the same each time.
func fuzzWorld(t testing.TB) (*world, *hostile) {
	t.Helper()
	w := newWorld(t)
	h := &hostile{device: w.device(t)}
	h.base = h.commit(edit{"k": []byte("v")})
	h.second = h.commit(edit{"l": noise(5, 3000)})
	h.push()
	return w, h
}

// wholly fails the test when the tree or an EAGER value of a commit is not here.
func (d *device) wholly(c *commit.Commit) {
	d.t.Helper()
	_, roots := d.diff(commit.First().Root, c.Root)
	for _, e := range roots {
		if e.Priority == object.Eager {
			d.pieces(e.Digest, func(object.Digest, []byte) {})
		}
	}
}
