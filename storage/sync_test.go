package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// cloud is a bucket: what a Fetcher gives.
type cloud struct {
	mu     sync.Mutex
	pieces map[object.Digest][]byte // guarded by mu
	err    error
}

func (c *cloud) put(d object.Digest, content []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pieces[d] = content
}

func (c *cloud) Fetch(_ context.Context, d object.Digest, _ storage.CloudPlace) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	return c.pieces[d], nil
}

// FetchAll gives up, as if nothing could be stored: reads go on without.
func (c *cloud) FetchAll(context.Context, []object.Digest) (int64, error) { return 0, base.ErrNoSpace }

func entryPlace(n uint64) storage.CloudPlace { return storage.CloudPlace{Entry: n, Bytes: 10} }

// sync does a step of sync and waits for it.
func (w *world) sync(j *storage.Journal, b storage.SyncBatch) {
	w.t.Helper()
	p, err := w.s.SubmitSync(w.t.Context(), j, &b)
	w.must(err)
	w.must(p.Wait())
}

func wantState(t testing.TB, s *storage.Store, d object.Digest, held bool, place *storage.CloudPlace) {
	t.Helper()
	st, err := s.PieceState(d)
	want := storage.PieceState{Held: held, Synced: place != nil}
	if place != nil {
		want.Place = *place
	}
	if err != nil || st != want {
		t.Errorf("state of %s is %+v, %v, want %+v", d.Short(), st, err, want)
	}
}

// each runs a check before the fold, behind it, and when the page was opened again with an index
// made anew.
func (w *world) each(check func(when string)) {
	w.t.Helper()
	check("pending")
	w.must(w.s.Fold(w.t.Context()))
	check("folded")
	w.must(checkClean(w.s))
	w.reopen()
	check("opened again")
}

// TestPieceInCloud follows a piece from local to synced, dropped, fetched, unplaced and forgotten.
func TestPieceInCloud(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	content := noise(w.rng, 3000)
	d := object.Sum(0, content)
	w.commit(edit{"a": content})
	name := func(family string) map[string]bool { return map[string]bool{family + "/" + identifier(d): true} }
	state := func(held bool, place *storage.CloudPlace) {
		t.Helper()
		w.each(func(string) { t.Helper(); wantState(t, w.s, d, held, place) })
	}
	read := func(want error) {
		t.Helper()
		got, err := w.s.Piece(t.Context(), d)
		if !errors.Is(err, want) || want == nil && !bytes.Equal(got, content) {
			t.Errorf("read: %d bytes, %v, want %v", len(got), err, want)
		}
	}
	state(true, nil)
	wantRows(t, w.s, "local/objects", name("local/objects"))
	pack := storage.CloudPlace{Pack: [16]byte{1}, Block: 2, Offset: 3, StoredBytes: 4, At: 5, Bytes: 3000, KeyIndex: 6}
	w.sync(nil, storage.SyncBatch{Places: []storage.PlacedPiece{{Digest: d, Place: pack}}})
	state(true, &pack)
	wantRows(t, w.s, "local/objects", nil)
	wantRows(t, w.s, "synced/objects", map[string]bool{"synced/objects/" + (object.Identifier{Digest: d, KeyIndex: 6}).String(): true})
	wantRows(t, w.s, "cloud", map[string]bool{"cloud/" + d.String(): true})
	if n, err := w.s.DropPieces(t.Context(), []object.Digest{d, d, object.Sum(0, []byte("x"))}); err != nil || n < 3000 || n > 3010 {
		t.Errorf("dropped %d bytes, %v", n, err)
	}
	state(false, &pack)
	read(base.ErrNeedsFetch)
	c := &cloud{pieces: map[object.Digest][]byte{d: content}}
	w.s.SetFetcher(c)
	read(nil)
	c.pieces[d] = content[1:]
	read(base.ErrCorrupt)
	c.err = base.ErrGone
	read(base.ErrGone)
	if w.s.Recovery().IndexRebuilt != "" {
		t.Errorf("recovery %+v", w.s.Recovery())
	}
	if err := w.s.ForgetCloud(t.Context(), true); !errors.Is(err, base.ErrNeedsFetch) {
		t.Errorf("forget: %v", err)
	}
	w.must(w.s.AddFetched(t.Context(), []storage.FetchedPiece{{Digest: d, Content: content}}))
	state(true, &pack)
	w.s.SetFetcher(nil)
	read(nil)
	w.sync(nil, storage.SyncBatch{Unplaced: []object.Digest{d}})
	state(true, nil)
	wantRows(t, w.s, "local/objects", name("local/objects"))
	entry := entryPlace(7)
	w.sync(nil, storage.SyncBatch{Places: []storage.PlacedPiece{{Digest: d, Place: entry}}, Metadata: []storage.Metadata{{Type: "position", Value: []byte("x")}}})
	state(true, &entry)
	w.must(w.s.ForgetCloud(t.Context(), true))
	state(true, nil)
	wantRows(t, w.s, "local/objects", name("local/objects"))
	wantRows(t, w.s, "sync_metadata", nil)
	w.close()
}

