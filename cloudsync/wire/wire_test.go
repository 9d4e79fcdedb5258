package wire

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

var update = flag.Bool("update", false, "write the golden files anew")

// streams are all kinds of streams.
var streams = []Stream{Body, Checkpoint, RunOf(Commits), RunOf(Packs), RunOf(GivenUp), RunOf(NotStored)}

func anID(t *rapid.T) epoch.ID {
	id := epoch.ID(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
	id[0] |= 1
	return id
}

func aHash(t *rapid.T) epoch.Hash {
	h := epoch.Hash{0: 1}
	copy(h[1:], rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "hash"))
	return h
}

func aSet(t *rapid.T, least int) epoch.Set {
	all := rapid.SliceOfNDistinct(rapid.Uint64Range(1, 1<<63), least, 5, rapid.ID[uint64]).Draw(t, "set")
	set := epoch.Set{}
	for _, c := range all {
		set = append(set, epoch.Commit(c))
	}
	slices.Sort(set)
	return set
}

func aDigest(t *rapid.T, kind object.Kind) object.Digest {
	return object.Sum(kind, rapid.SliceOfN(rapid.Byte(), 1, 8).Draw(t, "content"))
}

func aPlace(t *rapid.T) Place {
	return Place{anID(t), anID(t), rapid.Uint64Range(0, 1<<40).Draw(t, "offset"), rapid.Uint64Range(1, 1<<30).Draw(t, "stored"),
		rapid.Uint64Range(1, 1<<30).Draw(t, "bytes")}
}

func aDiff(t *rapid.T, least int) Diff {
	if rapid.Bool().Draw(t, "placed") {
		p := aPlace(t)
		return Diff{Place: &p}
	}
	return Diff{Inline: rapid.SliceOfN(rapid.Byte(), least, 30).Draw(t, "diff")}
}

func aCommit(t *rapid.T) *commit.Commit {
	make := func(n int64, of ...*commit.Commit) *commit.Commit {
		c, err := commit.New(commit.Params{Now: time.Unix(n, 0), Root: aDigest(t, object.Node), Parents: of, Device: "d"})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := make(1, commit.First())
	if rapid.Bool().Draw(t, "merge") {
		d := make(2, commit.First())
		if d.ID != c.ID {
			return make(3, c, d)
		}
	}
	return make(4, c)
}

// aRecord draws a record of a type.
func aRecord(t *rapid.T, tag byte) Record {
	switch tag {
	case tagSize:
		return &Size{rapid.Uint64Range(0, maxDisplay).Draw(t, "values"), rapid.Uint64Range(0, maxDisplay).Draw(t, "bytes")}
	case tagBase:
		return &Base{rapid.Uint64Range(0, MaxNumber).Draw(t, "number"), aHash(t)}
	case tagRun:
		kind := rapid.SampledFrom([]RunKind{Commits, Packs, GivenUp, NotStored}).Draw(t, "kind")
		bytes := rapid.Uint64Range(1, 1<<40).Draw(t, "bytes")
		return &Run{kind, rapid.Uint32Range(0, MaxRuns-1).Draw(t, "age"), anID(t), anID(t), bytes, rapid.Uint64Range(1, bytes).Draw(t, "records"), aHash(t)}
	case tagSnapshot:
		r := &Snapshot{Order: rapid.Uint32().Draw(t, "order"), To: object.Sum(object.Node, []byte{1}), Diff: aPlace(t),
			Values: rapid.Uint64Range(0, maxDisplay).Draw(t, "values"), Whole: rapid.Uint64Range(0, maxDisplay).Draw(t, "whole")}
		if rapid.Bool().Draw(t, "behind") {
			r.From = object.Sum(object.Node, []byte{2})
		}
		return r
	case tagGone:
		return &Gone{epoch.Commit(rapid.Uint64Min(1).Draw(t, "gone"))}
	case tagPack:
		r := &Pack{Epoch: anID(t), ID: anID(t), Bytes: rapid.Uint64Range(1, MaxPackBytes).Draw(t, "bytes"),
			Pieces: rapid.Uint32Range(0, MaxPackPieces).Draw(t, "pieces"), Eager: rapid.Bool().Draw(t, "eager")}
		if rapid.Bool().Draw(t, "dropped") {
			r.Dropped = true
			return r
		}
		if rapid.Bool().Draw(t, "unused") {
			r.Since = epoch.Time(rapid.Int64Range(1, 1<<62).Draw(t, "since"))
		}
		return r
	case tagPiece:
		content := rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "content")
		return &Piece{Digest: object.Sum(object.Chunk, content), Content: content}
	case tagMissing:
		return &Missing{aDigest(t, object.Chunk)}
	case tagCommit:
		r := &Commit{Commit: aCommit(t)}
		if rapid.Bool().Draw(t, "reduced") {
			r.Near = aSet(t, 0)
		}
		if rapid.Bool().Draw(t, "sent") {
			r.Sender = seal.ID(anID(t))
		}
		if r.Treeless = rapid.Bool().Draw(t, "treeless"); r.Treeless {
			return r
		}
		switch rapid.IntRange(0, 2).Draw(t, "base") {
		case 1:
			r.Base = rapid.SampledFrom(r.Commit.Parents).Draw(t, "parent")
		case 2:
			r.Base = commit.ID{1: 5}
		}
		r.Diff = aDiff(t, 0)
		return r
	case tagExplanation:
		return &Explanation{Root: object.Sum(object.Node, []byte{3}), Diff: aDiff(t, 1)}
	case tagTag:
		r := &Tag{Name: rapid.StringMatching(`[a-zä]{1,10}`).Draw(t, "name")}
		if rapid.Bool().Draw(t, "set") {
			r.Commit[0] = 7
		}
		return r
	}
	return &Retention{rapid.Uint64Range(0, 1<<62).Draw(t, "last"), time.Duration(rapid.Int64Range(0, 1<<62).Draw(t, "within"))}
}

