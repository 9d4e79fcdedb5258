package storage_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// setClock is a clock that stands still until it is set.
type setClock struct{ now time.Time }

func (c *setClock) Now() time.Time { return c.now }

func (c *setClock) After(time.Duration) (<-chan time.Time, func()) {
	ch := make(chan time.Time, 1)
	ch <- c.now
	return ch, func() {}
}

// TestDropCold drops values by when they were read and where they lie, and never what the bucket
// does not have.
func TestDropCold(t *testing.T) {
	clock := &setClock{time.Unix(1_000_000, 0)}
	w := newWorld(t, 1, storage.Options{SegmentBytes: 32 << 10, Clock: clock, Recency: storage.NewRecency(1000)})
	w.open()
	ctx := t.Context()
	const n, size = 30, 4000 // one chunk each
	var ds []object.Digest
	bucket := &cloud{pieces: map[object.Digest][]byte{}}
	w.s.SetFetcher(bucket)
	var b storage.SyncBatch
	for i := range n {
		v := noise(w.rng, size)
		d := object.Sum(object.Chunk, v)
		w.commit(edit{fmt.Sprintf("%02d", i): v})
		bucket.put(d, v)
		ds = append(ds, d)
		if i < n-3 { // the last ones are only here
			b.Places = append(b.Places, storage.PlacedPiece{Digest: d, Place: entryPlace(1)})
		}
	}
	w.sync(nil, b)
	held := func(i int) bool {
		t.Helper()
		st, err := w.s.PieceState(ds[i])
		w.must(err)
		return st.Held
	}
	count := func() (k int) {
		for i := range ds {
			if held(i) {
				k++
			}
		}
		return k
	}
	drop := func(o storage.DropOptions) int64 {
		t.Helper()
		got, err := w.s.DropCold(ctx, o)
		w.must(err)
		return got
	}
	read := func(i int) {
		t.Helper()
		_, err := w.s.Piece(ctx, ds[i])
		w.must(err)
	}
	if got := drop(storage.DropOptions{DryRun: true}); got < (n-3)*size || got > (n-3)*(size+20) || count() != n {
		t.Errorf("a dry run finds %d bytes and leaves %d", got, count())
	}
	read(0)
	clock.now = clock.now.Add(2 * time.Hour)
	read(1)
	read(20)
	// The oldest first, but for what was read in the last hour.
	if got := drop(storage.DropOptions{Bytes: 3 * size, NotReadFor: time.Hour}); got < 3*size || got > 4*size || held(0) || !held(1) || held(2) || held(3) || !held(20) || count() != n-3 {
		t.Errorf("%d bytes dropped, %d values left", got, count())
	}
	// What was read in the last three hours stays.
	read(0) // from the bucket
	w.must(w.s.AddFetched(ctx, []storage.FetchedPiece{{Digest: ds[0], Content: bucket.pieces[ds[0]]}}))
	if drop(storage.DropOptions{NotReadFor: 3 * time.Hour}); count() != 3+3 || !held(0) || !held(1) || !held(20) {
		t.Errorf("%d values left", count())
	}
	everywhere := func(context.Context) (func(*storage.CloudPlace) bool, error) {
		return func(p *storage.CloudPlace) bool { return p.Entry == 1 }, nil
	}
	if got := drop(storage.DropOptions{Spare: everywhere}); got != 0 || count() != 6 {
		t.Errorf("%d bytes dropped of what is spared, %d values left", got, count())
	}
	// Nothing more than is asked for, and at last all that the bucket has.
	if got := drop(storage.DropOptions{Bytes: 1}); got < size || got > size+20 || count() != 5 {
		t.Errorf("%d bytes dropped, %d values left", got, count())
	}
	if drop(storage.DropOptions{}); count() != 3 || !held(n-1) {
		t.Errorf("%d values left", count())
	}
	for i := range ds {
		read(i)
	}
	w.must(checkClean(w.s))
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := w.s.DropCold(cancelled, storage.DropOptions{}); err == nil {
		t.Error("it goes on when it is cancelled")
	}
	w.close()
}

// TestRecencyIsBounded notes more pieces than there is room for: those that were read last are
// known.
func TestRecencyIsBounded(t *testing.T) {
	clock := &setClock{time.Unix(1_000_000, 0)}
	w := newWorld(t, 2, storage.Options{Clock: clock, Recency: storage.NewRecency(16)})
	w.open()
	var b storage.SyncBatch
	var ds []object.Digest
	for i := range 200 {
		v := noise(w.rng, 300)
		d := object.Sum(object.Chunk, v)
		w.commit(edit{fmt.Sprint(i): v})
		ds = append(ds, d)
		b.Places = append(b.Places, storage.PlacedPiece{Digest: d, Place: entryPlace(1)})
	}
	w.sync(nil, b)
	for _, d := range ds {
		clock.now = clock.now.Add(time.Minute)
		_, err := w.s.Piece(t.Context(), d)
		w.must(err)
	}
	_, err := w.s.DropCold(t.Context(), storage.DropOptions{NotReadFor: time.Hour})
	w.must(err)
	left := 0
	for i, d := range ds {
		st, err := w.s.PieceState(d)
		w.must(err)
		if st.Held {
			if left++; i < 140 {
				t.Errorf("value %d, read %d minutes ago, is still there", i, 200-i)
			}
		}
	}
	if st, err := w.s.PieceState(ds[199]); err != nil || !st.Held || left > 16 {
		t.Errorf("the last one: %+v, %v; %d are known", st, err, left)
	}
	w.close()
}
