package cloudsync_test

import (
	"bytes"
	"fmt"
	"io/fs"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// TestValueThatWasGoneAtTheCheckpoint puts a value again that stands in the log before the
// checkpoint, where nothing referred to it any more: a new device must find it all the same.
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

// TestReuploadFindsPlaces has devices forget a bucket that lacks nothing, of which they have trees
// of history and not the values: these stand before the checkpoint with which they begin anew.
func TestReuploadFindsPlaces(t *testing.T) {
	for name, forget := range map[string]func(t *testing.T, p *page){
		"on demand": func(t *testing.T, p *page) {
			p.reopen()
			if missing, err := p.Reupload(t.Context()); err != nil || missing != 0 {
				t.Errorf("%d missing, %v", missing, err)
			}
		},
		"with the position": func(t *testing.T, p *page) {
			p.lose(cloudsync.MetadataPosition)
			p.reopen()
			sync(t, p)
		},
		"and an entry cannot be read at first": func(t *testing.T, p *page) {
			p.lose(cloudsync.MetadataPosition)
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
				if got := b.read(old.Root, "old"); !bytes.Equal(got, value) {
					t.Error("another value")
				}
				if got := b.counts(func() { b.reopen(); sync(t, b) }); got.B > 4 {
					t.Errorf("a later session cost %+v", got)
				}
			})
		}
	}
}

