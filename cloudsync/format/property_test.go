package format_test

import (
	"bytes"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
)

// idOf returns a number's id: different ones of different numbers and sorts.
func idOf(sort byte, i int) format.ID { return format.ID{sort, byte(i >> 8), byte(i), 15: 1} }

func idsOf(t *rapid.T, what string, sort byte) (list []format.ID) {
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, 1000), 0, 6, rapid.ID[int]).Draw(t, what) {
		list = append(list, idOf(sort, i))
	}
	return list
}

func numbersOf(t *rapid.T, what string, least, most uint64) []uint64 {
	return rapid.SliceOfNDistinct(rapid.Uint64Range(least, most), 0, 6, rapid.ID[uint64]).Draw(t, what)
}

func packsOf(t *rapid.T, sort byte) (list []format.PackRef) {
	for _, id := range idsOf(t, "packs", sort) {
		list = append(list, format.PackRef{
			ID: id, Bytes: rapid.Uint64Range(1, format.MaxPackObjectBytes).Draw(t, "bytes"),
			Pieces: rapid.Uint32Range(1, format.MaxPackPieces).Draw(t, "pieces"), Eager: rapid.Bool().Draw(t, "eager"),
		})
	}
	return list
}

func tagsOf(t *rapid.T, removed bool) (list []format.TagChange) {
	for _, name := range rapid.SliceOfNDistinct(rapid.StringN(1, 20, 256), 0, 5, rapid.ID[string]).Draw(t, "tags") {
		tag := format.TagChange{Name: name, Removed: removed && rapid.Bool().Draw(t, "removed")}
		if !tag.Removed {
			tag.Commit = commit.ID(noise(rapid.Uint64().Draw(t, "commit"), 32))
		}
		list = append(list, tag)
	}
	return list
}

func retentionOf(t *rapid.T) format.Retention {
	return format.Retention{Commits: rapid.Uint64().Draw(t, "commits"), Age: time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "age"))}
}

func diffOfBody(t *rapid.T, at int) format.Diff {
	if rapid.Bool().Draw(t, "object") {
		return format.Diff{Pack: idOf(0xdd, at), Bytes: rapid.Uint64Range(1, format.MaxDiffBytes).Draw(t, "bytes")}
	}
	var b bytes.Buffer
	w := format.NewChangeWriter(&b)
	for _, c := range changes().Draw(t, "changes") {
		if !c.Removed {
			if err := w.Write(&c); err != nil {
				t.Fatal(err)
			}
		}
	}
	return format.Diff{Inline: b.Bytes()}
}

// history draws commits, parents before children.
func history(tb testing.TB, t *rapid.T, most int) (list []*commit.Commit) {
	for i := range rapid.IntRange(0, most).Draw(t, "commits") {
		var parents []*commit.Commit
		if i > 0 {
			for _, at := range rapid.SliceOfNDistinct(rapid.IntRange(0, i-1), 0, 2, rapid.ID[int]).Draw(t, "parents") {
				parents = append(parents, list[at])
			}
		}
		list = append(list, newCommit(tb, uint64(i), parents...))
	}
	return list
}

func bodies(tb testing.TB) *rapid.Generator[*format.Body] {
	return rapid.Custom(func(t *rapid.T) *format.Body {
		b := &format.Body{Device: idOf(0xde, rapid.IntRange(0, 9).Draw(t, "device"))}
		for i, c := range history(tb, t, 6) {
			change := format.CommitChange{Commit: c, Diff: diffOfBody(t, i), Past: rapid.Bool().Draw(t, "past")}
			switch rapid.IntRange(0, 2).Draw(t, "base") {
			case 0:
				change.Base.Empty = true
			case 1:
				change.Base.Commit = rapid.SampledFrom(c.Parents).Draw(t, "parent")
			default:
				change.Base.Commit = commit.ID(noise(rapid.Uint64().Draw(t, "other"), 32))
			}
			b.Commits = append(b.Commits, change)
			if len(c.Parents) == 2 && rapid.Bool().Draw(t, "explained") {
				e := format.Explanation{Merge: c.ID, Root: object.Sum(object.NodeBit, noise(uint64(i), 9)), Diff: diffOfBody(t, 100+i)}
				if e.Diff.Pack.IsZero() && len(e.Diff.Inline) == 0 {
					e.Diff.Inline = []byte{1, 0}
				}
				b.Explanations = append(b.Explanations, e)
			}
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "pieces") {
			b.Pieces = append(b.Pieces, piece(uint64(i), object.Kind(rapid.IntRange(0, 1).Draw(t, "kind")), 1+rapid.IntRange(0, 2000).Draw(t, "n")))
		}
		b.Packs = packsOf(t, 0xaa)
		b.Relies = idsOf(t, "relies", 0xbb)
		b.ReliesEntries = numbersOf(t, "entries", 100, 1000)
		b.Tags = tagsOf(t, true)
		if rapid.Bool().Draw(t, "retention") {
			r := retentionOf(t)
			b.Retention = &r
		}
		if rapid.Bool().Draw(t, "condemned") {
			b.Condemned = &format.Condemnation{Packs: idsOf(t, "condemned packs", 0xcc), Checkpoints: numbersOf(t, "checkpoints", 1, 900), Below: rapid.Uint64Range(2, 100).Draw(t, "below")}
		}
		b.Lacks = rapid.Bool().Draw(t, "lacks")
		if len(b.Commits) > 0 {
			b.Shallow, b.Since = rapid.Bool().Draw(t, "shallow"), rapid.SampledFrom([]uint64{0, 100, 1000}).Draw(t, "since")
		}
		b.Renewed = rapid.Bool().Draw(t, "renewed")
		for i := range rapid.IntRange(0, 2).Draw(t, "given up") {
			b.GivenUp = append(b.GivenUp, commit.ID{byte(i + 1)})
		}
		return b
	}).Filter(func(b *format.Body) bool {
		return len(b.Commits)+len(b.Pieces)+len(b.Packs)+len(b.Tags) > 0 || b.Retention != nil || b.Condemned != nil || b.Renewed || len(b.GivenUp) > 0
	})
}