// TestPieceWithoutPlace reads, in a page that may not know all places, a chunk of which only an
// index piece tells that has just come: the Fetcher is asked, and the index is not made anew for
// it.
func TestPieceWithoutPlace(t *testing.T) {
	content := noise(rand.New(rand.NewPCG(1, 1)), 3000)
	chunk := object.Sum(0, content)
	list, err := fb.EncodeIndex([]fb.IndexChild{{Digest: chunk, Size: 3000}, {Digest: object.Sum(0, []byte("x")), Size: 1}})
	if err != nil {
		t.Fatal(err)
	}
	root := object.Sum(object.Index, list)
	for _, adopted := range []bool{false, true} {
		w := newWorld(t, 1, storage.Options{})
		w.open()
		var m []storage.Metadata
		if adopted {
			m = []storage.Metadata{{Type: storage.MetadataAdopted, Value: []byte{1}}}
		}
		w.sync(nil, storage.SyncBatch{Places: []storage.PlacedPiece{{Digest: root, Place: entryPlace(7)}}, Metadata: m})
		w.s.SetFetcher(&cloud{pieces: map[object.Digest][]byte{chunk: content}})
		w.must(w.s.AddFetched(t.Context(), []storage.FetchedPiece{{Digest: root, Content: list}}))
		got, err := w.s.Piece(t.Context(), chunk)
		if adopted && (err != nil || !bytes.Equal(got, content)) || !adopted && !errors.Is(err, base.ErrGone) {
			t.Errorf("adopted %t: %d bytes, %v", adopted, len(got), err)
		}
		if made := w.s.Recovery().IndexRebuilt; (made != "") == adopted {
			t.Errorf("adopted %t: index made anew: %q", adopted, made)
		}
		w.close()
	}
}

// receiver is a page that gets what another one has.
func receive(w *world, j *storage.Journal, parent *commit.Commit, e edit) *commit.Commit {
	w.t.Helper()
	t, err := w.make(j, e, 0, parent)
	w.must(err)
	return t.c
}

