package pack_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/seal/sealtest"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

func TestMain(m *testing.M) {
	if err := sealtest.WarmUp(); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// inEpoch is the epoch in whose directory all packs are.
var inEpoch = epoch.ID{1}

func epochOf(epoch.ID) epoch.ID { return inEpoch }

// world is a bucket with one page in it.
type world struct {
	t      testing.TB
	mem    *mem.Bucket
	b      *bucket.Meter
	sealer *seal.Sealer
	names  wire.Names
}

func newWorld(t testing.TB, algorithm seal.Algorithm) *world {
	t.Helper()
	ring, err := seal.NewKeyring(algorithm, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := mem.New(mem.Options{})
	return &world{t: t, mem: m, b: bucket.NewMeter(m, bucket.MeterOptions{}), sealer: seal.NewSealer(ring, nil), names: wire.Names{Dir: "l/p"}}
}

// piece is a piece with its content.
type piece struct {
	d       object.Digest
	content []byte
}

// pieces returns n pieces of random lengths up to most, every eighth of them an index.
func pieces(seed uint64, n, most int) []piece {
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], seed)
	source := rand.NewChaCha8(key)
	rnd := rand.New(source)
	ps := make([]piece, n)
	for i := range ps {
		ps[i].content = make([]byte, 1+rnd.IntN(most))
		_, _ = source.Read(ps[i].content)
		kind := object.Chunk
		if i%8 == 7 {
			kind = object.Index
		}
		ps[i].d = object.Sum(kind, ps[i].content)
	}
	return ps
}

// chunks is pieces of which none lists others.
func chunks(seed uint64, n, most int) []piece {
	ps := pieces(seed, n, most)
	for i := range ps {
		ps[i].d = object.Sum(object.Chunk, ps[i].content)
	}
	return ps
}

// uploaded is what Uploaded was told.
type uploaded struct {
	mu     sync.Mutex
	refs   []wire.Pack
	places []storage.PlacedPiece
}

func (u *uploaded) record(_ context.Context, ref wire.Pack, places []storage.PlacedPiece) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refs, u.places = append(u.refs, ref), append(u.places, places...)
	return nil
}

func (w *world) options(u *uploaded) pack.UploadOptions {
	return pack.UploadOptions{Bucket: w.b, Sealer: w.sealer, Names: w.names, Epoch: inEpoch, Uploaded: u.record}
}

// upload uploads pieces into lazy packs.
func (w *world) upload(ps []piece) ([]wire.Pack, []storage.PlacedPiece) {
	w.t.Helper()
	var told uploaded
	u := pack.NewUploader(w.t.Context(), w.options(&told))
	defer u.Close()
	for _, p := range ps {
		if err := u.Add(p.d, p.content, false, true); err != nil {
			w.t.Fatal(err)
		}
	}
	refs, err := u.Finish()
	if err != nil {
		w.t.Fatal(err)
	}
	return refs, told.places
}

// stream returns the pieces of a pack and their places.
func (w *world) stream(ref wire.Pack) (ps []piece, places []storage.PlacedPiece, err error) {
	r, err := pack.OpenWhole(w.t.Context(), w.b, w.sealer, w.names, ref)
	if err != nil {
		return nil, nil, err
	}
	defer r.Close()
	err = r.Each(w.t.Context(), func(p storage.PlacedPiece, content []byte) error {
		ps, places = append(ps, piece{p.Digest, bytes.Clone(content)}), append(places, p)
		return nil
	})
	return ps, places, err
}

// table returns the places that the table of a pack gives.
func (w *world) table(ref wire.Pack) ([]storage.PlacedPiece, error) {
	r, err := pack.Open(w.t.Context(), w.b, w.sealer, w.names, ref)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.Places(), nil
}

// page is a page in memory: what a Fetcher needs of a Store.
type page struct {
	mu      sync.Mutex
	places  map[object.Digest]storage.CloudPlace
	held    map[object.Digest][]byte
	batches int
	addErr  error
}

func newPage(places ...storage.PlacedPiece) *page {
	p := &page{places: make(map[object.Digest]storage.CloudPlace), held: make(map[object.Digest][]byte)}
	p.place(places...)
	return p
}

func (p *page) place(places ...storage.PlacedPiece) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, pl := range places {
		p.places[pl.Digest] = pl.Place
	}
}

func (p *page) PieceState(d object.Digest) (storage.PieceState, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	place, synced := p.places[d]
	_, held := p.held[d]
	return storage.PieceState{Held: held, Synced: synced, Place: place}, nil
}

func (p *page) AddFetched(_ context.Context, ps []storage.FetchedPiece) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.addErr != nil {
		return p.addErr
	}
	p.batches++
	for _, f := range ps {
		if err := f.Digest.Verify(f.Content); err != nil {
			return err
		}
		if _, ok := p.places[f.Digest]; !ok {
			return fmt.Errorf("piece %s is not synced", f.Digest)
		}
		p.held[f.Digest] = bytes.Clone(f.Content)
	}
	return nil
}

func (p *page) Piece(_ context.Context, d object.Digest) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	content, ok := p.held[d]
	if !ok {
		return nil, errors.New("not held")
	}
	return content, nil
}

func (p *page) heldPieces() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.held)
}

func (p *page) drop(ds ...object.Digest) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range ds {
		delete(p.held, d)
	}
}

func (w *world) fetcher(p pack.Store, gone func(context.Context, object.Digest) error) *pack.Fetcher {
	f := pack.NewFetcher(pack.FetchOptions{Bucket: w.b, Sealer: w.sealer, Names: w.names, Epoch: epochOf, Store: p, Gone: gone})
	w.t.Cleanup(f.Close)
	return f
}

func equalPieces(a, b []piece) bool {
	byDigest := func(a, b piece) int { return a.d.Compare(b.d) }
	a, b = slices.SortedFunc(slices.Values(a), byDigest), slices.SortedFunc(slices.Values(b), byDigest)
	return slices.EqualFunc(a, b, func(a, b piece) bool { return a.d == b.d && bytes.Equal(a.content, b.content) })
}

// wantCorrupt looks whether err is a *base.CorruptError that names a pack.
func wantCorrupt(t testing.TB, err error, id epoch.ID) {
	t.Helper()
	c, ok := errors.AsType[*base.CorruptError](err)
	if !ok || c.Where != "pack" || c.Key != id.String() || !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("error %v, want corruption of pack %s", err, id)
	}
}

// newFetcherOn returns a Fetcher of another bucket, which the caller closes.
func newFetcherOn(w *world, b bucket.Bucket, p pack.Store) *pack.Fetcher {
	return pack.NewFetcher(pack.FetchOptions{Bucket: b, Sealer: w.sealer, Names: w.names, Epoch: epochOf, Store: p})
}

// newSmallFetcher returns a Fetcher that may hold 100 KiB.
func newSmallFetcher(w *world, p pack.Store) *pack.Fetcher {
	f := pack.NewFetcher(pack.FetchOptions{Bucket: w.b, Sealer: w.sealer, Names: w.names, Epoch: epochOf, Store: p, MemoryBytes: 100 << 10})
	w.t.Cleanup(f.Close)
	return f
}
