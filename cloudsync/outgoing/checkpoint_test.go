package outgoing_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

func sum(b []byte) object.Digest { return object.Sum(object.Chunk, b) }

func (d *device) position() format.Position {
	return format.Position{Bucket: format.ID(d.ring.BucketID()), Number: d.number, Hash: d.hash}
}

// wantCheckpoint reads the checkpoint of the present position as a new device does, with nothing
// but it and the packs that it lists.
func (d *device) wantCheckpoint() *format.Checkpoint {
	d.t.Helper()
	name := d.names().Checkpoint(d.number)
	stored, ok := d.b.Content(name)
	if !ok {
		d.t.Fatalf("there is no checkpoint %d", d.number)
	}
	st, err := d.seal.NewStream(bytes.NewReader(stored), d.names().CheckpointLabel(d.number))
	if err != nil {
		d.t.Fatal(err)
	}
	c, err := format.ReadCheckpoint(st, 1<<30)
	if err != nil {
		d.t.Fatal(err)
	}
	r := &reader{d: d, pieces: map[object.Digest][]byte{}, times: map[object.Digest]int{}}
	for _, ref := range c.Packs {
		r.pack(ref)
	}
	first := map[string]val{}
	for i, h := range c.Heads {
		got := r.read(format.NewChangeReader(io.LimitReader(st, int64(c.DiffBytes[i])), int64(c.DiffBytes[i])), first)
		if i == 0 {
			first = got
		}
		if want := d.models[c.Commits[h].ID]; !maps.Equal(got, want) {
			d.t.Fatalf("head %d has other content in the checkpoint: %d keys, want %d", i, len(got), len(want))
		}
	}
	if n, err := io.Copy(io.Discard, st); n != 0 || err != nil {
		d.t.Fatalf("%d bytes behind the checkpoint, %v", n, err)
	}
	want := map[commit.ID]bool{}
	for k, err := range commit.Walk(d.t.Context(), d.s, headIDs(d.s)) {
		if err != nil {
			d.t.Fatal(err)
		}
		want[k.ID] = !k.IsFirst()
	}
	got := map[commit.ID]bool{commit.First().ID: false}
	for _, k := range c.Commits {
		got[k.ID] = true
	}
	if !maps.Equal(got, want) {
		d.t.Fatalf("%d commits in the checkpoint, want %d", len(got), len(want))
	}
	tags, err := d.s.Tags(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	for _, tag := range c.Tags {
		if tags[tag.Name] != tag.Commit {
			d.t.Fatalf("tag %s", tag.Name)
		}
		delete(tags, tag.Name)
	}
	if len(tags) > 0 {
		d.t.Fatalf("tags %v are not in the checkpoint", tags)
	}
	return c
}

func (d *device) writeCheckpoint() *format.Checkpoint {
	d.t.Helper()
	n, err := d.page.WriteCheckpoint(d.t.Context(), d.position(), d.s.Heads())
	if err != nil {
		d.t.Fatal(err)
	}
	if stored, _ := d.b.Content(d.names().Checkpoint(d.number)); n != int64(len(stored)) || n == 0 {
		d.t.Fatalf("%d bytes, want %d", n, len(stored))
	}
	return d.wantCheckpoint()
}

func TestCheckpoint(t *testing.T) {
	d := newDevice(t)
	first := d.commit(edit{
		"a": text("1"), "small": text(noise(1, 5000)), "lazy": {content: noise(2, 50_000), lazy: true},
		"big": text(noise(3, 2<<20)), "gone": text(noise(4, 2<<20)),
	})
	d.push()
	d.commitOn(edit{"gone": nil, "b": text(noise(5, 100_000))}, nil, first)
	d.commitOn(edit{"gone": nil, "c": text("3"), "small": text("short")}, nil, first)
	if err := d.s.SetTag(t.Context(), "v1", first.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := d.page.WriteCheckpoint(t.Context(), d.position(), d.s.Heads()); !errors.Is(err, base.ErrConflict) {
		t.Fatalf("with an unsynced tag: %v", err)
	}
	d.push()
	c := d.writeCheckpoint()
	if len(c.Heads) != 2 || len(c.Tags) != 1 {
		t.Errorf("%d heads, %d tags", len(c.Heads), len(c.Tags))
	}
	if n, err := d.page.WriteCheckpoint(t.Context(), d.position(), d.s.Heads()); n != 0 || err != nil {
		t.Errorf("a second one: %d bytes, %v", n, err)
	}
	// No live piece stands in an entry alone, and the packs made for that are announced by the next
	// entry.
	if n := d.push(); n != 1 {
		t.Fatalf("%d entries, want one that announces packs", n)
	}
	r := d.read()
	for _, ref := range c.Packs {
		if r.packs[ref.ID].Bytes != ref.Bytes || r.packs[ref.ID].Pieces != ref.Pieces {
			t.Errorf("pack %s is described otherwise in the log", ref.ID)
		}
	}
	// A second checkpoint moves nothing again and asks for nothing that the first has said.
	d.commit(edit{"a": text("2")})
	d.push()
	d.crash()
	before := d.m.Counts()
	d.writeCheckpoint()
	if c := d.m.Counts(); c.A-before.A != 1 || c.B-before.B != 1 {
		t.Errorf("%d puts and %d gets, want one each", c.A-before.A, c.B-before.B)
	}
}

// What another checkpoint does not describe is asked for.
func TestCheckpointAsksAboutPacks(t *testing.T) {
	d := newDevice(t)
	d.commit(edit{"big": text(noise(3, 2<<20)), "lazy": {content: noise(4, 2<<20), lazy: true}})
	d.push()
	d.newPage()
	c := d.writeCheckpoint()
	r := d.read()
	if len(c.Packs) != 2 {
		t.Fatalf("%d packs", len(c.Packs))
	}
	for _, ref := range c.Packs {
		if ref != r.packs[ref.ID] {
			t.Errorf("pack %+v, want %+v", ref, r.packs[ref.ID])
		}
	}
}

func TestCheckpointOfWhatIsNotSynced(t *testing.T) {
	d := newDevice(t)
	if n, err := d.page.WriteCheckpoint(t.Context(), d.position(), d.s.Heads()); n != 0 || err != nil {
		t.Errorf("of an empty page: %d, %v", n, err)
	}
	d.commit(edit{"a": text("1")})
	d.push()
	d.commit(edit{"a": text("2")})
	if _, err := d.page.WriteCheckpoint(t.Context(), d.position(), d.s.Heads()); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("with an unsynced head: %v", err)
	}
}

func TestCheckpointSaysWhatIsKept(t *testing.T) {
	d := newDevice(t)
	d.opts = func(o *outgoing.Options) {
		o.Kept = func() (format.Retention, []format.Condemnation) {
			return format.Retention{Commits: 3}, []format.Condemnation{{Packs: []format.ID{{7}}}}
		}
	}
	d.newPage()
	d.commit(edit{"a": text("1")})
	d.push()
	if c := d.writeCheckpoint(); c.Retention.Commits != 3 || len(c.Condemned) != 1 {
		t.Errorf("retention %+v, condemned %+v", c.Retention, c.Condemned)
	}
}

// A failure on the way leaves packs that are used and announced, and nothing is uploaded twice.
func TestCheckpointFails(t *testing.T) {
	for fail := 1; fail <= 3; fail++ {
		d := newDevice(t)
		for i := range 4 {
			d.commit(edit{"a" + string(rune('0'+i)): text(noise(uint64(i), 500_000)), "b": {content: noise(uint64(i+50), 400_000), lazy: i%2 == 0}})
			d.push()
		}
		puts := 0
		d.b.SetBefore(func(op bucket.Op, _ string) error {
			if op == bucket.OpPut {
				if puts++; puts == fail {
					return base.ErrNetwork
				}
			}
			return nil
		})
		_, err := d.page.WriteCheckpoint(t.Context(), d.position(), d.s.Heads())
		if err == nil && fail < 3 {
			t.Fatal("no error")
		}
		d.b.SetBefore(nil)
		if err != nil {
			d.crash()
			d.writeCheckpoint()
		}
		d.push()
		r := d.read()
		d.wantAll(r)
		d.wantNoOrphans(r)
		for p, n := range r.times {
			if n > 2 { // in an entry and in a pack
				t.Fatalf("piece %s was uploaded %d times", p, n)
			}
		}
	}
}

// A piece that nobody here has is left out.
func TestCheckpointWithoutALostPiece(t *testing.T) {
	d := newDevice(t)
	d.commit(edit{"a": text("1"), "big": {content: noise(3, 2<<20), lazy: true}})
	d.push()
	r := d.read()
	var all []object.Digest
	for p := range r.pieces {
		all = append(all, p)
	}
	if _, err := d.s.DropPieces(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	d.settle(&storage.SyncBatch{Condemned: all})
	if n, err := d.page.WriteCheckpoint(t.Context(), d.position(), d.s.Heads()); n == 0 || err != nil {
		t.Fatalf("%d, %v", n, err)
	}
}

// What was dropped here is not fetched for a checkpoint: index pieces stay when a value is dropped,
// and chunks need not be read.
func TestCheckpointFetchesNoChunks(t *testing.T) {
	d := newDevice(t)
	d.commit(edit{"big": {content: noise(3, 3<<20), lazy: true}})
	d.push()
	var all []object.Digest
	for p := range d.read().pieces {
		all = append(all, p)
	}
	if _, err := d.s.DropPieces(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	d.writeCheckpoint() // without a fetcher
	for _, p := range all {
		if st, err := d.s.PieceState(p); err != nil || st.Held && !p.Kind().IsIndex() {
			t.Errorf("chunk %s is held: %v", p.Short(), err)
		}
	}
}
