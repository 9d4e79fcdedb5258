package pack_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// Whatever is fetched, in whatever order, is what was uploaded, and costs a request for each block
// and one for each pack.
func TestFetch(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t, rapid.SampledFrom([]seal.Algorithm{seal.Plain, seal.AES256GCM}).Draw(rt, "algorithm"))
		ps := pieces(rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(1, 60).Draw(rt, "pieces"), rapid.SampledFrom([]int{300, 64 << 10}).Draw(rt, "most"))
		_, places := w.upload(ps)
		store := newPage(places...)
		f := w.fetcher(store, nil)
		blocks := make(map[uint32]bool)
		before := w.b.Counts()
		for range rapid.IntRange(1, 80).Draw(rt, "fetches") {
			i := rapid.IntRange(0, len(ps)-1).Draw(rt, "piece")
			p := findPiece(ps, places[i].Digest)
			if state, _ := store.PieceState(p.d); !state.Held {
				blocks[places[i].Place.Block] = true
			}
			got, err := f.Fetch(t.Context(), p.d, places[i].Place)
			if err != nil || !bytes.Equal(got, p.content) {
				rt.Fatalf("piece %d: %d bytes, %v", i, len(got), err)
			}
			clear(got) // it is the caller's
		}
		if n := w.b.Counts().B - before.B; n != int64(len(blocks))+1 {
			rt.Errorf("%d requests for %d blocks of one pack", n, len(blocks))
		}
		for _, p := range places {
			if state, _ := store.PieceState(p.Digest); state.Held != blocks[p.Place.Block] {
				rt.Errorf("piece of block %d held: %v", p.Place.Block, state.Held)
			}
		}
	})
}

func findPiece(ps []piece, d object.Digest) piece {
	for _, p := range ps {
		if p.d == d {
			return p
		}
	}
	return piece{}
}

// Readers of one block at one time cause one request.
func TestOneFlight(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	ps := pieces(1, 4, 20<<10)
	_, places := w.upload(ps)
	store := newPage(places...)
	f := w.fetcher(store, nil)
	const readers = 64
	open := make(chan struct{})
	w.mem.SetBefore(func(bucket.Op, string) error {
		<-open
		return nil
	})
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			p := ps[i%2]
			got, err := f.Fetch(t.Context(), p.d, placeOf(places, p.d))
			if err != nil || !bytes.Equal(got, p.content) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
		})
	}
	close(open)
	wg.Wait()
	if n := w.b.Counts().B; n != 2 { // the block, and the pack's table
		t.Errorf("%d requests", n)
	}
	if store.heldPieces() != len(ps) || store.batches != 1 {
		t.Errorf("%d pieces held after %d batches", store.heldPieces(), store.batches)
	}
}

func placeOf(places []storage.PlacedPiece, d object.Digest) storage.CloudPlace {
	for _, p := range places {
		if p.Digest == d {
			return p.Place
		}
	}
	return storage.CloudPlace{}
}

// A reader whose context ends leaves at once. The flight goes on for the others, and ends when all
// have left. Close waits for it.
func TestLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, seal.AES256GCM)
		ps := pieces(1, 2, 20<<10)
		_, places := w.upload(ps)
		slow := &stuck{Bucket: w.b, open: make(chan struct{})}
		f := newFetcherOn(w, slow, newPage(places...))
		leave := func(cancels ...context.CancelFunc) {
			for _, c := range cancels {
				c()
			}
			synctest.Wait()
		}
		start := func() (context.CancelFunc, chan error) {
			ctx, cancel := context.WithCancel(t.Context())
			c := make(chan error, 1)
			go func() {
				_, err := f.Fetch(ctx, ps[0].d, placeOf(places, ps[0].d))
				c <- err
			}()
			synctest.Wait()
			return cancel, c
		}
		cancel1, c1 := start()
		cancel2, c2 := start()
		leave(cancel1)
		if err := <-c1; !errors.Is(err, context.Canceled) {
			t.Errorf("the first: %v", err)
		}
		if slow.ended.Load() != 0 {
			t.Error("the flight has ended with the first who left")
		}
		leave(cancel2)
		if err := <-c2; !errors.Is(err, context.Canceled) || slow.ended.Load() != 1 {
			t.Errorf("the second: %v; %d flights ended", err, slow.ended.Load())
		}
		cancel3, c3 := start()
		defer cancel3()
		closed := make(chan struct{})
		go func() {
			f.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("closed while a flight is under way")
		default:
		}
		if _, err := f.Fetch(t.Context(), ps[1].d, placeOf(places, ps[1].d)); !errors.Is(err, base.ErrClosed) {
			t.Errorf("fetch after close: %v", err)
		}
		if _, err := f.FetchAll(t.Context(), nil); !errors.Is(err, base.ErrClosed) {
			t.Errorf("fetch all after close: %v", err)
		}
		close(slow.open)
		if err := <-c3; err != nil {
			t.Errorf("the third: %v", err)
		}
		<-closed
	})
}

