package outgoing_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

func TestNothingToSend(t *testing.T) {
	d := newDevice(t)
	if out, err := d.page.Next(t.Context()); out != nil || err != nil {
		t.Fatalf("got %v, %v", out, err)
	}
	if c := d.m.Counts(); c != (bucket.Counts{}) {
		t.Errorf("it asked the bucket: %+v", c)
	}
}

func TestCommitsGoUpTogether(t *testing.T) {
	d := newDevice(t)
	d.commit(edit{"a": text("1"), "b": text("2"), "long": text(noise(1, 5000))})
	c := d.commit(edit{"a": nil, "lazy": {content: noise(2, 9000), lazy: true}})
	if err := d.s.SetTag(t.Context(), "v1", c.ID); err != nil {
		t.Fatal(err)
	}
	if n := d.push(); n != 1 {
		t.Fatalf("%d entries", n)
	}
	if got := d.m.Counts(); got.A != 1 || got.B != 0 {
		t.Errorf("requests: %+v, want one put", got)
	}
	r := d.read()
	d.wantAll(r)
	r.wantOnce()
	if b := r.bodies[0]; b.Device != (format.ID{1}) || len(b.Commits) != 2 || len(b.Packs) != 0 {
		t.Errorf("body: %d commits, %d packs of device %s", len(b.Commits), len(b.Packs), b.Device)
	}
	if err := d.s.DeleteTag(t.Context(), "v1"); err != nil {
		t.Fatal(err)
	}
	if n := d.push(); n != 1 {
		t.Fatalf("%d entries for a tag", n)
	}
	d.wantAll(d.read())
}

func TestPlacesOfInlinePieces(t *testing.T) {
	d := newDevice(t)
	want := noise(1, 100_000)
	d.commit(edit{"a": text(want)})
	d.push()
	stored, _ := d.b.Content(d.names().Entry(1))
	e, err := format.OpenEntry(d.seal, d.names(), 1, stored)
	if err != nil {
		t.Fatal(err)
	}
	var pieces int
	found, err := d.s.PlacedIn(t.Context(), func(c storage.CloudPlace) bool { return c.Entry == 1 })
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range found {
		if b := e.Body.Pieces[p.Place.Block]; b.Digest != p.Digest || uint32(len(b.Content)) != p.Place.Bytes {
			t.Fatalf("piece %s is not where its place says", p.Digest)
		}
		pieces++
	}
	if pieces < 3 {
		t.Errorf("%d pieces have places", pieces)
	}
}

// I1: the shorter diff counts, also where its base is the second parent.
func TestMergeTakesTheShorterDiff(t *testing.T) {
	var order [2]int // which parent comes first follows from the ids
	for i := range 8 {
		d := newDevice(t)
		wide := edit{}
		for i := range 2000 {
			wide[fmt.Sprintf("k%05d", i)] = text(strings.Repeat("x", 20))
		}
		first := d.commit(edit{"a": text(fmt.Sprint(i))})
		left := d.commitOn(wide, nil, first)
		right := d.commitOn(edit{"b": text("2")}, nil, first)
		merge := d.commitOn(edit{"b": text("2")}, map[string]string{"b": "decided"}, left, right)
		order[slices.Index(merge.Parents, left.ID)]++
		d.push()
		r := d.read()
		d.wantAll(r)
		at := slices.IndexFunc(r.bodies[0].Commits, func(c format.CommitChange) bool { return c.Commit.ID == merge.ID })
		if got := r.bodies[0].Commits[at]; got.Base.Commit != left.ID || len(got.Diff.Inline) > 10 {
			t.Errorf("diff of %d bytes from %s, want that from %s", len(got.Diff.Inline), got.Base.Commit.Short(), left.ID.Short())
		}
	}
	if order[0] == 0 || order[1] == 0 {
		t.Errorf("the order of parents was always the same: %v", order)
	}
}

