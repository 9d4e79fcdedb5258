package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// salvaged repairs a damaged page and looks at what has become of it: it opens, Check is clean,
// what reads is right, and what does not was told. With whole set, nothing but content may be gone.
// It returns how many commits do not read any more.
func (g *golden) salvaged(o storage.Options, whole bool) (unread int, err error) {
	ctx := g.t.Context()
	dry, err := storage.Salvage(ctx, o, storage.SalvageOptions{DryRun: true, Resync: []string{"position"}})
	if err != nil {
		return 0, fmt.Errorf("dry run: %w", err)
	}
	r, err := storage.Salvage(ctx, o, storage.SalvageOptions{Resync: []string{"position"}})
	if err != nil {
		return 0, fmt.Errorf("salvage: %w", err)
	}
	if len(r.Damage) != len(dry.Damage) || len(r.Trees) != len(dry.Trees) || len(r.Pieces) != len(dry.Pieces) || r.Restored != dry.Restored {
		return 0, fmt.Errorf("a dry run says %+v, salvage %+v", dry, r)
	}
	if len(r.Damage) == 0 {
		return 0, errors.New("no damage was found")
	}
	s, err := storage.Open(ctx, o)
	if err != nil {
		return 0, fmt.Errorf("open: %w", err)
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := checkClean(s); err != nil {
		return 0, fmt.Errorf("%w\nreport %+v", err, r)
	}
	if err := sameHoles(s, r); err != nil {
		return 0, err
	}
	if again, err := storage.Salvage(ctx, o, storage.SalvageOptions{DryRun: true}); err != nil || len(again.Damage) > 0 {
		return 0, fmt.Errorf("damage after salvage: %v %w", again, err)
	}
	unread, err = g.mostlyThere(s, r)
	if err == nil && whole {
		err = g.promises(s, r)
	}
	if err == nil { // and it goes on
		err = s.SetTag(ctx, "after", s.NewestHead().ID)
	}
	if err == nil && g.rng.IntN(4) == 0 {
		before := unread
		cycles(g.t, s.NewCollector(storage.CollectOptions{}), 2) // what is reachable stays, holes or not
		if unread, err = g.mostlyThere(s, r); err == nil && unread != before {
			err = fmt.Errorf("%d commits do not read after collection, %d before", unread, before)
		}
		if err != nil {
			return unread, err
		}
		if _, err = s.Compact(ctx, storage.CompactOptions{MinDeadShare: 0.001}); err == nil {
			err = checkClean(s)
		}
	}
	return unread, err
}

// sameHoles verifies that a check after the repair lists the commits that have lost a part of their
// trees, be it the root.
func sameHoles(s *storage.Store, r *storage.SalvageReport) error {
	check, err := s.Check(context.Background(), storage.CheckOptions{})
	if err != nil {
		return err
	}
	lost := make([]commit.ID, len(r.Trees))
	for i, t := range r.Trees {
		lost[i] = t.Commit
	}
	slices.SortFunc(lost, commit.ID.Compare)
	slices.SortFunc(check.Holes, commit.ID.Compare)
	if !slices.Equal(check.Holes, lost) {
		return fmt.Errorf("a check lists %d commits with holes, the repair had %d", len(check.Holes), len(lost))
	}
	return nil
}

// mostlyThere reads the content of all commits: what does not read must have been told.
func (g *golden) mostlyThere(s *storage.Store, r *storage.SalvageReport) (unread int, err error) {
	lost := map[object.Digest]bool{}
	for _, p := range r.Pieces {
		lost[p.Digest] = true
	}
	values := map[object.Digest][]byte{}
	for _, c := range g.acked {
		got, err := s.Commit(g.t.Context(), c.ID)
		if err != nil {
			if !r.Unknown && !slices.Contains(r.Commits, c.ID) {
				return unread, fmt.Errorf("commit of generation %d is gone, and nobody says so: %w", c.Generation, err)
			}
			unread++
			continue
		}
		m, err := contentOnce(g.t.Context(), s, got, values)
		if err == nil {
			if !maps.EqualFunc(m, g.models[c.ID], bytes.Equal) {
				return unread, fmt.Errorf("wrong content of commit of generation %d", c.Generation)
			}
			continue
		}
		unread++
		if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrGone) && !errors.Is(err, base.ErrNeedsFetch) {
			return unread, fmt.Errorf("an error that says nothing: %w", err)
		}
		if !slices.ContainsFunc(r.Trees, func(t storage.LostTree) bool { return t.Commit == c.ID }) && len(lost) == 0 {
			return unread, fmt.Errorf("commit of generation %d does not read, and nobody has said so: %w", c.Generation, err)
		}
	}
	return unread, nil
}