// stuck lets gets wait until open is closed, or their context ends.
type stuck struct {
	bucket.Bucket
	open  chan struct{}
	ended atomic.Int32
}

func (s *stuck) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	select {
	case <-s.open:
	case <-ctx.Done():
		s.ended.Add(1)
		return bucket.Object{}, bucket.NewError(ctx, bucket.OpGet, name, false, ctx.Err())
	}
	return s.Bucket.Get(ctx, name, off, n)
}

// What the bucket does not have is looked for at another place, after catching up, once.
func TestGone(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	ps := pieces(1, 3, 20<<10)
	_, places := w.upload(ps)
	_, moved := w.upload(ps)
	gone := places[0].Place
	gone.Pack[0] ^= 1
	d := places[0].Digest
	content := findPiece(ps, d).content
	behind := errors.New("behind")
	tests := map[string]struct {
		catchUp func(*page) error // nil: no callback
		want    error
	}{
		"no callback": {want: base.ErrGone},
		"moved":       {catchUp: func(p *page) error { p.place(moved...); return nil }},
		"held": {catchUp: func(p *page) error {
			return p.AddFetched(t.Context(), []storage.FetchedPiece{{Digest: d, Content: content}})
		}},
		"same place": {catchUp: func(*page) error { return nil }, want: base.ErrGone},
		"moved into the void": {catchUp: func(p *page) error {
			void := gone
			void.Pack[1] ^= 1
			p.place(storage.PlacedPiece{Digest: d, Place: void})
			return nil
		}, want: base.ErrGone},
		"forgotten":       {catchUp: func(p *page) error { delete(p.places, d); return nil }, want: base.ErrGone},
		"cannot":          {catchUp: func(*page) error { return behind }, want: behind},
		"cannot, offline": {catchUp: func(*page) error { return base.ErrNetwork }, want: base.ErrNetwork},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			store := newPage(storage.PlacedPiece{Digest: d, Place: gone})
			var called int
			callback := func(ctx context.Context, got object.Digest) error {
				called++
				return test.catchUp(store)
			}
			if test.catchUp == nil {
				callback = nil
			}
			f := w.fetcher(store, callback)
			got, err := f.Fetch(t.Context(), d, gone)
			if !errors.Is(err, test.want) || err == nil && !bytes.Equal(got, content) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			if want := b2i(test.catchUp != nil); called != want {
				t.Errorf("gone was called %d times", called)
			}
		})
	}
}

// Who catches up may fetch: what is gone then too does not wait for the catching up.
func TestGoneFetches(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	d := pieces(1, 1, 100)[0].d
	gone := storage.CloudPlace{Pack: [16]byte{1}, StoredBytes: 100, Bytes: 10}
	store := newPage(storage.PlacedPiece{Digest: d, Place: gone})
	var f interface {
		Fetch(context.Context, object.Digest, storage.CloudPlace) ([]byte, error)
		FetchAll(context.Context, []object.Digest) (int64, error)
	}
	f = w.fetcher(store, func(ctx context.Context, d object.Digest) error {
		if _, err := f.Fetch(ctx, d, gone); !errors.Is(err, base.ErrGone) {
			t.Errorf("fetch within: %v", err)
		}
		if _, err := f.FetchAll(context.Background(), []object.Digest{d}); !errors.Is(err, base.ErrGone) {
			t.Errorf("fetch all within: %v", err)
		}
		return nil
	})
	if _, err := f.Fetch(t.Context(), d, gone); !errors.Is(err, base.ErrGone) {
		t.Errorf("fetch: %v", err)
	}
}