// aStream draws the records of a stream, in their order.
func aStream(t *rapid.T, s Stream) []Record {
	var out []Record
	for _, tag := range s.tags {
		n := rapid.IntRange(0, 3).Draw(t, "records")
		switch tag {
		case tagExplanation:
			continue
		case tagSize, tagBase, tagRetention:
			n = 1
		}
		if len(s.tags) == 1 {
			n = max(n, 1)
		}
		var some []Record
		for range n {
			some = append(some, aRecord(t, tag))
		}
		slices.SortFunc(some, Record.compare)
		if tag == tagCommit && n > 0 && rapid.Bool().Draw(t, "follows") {
			some = append(some, aChild(t, some[n-1].(*Commit)))
		}
		for i, r := range some {
			if i > 0 && r.compare(some[i-1]) <= 0 {
				continue
			}
			out = append(out, r)
			if c, ok := r.(*Commit); ok && slices.Contains(s.tags, tagExplanation) && len(c.Commit.Parents) == 2 {
				out = append(out, aRecord(t, tagExplanation))
			}
		}
	}
	return out
}

func write(s Stream, records []Record) ([]byte, error) {
	var b bytes.Buffer
	w := NewWriter(&b, s)
	for _, r := range records {
		if err := w.Write(r); err != nil {
			return nil, err
		}
	}
	return b.Bytes(), nil
}

func read(s Stream, b []byte) (out []Record, err error) {
	r := NewReader(bytes.NewReader(b), s)
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, err
		}
		out = append(out, rec)
	}
}

func same(t interface{ Fatalf(string, ...any) }, got, want []Record) {
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if g, w := show(got[i]), show(want[i]); g != w {
			t.Fatalf("record %d:\n%s\n%s", i, g, w)
		}
	}
}

func show(r Record) string {
	c, ok := r.(*Commit)
	if !ok {
		if x, ok := r.(*Explanation); ok {
			return fmt.Sprintf("%s %x %+v", x.Root, x.Diff.Inline, x.Diff.Place)
		}
		return fmt.Sprintf("%+v", reflect.ValueOf(r).Elem())
	}
	return fmt.Sprintf("%s %v %v %s %x %+v %t %x", c.Commit.ID, c.Near, c.Near == nil, c.Base, c.Diff.Inline, c.Diff.Place, c.Treeless, c.Sender)
}

// TestWritersShareRecords: writing assigns to no field of a record but Piece.At, so that others may
// read it meanwhile. The race detector sees one that does.
func TestWritersShareRecords(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := rapid.SampledFrom(streams).Draw(rt, "stream")
		records := slices.DeleteFunc(aStream(rt, s), func(r Record) bool { return r.tag() == tagPiece })
		var out [2][]byte
		var errs [2]error
		var wg sync.WaitGroup
		for i := range out {
			wg.Go(func() { out[i], errs[i] = write(s, records) })
		}
		wg.Wait()
		if errs[0] != nil || errs[1] != nil || !bytes.Equal(out[0], out[1]) {
			rt.Fatal(errs)
		}
	})
}

