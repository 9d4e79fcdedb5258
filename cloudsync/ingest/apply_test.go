package ingest_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// TestTwoPages moves commits from one page to another.
func TestTwoPages(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	a.commit(edit{"k": []byte("v"), "large": noise(1, 100_000)})
	c := a.commit(edit{"k": nil, "l": noise(2, 300)})
	a.push()
	res := b.pull()
	if got := b.s.NewestHead(); got.ID != c.ID {
		t.Fatalf("head %s, want %s", got.ID, c.ID)
	}
	if diff := cmp.Diff(a.content(c), b.content(c)); diff != "" {
		t.Fatal(diff)
	}
	if res.Commits != 2 || res.Pieces < 4 || res.Bytes == 0 || res.Nodes == 0 {
		t.Fatalf("result %+v", res)
	}
	for _, d := range []*device{a, b} {
		if n := len(d.unsynced()); n != 0 {
			t.Fatalf("%d unsynced commits", n)
		}
		if err := d.s.LocalPieces(context.Background(), func(p object.Digest) error { return fmt.Errorf("piece %s is local", p) }); err != nil {
			t.Fatal(err)
		}
		d.check()
	}
	value, err := b.s.Metadata(context.Background(), format.MetadataPosition)
	if err != nil {
		t.Fatal(err)
	}
	if at, err := format.ParsePosition(value); err != nil || at != w.position(w.log[0]) {
		t.Fatalf("position %+v, %v", at, err)
	}
}

// TestConvergence lets three pages edit, merge and exchange at random; in the end they hold the
// same.
func TestConvergence(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := newWorld(t)
		ds := []*device{w.device(t), w.device(t), w.device(t)}
		step := func(i int, d *device) {
			switch rapid.IntRange(0, 4).Draw(rt, "op") {
			case 0, 1:
				e := edit{}
				for range rapid.IntRange(1, 4).Draw(rt, "keys") {
					k := fmt.Sprint(rapid.IntRange(0, 30).Draw(rt, "key"))
					switch rapid.IntRange(0, 3).Draw(rt, "value") {
					case 0:
						e[k] = nil
					case 1:
						e[k] = noise(rapid.Uint64Range(0, 9).Draw(rt, "seed"), rapid.IntRange(257, 60_000).Draw(rt, "size"))
					default:
						e[k] = fmt.Appendf(nil, "%d/%d", i, rapid.IntRange(0, 99).Draw(rt, "text"))
					}
				}
				h := d.s.NewestHead()
				if next := d.commit(e, h); next.Root == h.Root {
					rt.Log("a commit that changes nothing")
				}
			case 2:
				if hs := d.s.Heads(); len(hs) > 1 {
					d.merge(hs[0], hs[1])
				}
			case 3:
				d.push()
			case 4:
				d.pull()
			}
		}
		for range rapid.IntRange(5, 25).Draw(rt, "steps") {
			i := rapid.IntRange(0, 2).Draw(rt, "device")
			step(i, ds[i])
		}
		for _, d := range ds {
			d.push()
		}
		for _, d := range ds {
			d.pull()
		}
		for _, d := range ds[1:] {
			if diff := cmp.Diff(headIDs(ds[0]), headIDs(d)); diff != "" {
				rt.Fatal(diff)
			}
			for _, h := range d.s.Heads() {
				if diff := cmp.Diff(ds[0].content(h), d.content(h)); diff != "" {
					rt.Fatal(diff)
				}
			}
		}
		for _, d := range ds {
			d.check()
		}
	})
}

