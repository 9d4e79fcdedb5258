package pack_test

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// Whatever is added comes out of a Reader, once, at the places that Uploaded was told.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		algorithm := rapid.SampledFrom([]seal.Algorithm{seal.Plain, seal.AES256GCM}).Draw(rt, "algorithm")
		w := newWorld(t, algorithm)
		ps := pieces(rapid.Uint64().Draw(rt, "seed"), rapid.IntRange(1, 60).Draw(rt, "pieces"), rapid.SampledFrom([]int{3, 5000, 64 << 10}).Draw(rt, "most"))
		eager := rapid.SliceOfN(rapid.Bool(), len(ps), len(ps)).Draw(rt, "eager")
		var told uploaded
		u := pack.NewUploader(t.Context(), w.options(&told))
		defer u.Close()
		var want [2][]piece
		seen := make(map[object.Digest]bool)
		for i, p := range ps {
			for range 1 + i%2 { // a second time it is passed over
				if err := u.Add(p.d, p.content, eager[i], true); err != nil {
					rt.Fatal(err)
				}
			}
			if !seen[p.d] {
				seen[p.d] = true
				want[b2i(eager[i])] = append(want[b2i(eager[i])], p)
			}
		}
		refs, err := u.Finish()
		if err != nil {
			rt.Fatal(err)
		}
		if counts := w.b.Counts(); counts.A != int64(len(refs)) || counts.B != 0 || len(told.refs) != len(refs) {
			rt.Fatalf("%d packs with %+v, Uploaded was told of %d", len(refs), counts, len(told.refs))
		}
		var got [2][]piece
		var all []storage.PlacedPiece
		for _, ref := range refs {
			before := w.b.Counts().B
			ps, places, err := w.stream(ref)
			if err != nil {
				rt.Fatal(err)
			}
			table, err := w.table(ref)
			if err != nil || !slices.Equal(table, places) {
				rt.Fatalf("table %v, stream %v, %v", table, places, err)
			}
			if n := w.b.Counts().B - before; n != 2 {
				rt.Fatalf("%d requests", n)
			}
			got[b2i(ref.Eager)] = append(got[b2i(ref.Eager)], ps...)
			all = append(all, places...)
		}
		for i := range want {
			if !equalPieces(want[i], got[i]) {
				rt.Fatalf("sort %d: %d pieces, want %d", i, len(got[i]), len(want[i]))
			}
		}
		sortPlaced(all)
		sortPlaced(told.places)
		if diff := cmp.Diff(all, told.places); diff != "" {
			rt.Fatal(diff)
		}
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func sortPlaced(ps []storage.PlacedPiece) {
	slices.SortFunc(ps, func(a, b storage.PlacedPiece) int { return a.Digest.Compare(b.Digest) })
}

// Many packs: each ends where it should, they come in the order in which they were begun, and take
// little more than their content.
func TestPacks(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	ps := chunks(3, 6000, 16<<10)
	var content int64
	for _, p := range ps {
		content += int64(len(p.content))
	}
	refs, places := w.upload(slices.Concat(ps, ps[:10])) // the first ones are in a finished pack by then
	if len(refs) < 3 || len(places) != len(ps) {
		t.Fatalf("%d packs, %d places", len(refs), len(places))
	}
	var stored, begun int64
	for i, ref := range refs {
		stored += int64(ref.Bytes)
		got, _, err := w.stream(ref)
		if err != nil {
			t.Fatal(err)
		}
		if !equalPieces(ps[begun:begun+int64(len(got))], got) {
			t.Errorf("pack %d does not go on where the one before ended", i)
		}
		begun += int64(len(got))
		if want := uint64(seal.ObjectBytes(wire.PackBytes)); i < len(refs)-1 && ref.Bytes != want || ref.Bytes > want {
			t.Errorf("pack %d has %d bytes", i, ref.Bytes)
		}
	}
	last := int64(refs[len(refs)-1].Bytes)
	if stored*100 > content*101+last*3 { // the last one is padded: at this length by at most 3 %
		t.Errorf("%d bytes stored for %d", stored, content)
	}
}

