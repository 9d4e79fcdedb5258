package ingest_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// wantHead fails unless a page has one head.
func (d *device) wantHead(c *commit.Commit) {
	d.t.Helper()
	if ids := headIDs(d); !slices.Equal(ids, []commit.ID{c.ID}) {
		d.t.Errorf("heads %v, want %s alone", ids, c.ID)
	}
	d.check()
}

// TestWhatTheLogIsPastIsNoHead takes a tagged commit that another device sends again: this one, and
// one that has never seen what was between, have its head and its tag, and no further head.
func TestWhatTheLogIsPastIsNoHead(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	one := a.commit(edit{"k": []byte("1"), "gone": []byte("1")})
	two := a.commit(edit{"k": []byte("2"), "gone": nil}, one)
	three := a.commit(edit{"k": []byte("3")}, two)
	top := a.body(three)
	top.Shallow, top.Commits[0].Base = true, format.Base{Empty: true}
	top.Commits[0].Diff.Inline, _ = a.diff(commit.First().Root, three.Root)
	w.append(top)
	old := a.body(one)
	old.Shallow, old.Commits[0].Past, old.Tags = true, true, []format.TagChange{{Name: "v1", Commit: one.ID}}
	w.append(old)
	b.pull()
	b.wantHead(three)
	if tags, err := b.s.Tags(t.Context()); err != nil || tags["v1"] != one.ID {
		t.Errorf("tags %v, %v", tags, err)
	}
	if got := b.content(one); got["gone"] != "1" {
		t.Errorf("what is tagged has the content %v", got)
	}
}

// TestWhatTheLogIsPastAlone refuses an entry after which a page would have no head.
func TestWhatTheLogIsPastAlone(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	body := a.body(a.commit(edit{"k": []byte("1")}))
	body.Commits[0].Past = true
	var bad *ingest.EntryError
	if _, err := b.apply(w.append(body)); !errors.As(err, &bad) {
		t.Fatalf("got %v", err)
	}
	b.wantHead(commit.First())
}

// TestGivenUpTakesHeadshipAway takes commits again that were given up here, in other entries than
// what was built on them: the first of them is a head only until the next entry tells.
func TestGivenUpTakesHeadshipAway(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	one := a.commit(edit{"k": []byte("1")})
	two := a.commit(edit{"k": []byte("2")}, one)
	three := a.commit(edit{"k": []byte("3")}, two)
	four := a.commit(edit{"k": []byte("4")}, three)
	a.push()
	b.pull()
	if _, err := b.s.Prune(t.Context(), []commit.ID{one.ID, two.ID, three.ID}); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*commit.Commit{one, three} {
		body := a.body(c)
		if c == three { // its parent comes with it
			body = a.body(two, three)
		}
		body.Shallow = true
		if _, err := b.apply(w.append(body)); err != nil {
			t.Fatal(err)
		}
	}
	b.wantHead(four)
}

