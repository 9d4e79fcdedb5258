package storage_test

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// lazyValue is a value that a commit of another device has, of which this one holds what it had of
// itself.
type lazyValue struct {
	root   object.Digest
	pieces map[object.Digest][]byte
	first  []byte // the content of its first chunk, which is a value of one chunk itself
}

// newLazyValue cuts a value into pieces that a bucket may have.
func (w *world) newLazyValue(content []byte) lazyValue {
	w.t.Helper()
	ctx := w.t.Context()
	v := lazyValue{pieces: map[object.Digest][]byte{}}
	root, err := split.SplitBytes(ctx, split.DefaultTable(), content, func(_ context.Context, p split.Piece) error {
		if v.pieces[p.Digest] = bytes.Clone(p.Content); v.first == nil {
			v.first = v.pieces[p.Digest]
		}
		return nil
	})
	w.must(err)
	v.root = root
	return v
}

// receiveEntry takes a commit on the newest head from the bucket that has the value at key "b". Its
// pieces are in the bucket.
func (w *world) receiveEntry(v lazyValue, size int) *commit.Commit {
	w.t.Helper()
	ctx := w.t.Context()
	j, head := w.s.NewJournal(), w.s.NewestHead()
	root, err := btree.Tree{Page: testPage, Source: j, Root: head.Root}.Apply(ctx, j, func(yield func(btree.Change, error) bool) {
		yield(btree.Change{Entry: fb.Entry{Key: []byte("b"), Digest: v.root, Size: uint64(size), Priority: object.Lazy}}, nil)
	})
	w.must(err)
	c, err := commit.New(commit.Params{Now: time.Unix(1, w.clock.Add(1)), Root: root, Parents: []*commit.Commit{head}})
	w.must(err)
	b := storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: c}}}
	for d := range v.pieces {
		b.Places = append(b.Places, storage.PlacedPiece{Digest: d, Place: entryPlace(1)})
	}
	w.mu.Lock()
	w.models[c.ID] = map[string][]byte{}
	w.acked, w.maybe = append(w.acked, c), append(w.maybe, c)
	w.mu.Unlock()
	w.sync(j, b)
	return c
}

// TestUnplacedBehindUnheldIndex: a chunk that has lost its place in the bucket, so that this device
// may be the only one that has it, stays while an index piece that is not held may list it, though
// no row refers to it.
func TestUnplacedBehindUnheldIndex(t *testing.T) {
	w := newWorld(t, 1, storage.Options{Cache: storage.NewNodeCache(1)})
	w.open()
	long := noise(w.rng, 300<<10)
	v := w.newLazyValue(long)
	chunk := object.Sum(object.Chunk, v.first)
	w.commit(edit{"a": v.first})
	w.receiveEntry(v, len(long))
	w.commit(edit{"a": nil})
	w.pruneAll()
	w.sync(nil, storage.SyncBatch{Unplaced: []object.Digest{chunk}})
	wantState(t, w.s, chunk, true, nil)
	c := w.s.NewCollector(storage.CollectOptions{})
	cycles(t, c, 3)
	wantState(t, w.s, chunk, true, nil)
	w.reopen()
	cycles(t, w.s.NewCollector(storage.CollectOptions{Numbers: 1, Deletions: 1}), 3)
	wantState(t, w.s, chunk, true, nil)

	// With the index piece the chunk has a reference, and without that both are garbage.
	w.must(w.s.AddFetched(t.Context(), []storage.FetchedPiece{{Digest: v.root, Content: v.pieces[v.root]}}))
	cycles(t, w.s.NewCollector(storage.CollectOptions{}), 3)
	wantState(t, w.s, chunk, true, nil)
	w.commit(edit{"b": nil})
	w.pruneAll()
	w.allPlaced()
	c = w.s.NewCollector(storage.CollectOptions{})
	for n := 0; !c.Settled(); n++ {
		if cycles(t, c, 1); n > 6 {
			t.Fatal("the collector does not come to rest")
		}
	}
	place := entryPlace(1)
	wantState(t, w.s, chunk, false, nil)
	wantState(t, w.s, v.root, false, &place)
	w.must(checkClean(w.s))
	w.close()
}

// allPlaced records that all that commits need is in the bucket.
func (w *world) allPlaced() {
	w.sync(nil, storage.SyncBatch{Metadata: []storage.Metadata{{Type: storage.MetadataPlaced, Value: []byte{1}}}})
}

// TestGarbageKeepsItsPlace: of garbage that the bucket has the place stays, so that it can be read.
// What only this device has stays until all that commits need is in the bucket.
func TestGarbageKeepsItsPlace(t *testing.T) {
	w := newWorld(t, 1, storage.Options{Cache: storage.NewNodeCache(1)})
	w.open()
	bucket := &cloud{pieces: map[object.Digest][]byte{}}
	w.s.SetFetcher(bucket)
	long, synced, local := noise(w.rng, 300<<10), noise(w.rng, 3000), noise(w.rng, 3000)
	s, l := object.Sum(object.Chunk, synced), object.Sum(object.Chunk, local)
	w.commit(edit{"s": synced, "l": local})
	place := entryPlace(1)
	w.sync(nil, storage.SyncBatch{Places: []storage.PlacedPiece{{Digest: s, Place: place}}})
	bucket.put(s, synced)
	w.receiveEntry(w.newLazyValue(long), len(long))
	w.commit(edit{"s": nil, "l": nil})
	w.pruneAll()
	settle := func() {
		t.Helper()
		c := w.s.NewCollector(storage.CollectOptions{})
		for n := 0; !c.Settled(); n++ {
			if cycles(t, c, 1); n > 8 {
				t.Fatal("the collector does not come to rest")
			}
		}
	}
	settle()
	wantState(t, w.s, s, false, &place)
	wantState(t, w.s, l, true, nil)
	if got, err := w.s.Piece(t.Context(), s); err != nil || !bytes.Equal(got, synced) {
		t.Errorf("what was deleted: %d bytes, %v", len(got), err)
	}
	w.allPlaced()
	settle()
	wantState(t, w.s, s, false, &place)
	wantState(t, w.s, l, false, nil)
	w.sync(nil, storage.SyncBatch{Unplaced: []object.Digest{s}})
	settle()
	rows, _, err := storage.ObjectRows(w.ix)
	w.must(err)
	if _, ok := rows[s]; ok {
		t.Error("garbage that the bucket has given up has a row")
	}
	w.must(checkClean(w.s))
	w.close()
}
