package cloudlink

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// leaveOthers makes every page forget buckets other than id, after it has fetched the data that
// only they have. The caller holds the cloud's turn. A crash in between leaves pages that have
// forgotten a cloud that is still set: they join it again.
func (l *Link) leaveOthers(ctx context.Context, id seal.ID) error {
	if err := l.BringBackOthers(ctx, id); err != nil {
		return err
	}
	keys, err := l.o.Disk.Pages()
	if err != nil {
		return err
	}
	var foreign []base.Page
	for _, k := range keys {
		err := l.o.Visit(ctx, k, func(ctx context.Context, p *Page) error {
			_, other, err := p.otherBucket(ctx, id)
			if err != nil || !other {
				return err
			}
			foreign = append(foreign, k)
			return p.fetchEverything(ctx)
		})
		if err != nil {
			return fmt.Errorf("leave the former cloud of page %s: %w", l.text(k), err)
		}
	}
	if len(foreign) == 0 {
		return nil
	}
	if err := l.disconnect(); err != nil {
		return err
	}
	for _, k := range foreign {
		if err := l.o.Visit(ctx, k, func(ctx context.Context, p *Page) error { return p.Store.ForgetCloud(ctx, true) }); err != nil {
			return fmt.Errorf("forget the former cloud of page %s: %w", l.text(k), err)
		}
	}
	return nil
}

// otherBucket reports whether the page was synced with a bucket other than id, and with which.
func (s *Page) otherBucket(ctx context.Context, id seal.ID) (seal.ID, bool, error) {
	at, err := cloudsync.StandingOf(ctx, s.Store)
	if err != nil || !at.At.Joined() {
		return seal.ID{}, false, err
	}
	return at.Bucket, at.Bucket != id, nil
}

// fetchEverything fetches all data that the page has only in its cloud: trees of older commits and
// pieces of values. Data that is lost everywhere is no error. The caller holds the cloud's turn.
// The error matches base.ErrNeedsFetch when the cloud is not the one with the data.
func (s *Page) fetchEverything(ctx context.Context) error {
	trees, err := s.treeless(ctx)
	if err != nil {
		return err
	}
	pieces, err := s.Store.OnlyInCloud(ctx)
	if err != nil || len(trees)+len(pieces) == 0 {
		return err
	}
	var synced *cloudsync.Page
	if _, err = s.link.connectInTurn(ctx); err == nil {
		synced, err = s.synced(ctx, true)
	}
	if err != nil {
		return fmt.Errorf("%d older versions and %d pieces of values are in the former cloud only, which cannot be reached: %w: %w", len(trees), len(pieces), base.ErrNeedsFetch, err)
	}
	if len(trees) > 0 {
		err := synced.BuildTrees(ctx, trees)
		if errors.Is(err, base.ErrGone) {
			s.link.o.Logger.Warn("older versions are gone in the former cloud", "ledger", s.Page.Ledger, "page", hexOf(s.Page.ID), "error", err)
		} else if err != nil {
			return fmt.Errorf("fetch the trees of %d commits: %w", len(trees), err)
		}
		if pieces, err = s.Store.OnlyInCloud(ctx); err != nil { // the fetched trees have the places of their values
			return err
		}
	}
	for part := range slices.Chunk(pieces, fetchedAtOnce) {
		if _, err := synced.Fetch(ctx, part); err != nil {
			return fmt.Errorf("fetch %d pieces of values: %w", len(pieces), err)
		}
	}
	return nil
}

// fetchedAtOnce is how many pieces are requested at once.
const fetchedAtOnce = 1024

// stored reads commits that are stored on this device.
type stored struct{ store *storage.Store }

// Commit implements commit.Getter.
func (g stored) Commit(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	return g.store.Known(ctx, id)
}

// treeless returns the treeless commits.
func (s *Page) treeless(ctx context.Context) (ids []commit.ID, err error) {
	var heads []commit.ID
	for _, h := range s.Store.Heads() {
		heads = append(heads, h.ID)
	}
	for c, err := range commit.Walk(ctx, stored{s.Store}, heads) {
		if err != nil {
			return nil, err
		}
		held, err := s.Store.TreeHeld(ctx, c)
		if err != nil {
			return nil, err
		}
		if !held {
			ids = append(ids, c.ID)
		}
	}
	return ids, nil
}