// TestOwnEntry applies an entry of the page's own, as after a crash between append and its note.
func TestOwnEntry(t *testing.T) {
	w := newWorld(t)
	d := w.device(t)
	c := d.commit(edit{"k": noise(1, 5000)})
	if err := d.s.SetTag(t.Context(), "tag", c.ID); err != nil {
		t.Fatal(err)
	}
	b := d.body(c)
	b.Tags = []format.TagChange{{Name: "tag", Commit: c.ID}}
	w.append(b)
	if res := d.pull(); res.Commits != 0 || res.Nodes != 0 {
		t.Fatalf("own commits were taken: %+v", res)
	}
	if n := len(d.unsynced()); n != 0 {
		t.Fatalf("%d unsynced commits", n)
	}
	tags, err := d.s.UnsyncedTags(t.Context())
	if err != nil || len(tags) != 0 {
		t.Fatalf("unsynced tags %v, %v", tags, err)
	}
	st, err := d.s.PieceState(b.Pieces[0].Digest)
	if err != nil || !st.Synced || st.Place.Entry != 1 || int(st.Place.Bytes) != len(b.Pieces[0].Content) {
		t.Fatalf("piece %+v, %v", st, err)
	}
}

// TestAnnounced gives the row of packs of an own entry to its owner.
func TestAnnounced(t *testing.T) {
	w := newWorld(t)
	d := w.device(t)
	c := d.commit(edit{"k": noise(1, 50_000)})
	b := d.upload(c)
	w.append(b)
	p, err := d.s.SubmitSync(t.Context(), nil, &storage.SyncBatch{Metadata: []storage.Metadata{{Type: format.MetadataPacks, Value: []byte("packs")}}})
	if err != nil || p.Wait() != nil {
		t.Fatal(err)
	}
	called := 0
	d.page = ingest.New(ingest.Options{Store: d.s, Bucket: w.bucket, Sealer: w.sealer, Names: w.names, Device: d.id,
		Announced: func(row []byte, got *format.Body) ([]byte, []format.ID, error) {
			called++
			if string(row) != "packs" || len(got.Packs) != 1 || got.Packs[0].ID != b.Packs[0].ID {
				t.Errorf("row %q, packs %v", row, got.Packs)
			}
			return nil, []format.ID{b.Packs[0].ID}, nil
		}})
	if err := w.bucket.Delete(t.Context(), w.names.Pack(b.Packs[0].ID)); err != nil { // nobody reads it
		t.Fatal(err)
	}
	d.pull()
	value, err := d.s.Metadata(t.Context(), format.MetadataPacks)
	if err != nil || value != nil || called != 1 {
		t.Fatalf("row %q, %v, after %d calls", value, err, called)
	}
}

// TestTags takes tags over, and removes them.
func TestTags(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	c := a.commit(edit{"k": []byte("v")})
	body := a.body(c)
	body.Tags = []format.TagChange{{Name: "one", Commit: c.ID}, {Name: "two", Commit: c.ID}}
	w.append(body)
	b.pull()
	tags, err := b.s.Tags(t.Context())
	if diff := cmp.Diff(map[string]commit.ID{"one": c.ID, "two": c.ID}, tags); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
	w.append(&format.Body{Device: a.id, Tags: []format.TagChange{{Name: "one", Removed: true}}})
	b.pull()
	tags, err = b.s.Tags(t.Context())
	if diff := cmp.Diff(map[string]commit.ID{"two": c.ID}, tags); err != nil || diff != "" {
		t.Fatal(err, diff)
	}
}

// TestOwnTagThatWasChangedSince reads an own change of a tag, that of another device behind it, and
// both at once: the last one in the log holds everywhere.
func TestOwnTagThatWasChangedSince(t *testing.T) {
	w := newWorld(t)
	a, b, c := w.device(t), w.device(t), w.device(t)
	one, two := a.commit(edit{"k": []byte("1")}), a.commit(edit{"k": []byte("2")})
	if err := a.s.SetTag(t.Context(), "tag", one.ID); err != nil {
		t.Fatal(err)
	}
	body := a.body(one, two)
	body.Tags = []format.TagChange{{Name: "tag", Commit: one.ID}}
	w.append(body) // and the process ends before it knows
	b.pull()
	w.append(&format.Body{Device: b.id, Tags: []format.TagChange{{Name: "tag", Commit: two.ID}}})
	a.pull()
	c.pull()
	for i, d := range []*device{a, c} {
		tags, err := d.s.Tags(t.Context())
		if diff := cmp.Diff(map[string]commit.ID{"tag": two.ID}, tags); err != nil || diff != "" {
			t.Errorf("device %d: %v\n%s", i, err, diff)
		}
		if news, err := d.s.UnsyncedTags(t.Context()); err != nil || len(news) != 0 {
			t.Errorf("device %d: unsynced tags %v, %v", i, news, err)
		}
	}
}