// giveUp gives commits up as a page does that syncs.
func (d *device) giveUp(cs ...*commit.Commit) {
	d.t.Helper()
	var ids []commit.ID
	for _, c := range cs {
		ids = append(ids, c.ID)
	}
	err := d.page.NoteGivenUp(d.t.Context(), ids)
	if err == nil {
		_, err = d.s.Prune(d.t.Context(), ids)
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// anew is what works on the page when all that was known of a bucket is forgotten.
func (d *device) anew() {
	d.t.Helper()
	if err := d.s.ForgetCloud(d.t.Context(), false); err != nil {
		d.t.Fatal(err)
	}
	d.page = ingest.New(ingest.Options{Store: d.s, Bucket: d.bucket, Sealer: d.sealer, Names: d.names, Fetcher: d.fetcher, Device: d.id})
}

func (d *device) wantPassedOver(cs ...*commit.Commit) {
	d.t.Helper()
	got, want := d.page.PassedOver(), make([]commit.ID, len(cs))
	for i, c := range cs {
		want[i] = c.ID
	}
	slices.SortFunc(got, commit.ID.Compare)
	slices.SortFunc(want, commit.ID.Compare)
	if !slices.Equal(got, want) {
		d.t.Errorf("passed over are %v, want %v", got, want)
	}
}

// TestWhatWasGivenUpIsNoHead reads a log again that ends in what was given up here: it stays given
// up, and is told as what others take for a head, until the log has something on it. With a tag it
// comes back.
func TestWhatWasGivenUpIsNoHead(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	one := a.commit(edit{"k": []byte("1")})
	two := a.commit(edit{"k": []byte("2")}, one)
	three := a.commit(edit{"k": []byte("3")}, two)
	four := a.commit(edit{"k": []byte("4")}, three)
	a.push()
	b.pull()
	b.giveUp(three, two, one)
	w.log, b.read = nil, 0
	w.bucket = mem.New(mem.Options{Clock: mem.NewAutoClock(epoch)})
	b.anew()
	take := func(body *format.Body) {
		t.Helper()
		if _, err := b.apply(w.append(body)); err != nil {
			t.Fatal(err)
		}
		b.wantHead(four)
	}
	take(a.body(one))
	b.wantPassedOver(one)
	take(a.body(two))
	b.wantPassedOver(two)
	old := a.body(one)
	old.Shallow, old.Commits[0].Past, old.Tags = true, true, []format.TagChange{{Name: "v1", Commit: one.ID}}
	take(old)
	b.wantPassedOver(two)
	if tags, err := b.s.Tags(t.Context()); err != nil || tags["v1"] != one.ID {
		t.Errorf("tags %v, %v", tags, err)
	}
	last := a.body(three, four)
	last.Shallow = true
	take(last)
	b.wantPassedOver()
}

// TestAdoptWhatWasGivenUp adopts a checkpoint whose head was given up here: it stays so, and what
// is below is no head either.
func TestAdoptWhatWasGivenUp(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	one := a.commit(edit{"k": []byte("1")})
	two := a.commit(edit{"k": []byte("2")}, one)
	three := a.commit(edit{"k": []byte("3")}, two)
	four := a.commit(edit{"k": []byte("4")}, three)
	a.push()
	b.pull()
	b.giveUp(three, two)
	if _, err := b.s.Prune(t.Context(), []commit.ID{one.ID}); err != nil { // and forgets it
		t.Fatal(err)
	}
	alone := a.body(one)
	alone.Shallow = true
	if _, err := b.apply(w.append(alone)); err != nil {
		t.Fatal(err)
	}
	if n := len(b.s.Heads()); n != 2 {
		t.Fatalf("%d heads", n)
	}
	number := w.put(a.checkpoint(two))
	b.anew()
	if _, _, err := b.page.Adopt(t.Context(), number); err != nil {
		t.Fatal(err)
	}
	b.wantHead(four)
	b.wantPassedOver(two)
}

// TestNoteGivenUp keeps the last of many commits that are given up, and reads no row that is none.
func TestNoteGivenUp(t *testing.T) {
	d := newWorld(t).device(t)
	ids := make([]commit.ID, 70_000)
	for i := range ids {
		ids[i] = commit.ID{byte(i), byte(i >> 8), byte(i >> 16), 1}
	}
	for _, some := range [][]commit.ID{ids[60_000:], ids[:60_000], ids[100:200]} { // the newest of each come first
		if err := d.page.NoteGivenUp(t.Context(), some); err != nil {
			t.Fatal(err)
		}
	}
	var rows [16][]byte
	for i := range rows {
		var err error
		if rows[i], err = d.s.Metadata(t.Context(), fmt.Sprintf("%s%x", storage.MetadataGivenUp, i)); err != nil {
			t.Fatal(err)
		}
	}
	last := rows[70_000/4096%16]
	all := bytes.Join(rows[:], nil)
	if want := 5 + 70_000%4096*16; len(last) != want || len(all) != 15*(5+4096*16)+want {
		t.Fatalf("%d bytes, and %d in the last row", len(all), len(last))
	}
	if !bytes.HasSuffix(last, ids[0][:16]) || bytes.Contains(all, ids[69_000][:16]) || !bytes.Contains(all, ids[60_000][:16]) {
		t.Error("other commits than the last are kept")
	}
	before := d.s.Stats().SegmentBytes
	if err := d.page.NoteGivenUp(t.Context(), append([]commit.ID{{7, 7, 7, 7}}, ids[:60]...)); err != nil {
		t.Fatal(err)
	}
	if grown := d.s.Stats().SegmentBytes - before; grown > 70_000 {
		t.Errorf("one more takes %d bytes of the log", grown)
	}
	for _, bad := range [][]byte{{2, 0, 0, 0, 0}, {1, 0, 0, 0}, {1, 0, 0, 0, 1}, last[:len(last)-1]} {
		p, err := d.s.SubmitSync(t.Context(), nil, &storage.SyncBatch{Metadata: []storage.Metadata{{Type: storage.MetadataGivenUp + "0", Value: bad}}})
		if err == nil {
			err = p.Wait()
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := d.page.NoteGivenUp(t.Context(), ids[:1]); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("a row of %d bytes: %v", len(bad), err)
		}
	}
}

// TestAdoptATagOfWhatWasGivenUp adopts a checkpoint with a tagged commit that was given up here: it
// comes back, since it has a tag now, and is no head.
func TestAdoptATagOfWhatWasGivenUp(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	one := a.commit(edit{"k": []byte("1")})
	two := a.commit(edit{"k": []byte("2")}, one)
	three := a.commit(edit{"k": []byte("3")}, two)
	a.push()
	b.pull()
	b.giveUp(two, one)
	c := a.checkpoint(three)
	c.Commits, c.Heads, c.Tags = []*commit.Commit{one, three}, []uint32{1}, []format.TagChange{{Name: "v1", Commit: one.ID}}
	number := w.put(c)
	b.anew()
	if _, _, err := b.page.Adopt(t.Context(), number); err != nil {
		t.Fatal(err)
	}
	b.wantHead(three)
	if tags, err := b.s.Tags(t.Context()); err != nil || tags["v1"] != one.ID {
		t.Errorf("tags %v, %v", tags, err)
	}
}
