package ingest_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// held counts the pieces of the values that a commit's diff brings: those that are held, and those
// that are only placed.
func (d *device) held(from *device, c *commit.Commit) (held, placed int) {
	d.t.Helper()
	_, roots := from.change(c)
	for _, e := range roots {
		from.pieces(e.Digest, func(p object.Digest, _ []byte) {
			st, err := d.s.PieceState(p)
			if err != nil {
				d.t.Fatal(err)
			}
			if st.Held {
				held++
			} else if st.Synced {
				placed++
			}
		})
	}
	return held, placed
}

// TestEagerPack brings the pieces of EAGER values with their packs.
func TestEagerPack(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	c := a.commit(edit{"k": noise(1, 3_000_000), "l": noise(2, 1000)})
	w.append(a.upload(c))
	res := b.pull()
	if held, placed := b.held(a, c); held == 0 || placed != 0 || res.Pieces != held {
		t.Fatalf("%d pieces held, %d placed, %d counted", held, placed, res.Pieces)
	}
	if diff := cmp.Diff(a.content(c), b.content(b.s.NewestHead())); diff != "" {
		t.Fatal("contents differ")
	}
	b.check()
}

// TestLazyPack brings the places of pieces of LAZY values only; reading fetches them.
func TestLazyPack(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	a.priority = object.Lazy
	c := a.commit(edit{"k": noise(1, 3_000_000)})
	w.append(a.upload(c))
	b.pull()
	if held, placed := b.held(a, c); held != 0 || placed == 0 {
		t.Fatalf("%d pieces held, %d placed", held, placed)
	}
	b.s.SetFetcher(b.fetcher)
	if b.content(c)["k"] != string(noise(1, 3_000_000)) {
		t.Fatal("contents differ")
	}
	b.check()
}

// TestEagerFromOlderPack makes a LAZY value EAGER: its pieces stand in a pack of an entry before,
// and come with the commit.
func TestEagerFromOlderPack(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	a.priority = object.Lazy
	lazy := a.commit(edit{"k": noise(1, 2_000_000)})
	w.append(a.upload(lazy))
	b.pull()
	a.priority = object.Eager
	eager := a.commit(edit{"k": noise(1, 2_000_000)})
	if eager.Root == lazy.Root {
		t.Fatal("the commit changes nothing")
	}
	body := a.body(eager)
	if len(body.Pieces) != 0 {
		t.Fatalf("%d pieces are sent again", len(body.Pieces))
	}
	w.append(body)
	without := ingest.New(ingest.Options{Store: b.s, Bucket: w.bucket, Sealer: w.sealer, Names: w.names})
	if _, err := without.Apply(t.Context(), w.log[1:], w.position(w.log[1])); !errors.Is(err, base.ErrNeedsFetch) {
		t.Fatalf("without a fetcher: %v", err)
	}
	if b.s.NewestHead().ID != lazy.ID {
		t.Fatal("the commit is visible without its value")
	}
	b.pull()
	if held, placed := b.held(a, lazy); held == 0 || placed != 0 {
		t.Fatalf("%d pieces held, %d placed", held, placed)
	}
	b.check()
}

// TestEagerInLazyPack announces a pack for LAZY values together with a commit that needs its pieces
// at once.
func TestEagerInLazyPack(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	a.priority = object.Lazy
	lazy := a.commit(edit{"k": noise(1, 500_000)})
	body := a.upload(lazy)
	a.priority = object.Eager
	eager := a.commit(edit{"l": noise(1, 500_000)})
	body.Commits = append(body.Commits, a.body(eager).Commits...)
	w.append(body)
	b.pull()
	if held, placed := b.held(a, eager); held == 0 || placed != 0 {
		t.Fatalf("%d pieces held, %d placed", held, placed)
	}
	if diff := cmp.Diff(a.content(eager), b.content(b.s.NewestHead())); diff != "" {
		t.Fatal("contents differ")
	}
	b.check()
}

// TestDiffObject reads a diff that is an object of its own.
func TestDiffObject(t *testing.T) {
	w := newWorld(t)
	h := &hostile{device: w.device(t)}
	b := w.device(t)
	e := edit{}
	for i := range 20_000 {
		e[fmt.Sprintf("key %06d", i)] = fmt.Appendf(nil, "value %d", i)
	}
	c := h.commit(e)
	body := h.device.body(c)
	diff := body.Commits[0].Diff.Inline
	id, _ := h.diffObject(diff)
	body.Commits[0].Diff = format.Diff{Pack: id, Bytes: uint64(len(diff))}
	w.append(body)
	b.pull()
	if b.s.NewestHead().ID != c.ID {
		t.Fatal("it was not applied")
	}
	b.check()
}