// TestExplanation takes the explanation of a merge over.
func TestExplanation(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	base := a.commit(edit{"k": []byte("v")})
	left, right := a.commit(edit{"l": []byte("v")}, base), a.commit(edit{"r": []byte("v")}, base)
	m, err := commit.NewMerge(left.Root, left, right)
	if err != nil {
		t.Fatal(err)
	}
	j := a.s.NewJournal()
	root := a.tree(t.Context(), j, commit.First().Root, edit{"r": []byte("why"), "long": noise(3, 2000)})
	j.Explain(m.ID, root)
	a.submit(j, m)
	body := a.body(base, left, right, m)
	x, roots := a.diff(commit.First().Root, root)
	body.Explanations = []format.Explanation{{Merge: m.ID, Root: root, Diff: format.Diff{Inline: x}}}
	a.pieces(roots[0].Digest, func(p object.Digest, content []byte) {
		body.Pieces = append(body.Pieces, format.InlinePiece{Digest: p, Content: content})
	})
	w.append(body)
	b.pull()
	if got, ok, err := b.s.Explanation(t.Context(), m.ID); err != nil || !ok || got != root {
		t.Fatalf("explanation %s %t, %v", got, ok, err)
	}
	b.check()
	a.pull() // here already
	a.check()
}

// TestGoodBeforeBad applies a bad entry among good ones that share its batch.
func TestGoodBeforeBad(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	for i := range 5 {
		a.commit(edit{fmt.Sprint(i): noise(uint64(i), 1000)})
		a.push()
	}
	want := slices.Clone(w.log)
	bad := *want[3]
	body := *bad.Body
	bad.Body = &body
	body.Commits = slices.Clone(body.Commits)
	body.Commits[0].Diff.Inline = want[2].Body.Commits[0].Diff.Inline
	res, err := b.apply(want[0], want[1], want[2], &bad, want[4])
	var e *ingest.EntryError
	if !errors.As(err, &e) || e.Object != w.names.Entry(4) || !errors.Is(err, base.ErrCorrupt) {
		t.Fatalf("error %v", err)
	}
	if res.Commits != 3 || b.s.NewestHead().ID != want[2].Body.Commits[0].Commit.ID {
		t.Fatalf("result %+v, head %s", res, b.s.NewestHead().ID)
	}
	// Nothing of the bad entry is in the log of the page.
	if st, err := b.s.PieceState(body.Pieces[0].Digest); err != nil || st.Held || st.Synced {
		t.Fatalf("piece of the bad entry: %+v, %v", st, err)
	}
	b.read = 3
	b.pull()
	if diff := cmp.Diff(headIDs(a), headIDs(b)); diff != "" {
		t.Fatal(diff)
	}
	b.check()
}