// promises verifies all but content.
func (g *golden) promises(s *storage.Store, r *storage.SalvageReport) error {
	for _, c := range g.acked {
		if _, err := s.Commit(g.t.Context(), c.ID); err != nil {
			return err
		}
	}
	tags, err := s.Tags(g.t.Context())
	if err != nil {
		return err
	}
	for name, values := range g.tags {
		if want := values[g.tagged[name]]; tags[name] != want {
			return fmt.Errorf("tag %q is %s, want %s", name, tags[name], want)
		}
	}
	var heads []commit.ID
	for _, h := range s.Heads() {
		heads = append(heads, h.ID)
	}
	if !slices.Equal(heads, g.heads) {
		return fmt.Errorf("heads %v, want %v", heads, g.heads)
	}
	ids, err := s.Unsynced(g.t.Context())
	if err != nil || len(ids) != len(g.acked) {
		return fmt.Errorf("%d unsynced commits, want %d: %w", len(ids), len(g.acked), err)
	}
	for merge, want := range g.ackExplained {
		if slices.Contains(r.Explanations, merge) {
			continue
		}
		if root, ok, err := s.Explanation(g.t.Context(), merge); err != nil || !ok || root != want[0] {
			return fmt.Errorf("explanation of merge %s: %s, %v, %w", merge, root, ok, err)
		}
	}
	return nil
}

// TestSalvageOfADamagedMerge: the explanation of a merge goes with a merge that is lost.
func TestSalvageOfADamagedMerge(t *testing.T) {
	g := newGolden(t, 1, storage.Options{SegmentBytes: 64 << 10}, "")
	found := false
	for name, b := range g.segments() {
		at := bytes.Index(b, g.merge.Encode())
		if at < 0 {
			continue
		}
		found = true
		o, m := g.copyOf()
		o.MemoryIndex = index.NewMemory()
		damage(t, m, filepath.Join(g.o.Dir, name), flip(at+1, 1, b))
		_, err := g.salvaged(o, false)
		g.must(err)
	}
	if !found {
		t.Error("no segment has the merge")
	}
}

// TestSalvage flips bytes of segments, cuts and removes them. With page.db nothing but content can
// be gone; without it, what is gone is told. A second check is clean always.
func TestSalvage(t *testing.T) {
	g := newGolden(t, 1, storage.Options{SegmentBytes: 64 << 10}, "")
	rng := rand.New(rand.NewPCG(tier.Seed(), 15))
	cases, unread := 0, 0
	for name, b := range g.segments() {
		path := filepath.Join(g.o.Dir, name)
		each := func(what string, off int, change func(m *vfstest.Mem)) {
			t.Helper()
			for _, indexed := range []bool{true, false} {
				cases++
				o, m := g.copyOf()
				if !indexed {
					o.MemoryIndex = index.NewMemory()
				}
				change(m)
				n, err := g.salvaged(o, indexed)
				if err != nil && (indexed || err.Error() != "no damage was found") {
					t.Fatalf("LEDGER_SEED=%d, %s at %d of %s, index %v: %v", tier.Seed(), what, off, name, indexed, err)
				}
				unread += n
			}
		}
		st := stride(len(b), 6*tier.Factor())
		for off := rng.IntN(min(32, st)); off < len(b); off += 1 + rng.IntN(2*st) {
			each("flip", off, func(m *vfstest.Mem) { damage(t, m, path, flip(off, 1<<rng.IntN(8), b)) })
		}
		for range 1 + tier.Factor() {
			size := rng.IntN(len(b))
			each("cut", size, func(m *vfstest.Mem) { damage(t, m, path, func(f vfs.File) error { return f.Truncate(int64(size)) }) })
			zero := make([]byte, min(rng.IntN(4096), len(b)-size))
			each("zeros", size, func(m *vfstest.Mem) {
				damage(t, m, path, func(f vfs.File) error { _, err := f.WriteAt(zero, int64(size)); return err })
			})
		}
		each("removed", 0, func(m *vfstest.Mem) {
			g.must(m.Remove(path))
			g.must(m.SyncDir(g.o.Dir))
		})
	}
	t.Logf("%d cases, %d commits do not read in one", cases, unread)
}