// To find the shorter diff costs at most twice as much as to make it.
func TestShorterDiffIsFoundWithLittleWork(t *testing.T) {
	d := newDevice(t)
	wide := edit{}
	for i := range 20_000 {
		wide[fmt.Sprintf("k%05d", i)] = text(strings.Repeat("x", 20))
	}
	first := d.commit(edit{"a": text("1")})
	left := d.commitOn(wide, nil, first)
	right := d.commitOn(edit{"b": text("2")}, nil, first)
	d.push()
	d.commitOn(edit{"b": text("2")}, nil, left, right)
	d.crash()
	before := d.s.Stats().CacheMisses
	if _, err := d.page.Next(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := d.s.Stats().CacheMisses - before; n > 150 {
		t.Errorf("%d nodes were read for a diff of one key", n)
	}
}

func TestLongDiffIsAnObject(t *testing.T) {
	d := newDevice(t)
	e := edit{}
	for i := range 12_000 {
		e[fmt.Sprintf("key %06d", i)] = text(noise(uint64(i), 100))
	}
	c := d.commit(e)
	// The diff is uploaded, then the bucket fails. What was uploaded is used when the page is
	// opened again.
	out, err := d.page.Next(t.Context())
	if err != nil || out == nil {
		t.Fatal(err)
	}
	id := out.Body.Body.Commits[0].Diff.Pack
	if id.IsZero() {
		t.Fatal("the diff stands in the body")
	}
	d.crash()
	up := d.m.Counts().Up
	if n := d.push(); n != 1 {
		t.Fatalf("%d entries", n)
	}
	r := d.read()
	if got := r.bodies[0].Commits[0].Diff; got.Pack != id {
		t.Errorf("the diff was uploaded again")
	}
	if more := d.m.Counts().Up - up; more > 1000 {
		t.Errorf("%d bytes were uploaded after the crash", more)
	}
	d.wantAll(r)
	if row, err := d.s.Metadata(t.Context(), format.MetadataPacks); row != nil || err != nil {
		t.Errorf("row of packs %x, %v", row, err)
	}
	_ = c
}

func TestManyPiecesGoToPacks(t *testing.T) {
	d := newDevice(t)
	shared := noise(7, 500_000)
	d.commit(edit{
		"eager": text(shared + noise(1, 800_000)),
		"lazy":  {content: shared + noise(2, 700_000), lazy: true},
	})
	d.push()
	r := d.read()
	d.wantAll(r)
	r.wantOnce()
	var eager, lazy int
	for _, ref := range r.packs {
		if ref.Eager {
			eager++
		} else {
			lazy++
		}
	}
	if eager != 1 || lazy != 1 || len(r.bodies[0].Pieces) != 0 {
		t.Errorf("%d eager and %d lazy packs, %d inline pieces", eager, lazy, len(r.bodies[0].Pieces))
	}
	// A value that changes a little brings a little, and relies on the rest.
	up := d.m.Counts().Up
	d.commit(edit{"eager": text(shared + noise(1, 800_000) + "!")})
	d.push()
	if more := d.m.Counts().Up - up; more > 200_000 {
		t.Errorf("%d bytes for a small change", more)
	}
	r = d.read()
	d.wantAll(r)
	r.wantOnce()
	if len(r.bodies[1].Relies) == 0 {
		t.Error("the second entry relies on nothing")
	}
}

// A commit with large values does not hold up small ones before it.
func TestLargeCommitWaitsForItsOwnBody(t *testing.T) {
	d := newDevice(t)
	d.commit(edit{"a": text("1")})
	d.commit(edit{"big": text(noise(1, 20<<20))})
	d.commit(edit{"b": text("2")})
	out, err := d.page.Next(t.Context())
	if err != nil || out.Commits != 1 || !out.More {
		t.Fatalf("%+v, %v", out, err)
	}
	d.push()
	d.wantAll(d.read())
}

// I2, I3: after a failure in the middle of a large value nothing is sent again, whether the page
// was reopened or not.
func TestFailureBetweenPacks(t *testing.T) {
	for fail := 1; fail <= 3; fail++ {
		for _, reopen := range []bool{false, true} {
			if !tier.Nightly() && reopen != (fail == 2) {
				continue
			}
			t.Run(fmt.Sprintf("reopen %t, put %d", reopen, fail), func(t *testing.T) {
				d := newDevice(t)
				d.commit(edit{"a": text(noise(1, 34<<20)), "b": {content: noise(2, 1<<20), lazy: true}})
				puts := 0
				d.b.SetBefore(func(op bucket.Op, _ string) error {
					if op == bucket.OpPut {
						if puts++; puts >= fail {
							return base.ErrNetwork
						}
					}
					return nil
				})
				if _, err := d.page.Next(t.Context()); !errors.Is(err, base.ErrNetwork) {
					t.Fatalf("got %v", err)
				}
				d.b.SetBefore(nil)
				if reopen {
					d.crash()
				}
				d.push()
				r := d.read()
				d.wantAll(r)
				r.wantOnce()
				d.wantNoOrphans(r)
			})
		}
	}
}

// wantNoOrphans proves that every pack in the bucket is one that an entry names.
func (d *device) wantNoOrphans(r *reader) {
	d.t.Helper()
	named := maps.Clone(r.packs)
	for _, b := range r.bodies {
		for i := range b.Commits {
			named[b.Commits[i].Diff.Pack] = format.PackRef{}
		}
	}
	for _, name := range d.b.Names() {
		kind, _, _, id, ok := d.names().ParseName(name)
		if !ok {
			d.t.Errorf("foreign name %s", name)
		}
		if _, known := named[id]; kind == format.KindPack && !known {
			d.t.Errorf("no entry names pack %s", id)
		}
	}
}

// Local pieces of synced commits are sent again, in a body without commits.
func TestCondemnedPiecesAreSentAgain(t *testing.T) {
	for _, size := range []int{200_000, 3 << 20} {
		d := newDevice(t)
		d.commit(edit{"a": text(noise(1, size))})
		d.push()
		r := d.read()
		var all []object.Digest
		for p := range r.pieces {
			all = append(all, p)
		}
		d.settle(&storage.SyncBatch{Condemned: all})
		if n := d.push(); n != 0 {
			t.Fatalf("%d entries, and nobody has said that something is condemned", n)
		}
		d.page.Resend()
		if n := d.push(); n != 1 {
			t.Fatalf("%d entries, want 1", n)
		}
		r = d.read()
		if b := r.bodies[len(r.bodies)-1]; len(b.Commits) != 0 {
			t.Errorf("it has commits")
		}
		for p, n := range r.times {
			if n != 2 {
				t.Fatalf("piece %s was uploaded %d times, want 2", p, n)
			}
		}
		if n := d.push(); n != 0 {
			t.Fatalf("%d entries, want none", n)
		}
	}
}

// What was condemned while it waited for its announcement is sent again, and not announced.
func TestCondemnedBeforeAnnounced(t *testing.T) {
	d := newDevice(t)
	d.commit(edit{"a": text(noise(1, 3<<20))})
	out, err := d.page.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	gone := out.Body.Body.Packs[0].ID
	found, err := d.s.PlacedIn(t.Context(), func(c storage.CloudPlace) bool { return c.Pack == gone })
	if err != nil {
		t.Fatal(err)
	}
	var all []object.Digest
	for _, p := range found {
		all = append(all, p.Digest)
	}
	d.settle(&storage.SyncBatch{Condemned: all})
	d.push()
	r := d.read()
	if _, ok := r.packs[gone]; ok {
		t.Error("the condemned pack was announced")
	}
	d.wantAll(r)
}

// Who writes all the time sends condemned pieces all the same.
func TestCondemnedPiecesAreNotForgotten(t *testing.T) {
	d := newDevice(t)
	d.commit(edit{"a": text(noise(1, 50_000))})
	d.push()
	var all []object.Digest
	for p := range d.read().pieces {
		all = append(all, p)
	}
	d.settle(&storage.SyncBatch{Condemned: all})
	d.page.Resend()
	for i := range 20 {
		d.commit(edit{"b": text(fmt.Sprint(i))})
		out, err := d.page.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := d.append(out); err != nil {
			t.Fatal(err)
		}
		d.settle(out.Settle(d.number))
	}
	for p, n := range d.read().times {
		if n != 2 {
			t.Fatalf("piece %s was uploaded %d times, want 2", p, n)
		}
	}
}

func TestBodiesStayBelowTheirBound(t *testing.T) {
	d := newDevice(t)
	for i := range 12 {
		e := edit{}
		for k := range 3000 {
			e[fmt.Sprintf("key %06d", k)] = text(noise(uint64(i*10_000+k), 200))
		}
		d.commit(e)
	}
	n := d.push()
	r := d.read()
	d.wantAll(r)
	for _, b := range r.bodies {
		plain, err := b.Encode()
		if err != nil || len(plain) > 4<<20+64<<10 {
			t.Errorf("body of %d bytes, %v", len(plain), err)
		}
	}
	if n < 2 || n > 3 {
		t.Errorf("%d entries", n)
	}
}

// A tag is not sent before its commit.
func TestTagWaitsForItsCommit(t *testing.T) {
	d := newDevice(t)
	d.commit(edit{"a": text("1")})
	late := d.commit(edit{"big": text(noise(1, 20<<20))})
	if err := d.s.SetTag(t.Context(), "t", late.ID); err != nil {
		t.Fatal(err)
	}
	d.push()
	r := d.read() // fails when a tag comes too early
	d.wantAll(r)
	if len(r.bodies) != 2 || len(r.bodies[0].Tags) != 0 {
		t.Errorf("%d bodies, %d tags in the first", len(r.bodies), len(r.bodies[0].Tags))
	}
}

func TestAnnounce(t *testing.T) {
	d := newDevice(t)
	out, err := d.page.Announce(t.Context(), &format.Body{Retention: &format.Retention{Commits: 5}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.append(out); err != nil {
		t.Fatal(err)
	}
	s := out.Settle(1)
	if out.Commits != 0 || len(s.Synced)+len(s.Places)+len(s.SyncedTags)+len(s.Metadata) != 0 {
		t.Errorf("settles %+v", s)
	}
	if b := d.read().bodies[0]; b.Device != (format.ID{1}) || b.Retention == nil || b.Retention.Commits != 5 {
		t.Errorf("body %+v", b)
	}
	if _, err := d.page.Announce(t.Context(), &format.Body{}); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("an empty body: %v", err)
	}
}

// An entry that was appended and not settled is taken note of later.
func TestAnnouncedLater(t *testing.T) {
	d := newDevice(t)
	d.commit(edit{"a": text(noise(1, 3<<20))})
	out, err := d.page.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := d.append(out); err != nil {
		t.Fatal(err)
	}
	d.crash()
	d.recover(out.Body.Body)
	if n := d.push(); n != 0 {
		t.Fatalf("%d entries", n)
	}
	d.wantAll(d.read())
}

// recover does what reading an own entry does.
func (d *device) recover(b *format.Body) {
	d.t.Helper()
	s := &storage.SyncBatch{}
	for i := range b.Commits {
		s.Synced = append(s.Synced, b.Commits[i].Commit.ID)
	}
	for i, p := range b.Pieces {
		s.Places = append(s.Places, storage.PlacedPiece{Digest: p.Digest, Place: storage.CloudPlace{Entry: d.number, Block: uint32(i), Bytes: uint32(len(p.Content))}})
	}
	for _, tag := range b.Tags {
		s.SyncedTags = append(s.SyncedTags, storage.TagChange(tag))
	}
	row, err := d.s.Metadata(d.t.Context(), format.MetadataPacks)
	if err != nil {
		d.t.Fatal(err)
	}
	value, recorded, err := outgoing.Announced(row, b)
	if err != nil || len(recorded) != len(b.Packs) {
		d.t.Fatalf("%d of %d packs stood in the row, %v", len(recorded), len(b.Packs), err)
	}
	s.Metadata = []storage.Metadata{{Type: format.MetadataPacks, Value: value}}
	d.settle(s)
}

// The base of a commit is a parent in the body or a head of the log; where it has none of these,
// the head that gives the shortest diff.
func TestBaseIsWhatTheLogEndsWith(t *testing.T) {
	d := newDevice(t)
	many := edit{}
	for i := range 500 {
		many[strconv.Itoa(i)] = text("here from the beginning")
	}
	old := d.commit(many)
	near := d.commitOn(edit{"near": text("1")}, nil, old)
	far := d.commitOn(edit{"far": text("2"), "1": nil, "2": nil, "3": nil, "4": nil}, nil, old)
	d.push()
	first := d.commitOn(edit{"away": text("3")}, nil, old)
	second := d.commitOn(edit{"away": text("4")}, nil, first)
	onHead := d.commitOn(edit{"head": text("5")}, nil, far)
	merge := d.commitOn(edit{"away": text("4"), "near": text("1")}, nil, second, near)
	out, err := d.page.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := map[commit.ID]commit.ID{first.ID: near.ID, second.ID: first.ID, onHead.ID: far.ID, merge.ID: second.ID}
	for _, k := range out.Body.Body.Commits {
		if k.Base.Commit != want[k.Commit.ID] {
			t.Errorf("commit %s leads from %s, not %s", k.Commit.ID.Short(), k.Base.Commit.Short(), want[k.Commit.ID].Short())
		}
		delete(want, k.Commit.ID)
	}
	if len(want) > 0 || len(out.Bases) != 2 || slices.Contains(out.Bases, first.ID) {
		t.Errorf("%d commits are missing, bases %v", len(want), out.Bases)
	}
}

// A base whose tree is not here is not used.
func TestTreelessBase(t *testing.T) {
	d := newDevice(t)
	far, err := commit.New(commit.Params{Root: object.Sum(object.NodeBit, []byte("somewhere else")), Parents: []*commit.Commit{commit.First()}})
	if err != nil {
		t.Fatal(err)
	}
	d.settle(&storage.SyncBatch{Commits: []storage.ReceivedCommit{{Commit: far, Treeless: true}}})
	e := edit{"a": text("1")}
	j := d.s.NewJournal()
	defer j.Rollback()
	root, err := d.apply(e)
	if err != nil {
		t.Fatal(err)
	}
	c, err := commit.New(commit.Params{Root: root, Parents: []*commit.Commit{far}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := d.s.Submit(t.Context(), nil, c)
	if err == nil {
		err = p.Wait()
	}
	if err != nil {
		t.Fatal(err)
	}
	out, err := d.page.Next(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range out.Body.Body.Commits {
		if k.Commit.ID == c.ID && !k.Base.Empty {
			t.Errorf("the base is %s", k.Base.Commit.Short())
		}
	}
}

// apply stores a tree by a commit of its own.
func (d *device) apply(e edit) (object.Digest, error) {
	c := d.commitOn(e, nil, commit.First())
	return c.Root, nil
}

func TestStoredTwiceOnAmbiguity(t *testing.T) {
	d := newDevice(t)
	d.opts = func(o *outgoing.Options) { o.Bucket = bucket.NewRetry(d.m, bucket.RetryOptions{Clock: fastClock()}) }
	d.newPage()
	d.b.SetFaults(faults(0.5))
	e := edit{}
	for i := range 12_000 {
		e[fmt.Sprintf("key %06d", i)] = text(noise(uint64(i), 100))
	}
	e["big"] = text(noise(1, 3<<20))
	d.commit(e)
	out, err := d.page.Next(t.Context())
	for err != nil {
		out, err = d.page.Next(t.Context())
	}
	d.b.SetFaults(faults(0))
	if err := d.append(out); err != nil {
		t.Fatal(err)
	}
	d.settle(out.Settle(d.number))
	r := d.read()
	d.wantAll(r)
	r.wantOnce()
	if !bytes.Equal([]byte(r.commits[d.s.NewestHead().ID]["big"].content), []byte(noise(1, 3<<20))) {
		t.Error("other content")
	}
}
