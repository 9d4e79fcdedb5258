package cloudsync_test

import (
	"bytes"
	"fmt"
	"maps"
	"testing"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
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

// TestReuploadFindsPlaces has devices forget a bucket that lacks nothing, of which they have trees of history and not the values: these stand before the checkpoint with which they begin anew.
func TestReuploadFindsPlaces(t *testing.T) {
	for name, forget := range map[string]func(t *testing.T, p *page){
		"on demand": func(t *testing.T, p *page) {
			p.reopen()
			if missing, err := p.Reupload(t.Context()); err != nil || missing != 0 {
				t.Errorf("%d missing, %v", missing, err)
			}
		},
		"with the position": func(t *testing.T, p *page) {
			p.lose(format.MetadataPosition)
			p.reopen()
			sync(t, p)
		},
		"and an entry cannot be read at first": func(t *testing.T, p *page) {
			p.lose(format.MetadataPosition)
			p.reopen()
			first := p.d.w.entryNames("")[0]
			p.d.w.b.SetBefore(func(op bucket.Op, name string) error {
				if op == bucket.OpGet && name == first {
					return fmt.Errorf("%s: %w", name, base.ErrNotFound)
				}
				return nil
			})
			sync(t, p)
			p.d.w.b.SetBefore(nil)
			p.reopen()
			sync(t, p)
		},
	} {
		for where, size := range map[string]int{"an entry": 400_000, "a pack": 3 << 20} {
			t.Run(name+", "+where, func(t *testing.T) {
				w := newWorld(t)
				a := w.device()
				value := append([]byte("lazy:"), noise(1, size)...)
				old := a.commit(edit{"old": value})
				a.commit(edit{"old": text("new")})
				sync(t, a)
				if err := a.Checkpoint(t.Context()); err != nil {
					t.Fatal(err)
				}
				a.commit(edit{"more": text("x")})
				b := w.device()
				sync(t, a, b)
				if err := b.BuildTree(t.Context(), old.ID); err != nil {
					t.Fatal(err)
				}
				forget(t, b)
				sync(t, b)
				sameHeads(t, a, b)
				e, err := b.entry(old.Root, "old")
				if err != nil {
					t.Fatal(err)
				}
				var got bytes.Buffer
				if _, err := split.NewReader(t.Context(), b.store, e.Digest, e.Size).WriteTo(&got); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got.Bytes(), value) {
					t.Error("another value")
				}
				if got := b.counts(func() { b.reopen(); sync(t, b) }); got.B > 4 {
					t.Errorf("a later session cost %+v", got)
				}
			})
		}
	}
}

// entry returns the entry of a key in a tree.
func (p *page) entry(root object.Digest, k string) (fb.Entry, error) {
	c := btree.Tree{Page: testPage, Source: p.store, Root: root}.Cursor()
	ok, err := c.Seek(p.d.w.t.Context(), []byte(k))
	if err == nil && !ok {
		err = base.ErrNotFound
	}
	if err != nil {
		return fb.Entry{}, err
	}
	return c.Entry(), nil
}