// TestStreams: what a reader reads is what a writer wrote, and gives the same bytes again (I1).
func TestStreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(streams).Draw(t, "stream")
		records := aStream(t, s)
		b, err := write(s, records)
		if err != nil {
			t.Fatal(err)
		}
		if len(records) < s.least() {
			if _, err := read(s, b); !errors.Is(err, base.ErrCorrupt) {
				t.Fatalf("an empty stream: %v", err)
			}
			return
		}
		got, err := read(s, b)
		if err != nil {
			t.Fatal(err)
		}
		same(t, got, records)
		again, err := write(s, got)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x again, not %x: %v", again, b, err)
		}
		for _, r := range got {
			if p, ok := r.(*Piece); ok && !bytes.Equal(b[p.At:][:len(p.Content)], p.Content) {
				t.Fatalf("a piece does not stand at %d", p.At)
			}
		}
		cut := rapid.IntRange(0, len(b)-1).Draw(t, "cut")
		if short, err := read(s, b[:cut]); err == nil {
			same(t, short, records[:len(short)]) // it was cut between two records
		} else if !errors.Is(err, base.ErrCorrupt) {
			t.Fatalf("cut at %d: %v", cut, err)
		}
	})
}

// TestOrder: a stream refuses records that are out of order, there twice, or of another stream
// (I2).
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.SampledFrom(streams).Draw(t, "stream")
		records := aStream(t, s)
		i := rapid.IntRange(0, len(records)-1).Draw(t, "first")
		j := rapid.IntRange(i, len(records)-1).Draw(t, "second")
		wrong := slices.Clone(records)
		_, first := records[i].(*Explanation)
		_, second := records[j].(*Explanation)
		switch rapid.IntRange(0, 2).Draw(t, "how") {
		case 0:
			if first && i != j {
				return // it may stand behind another merge
			}
			wrong = slices.Insert(wrong, j+1, records[i])
		case 1:
			if i == j || first && second { // each may stand behind the other's merge
				return
			}
			wrong[i], wrong[j] = wrong[j], wrong[i]
		case 2:
			tag := byte(rapid.IntRange(1, int(tagRetention)).Draw(t, "tag"))
			if slices.Contains(s.tags, tag) {
				return
			}
			wrong = slices.Insert(wrong, j+1, aRecord(t, tag))
		}
		if _, err := write(s, wrong); !errors.Is(err, base.ErrInvalid) {
			t.Fatalf("a wrong stream was written: %v", err)
		}
		if _, err := read(s, unchecked(wrong)); !errors.Is(err, base.ErrCorrupt) {
			t.Fatalf("a wrong stream was read: %v", err)
		}
	})
}

// unchecked writes records as they are.
func unchecked(records []Record) []byte {
	b := []byte{version}
	for _, r := range records {
		fields := &coder{}
		r.code(fields)
		b = appendSized(append(b, r.tag()), fields.b)
	}
	return b
}

// TestVersions: newer versions and unknown records have errors of their own.
func TestVersions(t *testing.T) {
	var newer *base.FormatError
	if _, err := read(Body, []byte{version + 1}); !errors.As(err, &newer) {
		t.Error(err)
	}
	if _, err := ParseEpoch([]byte{version + 1, 1}); !errors.As(err, &newer) {
		t.Error(err)
	}
	for _, b := range [][]byte{nil, {0}, {version}, {version, tagRetention + 1, 0}, {version, tagSize, 0x80, 0x80, 0x80, 1}, {version, tagSize, 0x80, 0}} {
		if _, err := read(Body, b); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%x: %v", b, err)
		}
	}
}