// TestCondemned takes the place of pieces away: what is held is local again, what is needed and not
// held is fetched first.
func TestCondemned(t *testing.T) {
	for _, small := range []bool{false, true} {
		t.Run(fmt.Sprintf("small bounds %t", small), func(t *testing.T) { testCondemned(t, small) })
	}
}

func testCondemned(t *testing.T, small bool) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	if small {
		ingest.SetSmallBounds(b.page)
	}
	held := a.commit(edit{"held": noise(1, 200_000)})
	heldPack := a.upload(held)
	w.append(heldPack)
	a.priority = object.Lazy
	lazy := a.commit(edit{"lazy": noise(2, 200_000)})
	lazyPack := a.upload(lazy)
	w.append(lazyPack)
	inline := a.commit(edit{"inline": noise(3, 20_000)})
	a.push()
	b.pull()

	// A pack that nothing refers to.
	orphan := w.device(t)
	orphan.priority = object.Lazy
	oc := orphan.commit(edit{"orphan": noise(4, 20_000)})
	orphanPack := orphan.upload(oc)
	orphanPack.Commits = nil
	w.append(orphanPack)

	w.append(&format.Body{Device: a.id, Condemned: &format.Condemnation{Packs: []format.ID{heldPack.Packs[0].ID, lazyPack.Packs[0].ID, orphanPack.Packs[0].ID}, Below: 4}})
	if res := b.pull(); !res.Condemned {
		t.Fatalf("result %+v", res)
	}
	for _, c := range []*commit.Commit{held, lazy, inline} {
		_, roots := a.change(c)
		st, err := b.s.PieceState(roots[0].Digest)
		if err != nil || !st.Held || st.Synced {
			t.Errorf("piece of a value that is needed: %+v, %v", st, err)
		}
	}
	_, roots := orphan.change(oc)
	if st, err := b.s.PieceState(roots[0].Digest); err != nil || st.Held || st.Synced {
		t.Errorf("piece of a value that nobody needs: %+v, %v", st, err)
	}
	if n := len(b.unsynced()); n != 0 {
		t.Errorf("%d unsynced commits", n)
	}
	b.check()

	// The pieces that are local go up again, into another pack, and have a place then.
	b.priority = object.Lazy
	again := &format.Body{Device: b.id}
	err := b.s.LocalPieces(t.Context(), func(p object.Digest) error {
		content, err := b.s.Piece(t.Context(), p)
		again.Pieces = append(again.Pieces, format.InlinePiece{Digest: p, Content: content})
		return err
	})
	if err != nil || len(again.Pieces) == 0 {
		t.Fatalf("%d local pieces, %v", len(again.Pieces), err)
	}
	w.append(again)
	b.pull()
	if err := b.s.LocalPieces(t.Context(), func(p object.Digest) error { return fmt.Errorf("piece %s is local", p) }); err != nil {
		t.Fatal(err)
	}
}

// TestCondemnedAndGone condemns a pack that has been deleted already: what is lost is lost, and the
// log goes on.
func TestCondemnedAndGone(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	a.priority = object.Lazy
	c := a.commit(edit{"lazy": noise(2, 20_000)})
	body := a.upload(c)
	w.append(body)
	b.pull()
	w.append(&format.Body{Device: a.id, Condemned: &format.Condemnation{Packs: []format.ID{body.Packs[0].ID}}})
	if err := w.bucket.Delete(t.Context(), w.names.Pack(body.Packs[0].ID)); err != nil {
		t.Fatal(err)
	}
	b.pull()
	_, roots := a.change(c)
	if st, err := b.s.PieceState(roots[0].Digest); err != nil || st.Held || st.Synced {
		t.Fatalf("piece %+v, %v", st, err)
	}
	without := w.device(t)
	without.page = ingest.New(ingest.Options{Store: without.s, Bucket: w.bucket, Sealer: w.sealer, Names: w.names})
	p, err := without.s.SubmitSync(t.Context(), nil, &storage.SyncBatch{Places: []storage.PlacedPiece{{Digest: roots[0].Digest, Place: storage.CloudPlace{Pack: body.Packs[0].ID, StoredBytes: 100, Bytes: 100}}}})
	if err != nil || p.Wait() != nil {
		t.Fatal(err)
	}
}