// TestReceivedCommits gives a page commits from the bucket: with and without their trees, new and
// known ones.
func TestReceivedCommits(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	own := w.commit(small(1))
	other := newWorld(t, 2, storage.Options{})
	other.open()
	w.clock.Store(100)
	j := w.s.NewJournal()
	a := receive(w, j, commit.First(), many(0, 30))
	changed := w.s.HeadsChanged()
	w.sync(j, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: a}}})
	select {
	case <-changed:
	default:
		t.Error("nobody is told of the new head")
	}
	other.clock.Store(200)
	b := other.commit(small(9))
	c, err := commit.New(commit.Params{Now: time.Unix(9, 0), Root: btree.EmptyRoot, Parents: []*commit.Commit{b}})
	w.must(err)
	w.sync(nil, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: b, Treeless: true}, {Commit: c}, {Commit: own, Treeless: true}}})
	w.each(func(when string) {
		t.Helper()
		if h := w.s.Heads(); len(h) != 3 {
			t.Errorf("%s: heads %v", when, h)
		}
		if ids, err := w.s.Unsynced(t.Context()); err != nil || len(ids) != 0 {
			t.Errorf("%s: unsynced %v, %v", when, ids, err)
		}
		for _, cm := range []*commit.Commit{own, a, b, c} {
			held, err := w.s.TreeHeld(t.Context(), cm)
			if err != nil || held != (cm != b) {
				t.Errorf("%s: tree held %v, %v", when, held, err)
			}
		}
		if _, err := w.s.Node(t.Context(), b.Root); !errors.Is(err, base.ErrNeedsFetch) {
			t.Errorf("%s: read a treeless commit: %v", when, err)
		}
		if _, err := w.s.NewJournal().Node(t.Context(), b.Root); !errors.Is(err, base.ErrNeedsFetch) {
			t.Errorf("%s: read a treeless commit: %v", when, err)
		}
		if r := w.s.Recovery(); r.IndexRebuilt != "" && when != "opened again" {
			t.Errorf("%s: recovery %+v", when, r)
		}
		w.must(w.verifyContent(w.s, a))
	})
	j = w.s.NewJournal()
	n, err := other.s.Node(t.Context(), b.Root)
	w.must(err)
	w.must(j.PutNode(t.Context(), btree.NewNode{Digest: b.Root, Content: n.Bytes(), View: n}))
	w.sync(j, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: b}}, Unsynced: []commit.ID{a.ID, {1}}})
	w.each(func(when string) {
		t.Helper()
		if held, err := w.s.TreeHeld(t.Context(), b); err != nil || !held {
			t.Errorf("%s: tree held %v, %v", when, held, err)
		}
		if ids, err := w.s.Unsynced(t.Context()); err != nil || !slices.Equal(ids, []commit.ID{a.ID}) {
			t.Errorf("%s: unsynced %v, %v", when, ids, err)
		}
	})
	wantRows(t, w.s, "treeless/commits", nil)
	other.close()
	w.close()
}

// TestSyncModel does random steps of sync and of local work, folds, opens the page again, deletes
// the index, and compares what the page knows with a plain model of it.
func TestSyncModel(t *testing.T) {
	seed := tier.Seed()
	for i := range 20 * tier.Factor() {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			w := newWorld(t, seed<<8|uint64(i), randomOptions(rng))
			w.withSync().lossy = i%2 == 0
			w.open()
			for n := range 60 {
				if err := w.syncOrOther(rng); err != nil {
					t.Fatalf("LEDGER_SEED=%d: step %d: %v", seed, n, err)
				}
				if err := w.verifyModel(rng); err != nil {
					t.Fatalf("LEDGER_SEED=%d: behind step %d: %v", seed, n, err)
				}
			}
			w.endJournals()
			w.close()
		})
	}
}

// syncOrOther does something of sync, or folds or opens the page again, now and then with an index
// that is made anew.
func (w *world) syncOrOther(rng *rand.Rand) error {
	switch rng.IntN(12) {
	case 0:
		return w.s.Fold(w.t.Context())
	case 1:
		w.endJournals()
		w.close()
		if rng.IntN(2) == 0 {
			w.ix = index.NewMemory()
			w.o.MemoryIndex = w.ix
		}
		w.open()
		return nil
	}
	return w.syncStep(rng)
}

// verifyModel compares the page with the model, and now and then the rows with the log.
func (w *world) verifyModel(rng *rand.Rand) error {
	present := map[commit.ID]*commit.Commit{}
	for _, c := range w.maybe {
		present[c.ID] = c
	}
	if err := w.verifySync(w.s, present); err != nil {
		return err
	}
	if rng.IntN(8) > 0 {
		return nil
	}
	if err := w.verifyLocal(w.s); err != nil {
		return err
	}
	if w.model.lossy {
		return w.rowsAreOfLog()
	}
	return checkClean(w.s)
}

// rowsAreOfLog checks a page that may lack pieces which the bucket had.
func (w *world) rowsAreOfLog() error {
	r, err := w.s.Check(w.t.Context(), storage.CheckOptions{})
	if err != nil {
		return err
	}
	for _, p := range r.Problems {
		missing := strings.Contains(p.Error(), "the piece is missing")
		again := strings.Contains(p.Error(), "neither local nor synced") // it was missing, and is in an open journal
		if !missing && !again {
			return p
		}
	}
	return nil
}