// anEpoch draws a proposal.
func anEpoch(t *rapid.T) *epoch.Proposal {
	x := &epoch.Proposal{ID: anID(t), Kind: epoch.Kind(rapid.IntRange(1, 4).Draw(t, "kind"))}
	if x.Kind == epoch.Found {
		return x
	}
	if x.Kind != epoch.Renewal || rapid.Bool().Draw(t, "behind another") {
		x.Parent, x.Base, x.BaseHash = epoch.ID{15: 1}, rapid.Uint64Range(0, MaxNumber).Draw(t, "base"), aHash(t)
	}
	if x.Kind == epoch.Deleted {
		return x
	}
	x.Checkpoint, x.CheckpointHash = anID(t), aHash(t)
	if x.Erased = aSet(t, 0); len(x.Erased) == 0 {
		x.Erased = nil
	}
	if x.Kind == epoch.Renewal {
		x.Renewed, x.Behind = x.ID, rapid.Uint64Range(0, MaxNumber).Draw(t, "behind")
	}
	return x
}

// TestEpochs: what is parsed was encoded (I1).
func TestEpochs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := anEpoch(t)
		b, err := EncodeEpoch(x)
		if err != nil {
			t.Fatal(err)
		}
		y, err := ParseEpoch(b)
		if err != nil || !reflect.DeepEqual(x, y) {
			t.Fatalf("%+v, not %+v: %v", y, x, err)
		}
		if _, err := ParseEpoch(b[:rapid.IntRange(0, len(b)-1).Draw(t, "cut")]); !errors.Is(err, base.ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

// TestEpochRefuses: kinds have the fields that belong to them.
func TestEpochRefuses(t *testing.T) {
	cut := epoch.Proposal{ID: epoch.ID{1}, Parent: epoch.ID{2}, Kind: epoch.Cut, Base: 3, BaseHash: epoch.Hash{4}, Checkpoint: epoch.ID{5}, CheckpointHash: epoch.Hash{6}}
	if _, err := EncodeEpoch(&cut); err != nil {
		t.Fatal(err)
	}
	for i, change := range []func(x *epoch.Proposal){
		func(x *epoch.Proposal) { x.ID = epoch.ID{} },
		func(x *epoch.Proposal) { x.Parent = epoch.ID{} },
		func(x *epoch.Proposal) { x.Parent = x.ID },
		func(x *epoch.Proposal) { x.Kind = 0 },
		func(x *epoch.Proposal) { x.Kind = epoch.Deleted + 1 },
		func(x *epoch.Proposal) { x.Kind = epoch.Found },
		func(x *epoch.Proposal) { x.Kind = epoch.Renewal },
		func(x *epoch.Proposal) { x.Kind = epoch.Deleted },
		func(x *epoch.Proposal) { x.Base = MaxNumber + 1 },
		func(x *epoch.Proposal) { x.BaseHash = epoch.Hash{} },
		func(x *epoch.Proposal) { x.Checkpoint = epoch.ID{} },
		func(x *epoch.Proposal) { x.CheckpointHash = epoch.Hash{} },
		func(x *epoch.Proposal) { x.Behind = 1 },
		func(x *epoch.Proposal) { x.Renewed = x.ID },
		func(x *epoch.Proposal) { x.Erased = epoch.Set{2, 1} },
		func(x *epoch.Proposal) { x.Erased = epoch.Set{0} },
	} {
		x := cut
		change(&x)
		if _, err := EncodeEpoch(&x); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("case %d is taken for an epoch: %v", i, err)
		}
	}
}

func sealers(t testing.TB) map[string]*seal.Sealer {
	out := map[string]*seal.Sealer{}
	for _, a := range []seal.Algorithm{seal.Plain, seal.AES256GCM} {
		k, err := seal.NewKeyring(a, nil)
		if err != nil {
			t.Fatal(err)
		}
		out[a.String()] = seal.NewSealer(k, nil)
	}
	return out
}

