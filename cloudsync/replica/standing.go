package replica

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/storage"
)

// MetadataPosition is the type of the row of sync_metadata with the position. A page that has lost
// this row compares all its data with the bucket.
const MetadataPosition = rowPosition

// Standing is what a store records of its bucket, for a reader without a Page.
type Standing struct {
	// Bucket is the id of the bucket, and At the position there. Zero: the page was never synced.
	Bucket    seal.ID
	At        epoch.Position
	EntryTime epoch.Time // when the last applied entry was created
	// Retention is the bucket's, or that of the former bucket if the page was never synced with
	// this one.
	Retention wire.Retention
	near      map[epoch.Commit]epoch.Set // of commits whose nearest ancestors are not their parents
}

// StandingOf reads the Standing of a store. Errors: *base.CorruptError for a bad row; those of the
// store.
func StandingOf(ctx context.Context, store *storage.Store) (*Standing, error) {
	var s State
	known, err := readPart(ctx, store, rowPosition, &s.standing)
	if err != nil {
		return nil, err
	}
	rows := []string{rowRetention, rowNear}
	if known {
		rows = append(rows, rowGiveUp)
	}
	for _, row := range rows {
		if _, err := readPart(ctx, store, row, s.parts()[row]); err != nil {
			return nil, err
		}
	}
	st := &Standing{Bucket: s.Bucket, At: s.At, EntryTime: s.EntryTime, Retention: s.Retention, near: s.Near}
	if len(s.GiveUp) == 0 {
		return st, nil
	}
	p := &Page{o: Options{Store: store}}
	if p.state, err = loadState(ctx, store, s.Bucket); err != nil {
		return nil, err
	}
	j, g, err := p.merging(ctx)
	if err != nil {
		return nil, err
	}
	st.near = map[epoch.Commit]epoch.Set{}
	for _, n := range j.Graph {
		i, _ := g.Index(n.ID)
		if _, ok := s.Near[n.ID]; ok || !slices.Equal(n.Near, g[i].Near) {
			st.near[n.ID] = n.Near
		}
	}
	return st, nil
}

// Near returns the nearest ancestors of a commit with a given-up parent, for finding the base of a
// merge. ok is false if they are its parents.
func (s *Standing) Near(ctx context.Context, store *storage.Store, id commit.ID) (near []commit.ID, ok bool, err error) {
	set, ok := s.near[short(id)]
	for _, c := range set {
		ids, err := store.FindCommits(ctx, prefix(c), false, 1)
		if err != nil {
			return nil, false, fmt.Errorf("look for an ancestor of %s: %w", id.Short(), err)
		}
		near = append(near, ids...)
	}
	return near, ok, nil
}

// Over returns a Getter with the commits of g and the nearest ancestors of the Standing: a
// merge.NearGetter.
func (s *Standing) Over(g commit.Getter, store *storage.Store) commit.Getter {
	return nearCommits{g, s, store}
}

type nearCommits struct {
	commit.Getter
	s     *Standing
	store *storage.Store
}

// Near implements merge.NearGetter.
func (n nearCommits) Near(ctx context.Context, id commit.ID) ([]commit.ID, bool, error) {
	return n.s.Near(ctx, n.store, id)
}

// Surplus returns how many commits a cut would now give up under the retention r. The log has one
// head.
func (p *Page) Surplus(ctx context.Context, r wire.Retention) (int, error) {
	if r == (wire.Retention{}) {
		return 0, nil
	}
	g, unsynced, err := p.graph(ctx)
	if err != nil {
		return 0, err
	}
	tags, err := p.o.Store.Tags(ctx)
	if err != nil {
		return 0, fmt.Errorf("read the tags: %w", err)
	}
	s := p.logState(g, unsynced, r)
	for name, id := range tags {
		s.Tags = append(s.Tags, epoch.Tag{Name: name, Commit: short(id)})
	}
	return len(s.Kept.Set().Without(s.Keep(p.state.EntryTime, nil))), nil
}