// TestReplacedPlace announces a new pack with the pieces of one that it condemns: they keep the new
// place.
func TestReplacedPlace(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	a.priority = object.Lazy
	c := a.commit(edit{"lazy": noise(2, 20_000)})
	first := a.upload(c)
	w.append(first)
	b.pull()
	second := a.upload(c)
	second.Commits = nil
	second.Condemned = &format.Condemnation{Packs: []format.ID{first.Packs[0].ID}}
	w.append(second)
	b.pull()
	_, roots := a.change(c)
	if st, err := b.s.PieceState(roots[0].Digest); err != nil || st.Held || st.Place.Pack != second.Packs[0].ID {
		t.Fatalf("piece %+v, %v", st, err)
	}
}

// TestLocalPieces takes a value whose pieces nobody sends, since they are here by chance: their
// lengths are known by reading them.
func TestLocalPieces(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.device(t), w.device(t), w.device(t)
	b.commit(edit{"mine": noise(1, 50_000)})
	body := a.body(a.commit(edit{"theirs": noise(1, 50_000)}))
	body.Pieces = nil
	w.append(body)
	b.pull()
	var e *ingest.EntryError
	if _, err := c.apply(w.log...); !errors.As(err, &e) {
		t.Fatalf("where they are not: %v", err)
	}
	b.check()
}

// TestManyEntries takes more entries than share a batch, whose values share pieces.
func TestManyEntries(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	ingest.SetSmallBounds(b.page)
	for i := range 30 {
		v := noise(uint64(i%3), 30_000)
		a.commit(edit{fmt.Sprint(i): v[:len(v)-i*10]})
		a.push()
	}
	for i := range 600 {
		a.commit(edit{fmt.Sprint("small", i%50): fmt.Append(nil, i)})
	}
	for _, c := range a.unsynced() {
		w.append(a.body(c))
	}
	if res := b.pull(); res.Commits != 630 {
		t.Fatalf("%d commits", res.Commits)
	}
	a.pull()
	if diff := cmp.Diff(a.content(a.s.NewestHead()), b.content(b.s.NewestHead())); diff != "" {
		t.Fatal("contents differ")
	}
	b.check()
}

// TestSharedValue brings one content as LAZY and EAGER values.
func TestSharedValue(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	a.priority = object.Lazy
	c1 := a.commit(edit{"lazy": noise(1, 90_000)})
	a.priority = object.Eager
	c2 := a.commit(edit{"eager": noise(1, 90_000), "eager too": noise(1, 90_000)})
	w.append(a.body(c1, c2))
	b.pull()
	if held, placed := b.held(a, c1); held == 0 || placed != 0 {
		t.Fatalf("%d pieces held, %d placed", held, placed)
	}
	b.check()
}

// TestCondemnedUnsynced condemns a part of a LAZY value that only a commit needs which the bucket
// does not have: the index piece at its root stands elsewhere.
func TestCondemnedUnsynced(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	a.priority = object.Lazy
	v := noise(1, 200_000)
	c := a.commit(edit{"lazy": v})
	_, roots := a.change(c)
	var top, rest []format.InlinePiece
	a.pieces(roots[0].Digest, func(p object.Digest, content []byte) {
		x := format.InlinePiece{Digest: p, Content: content}
		if p.Kind().IsIndex() {
			top = append(top, x)
		} else {
			rest = append(rest, x)
		}
	})
	body := a.body(c)
	chunks := w.packOf(rest...)
	body.Pieces, body.Packs = nil, append(w.packOf(top...), chunks...)
	w.append(body)
	b.pull()

	// b puts the value again, without having it.
	j := b.s.NewJournal()
	root, err := btree.Tree{Page: testPage, Source: j, Root: commit.First().Root}.Apply(t.Context(), j, func(yield func(btree.Change, error) bool) {
		e := roots[0]
		e.Key = []byte("copy")
		yield(btree.Change{Entry: e}, nil)
	})
	if err != nil {
		t.Fatal(err)
	}
	own, err := commit.New(commit.Params{Now: epoch, Root: root, Parents: []*commit.Commit{commit.First()}})
	if err != nil {
		t.Fatal(err)
	}
	b.submit(j, own)
	w.append(&format.Body{Device: a.id, Condemned: &format.Condemnation{Packs: []format.ID{chunks[0].ID}}})
	b.pull()
	if err := w.bucket.Delete(t.Context(), w.names.Pack(chunks[0].ID)); err != nil {
		t.Fatal(err)
	}
	if got := b.content(own)["copy"]; got != string(v) {
		t.Fatalf("a value of %d bytes", len(got))
	}
	b.check()
}