// TestEntries: each kind of entry is opened as it was sealed, and nowhere else.
func TestEntries(t *testing.T) {
	e, other, id := epoch.ID{1}, epoch.ID{2}, epoch.ID{3}
	previous, long := epoch.Hash{4}, epoch.Hash{6}
	stream, err := write(Body, []Record{&Size{}, &Retention{Last: 10}})
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range sealers(t) {
		n := NamesOf(s.Keyring(), "ledger", [16]byte{1})
		x := &epoch.Proposal{ID: other, Parent: e, Kind: epoch.Deleted, Base: 6, BaseHash: previous}
		sealed, err := SealEpoch(s, n, x)
		if err != nil {
			t.Fatal(err)
		}
		body := InlineBody(stream, []seal.Part{{To: len(stream), Compress: true}})
		for kind, b := range map[string]*EntryBody{"body": body, "long": LongBody(id, long), "closing": ClosingBody(sealed)} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				stored, hash, err := SealEntry(s, n, e, 7, previous, b)
				if err != nil {
					t.Fatal(err)
				}
				got, err := OpenEntry(s, n, e, 7, stored)
				if err != nil || got.Hash != hash || got.Previous != previous || got.Stored != len(stored) {
					t.Fatalf("%+v %v", got, err)
				}
				switch kind {
				case "body":
					if !bytes.Equal(got.Body, stream) || got.Closing != nil {
						t.Errorf("%+v", got)
					}
				case "long":
					if got.Long != id || got.LongHash != long || got.Body != nil {
						t.Errorf("%+v", got)
					}
				case "closing":
					if !reflect.DeepEqual(got.Closing, x) || !bytes.Equal(got.Sealed, sealed) {
						t.Errorf("%+v, not %+v", got.Closing, x)
					}
				}
				elsewhere := []func() error{
					func() error { _, err := OpenEntry(s, n, e, 8, stored); return err },
					func() error { _, err := OpenEntry(s, n, other, 7, stored); return err },
					func() error { _, err := OpenEntry(s, Names{n.Dir + "x"}, e, 7, stored); return err },
				}
				for i, open := range elsewhere {
					if err := open(); !errors.Is(err, base.ErrCorrupt) {
						t.Errorf("elsewhere %d: %v", i, err)
					}
				}
				for at := range stored {
					if at < 200 || at%7 == 0 || at > len(stored)-40 {
						bad := bytes.Clone(stored)
						bad[at] ^= 0x10
						if got, err := OpenEntry(s, n, e, 7, bad); err == nil {
							t.Errorf("byte %d changed: %+v", at, got)
						}
					}
				}
			})
		}
	}
}