// TestFetchFindsAllPlaces fetches a piece whose place is known together with one whose place is
// lost: the log is searched for it.
func TestFetchFindsAllPlaces(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(), w.device()
	c := a.commit(edit{"known": append([]byte("lazy:"), noise(1, 3000)...), "lost": append([]byte("lazy:"), noise(2, 3000)...)})
	sync(t, a, b)
	b.drop()
	ds := []object.Digest{b.entry(c.Root, "known").Digest, b.entry(c.Root, "lost").Digest}
	pending, err := b.store.SubmitSync(t.Context(), nil, &storage.SyncBatch{Unplaced: ds[1:]})
	if err == nil {
		err = pending.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	if st, err := b.store.PieceState(ds[1]); err != nil || st.Held || st.Synced {
		t.Fatalf("%+v, %v", st, err)
	}
	if n, err := b.Fetch(t.Context(), ds); err != nil || n < 6000 {
		t.Errorf("%d bytes, %v", n, err)
	}
}

// TestPieceThatIsGoneComesFromElsewhere has a device move a piece to a pack for a checkpoint that
// no entry tells of, and go away until others have deleted that pack. What it has dropped of the
// piece it finds in the log again: for an entry that needs it, or when it reads what had its place
// there.
func TestPieceThatIsGoneComesFromElsewhere(t *testing.T) {
	for name, entry := range map[string]bool{"an entry needs it": true, "none does": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			a, b, c := w.device(), w.device(), w.device()
			many := edit{}
			for i := range 100 {
				many[key(i)] = text("x")
			}
			sync(t, c) // so that it reads the log and no checkpoint
			c.commit(many)
			old := a.commit(edit{"k": noise(1, 3000)})
			sync(t, a, b)
			if err := b.Checkpoint(t.Context()); err != nil {
				t.Fatal(err)
			}
			if entry {
				sync(t, c) // its merge brings the value to what it has
			} else {
				a.commit(edit{"k": text("short")}) // so that no later pack has it
			}
			for i := range 2 {
				a.commit(edit{"more": text(key(i))})
				if err := a.Checkpoint(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			w.clock.Advance(2 * 24 * time.Hour) // who has put a pack may still be about to tell of it
			w.clock.Advance(31 * 24 * time.Hour)
			if r := collectBucket(t, a, cloudsync.GCOptions{}); r.DeletedObjects == 0 {
				t.Fatalf("%+v", r)
			}
			b.drop()
			sync(t, b)
			if !maps.Equal(a.content(), b.content()) {
				t.Error("contents differ")
			}
			if got := b.read(old.Root, "k"); !bytes.Equal(got, noise(1, 3000)) {
				t.Error("another value")
			}
			before := b.store.NewestHead().ID
			if got := b.counts(func() { b.reopen(); sync(t, b) }); got.B > 4 || b.store.NewestHead().ID != before {
				t.Errorf("a later session cost %+v", got)
			}
		})
	}
}

// TestSentIsSpared cuts an upload off behind its packs. Their pieces are spared until an entry has
// the commit.
func TestSentIsSpared(t *testing.T) {
	w := newWorld(t)
	a := w.device()
	a.commit(edit{"k": text("v")})
	sync(t, a)
	a.commit(edit{"k": noise(1, 3<<20)})
	w.b.SetBefore(func(op bucket.Op, name string) error {
		if op == bucket.OpPut && strings.Contains(name, "/log/") {
			return fs.ErrPermission
		}
		return nil
	})
	if err := a.Sync(t.Context()); err == nil {
		t.Fatal("the entry was put")
	}
	w.b.SetBefore(nil)
	spared := func() (n int) {
		placed, err := a.store.PlacedIn(t.Context(), func(storage.CloudPlace) bool { return true })
		if err != nil || len(placed) == 0 {
			t.Fatalf("%d pieces in the bucket, %v", len(placed), err)
		}
		sent, err := cloudsync.Sent(t.Context(), a.store)
		if err != nil {
			t.Fatal(err)
		}
		for i := range placed {
			if sent(&placed[i].Place) {
				n++
			}
		}
		return n
	}
	if spared() == 0 {
		t.Error("nothing is spared while no entry names the packs")
	}
	if sync(t, a); spared() != 0 {
		t.Error("something is spared when the entry is there")
	}
}

// drop gives up the content of all pieces that the bucket has.
func (p *page) drop() {
	p.d.w.t.Helper()
	placed, err := p.store.PlacedIn(p.d.w.t.Context(), func(storage.CloudPlace) bool { return true })
	if err != nil {
		p.d.w.t.Fatal(err)
	}
	var ds []object.Digest
	for _, q := range placed {
		ds = append(ds, q.Digest)
	}
	if free, err := p.store.DropPieces(p.d.w.t.Context(), ds); err != nil || free == 0 {
		p.d.w.t.Fatalf("%d bytes, %v", free, err)
	}
}

// TestPieceThatWasCollectedComesBack has a device collect pieces with their places, which nothing
// needs any more, and another one put them again: it relies on where they stand, and sends them no
// second time.
func TestPieceThatWasCollectedComesBack(t *testing.T) {
	for name, lazy := range map[string]string{"lazy": "lazy:", "eager": "now"} {
		for where, size := range map[string]int{"an entry": 400_000, "a pack": 3 << 20} {
			t.Run(name+", "+where, func(t *testing.T) {
				w := newWorld(t)
				a, b := w.device(), w.device()
				old := a.commit(edit{"x": noise(1, size)})
				sync(t, a, b)
				a.commit(edit{"x": text("short")})
				sync(t, a, b)
				if _, err := b.store.Prune(t.Context(), []commit.ID{old.ID}); err != nil {
					t.Fatal(err)
				}
				c := b.store.NewCollector(storage.CollectOptions{})
				for c.Stats().Cycles < 5 {
					if _, err := c.Step(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				if c.Stats().Pieces == 0 {
					t.Fatal("nothing was collected")
				}
				a.commit(edit{"again": append([]byte(lazy), noise(1, size)...)})
				if got := a.counts(func() { sync(t, a) }); got.Up > int64(size/4) {
					t.Fatalf("%d bytes were sent again", got.Up)
				}
				sync(t, b)
				sameHeads(t, a, b)
				b.reopen()
				if !maps.Equal(a.content(), b.content()) {
					t.Error("contents differ")
				}
			})
		}
	}
}

// entry returns the entry of a key in a tree.
func (p *page) entry(root object.Digest, k string) fb.Entry {
	p.d.w.t.Helper()
	c := btree.Tree{Page: testPage, Source: p.store, Root: root}.Cursor()
	if ok, err := c.Seek(p.d.w.t.Context(), []byte(k)); !ok || err != nil {
		p.d.w.t.Fatalf("look for %q: %v, %v", k, ok, err)
	}
	return c.Entry()
}

// read returns the long value of a key in a tree.
func (p *page) read(root object.Digest, k string) []byte {
	p.d.w.t.Helper()
	e := p.entry(root, k)
	var b bytes.Buffer
	if _, err := split.NewReader(p.d.w.t.Context(), p.store, e.Digest, e.Size).WriteTo(&b); err != nil {
		p.d.w.t.Fatalf("value of %q: %v", k, err)
	}
	return b.Bytes()
}