// TestGoneOfAnother has a reader catch up. The holder of the turn fetches the same piece.
func TestGoneOfAnother(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	d := pieces(1, 1, 100)[0].d
	gone := storage.CloudPlace{Pack: [16]byte{1}, StoredBytes: 100, Bytes: 10}
	called, turn := make(chan struct{}), make(chan struct{})
	f := w.fetcher(newPage(storage.PlacedPiece{Digest: d, Place: gone}), func(context.Context, object.Digest) error {
		close(called)
		<-turn
		return nil
	})
	read := make(chan error, 1)
	go func() { read <- second(f.Fetch(t.Context(), d, gone)) }()
	<-called
	if err := second(f.Fetch(f.CatchingUp(t.Context()), d, gone)); !errors.Is(err, base.ErrGone) {
		t.Errorf("fetch with the turn: %v", err)
	}
	close(turn)
	if err := <-read; !errors.Is(err, base.ErrGone) {
		t.Errorf("read: %v", err)
	}
}

func TestFetchErrors(t *testing.T) {
	tests := map[string]struct {
		before error
		faults mem.Faults
		want   error
	}{
		"network":     {before: base.ErrNetwork, want: base.ErrNetwork},
		"rights":      {before: fs.ErrPermission, want: fs.ErrPermission},
		"unavailable": {faults: mem.Faults{Unavailable: 1}, want: base.ErrNetwork},
		"cut":         {faults: mem.Faults{CutBody: 1}, want: base.ErrNetwork},
		"wrong byte":  {faults: mem.Faults{WrongByte: 1}, want: base.ErrCorrupt},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, seal.AES256GCM)
			ps := pieces(1, 3, 20<<10)
			refs, places := w.upload(ps)
			store := newPage(places...)
			f := w.fetcher(store, nil)
			w.mem.SetFaults(test.faults)
			w.mem.SetBefore(func(bucket.Op, string) error { return test.before })
			for what, err := range map[string]error{
				"fetch":     second(f.Fetch(t.Context(), places[0].Digest, places[0].Place)),
				"fetch all": second(f.FetchAll(t.Context(), digests(ps))),
				"stream":    second2(w.stream(refs[0])),
			} {
				if !errors.Is(err, test.want) {
					t.Errorf("%s: %v", what, err)
				}
			}
			if store.heldPieces() != 0 {
				t.Errorf("%d pieces stored", store.heldPieces())
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }

func second2[T, U any](_ T, _ U, err error) error { return err }

func digests(ps []piece) []object.Digest {
	ds := make([]object.Digest, len(ps))
	for i, p := range ps {
		ds[i] = p.d
	}
	return ds
}

// A page that cannot store gives what was asked for all the same, unless it is broken.
func TestFetchReadOnly(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	ps := pieces(1, 3, 20<<10)
	_, places := w.upload(ps)
	store := newPage(places...)
	f := w.fetcher(store, nil)
	for _, test := range []struct{ add, want error }{{base.ErrReadOnly, nil}, {fmt.Errorf("append: %w", base.ErrNoSpace), nil}, {base.ErrClosed, base.ErrClosed}} {
		store.addErr = test.add
		got, err := f.Fetch(t.Context(), ps[0].d, placeOf(places, ps[0].d))
		if !errors.Is(err, test.want) || test.want == nil && !bytes.Equal(got, ps[0].content) {
			t.Errorf("%v: %d bytes, %v", test.add, len(got), err)
		}
	}
}

// FetchAll brings all that it is asked for, and no other piece, with few requests.
func TestFetchAll(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	ps := pieces(1, 400, 64<<10)
	_, places := w.upload(ps)
	store := newPage(places...)
	f := w.fetcher(store, nil)
	var wanted []object.Digest
	var bytes int64
	for i, p := range places {
		if block := p.Place.Block; block%10 < 3 || block%10 == 5 { // 0 to 2 and 5: the gap is two blocks
			if i%7 != 0 {
				wanted, bytes = append(wanted, p.Digest, p.Digest), bytes+int64(p.Place.Bytes)
			}
		}
	}
	before := w.b.Counts()
	n, err := f.FetchAll(t.Context(), wanted)
	if err != nil || n != bytes {
		t.Fatalf("%d of %d bytes, %v", n, bytes, err)
	}
	blocks := int64(places[len(places)-1].Place.Block) + 1
	counts := w.b.Counts()
	if requests := counts.B - before.B; requests > 2*blocks/10+2 {
		t.Errorf("%d requests for %d blocks", requests, blocks)
	}
	if store.heldPieces() != len(wanted)/2 {
		t.Errorf("%d pieces held", store.heldPieces())
	}
	if n, err := f.FetchAll(t.Context(), wanted); err != nil || n != 0 || w.b.Counts() != counts {
		t.Errorf("a second time: %d bytes, %v", n, err)
	}
	if n, err := f.FetchAll(t.Context(), digests(ps)); err != nil || store.heldPieces() != len(ps) {
		t.Errorf("all: %d bytes, %v", n, err)
	}
	if _, err := f.FetchAll(t.Context(), []object.Digest{{31: 1}}); !errors.Is(err, base.ErrGone) {
		t.Errorf("a piece without a place: %v", err)
	}
}

// A large FetchAll within a small memory comes to its end.
func TestFetchAllSmallMemory(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	ps := pieces(1, 1000, 64<<10)
	refs, places := w.upload(ps)
	store := newPage(places...)
	f := newSmallFetcher(w, store)
	before := w.b.Counts()
	if _, err := f.FetchAll(t.Context(), digests(ps)); err != nil || store.heldPieces() != len(ps) {
		t.Errorf("%d pieces, %v", store.heldPieces(), err)
	}
	if n := w.b.Counts().B - before.B; n > int64(5*len(refs)) {
		t.Errorf("%d requests for %d packs", n, len(refs))
	}
}

// Pieces in entries are read from there.
func TestFetchFromLog(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	ps := pieces(1, 8*3, 2000)
	var places []storage.PlacedPiece
	for i, p := range ps {
		at := storage.CloudPlace{Entry: uint64(i/3 + 1), Block: uint32(i % 3), Bytes: uint32(len(p.content))}
		places = append(places, storage.PlacedPiece{Digest: p.d, Place: at})
	}
	asked, gone, other := 0, false, false
	store := newPage(places...)
	f := pack.NewFetcher(pack.FetchOptions{Bucket: w.b, Sealer: w.sealer, Names: w.names, Epoch: epochOf, Store: store,
		Entries: func(_ context.Context, number uint64) (map[object.Digest][]byte, error) {
			asked++
			if gone {
				return nil, fmt.Errorf("log entry %d: %w", number, base.ErrNotFound)
			}
			got := map[object.Digest][]byte{}
			if other {
				number++
			}
			for _, p := range ps[(number-1)*3:][:3] {
				got[p.d] = p.content
			}
			return got, nil
		}})
	t.Cleanup(f.Close)
	fetch := func(i, requests int) {
		t.Helper()
		before := asked
		got, err := f.Fetch(t.Context(), ps[i].d, placeOf(places, ps[i].d))
		if err != nil || !bytes.Equal(got, ps[i].content) {
			t.Errorf("piece %d: %d bytes, %v", i, len(got), err)
		}
		if n := asked - before; n != requests {
			t.Errorf("piece %d: %d requests, want %d", i, n, requests)
		}
	}
	fetch(6*3, 1)
	// The others of the entry are stored with it.
	if store.heldPieces() != 3 {
		t.Errorf("%d pieces held", store.heldPieces())
	}
	if n, err := f.FetchAll(t.Context(), digests(ps)); err != nil || n == 0 || store.heldPieces() != len(ps) {
		t.Errorf("all: %d bytes, %v", n, err)
	}
	gone = true
	store.drop(digests(ps)...)
	if _, err := f.Fetch(t.Context(), ps[0].d, placeOf(places, ps[0].d)); !errors.Is(err, base.ErrGone) {
		t.Errorf("without the entry: %v", err)
	}
	if _, err := f.FetchAll(t.Context(), digests(ps[:1])); !errors.Is(err, base.ErrGone) || !strings.Contains(err.Error(), "log entry 1: ") {
		t.Errorf("all without the entry: %v", err)
	}
	gone, other = false, true
	if _, err := f.FetchAll(t.Context(), digests(ps[:1])); !pack.Damaged(err) || !strings.HasPrefix(err.Error(), "fetch 1 pieces: corrupt log entry 1: ") {
		t.Errorf("all of another entry: %v", err)
	}
}