func deviceKey(t testing.TB, b byte) seal.DeviceKey {
	k, err := seal.ParseDeviceKey(bytes.Repeat([]byte{b}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestAuthors: an entry and an epoch name the device that has signed them, and open only in the
// place for which it has.
func TestAuthors(t *testing.T) {
	e, id, previous, long := epoch.ID{1}, epoch.ID{3}, epoch.Hash{4}, epoch.Hash{6}
	x := &epoch.Proposal{ID: epoch.ID{2}, Parent: e, Kind: epoch.Deleted, Base: 6, BaseHash: previous}
	for _, a := range []seal.Algorithm{seal.Plain, seal.AES256GCM} {
		k, err := seal.NewKeyring(a, nil)
		if err != nil {
			t.Fatal(err)
		}
		n, s, key := NamesOf(k, "ledger", [16]byte{1}), seal.NewSealer(k, nil), deviceKey(t, 7)
		s.SignAs(key)
		entry, _, err := SealEntry(s, n, e, 7, previous, LongBody(id, long))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := OpenEntry(seal.NewSealer(k, nil), n, e, 7, entry); err != nil || got.Device != key.ID() {
			t.Errorf("%s: %+v, %v", a, got, err)
		}
		proposal, err := SealEpoch(s, n, x)
		if err != nil {
			t.Fatal(err)
		}

		// A member moves what another one has written, or says that it is his own.
		whole, _, err := s.Open(n.EntryLabel(e, 7), entry, 1000)
		if err != nil {
			t.Fatal(err)
		}
		seals := func(l seal.Label, plain []byte) []byte {
			t.Helper()
			sealed, _, err := s.Seal(l, plain, seal.Form{})
			if err != nil {
				t.Fatal(err)
			}
			return sealed
		}
		opens := func(what string, n Names, e epoch.ID, number uint64, plain []byte, want error) {
			t.Helper()
			_, err := OpenEntry(s, n, e, number, seals(n.EntryLabel(e, number), plain))
			if !errors.Is(err, want) || want != nil && !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("%s: %s: %v", a, what, err)
			}
		}
		opens("sealed again", n, e, 7, whole, nil)
		opens("another number", n, e, 8, whole, seal.ErrBadSignature)
		opens("another epoch", n, epoch.ID{9}, 7, whole, seal.ErrBadSignature)
		opens("another page", Names{n.Dir + "x"}, e, 7, whole, seal.ErrBadSignature)
		unsigned := append(bytes.Clone(whole[:len(whole)-64]), make([]byte, 64)...)
		opens("unsigned", n, e, 7, unsigned, seal.ErrBadSignature)
		own := bytes.Clone(whole)
		signature := seal.NewSealer(k, nil).Sign(nil)
		copy(own[len(own)-authorBytes:], signature[:32])
		opens("another device", n, e, 7, own, seal.ErrBadSignature)

		plain, _, err := s.Open(n.EpochLabel(), proposal, MaxEpochBytes)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := OpenEpoch(s, n, seals(n.EpochLabel(), plain)); err != nil {
			t.Errorf("%s: an epoch that was sealed again: %v", a, err)
		}
		other := Names{n.Dir + "x"}
		if _, err := OpenEpoch(s, other, seals(other.EpochLabel(), plain)); !errors.Is(err, seal.ErrBadSignature) {
			t.Errorf("%s: an epoch of another page: %v", a, err)
		}
	}
}

// TestNames: Parse takes what was named, and nothing else.
func TestNames(t *testing.T) {
	n, e, id := Names{"a/b"}, epoch.ID{1}, epoch.ID{2}
	for name, want := range map[string]Name{
		n.Epoch(7):            {Kind: KindEpoch, Number: 7},
		n.Entry(e, MaxNumber): {Kind: KindEntry, Epoch: e, Number: MaxNumber},
		n.Pack(e, id):         {Kind: KindPack, Epoch: e, ID: id},
		n.Checkpoint(e, id):   {Kind: KindCheckpoint, Epoch: e, ID: id},
	} {
		if got, ok := n.Parse(name); !ok || got != want {
			t.Errorf("%s: %+v %t", name, got, ok)
		}
		for _, bad := range []string{name + "0", name[:len(name)-1], name + "/", "x" + name, name[:len(name)-1] + "A"} {
			if got, ok := n.Parse(bad); ok {
				t.Errorf("%s: %+v", bad, got)
			}
		}
	}
	if _, ok := n.Parse(n.Pack(e, epoch.ID{})); ok {
		t.Error("the zero id is a name")
	}
}

// TestMergeRuns: each byte is written again once for each size class, and there are at most
// runFanout runs of each.
func TestMergeRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var runs []uint64 // newest first
		var total, written uint64
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		const cuts, classes = 2000, 5
		most := rapid.Uint64Range(1, 3000).Draw(t, "most")
		for range cuts {
			fresh := 1 + r.Uint64N(most)
			total += fresh
			n := MergeRuns(runs, fresh)
			for _, r := range runs[:n] {
				fresh += r
			}
			written += fresh
			runs = append([]uint64{fresh}, runs[n:]...)
			if len(runs) > runFanout*(classes+sizeClass(most)) {
				t.Fatalf("%d runs", len(runs))
			}
		}
		if written > (classes+1)*total {
			t.Fatalf("each byte was written %.1f times", float64(written)/float64(total))
		}
	})
}

// TestRunsAreBounded: a checkpoint has as many runs of a kind as a reader can read at once.
func TestRunsAreBounded(t *testing.T) {
	if most := runFanout * (1 + sizeClass(math.MaxUint64)); most > MaxRuns {
		t.Errorf("merging leaves up to %d runs", most)
	}
	last := &Run{Commits, MaxRuns - 1, epoch.ID{1}, epoch.ID{2}, 1000, 20, epoch.Hash{5}}
	if _, err := write(Checkpoint, []Record{&Base{}, last}); err != nil {
		t.Error(err)
	}
	last.Age++
	if _, err := write(Checkpoint, []Record{&Base{}, last}); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("written: %v", err)
	}
	if _, err := read(Checkpoint, unchecked([]Record{&Base{}, last})); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("read: %v", err)
	}
}