// TestAnyBodyRoundTrips: I1.
func TestAnyBodyRoundTrips(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 5)
	n := namesOf(s)
	rapid.Check(t, func(r *rapid.T) {
		b := bodies(t).Draw(r, "body")
		plain, err := b.Encode()
		if err != nil {
			r.Fatal(err)
		}
		got, err := format.ParseBody(plain)
		if err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(b, got, sameCommits); diff != "" {
			r.Fatal(diff)
		}
		if again, err := got.Encode(); err != nil || !bytes.Equal(again, plain) {
			r.Fatalf("encoding again gives other bytes, %v", err)
		}
		sealed, err := format.SealBody(s, n, id(1), b)
		if err != nil {
			r.Fatal(err)
		}
		stored, h, err := format.SealEntry(s, n, 2000, hash(1), sealed)
		if err != nil {
			r.Fatal(err)
		}
		if e, err := format.OpenEntry(s, n, 2000, stored); err != nil || e.Hash != h {
			r.Fatal(err)
		}
	})
}

// TestAnyCheckpointRoundTrips: I1.
func TestAnyCheckpointRoundTrips(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		c := &format.Checkpoint{
			At: format.Position{Bucket: id(1), Number: rapid.Uint64Range(1000, format.MaxNumber).Draw(r, "number"), Hash: hash(1)}, Commits: history(t, r, 8),
			Tags: tagsOf(r, false), Retention: retentionOf(r), Packs: packsOf(r, 0xaa),
		}
		parents := map[commit.ID]bool{}
		for _, k := range c.Commits {
			for _, p := range k.Parents {
				parents[p] = true
			}
		}
		for i, k := range c.Commits {
			if !parents[k.ID] {
				c.Heads, c.DiffBytes = append(c.Heads, uint32(i)), append(c.DiffBytes, rapid.Uint64Range(0, 1<<40).Draw(r, "diff"))
			}
		}
		for i, k := range c.Commits {
			if parents[k.ID] && rapid.Bool().Draw(r, "tree") {
				c.Trees, c.TreeBytes = append(c.Trees, uint32(i)), append(c.TreeBytes, 7)
			}
		}
		for range rapid.IntRange(0, 3).Draw(r, "condemned") {
			c.Condemned = append(c.Condemned, format.Condemnation{Packs: idsOf(r, "packs", 0xcc), Checkpoints: numbersOf(r, "checkpoints", 1, 999), Below: rapid.Uint64Range(2, 1000).Draw(r, "below")})
		}
		for i := range c.Packs {
			if c.Packs[i].Eager && rapid.Bool().Draw(r, "partial") {
				c.Partial = append(c.Partial, format.PartialPack{ID: c.Packs[i].ID, Spans: spansOf(r)})
			}
		}
		b := encodeCheckpoint(t, c)
		got, err := format.ReadCheckpoint(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(c, got, sameCommits); diff != "" {
			r.Fatal(diff)
		}
		if again := encodeCheckpoint(t, got); !bytes.Equal(again, b) {
			r.Fatal("encoding again gives other bytes")
		}
	})
}

func spansOf(r *rapid.T) (spans []format.BlockSpan) {
	end := rapid.Uint32Range(0, 3).Draw(r, "first frame")
	for range rapid.IntRange(1, 4).Draw(r, "spans") {
		s := format.BlockSpan{First: end, Count: rapid.Uint32Range(1, 200).Draw(r, "frames")}
		spans = append(spans, s)
		end = s.First + s.Count + rapid.Uint32Range(1, 300).Draw(r, "gap")
	}
	return spans
}