// TestManyPlaces gives a page more places than fit into one batch, in several packs, and forgets
// them all.
func TestManyPlaces(t *testing.T) {
	w := newWorld(t, 1, storage.Options{FoldRows: 5000})
	w.foldTxRows = 4096
	w.open()
	j := w.s.NewJournal()
	c := receive(w, j, commit.First(), small(1))
	const n = storage.MaxSyncPieces + 1000
	var b storage.SyncBatch
	for i := range n {
		p := storage.PlacedPiece{Digest: object.Sum(0, fmt.Append(nil, i)), Place: storage.CloudPlace{Pack: [16]byte{1, byte(i / 1000)}, Offset: int64(i)}}
		b.Places = append(b.Places, p)
	}
	b.Commits = []storage.ReceivedCommit{{Commit: c}}
	b.Metadata = []storage.Metadata{{Type: "position", Value: []byte("1")}, {Type: storage.MetadataRetention, Value: []byte("all")}, {Type: storage.MetadataGivenUp + "0", Value: []byte("some")}}
	groups := w.s.Stats().Groups
	w.sync(j, b)
	if g := w.s.Stats().Groups - groups; g != 2 {
		t.Errorf("%d batches", g)
	}
	in, err := w.s.PlacedIn(t.Context(), func(p storage.CloudPlace) bool { return p.Pack[1] == 3 })
	if err != nil || len(in) != 1000 {
		t.Errorf("%d pieces in a pack, %v", len(in), err)
	}
	for _, i := range []int{0, storage.MaxSyncPieces - 1, storage.MaxSyncPieces, n - 1} {
		wantState(t, w.s, b.Places[i].Digest, false, &b.Places[i].Place)
	}
	w.must(w.s.ForgetCloud(t.Context(), false))
	w.each(func(string) {
		t.Helper()
		wantState(t, w.s, b.Places[5].Digest, false, nil)
		if v, err := w.s.Metadata(t.Context(), "position"); v != nil || err != nil {
			t.Errorf("metadata %q, %v", v, err)
		}
		if v, err := w.s.Metadata(t.Context(), storage.MetadataRetention); string(v) != "all" || err != nil {
			t.Errorf("retention %q, %v", v, err)
		}
		if v, err := w.s.Metadata(t.Context(), storage.MetadataGivenUp+"0"); string(v) != "some" || err != nil {
			t.Errorf("what was given up: %q, %v", v, err)
		}
		if ids, err := w.s.Unsynced(t.Context()); err != nil || len(ids) != 1 {
			t.Errorf("unsynced %v, %v", ids, err)
		}
	})
	wantRows(t, w.s, "cloud", nil)
	wantRows(t, w.s, "synced/objects", nil)
	w.close()
}

// TestMissingPieceAtOnce reads a piece that nobody has sent before the index reflects the commit
// that needs it: that is no damage.
func TestMissingPieceAtOnce(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	content := noise(w.rng, 700)
	d := object.Sum(0, content)
	j := w.s.NewJournal()
	c, err := w.makeReceived(j, edit{}, edit{"lazy": content}, w.commit(small(1)), nil)
	w.must(err)
	w.sync(j, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: c}}, Metadata: []storage.Metadata{{Type: "position", Value: []byte("here")}}})
	w.each(func(when string) {
		if _, err := w.s.Piece(t.Context(), d); !errors.Is(err, base.ErrGone) || errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v, want ErrGone", when, err)
		}
	})
	w.close()
}

// TestTreelessRootInCache reads the tree of a commit that came without it, and that a journal had
// made which was given up, so that the cache has nodes of it: it is not here all the same.
func TestTreelessRootInCache(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	own := w.commit(small(1))
	j := w.s.NewJournal()
	made, err := w.make(j, small(2), 0, own)
	w.must(err)
	read := func(src btree.Source) error {
		_, err := src.Node(t.Context(), made.c.Root)
		return err
	}
	w.must(read(j))
	w.sync(nil, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: made.c, Treeless: true}}, Metadata: []storage.Metadata{{Type: "position", Value: []byte("here")}}})
	w.must(read(j))
	j.Rollback()
	w.each(func(when string) {
		other := w.s.NewJournal()
		defer other.Rollback()
		for name, src := range map[string]btree.Source{"page": w.s, "journal": other} {
			if err := read(src); !errors.Is(err, base.ErrNeedsFetch) {
				t.Errorf("%s, %s: %v, want ErrNeedsFetch", when, name, err)
			}
		}
	})
	w.close()
}