// golden are streams with each record once.
func golden(t testing.TB) map[string][]byte {
	root := func(b byte) object.Digest { return object.Sum(object.Node, []byte{b}) }
	a, err := commit.New(commit.Params{Now: time.Unix(5, 0), Root: root(1), Parents: []*commit.Commit{commit.First()}, Device: "a"})
	if err != nil {
		t.Fatal(err)
	}
	b, err := commit.New(commit.Params{Now: time.Unix(6, 0), Root: root(2), Parents: []*commit.Commit{commit.First()}, Device: "b"})
	if err != nil {
		t.Fatal(err)
	}
	m, err := commit.NewMerge(root(3), a, b)
	if err != nil {
		t.Fatal(err)
	}
	place := Place{epoch.ID{1}, epoch.ID{2}, 300, 4, 5}
	commits := []Record{&Commit{Commit: a, Diff: Diff{Inline: []byte("diff")}}, &Commit{Commit: b, Near: epoch.Set{}, Treeless: true, Sender: seal.ID{7}}}
	slices.SortFunc(commits, Record.compare)
	commits = append(commits, &Commit{Commit: m, Base: a.ID, Near: epoch.Set{7, 8}, Diff: Diff{Place: &place}})
	body := append([]Record{&Size{300, 1000}, &Gone{1}, &Gone{2}, &Pack{Epoch: epoch.ID{1}, ID: epoch.ID{2}, Bytes: 1000, Pieces: 3, Eager: true},
		&Piece{Digest: object.Sum(object.Chunk, []byte("piece")), Content: []byte("piece")}, &Missing{object.Sum(object.Chunk, []byte("gone"))}}, commits...)
	body = append(body, &Explanation{Root: root(4), Diff: Diff{Inline: []byte("why")}}, &Tag{Name: "v1", Commit: m.ID}, &Tag{Name: "v2"},
		&Retention{Last: 10, Within: time.Hour})
	checkpoint := []Record{&Base{70, epoch.Hash{1}}, &Run{Commits, 1, epoch.ID{1}, epoch.ID{2}, 1000, 20, epoch.Hash{5}}, &Run{Commits, 0, epoch.ID{3}, epoch.ID{4}, 100, 2, epoch.Hash{6}},
		&Snapshot{Order: 0, To: root(5), Diff: place, Values: 300, Whole: 5}, &Snapshot{Order: 1, From: root(5), To: root(3), Diff: place}, &Tag{Name: "v1", Commit: m.ID}, &Retention{}}
	out := map[string][]byte{}
	for name, s := range map[string]struct {
		s Stream
		r []Record
	}{
		"body": {Body, body}, "checkpoint": {Checkpoint, checkpoint}, "commits": {RunOf(Commits), commits},
		"packs": {RunOf(Packs), []Record{&Pack{Epoch: epoch.ID{1}, ID: epoch.ID{2}, Bytes: 1000, Since: 5},
			&Pack{Epoch: epoch.ID{1}, ID: epoch.ID{3}, Bytes: 1000, Dropped: true}}},
		"gone": {RunOf(GivenUp), []Record{&Gone{1}, &Gone{2}, &Gone{3}}},
	} {
		if out[name], err = write(s.s, s.r); err != nil {
			t.Fatal(name, err)
		}
	}
	x := &epoch.Proposal{ID: epoch.ID{1}, Parent: epoch.ID{2}, Kind: epoch.Renewal, Renewed: epoch.ID{1}, Base: 300, BaseHash: epoch.Hash{3}, Checkpoint: epoch.ID{4}, CheckpointHash: epoch.Hash{7},
		Erased: epoch.Set{5, 6}, Behind: 8}
	if out["epoch"], err = EncodeEpoch(x); err != nil {
		t.Fatal(err)
	}
	k, err := seal.NewKeyring(seal.Plain, bytes.NewReader(make([]byte, 1000)))
	if err != nil {
		t.Fatal(err)
	}
	s := seal.NewSealer(k, nil)
	s.SignAs(deviceKey(t, 7))
	out["author"] = sign(s, entryWhere, Names{"a/b"}, entryPlace(epoch.ID{1}, 7), []byte("head"))
	return out
}

// TestGolden: the bytes are those of the files.
func TestGolden(t *testing.T) {
	for name, b := range golden(t) {
		path := filepath.Join("testdata", name+".golden")
		if *update {
			if err := os.WriteFile(path, b, 0o666); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(b, want) {
			t.Errorf("%s has other bytes: %v", name, err)
		}
	}
}

func FuzzStream(f *testing.F) {
	for _, b := range golden(f) {
		for i := range streams {
			f.Add(byte(i), b)
		}
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		s := streams[int(kind)%len(streams)]
		records, err := read(s, b)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		again, err := write(s, records)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x again, not %x: %v", again, b, err)
		}
	})
}

func FuzzEpoch(f *testing.F) {
	f.Add(golden(f)["epoch"])
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := ParseEpoch(b)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
				t.Fatal(err)
			}
			return
		}
		again, err := EncodeEpoch(x)
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x again, not %x: %v", again, b, err)
		}
	})
}