func TestUploadErrors(t *testing.T) {
	refused := errors.New("refused")
	tests := map[string]struct {
		before func(bucket.Op, string) error
		told   error
		cancel bool
		want   error
	}{
		"bucket":   {before: func(bucket.Op, string) error { return base.ErrNoSpace }, want: base.ErrNoSpace},
		"uploaded": {told: refused, want: refused},
		"context":  {cancel: true, want: context.Canceled},
		"exists":   {before: func(bucket.Op, string) error { return &bucket.Error{Op: bucket.OpPut, Class: bucket.ClassExists} }, want: bucket.ErrExists},
		"ambiguous, not there": {before: func(op bucket.Op, _ string) error {
			if op == bucket.OpPut {
				return &bucket.Error{Op: op, Class: bucket.ClassExists, Ambiguous: true}
			}
			return nil
		}, want: base.ErrNotFound},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, seal.AES256GCM)
			w.mem.SetBefore(test.before)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o := w.options(nil)
			o.Uploaded = func(context.Context, wire.Pack, []storage.PlacedPiece) error { return test.told }
			u := pack.NewUploader(ctx, o)
			defer u.Close()
			ps := pieces(1, 4, 60<<10)
			for _, p := range ps {
				if err := u.Add(p.d, p.content, true, true); err != nil {
					t.Fatal(err)
				}
			}
			if test.cancel {
				cancel()
			}
			if _, err := u.Finish(); !errors.Is(err, test.want) {
				t.Errorf("finish: %v, want %v", err, test.want)
			}
			if err := u.Add(ps[0].d, ps[0].content, true, true); err == nil {
				t.Error("added after the end")
			}
		})
	}
}

// An error in the background ends Add, however much there is to add.
func TestAddStops(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	w.mem.SetBefore(func(bucket.Op, string) error { return base.ErrNetwork })
	u := pack.NewUploader(t.Context(), w.options(new(uploaded)))
	defer u.Close()
	ps := pieces(1, 1000, 64<<10)
	for i := range 100_000 {
		p := ps[i%len(ps)]
		p.d[5] ^= byte(i / len(ps))
		p.d[6] ^= byte(i / len(ps) >> 8)
		if err := u.Add(p.d, p.content, true, true); err != nil {
			if !errors.Is(err, base.ErrNetwork) {
				t.Errorf("add: %v", err)
			}
			return
		}
	}
	t.Error("Add never failed")
}

