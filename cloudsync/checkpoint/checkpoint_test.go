package checkpoint_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/checkpoint"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newStore returns a store in a bucket, with ids in order.
func newStore(t testing.TB, dir string) (*checkpoint.Store, *mem.Bucket, wire.Names) {
	ring, err := seal.NewKeyring(seal.AES256GCM, nil)
	if err != nil {
		t.Fatal(err)
	}
	return newStoreOf(ring, dir)
}

func newStoreOf(ring *seal.Keyring, dir string) (*checkpoint.Store, *mem.Bucket, wire.Names) {
	b, n, last := mem.New(mem.Options{}), wire.NamesOf(ring, "ledger", [16]byte{1}), uint64(0)
	id := func() (id epoch.ID) {
		last++
		binary.BigEndian.PutUint64(id[8:], last)
		return id
	}
	return checkpoint.New(checkpoint.Options{Bucket: b, Sealer: seal.NewSealer(ring, nil), Names: n, NewID: id, Dir: dir}), b, n
}

func all(records []wire.Record) iter.Seq2[wire.Record, error] {
	return func(yield func(wire.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func read(t *rapid.T, s *checkpoint.Store, h *checkpoint.Header, kind wire.RunKind) (out []wire.Record) {
	if err := s.Each(context.Background(), h, kind, func(r wire.Record) error {
		out = append(out, r)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestRuns: whatever was added, a reader sees each key once, as it was added last, and a header
// that was written is read again.
func TestRuns(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		ctx := context.Background()
		s, _, _ := newStore(t, dir)
		h, want := &checkpoint.Header{Base: wire.Base{Number: 7, Hash: epoch.Hash{1}}, Tags: []wire.Tag{{Name: "a"}}, Retention: wire.Retention{Last: 3}}, map[epoch.ID]*wire.Pack{}
		for i := range rapid.IntRange(1, 40).Draw(rt, "cuts") {
			fresh := map[epoch.ID]*wire.Pack{}
			for range rapid.IntRange(0, 6).Draw(rt, "packs") {
				p := &wire.Pack{Epoch: epoch.ID{1}, ID: epoch.ID{rapid.ByteRange(1, 30).Draw(rt, "pack")}, Bytes: uint64(i + 1)}
				if rapid.IntRange(0, 3).Draw(rt, "dropped") == 0 {
					p.Dropped = true
				}
				fresh[p.ID], want[p.ID] = p, p
			}
			records := []wire.Record{}
			for _, p := range fresh {
				records = append(records, p)
			}
			slices.SortFunc(records, wire.Compare)
			whole := rapid.IntRange(0, 9).Draw(rt, "whole") == 0
			n, err := s.Add(ctx, epoch.ID{byte(i + 1)}, h, wire.Packs, all(records), whole, nil)
			if err != nil || !whole && (n == 0) != (len(fresh) == 0) && len(h.Runs) > 0 {
				rt.Fatalf("%d bytes: %v", n, err)
			}
			if whole && len(h.Runs) > 1 {
				rt.Fatalf("%d runs", len(h.Runs))
			}
		}
		x := &epoch.Proposal{ID: epoch.ID{5}}
		err := s.Put(ctx, x, h)
		if err != nil {
			rt.Fatal(err)
		}
		again, err := s.Read(ctx, x)
		if err != nil || fmt.Sprint(again) != fmt.Sprint(h) {
			rt.Fatalf("%v, not %v: %v", again, h, err)
		}
		got := map[epoch.ID]*wire.Pack{}
		for _, r := range read(rt, s, again, wire.Packs) {
			p := r.(*wire.Pack)
			if got[p.ID] != nil {
				rt.Fatalf("pack %x is there twice", p.ID)
			}
			if got[p.ID] = p; p.Dropped && len(again.Runs) == 1 {
				rt.Fatalf("the only run has the dropped pack %x", p.ID)
			}
		}
		maps.DeleteFunc(got, func(_ epoch.ID, p *wire.Pack) bool { return p.Dropped })
		maps.DeleteFunc(want, func(_ epoch.ID, p *wire.Pack) bool { return p.Dropped })
		for id, p := range want {
			if g := got[id]; g == nil || g.Bytes != p.Bytes {
				rt.Errorf("pack %x is %v, not %v", id, g, p)
			}
		}
		if len(got) != len(want) {
			rt.Errorf("%d packs, not %d", len(got), len(want))
		}
	})
}

// TestSmallRunsAreMerged adds runs that are in a lesser size class before they are sealed.
func TestSmallRunsAreMerged(t *testing.T) {
	s, _, _ := newStore(t, t.TempDir())
	for _, each := range []int{1, 3, 10, 100} {
		h := &checkpoint.Header{}
		for i := range 300 {
			var fresh []wire.Record
			for k := range each {
				fresh = append(fresh, &wire.Gone{Commit: epoch.Commit(i*each + k + 1)})
			}
			if _, err := s.Add(t.Context(), epoch.ID{byte(i), byte(i >> 8), 1}, h, wire.GivenUp, all(fresh), false, nil); err != nil {
				t.Fatal(err)
			}
		}
		if len(h.Runs) > 40 {
			t.Errorf("%d runs of %d records each", len(h.Runs), each)
		}
	}
}

// TestGone: sets that overlap become one.
func TestGone(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		ctx := context.Background()
		s, _, _ := newStore(t, "")
		h, want := &checkpoint.Header{}, epoch.Set{}
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 0))
		for range rapid.IntRange(1, 24).Draw(rt, "cuts") {
			var set epoch.Set
			for range 1 + r.IntN(400) {
				set = append(set, epoch.Commit(1+r.Uint64N(6_000)))
			}
			set = epoch.SetOf(set...)
			want = want.Union(set)
			var records []wire.Record
			for _, c := range set {
				records = append(records, &wire.Gone{Commit: c})
			}
			if _, err := s.Add(ctx, epoch.ID{1}, h, wire.GivenUp, all(records), false, nil); err != nil {
				rt.Fatal(err)
			}
		}
		got, err := s.Gone(ctx, h)
		if err != nil || !slices.Equal(got, want) {
			rt.Fatalf("%d commits, not %d: %v", len(got), len(want), err)
		}
	})
}