// TestMissingPieceComesBack puts a piece that is missing, since the page does not know its place,
// in a transaction that is given up: it can be read from then on, and is no damage.
func TestMissingPieceComesBack(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	content := noise(w.rng, 700)
	d := object.Sum(0, content)
	j := w.s.NewJournal()
	c, err := w.makeReceived(j, edit{}, edit{"lazy": content}, w.commit(small(1)), nil)
	w.must(err)
	w.sync(j, storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: c}}, Metadata: []storage.Metadata{{Type: storage.MetadataAdopted, Value: []byte{1}}}})
	k := w.s.NewJournal()
	w.must(k.PutPiece(t.Context(), d, content))
	w.must(k.Flush(t.Context()))
	w.must(checkClean(w.s))
	k.Rollback()
	cycles(t, w.s.NewCollector(storage.CollectOptions{}), 3)
	w.each(func(when string) {
		if got, err := w.s.Piece(t.Context(), d); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: %d bytes, %v", when, len(got), err)
		}
	})
	w.close()
}

// TestSyncRefuses refuses what no bucket can say.
func TestSyncRefuses(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	c := w.commit(small(1))
	orphan, err := commit.New(commit.Params{Now: time.Unix(5, 0), Root: c.Root, Parents: []*commit.Commit{c}})
	w.must(err)
	child, err := commit.New(commit.Params{Now: time.Unix(6, 0), Root: c.Root, Parents: []*commit.Commit{orphan}})
	w.must(err)
	d, node := object.Sum(0, []byte("x")), object.Sum(object.Node, []byte("x"))
	place := func(d object.Digest, p storage.CloudPlace) storage.SyncBatch {
		return storage.SyncBatch{Places: []storage.PlacedPiece{{Digest: d, Place: p}}}
	}
	for name, c := range map[string]struct {
		b    storage.SyncBatch
		want error
	}{
		"a node":            {place(node, entryPlace(1)), base.ErrInvalid},
		"nowhere":           {place(d, storage.CloudPlace{}), base.ErrInvalid},
		"two containers":    {place(d, storage.CloudPlace{Pack: [16]byte{1}, Entry: 1}), base.ErrInvalid},
		"offset in entry":   {place(d, storage.CloudPlace{Entry: 1, Offset: 1}), base.ErrInvalid},
		"negative offset":   {place(d, storage.CloudPlace{Pack: [16]byte{1}, Offset: -1}), base.ErrInvalid},
		"a long piece":      {place(d, storage.CloudPlace{Entry: 1, Bytes: 1<<16 + 1}), base.ErrInvalid},
		"unplaced node":     {storage.SyncBatch{Unplaced: []object.Digest{node}}, base.ErrInvalid},
		"parent not here":   {storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: child}}}, base.ErrInvalid},
		"child before":      {storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: child}, {Commit: orphan}}}, base.ErrInvalid},
		"tag of no commit":  {storage.SyncBatch{Tags: []storage.TagChange{{Name: "x", Commit: commit.ID{1}}}}, base.ErrInvalid},
		"tag without name":  {storage.SyncBatch{SyncedTags: []storage.TagChange{{Commit: c.ID}}}, base.ErrInvalid},
		"metadata no type":  {storage.SyncBatch{Metadata: []storage.Metadata{{Value: []byte("x")}}}, base.ErrInvalid},
		"metadata too long": {storage.SyncBatch{Metadata: []storage.Metadata{{Type: "x", Value: make([]byte, 1<<20+1)}}}, base.ErrTooLarge},
	} {
		if _, err := w.s.SubmitSync(t.Context(), nil, &c.b); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
	for name, p := range map[string]storage.FetchedPiece{
		"another content": {Digest: d, Content: []byte("y")}, "a node": {Digest: node, Content: []byte("x")},
	} {
		if err := w.s.AddFetched(t.Context(), []storage.FetchedPiece{p}); err == nil {
			t.Errorf("%s was added", name)
		}
	}
	if _, err := w.s.SubmitSync(t.Context(), nil, &storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: orphan}, {Commit: child}, {Commit: orphan}}}); err != nil {
		t.Errorf("parents first: %v", err)
	}
	w.close()
	if _, err := w.s.SubmitSync(t.Context(), nil, &storage.SyncBatch{}); !errors.Is(err, base.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	for _, err := range []error{w.s.ForgetCloud(t.Context(), false), w.s.AddFetched(t.Context(), nil)} {
		if !errors.Is(err, base.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
	}
}

// TestSyncChanged is told of what is to be uploaded, and of nothing else.
func TestSyncChanged(t *testing.T) {
	w := newWorld(t, 1, storage.Options{})
	w.open()
	content := noise(w.rng, 700)
	d := object.Sum(0, content)
	c := w.commit(edit{"a": content})
	for _, step := range []struct {
		name string
		want bool
		run  func()
	}{
		{"synced", false, func() {
			w.sync(nil, storage.SyncBatch{Synced: []commit.ID{c.ID}, Places: []storage.PlacedPiece{{Digest: d, Place: entryPlace(1)}}})
		}},
		{"commit", true, func() { w.commit(small(1)) }},
		{"tag", true, func() { w.must(w.setTag("x", c)) }},
		{"received tag", false, func() { w.sync(nil, storage.SyncBatch{Tags: []storage.TagChange{{Name: "y", Commit: c.ID}}}) }},
		{"metadata", false, func() { w.sync(nil, storage.SyncBatch{Metadata: []storage.Metadata{{Type: "x", Value: []byte("y")}}}) }},
		{"unplaced", true, func() { w.sync(nil, storage.SyncBatch{Unplaced: []object.Digest{d}}) }},
		{"unsynced", true, func() { w.sync(nil, storage.SyncBatch{Unsynced: []commit.ID{c.ID}}) }},
		{"forgotten", true, func() { w.must(w.s.ForgetCloud(t.Context(), true)) }},
		{"fold", false, func() { w.must(w.s.Fold(t.Context())) }},
		{"closed", true, w.close},
	} {
		told := w.s.SyncChanged()
		step.run()
		select {
		case <-told:
			if !step.want {
				t.Errorf("%s: told", step.name)
			}
		default:
			if step.want {
				t.Errorf("%s: not told", step.name)
			}
		}
	}
	<-w.s.SyncChanged()
}

// TestSyncBesideWriters reads the states of pieces, tags and metadata while they change, are folded
// and dropped: the last that was acknowledged, or a later one.
func TestSyncBesideWriters(t *testing.T) {
	w := newWorld(t, 1, storage.Options{FoldRows: 40})
	w.withSync()
	w.open()
	content := noise(w.rng, 700)
	d := object.Sum(0, content)
	w.cloud.put(d, content)
	w.commit(edit{"a": content})
	w.sync(nil, storage.SyncBatch{Places: []storage.PlacedPiece{{Digest: d, Place: entryPlace(1)}}, Metadata: []storage.Metadata{{Type: "n", Value: []byte{1}}}})
	var acked atomic.Uint64
	acked.Store(1)
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(done)
		for n := uint64(2); n < 200; n++ {
			w.sync(nil, storage.SyncBatch{
				Places:   []storage.PlacedPiece{{Digest: d, Place: entryPlace(n)}},
				Metadata: []storage.Metadata{{Type: "n", Value: []byte{byte(n)}}},
			})
			acked.Store(n)
			switch n % 4 {
			case 0:
				_, err := w.s.DropPieces(t.Context(), []object.Digest{d})
				w.must(err)
			case 1:
				w.must(w.s.AddFetched(t.Context(), []storage.FetchedPiece{{Digest: d, Content: content}}))
			case 2:
				w.must(w.s.Fold(t.Context()))
			case 3:
				_, err := w.tryCommit(nil, small(int(n)), 0)
				w.must(err)
			}
		}
	})
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				least := acked.Load()
				st, err := w.s.PieceState(d)
				if err != nil || !st.Synced || st.Place.Entry < least {
					t.Errorf("state %+v, %v, behind place %d", st, err, least)
					return
				}
				if b, err := w.s.Piece(t.Context(), d); err != nil || !bytes.Equal(b, content) {
					t.Errorf("read: %v", err)
					return
				}
				least = acked.Load()
				if v, err := w.s.Metadata(t.Context(), "n"); err != nil || len(v) != 1 || uint64(v[0]) < least {
					t.Errorf("metadata %v, %v, behind %d", v, err, least)
					return
				}
			}
		})
	}
	wg.Wait()
	w.must(checkClean(w.s))
	w.close()
}