func TestAddRefuses(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	u := pack.NewUploader(t.Context(), w.options(new(uploaded)))
	defer u.Close()
	node := object.Sum(object.Node, []byte("x"))
	for name, err := range map[string]error{
		"empty":    u.Add(object.Sum(object.Chunk, nil), nil, true, true),
		"too long": u.Add(object.Digest{}, make([]byte, 64<<10+1), true, true),
		"no kind":  u.Add(object.Digest{200}, []byte("x"), true, true),
		"node":     u.Add(node, []byte("x"), true, true),
	} {
		if !errors.Is(err, base.ErrInvalid) && !errors.Is(err, base.ErrTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if refs, err := u.Finish(); err != nil || len(refs) != 0 {
		t.Errorf("finish: %v, %v", refs, err)
	}
	if _, err := u.Finish(); !errors.Is(err, base.ErrClosed) {
		t.Errorf("second finish: %v", err)
	}
}

// A put whose answer was lost, and which is then told that the name is taken, is taken for done,
// unless it is another object.
func TestLostAnswer(t *testing.T) {
	for _, foreign := range []bool{false, true} {
		w := newWorld(t, seal.AES256GCM)
		w.mem.SetFaults(mem.Faults{LostAnswer: 1})
		lost := &losing{Bucket: w.mem}
		if foreign {
			lost.then = func(name string) { w.mem.Replace(name, []byte("another object")) }
		}
		var told uploaded
		o := w.options(&told)
		o.Bucket = bucket.NewRetry(lost, bucket.RetryOptions{Clock: mem.NewAutoClock(time.Unix(1, 0))})
		u := pack.NewUploader(t.Context(), o)
		p := pieces(1, 1, 60<<10)[0]
		if err := u.Add(p.d, p.content, true, true); err != nil {
			t.Fatal(err)
		}
		refs, err := u.Finish()
		u.Close()
		switch {
		case foreign && (!errors.Is(err, base.ErrCorrupt) || len(told.refs) != 0):
			t.Errorf("foreign object: %v, told of %v", err, told.refs)
		case !foreign && (err != nil || len(refs) != 1):
			t.Errorf("%v, %v", refs, err)
		}
	}
}

// losing calls then after every put.
type losing struct {
	bucket.Bucket
	then func(name string)
}

func (l *losing) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	err := l.Bucket.PutIfAbsent(ctx, name, size, content)
	if l.then != nil {
		l.then(name)
	}
	return err
}

// At most Parallel packs are under way, calls of Uploaded do not overlap, and Close ends what
// waits.
func TestParallel(t *testing.T) {
	w := newWorld(t, seal.Plain)
	var under, most, telling atomic.Int32
	var overlap atomic.Bool
	both := make(chan struct{})
	o := w.options(nil)
	o.Parallel = 3
	o.Bucket = before{w.mem, func() {
		if n := under.Add(1); n > most.Load() {
			most.Store(n)
			if n == 3 {
				close(both)
			}
		}
		<-both
		under.Add(-1)
	}}
	o.Uploaded = func(context.Context, wire.Pack, []storage.PlacedPiece) error {
		overlap.CompareAndSwap(false, telling.Add(1) > 1)
		telling.Add(-1)
		return nil
	}
	u := pack.NewUploader(t.Context(), o)
	defer u.Close()
	for _, p := range pieces(1, 3500, 64<<10) {
		if err := u.Add(p.d, p.content, true, true); err != nil {
			t.Fatal(err)
		}
	}
	refs, err := u.Finish()
	if err != nil || len(refs) < 6 || most.Load() != 3 || overlap.Load() {
		t.Errorf("%d packs, %v; %d under way at once, overlap %v", len(refs), err, most.Load(), overlap.Load())
	}
}

// before calls a function before each put.
type before struct {
	bucket.Bucket
	f func()
}

func (b before) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	b.f()
	return b.Bucket.PutIfAbsent(ctx, name, size, content)
}

func TestCloseGivesUp(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	began := make(chan struct{})
	var once sync.Once
	o := w.options(new(uploaded))
	o.Parallel = 1
	o.Bucket = hanging{w.mem, func() { once.Do(func() { close(began) }) }}
	u := pack.NewUploader(t.Context(), o)
	for _, p := range pieces(1, 700, 64<<10) {
		if err := u.Add(p.d, p.content, true, true); err != nil {
			t.Fatal(err)
		}
	}
	<-began
	u.Close()
	u.Close()
	if _, err := u.Finish(); !errors.Is(err, base.ErrClosed) {
		t.Errorf("finish: %v", err)
	}
	if names := w.mem.Names(); len(names) != 0 {
		t.Errorf("stored %s", strings.Join(names, ", "))
	}
}

// hanging lets puts wait for the end of their context.
type hanging struct {
	bucket.Bucket
	f func()
}

func (h hanging) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	h.f()
	<-ctx.Done()
	return bucket.NewError(ctx, bucket.OpPut, name, true, context.Cause(ctx))
}

// repeated is a source of randomness that gives the same again and again.
type repeated struct{}

func (repeated) Read(b []byte) (int, error) {
	clear(b)
	return len(b), nil
}

// TestRepeatedRandomness packs pieces with a source that repeats itself: packs that differ in their
// last piece only have other ids.
func TestRepeatedRandomness(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	ids := map[epoch.ID]bool{}
	for last := range uint64(3) {
		w.sealer = seal.NewSealer(w.sealer.Keyring(), repeated{})
		refs, _ := w.upload(append(pieces(1, 40, 16<<10), pieces(2+last, 1, 16<<10)...))
		if len(refs) != 1 || ids[refs[0].ID] {
			t.Errorf("%d packs, one has the id of another", len(refs))
		}
		ids[refs[0].ID] = true
	}
}
