package pack_test

import (
	"bytes"
	"context"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// TestRangeOfAValue fetches the pieces of 1 MiB of a long value: they stand in two runs at most, so
// that two requests bring them, and little else.
func TestRangeOfAValue(t *testing.T) {
	const length = 1 << 20
	w := newWorld(t, seal.AES256GCM)
	ps := chunks(11, 3000, 32<<10)
	refs, places := w.upload(ps)
	if len(refs) < 2 {
		t.Fatalf("%d packs", len(refs))
	}
	var most, requests int64
	rapid.Check(t, func(rt *rapid.T) {
		store := newPage(places...)
		f := w.fetcher(store, nil)
		defer f.Close()
		from := rapid.IntRange(0, len(ps)-1).Draw(rt, "from")
		var wanted []object.Digest
		for bytes, i := 0, from; i < len(ps) && bytes < length; i++ {
			wanted, bytes = append(wanted, ps[i].d), bytes+len(ps[i].content)
		}
		before := w.b.Counts()
		if _, err := f.FetchAll(t.Context(), wanted); err != nil {
			rt.Fatal(err)
		}
		after := w.b.Counts()
		most, requests = max(most, after.Down-before.Down), max(requests, after.B-before.B)
		if after.B-before.B > 2 || after.Down-before.Down > length*3/2 {
			rt.Fatalf("%d requests for %d bytes", after.B-before.B, after.Down-before.Down)
		}
	})
	t.Logf("at most %d requests and %d bytes", requests, most)
}

func listsOf(w *world, ref wire.Pack) map[object.Digest][]byte {
	w.t.Helper()
	r, err := pack.Open(w.t.Context(), w.b, w.sealer, w.names, ref)
	if err != nil {
		w.t.Fatal(err)
	}
	defer r.Close()
	lists := map[object.Digest][]byte{}
	err = r.Each(w.t.Context(), func(p storage.PlacedPiece, content []byte) error {
		if content != nil {
			lists[p.Digest] = bytes.Clone(content)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return lists
}

// TestListsOfAValue has what lists the chunks of LAZY values stand together before all else of a
// pack, so that the request for the table brings it; EAGER ones stand where they were added.
func TestListsOfAValue(t *testing.T) {
	for _, isEager := range []bool{false, true} {
		w := newWorld(t, seal.AES256GCM)
		u := pack.NewUploader(t.Context(), w.options(new(uploaded)))
		ps := chunks(12, 900, 16<<10)
		lists := 0
		for i := range ps {
			if i%100 == 99 {
				ps[i].content = ps[i].content[:1+len(ps[i].content)/8]
				ps[i].d = object.Sum(object.Index, ps[i].content)
				lists += len(ps[i].content)
			}
			if err := u.Add(ps[i].d, ps[i].content, isEager, true); err != nil {
				t.Fatal(err)
			}
		}
		refs, err := u.Finish()
		u.Close()
		if err != nil || len(refs) != 1 {
			t.Fatalf("%d packs, %v", len(refs), err)
		}
		got, places, err := w.stream(refs[0])
		if err != nil || !equalPieces(ps, got) {
			t.Fatalf("%d pieces, %v", len(got), err)
		}
		first, blocks := 0, map[uint32]bool{}
		for i := 0; got[i].d.Kind().IsIndex(); i++ {
			first += len(got[i].content)
			blocks[places[i].Place.Block] = true
		}
		if !isEager && (first != lists || len(blocks) != 1) || isEager && first == lists {
			t.Errorf("eager %v: %d bytes of %d stand at the beginning, in %d blocks", isEager, first, lists, len(blocks))
		}
		before := w.b.Counts().B
		came := listsOf(w, refs[0])
		if n := w.b.Counts().B - before; n != 1 {
			t.Errorf("eager %v: %d requests for table and lists", isEager, n)
		}
		for _, q := range ps {
			content, ok := came[q.d]
			if ok != (!isEager && q.d.Kind().IsIndex()) || ok && !bytes.Equal(content, q.content) {
				t.Errorf("eager %v: piece %s came: %v, with %d bytes", isEager, q.d, ok, len(content))
			}
		}
		stored, _ := w.mem.Content(w.names.Pack(refs[0].Epoch, refs[0].ID))
		damaged := bytes.Clone(stored)
		_, at, _ := seal.Cover(places[0].Place.Offset+int64(places[0].Place.StoredBytes)-1, 1)
		damaged[at] ^= 1
		w.mem.Replace(w.names.Pack(refs[0].Epoch, refs[0].ID), damaged)
		if came := listsOf(w, refs[0]); len(came) > 0 {
			t.Errorf("eager %v: %d pieces of a damaged block", isEager, len(came))
		}
	}
}

// asked notes the ranges that are read.
type asked struct {
	bucket.Bucket
	ranges [][2]int64
}

func (a *asked) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	a.ranges = append(a.ranges, [2]int64{off, n})
	return a.Bucket.Get(ctx, name, off, n)
}

// TestTablesAreReadByLengthsAlone reads the tables of packs of one length with 500 to 9000 pieces:
// the ranges that are asked for are those of the others.
func TestTablesAreReadByLengthsAlone(t *testing.T) {
	most := map[bool][][2]int64{}
	for _, size := range []int{63 << 10, 16 << 10, 4 << 10, 1 << 10} {
		for _, isEager := range []bool{false, true} {
			w := newWorld(t, seal.AES256GCM)
			u := pack.NewUploader(t.Context(), w.options(new(uploaded)))
			for _, q := range chunks(uint64(size), 40<<20/size, size*2) {
				if len(q.content) > 64<<10 {
					q.content = q.content[:64<<10]
					q.d = object.Sum(object.Chunk, q.content)
				}
				if err := u.Add(q.d, q.content, isEager, true); err != nil {
					t.Fatal(err)
				}
			}
			refs, err := u.Finish()
			u.Close()
			if err != nil || refs[0].Bytes != uint64(seal.ObjectBytes(wire.PackBytes)) {
				t.Fatalf("%+v, %v", refs, err)
			}
			a := &asked{Bucket: w.b}
			r, err := pack.Open(t.Context(), a, w.sealer, w.names, refs[0])
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Each(t.Context(), func(storage.PlacedPiece, []byte) error { return nil }); err != nil {
				t.Fatal(err)
			}
			r.Close()
			long, short := most[isEager], a.ranges
			if len(short) > len(long) {
				long, short = short, long
			}
			if most[isEager] = long; !slices.Equal(long[:len(short)], short) {
				t.Errorf("eager %v, pieces of about %d bytes: asked for %v", isEager, size, a.ranges)
			}
		}
	}
	if len(most[true]) < 2 {
		t.Errorf("no table was longer than what was read first: %v", most)
	}
}

// TestDamagedBeginningCostsOneRequest: what lies behind the damaged beginning of a pack says
// nothing.
func TestDamagedBeginningCostsOneRequest(t *testing.T) {
	w := newWorld(t, seal.AES256GCM)
	u := pack.NewUploader(t.Context(), w.options(new(uploaded)))
	defer u.Close()
	for _, q := range chunks(1, 100, 20_000) {
		if err := u.Add(q.d, q.content, false, true); err != nil {
			t.Fatal(err)
		}
	}
	refs, err := u.Finish()
	if err != nil {
		t.Fatal(err)
	}
	name := w.names.Pack(refs[0].Epoch, refs[0].ID)
	content, _ := w.mem.Content(name)
	content = bytes.Clone(content)
	content[22] ^= 1
	w.mem.Replace(name, content)
	a := &asked{Bucket: w.b}
	if _, err := pack.Open(t.Context(), a, w.sealer, w.names, refs[0]); !pack.Damaged(err) {
		t.Error(err)
	}
	if len(a.ranges) != 1 {
		t.Errorf("asked for %v", a.ranges)
	}
}