// TestCalls refuses entries that are not those behind the position.
func TestCalls(t *testing.T) {
	w := newWorld(t)
	a, b := w.device(t), w.device(t)
	for range 3 {
		a.commit(edit{"k": fmt.Append(nil, a.clock)})
		a.push()
	}
	at := w.position(w.log[0])
	if _, err := b.page.Apply(t.Context(), nil, at); err != nil {
		t.Fatal(err)
	}
	if _, err := b.page.Apply(t.Context(), w.log[:2], at); !errors.Is(err, base.ErrInvalid) {
		t.Fatalf("position of another entry: %v", err)
	}
	at.Bucket[0]++
	if _, err := b.page.Apply(t.Context(), w.log[:1], at); !errors.Is(err, base.ErrInvalid) {
		t.Fatalf("position in another bucket: %v", err)
	}
	var e *ingest.EntryError
	if _, err := b.apply(w.log[1]); !errors.As(err, &e) || e.Object != w.names.Entry(2) {
		t.Fatalf("entry that skips one: %v", err)
	}
	if _, err := b.apply(w.log[0], w.log[2]); !errors.As(err, &e) || e.Object != w.names.Entry(3) {
		t.Fatalf("entry that skips one: %v", err)
	}
	forked := *w.log[1]
	forked.Previous[0]++
	if _, err := b.apply(&forked); !errors.As(err, &e) || e.Object != w.names.Entry(2) {
		t.Fatalf("entry behind another one: %v", err)
	}
	renumbered := *w.log[1]
	renumbered.Number++
	if _, err := b.apply(&renumbered); !errors.As(err, &e) || e.Object != w.names.Entry(3) {
		t.Fatalf("entry with another number: %v", err)
	}
	if _, err := b.apply(w.log[0]); !errors.Is(err, base.ErrInvalid) {
		t.Fatalf("entry that was applied: %v", err)
	}
	b.read = 1
	b.pull()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	a.commit(edit{"l": noise(1, 3000)})
	a.push()
	if _, err := b.page.Apply(ctx, w.log[3:], w.position(w.log[3])); !errors.Is(err, context.Canceled) {
		t.Fatalf("canceled: %v", err)
	}
	b.pull()
}

// metadata returns a row of numbers of 8 bytes.
func (d *device) metadata(typ string) []uint64 {
	d.t.Helper()
	b, err := d.s.Metadata(d.t.Context(), typ)
	if err != nil || len(b)%8 != 0 {
		d.t.Fatalf("row %s: %x, %v", typ, b, err)
	}
	var ns []uint64
	for ; len(b) > 0; b = b[8:] {
		ns = append(ns, binary.BigEndian.Uint64(b))
	}
	return ns
}

// TestMetadata looks at the rows that entries and checkpoints change.
func TestMetadata(t *testing.T) {
	s := newStory(t)
	b := s.device(t)
	b.pull()
	var since uint64
	for _, e := range s.log {
		since += uint64(e.Stored) + e.Body.Elsewhere()
	}
	if diff := cmp.Diff([]uint64{since}, b.metadata(format.MetadataSince)); diff != "" {
		t.Errorf("bytes of the log: %s", diff)
	}
	last := s.log[len(s.log)-1]
	if diff := cmp.Diff([]uint64{uint64(last.Created.UnixNano())}, b.metadata(format.MetadataServerTime)); diff != "" {
		t.Errorf("server time: %s", diff)
	}
	s.append(&format.Body{Device: s.a.id, Retention: &format.Retention{Age: 1}})
	if res := b.pull(); res.Retention == nil || res.Retention.Age != 1 {
		t.Errorf("retention %+v", res.Retention)
	}
	if diff := cmp.Diff([]uint64{uint64(last.Created.UnixNano())}, b.metadata(format.MetadataServerTime)); diff != "" {
		t.Errorf("server time after an entry without commits: %s", diff)
	}

	b = s.device(t)
	if _, err := b.apply(s.log[:2]...); err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.page.Adopt(t.Context(), s.number); err != nil {
		t.Fatal(err)
	}
	o, err := s.bucket.Get(t.Context(), s.names.Checkpoint(s.number), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	o.Body.Close()
	if diff := cmp.Diff([]uint64{0}, b.metadata(format.MetadataSince)); diff != "" {
		t.Errorf("bytes of the log after a checkpoint: %s", diff)
	}
	if diff := cmp.Diff([]uint64{s.number, 0, uint64(o.Size)}, b.metadata(format.MetadataCheckpoint)); diff != "" {
		t.Errorf("checkpoint: %s", diff)
	}
	if diff := cmp.Diff([]uint64{uint64(o.Created.UnixNano())}, b.metadata(format.MetadataServerTime)); diff != "" {
		t.Errorf("server time after a checkpoint: %s", diff)
	}
}