// history returns commits, each on the one before, as records without differences.
func history(t testing.TB, n int) (out []wire.Record) {
	c := commit.First()
	for i := range n {
		var err error
		root := object.Sum(object.Node, binary.BigEndian.AppendUint64(nil, uint64(i)))
		if c, err = commit.New(commit.Params{Now: time.Unix(int64(i), 0), Root: root, Parents: []*commit.Commit{c}, Device: "laptop"}); err != nil {
			t.Fatal(err)
		}
		out = append(out, &wire.Commit{Commit: c, Base: c.Parents[0], Diff: wire.Diff{Place: &wire.Place{Epoch: epoch.ID{1}, Pack: epoch.ID{byte(i >> 10), 1},
			Offset: uint64(i) * 130, Stored: 130, Bytes: 130}}})
	}
	return out
}

// TestBytesPerCommit: a cut costs what changed: each commit is written a few times, however many
// there are.
func TestBytesPerCommit(t *testing.T) {
	ctx := context.Background()
	s, _, _ := newStore(t, "")
	h, cut := &checkpoint.Header{}, 64
	records := history(t, 200*cut)
	var written int64
	for i := 0; i < len(records); i += cut {
		n, err := s.Add(ctx, epoch.ID{1}, h, wire.Commits, all(records[i:i+cut]), false, nil)
		if err != nil {
			t.Fatal(err)
		}
		written += n
	}
	per := written / int64(len(records))
	t.Logf("%d bytes a commit, %d runs", per, len(h.Runs))
	if per > 1200 || len(h.Runs) > 24 {
		t.Errorf("%d bytes a commit, %d runs", per, len(h.Runs))
	}
}

// TestDamage: a run or header that is missing or bad is named, a fresh one too, and also one that a
// member has replaced by another one of the same name. A header stays as it was when a run cannot
// be written.
func TestDamage(t *testing.T) {
	ctx := context.Background()
	ring, err := seal.NewKeyring(seal.AES256GCM, nil)
	if err != nil {
		t.Fatal(err)
	}
	records := history(t, 8)
	write := func(s *checkpoint.Store, records []wire.Record) (*epoch.Proposal, *checkpoint.Header) {
		x, h := &epoch.Proposal{ID: epoch.ID{1}}, &checkpoint.Header{Base: wire.Base{Number: 1, Hash: epoch.Hash{1}}}
		for _, r := range records {
			if _, err := s.Add(ctx, epoch.ID{1}, h, wire.Commits, all([]wire.Record{r}), false, nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Put(ctx, x, h); err != nil {
			t.Fatal(err)
		}
		return x, h
	}
	s, b, _ := newStoreOf(ring, "")
	x, h := write(s, records[:3])
	member, replaced, _ := newStoreOf(ring, "") // draws the same names
	write(member, records[:3])
	good := b.State()
	for _, name := range b.Names() {
		content, _ := b.Content(name)
		for what, hurt := range map[string]func(){
			"missing": func() { _ = b.Delete(ctx, name) },
			"cut":     func() { b.Replace(name, content[:len(content)-1]) },
			"changed": func() {
				b.Replace(name, append(slices.Clone(content[:50]), append([]byte{content[50] ^ 1}, content[51:]...)...))
			},
			"empty": func() { b.Replace(name, nil) },
			"replaced": func() {
				other, _ := replaced.Content(name)
				b.Replace(name, other)
			},
		} {
			b.Rollback(good)
			hurt()
			again, err := s.Read(ctx, x)
			if err == nil {
				err = s.Each(ctx, again, wire.Commits, func(wire.Record) error { return nil })
			}
			if !errors.Is(err, base.ErrCorrupt) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s %s: %v", name, what, err)
			}
		}
	}
	b.Rollback(good)
	before := fmt.Sprint(h)
	full := fmt.Errorf("full: %w", base.ErrNoSpace)
	b.SetBefore(func(op bucket.Op, _ string) error {
		if op == bucket.OpPut {
			return full
		}
		return nil
	})
	if _, err := s.Add(ctx, epoch.ID{2}, h, wire.Commits, all(records[3:]), false, nil); !errors.Is(err, base.ErrNoSpace) || fmt.Sprint(h) != before {
		t.Errorf("%v, %v", err, h)
	}
	b.SetBefore(nil)
	failing := func(yield func(wire.Record, error) bool) {
		_ = yield(records[3], nil) && yield(nil, io.ErrUnexpectedEOF)
	}
	if _, err := s.Add(ctx, epoch.ID{2}, h, wire.Commits, failing, false, nil); !errors.Is(err, io.ErrUnexpectedEOF) || fmt.Sprint(h) != before {
		t.Errorf("%v, %v", err, h)
	}
	if _, err := s.Add(ctx, epoch.ID{2}, h, wire.Commits, all([]wire.Record{records[5], records[4]}), false, nil); !errors.Is(err, base.ErrInvalid) {
		t.Error(err)
	}
}
