package admin

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/storage"
)

// SpaceKinds are bytes on disk by kind of data.
type SpaceKinds struct {
	// Values are the pieces of long values, Nodes the trees with their inline values, Commits the
	// commits, each over all kept versions.
	Values, Nodes, Commits int64
	// Rest is the other content of the segments: deleted data before compaction, and records of
	// tags, of sync and of transactions.
	Rest int64
	// Index is page.db, which can be rebuilt from the segments.
	Index int64
	// Other is the size of other files: torn ends that were set aside, files of transactions.
	Other int64
}

func (k *SpaceKinds) add(l SpaceKinds) {
	k.Values += l.Values
	k.Nodes += l.Nodes
	k.Commits += l.Commits
	k.Rest += l.Rest
	k.Index += l.Index
	k.Other += l.Other
}

// PageUsage is the disk space of a page, its last use, and whether it could be evicted.
type PageUsage struct {
	ledger.PageInfo
	// Kinds is the space by kind of data.
	Kinds SpaceKinds
	// Garbage is the size of unreferenced pieces and nodes that Collect has yet to delete, without
	// what only they refer to.
	Garbage int64
	// Unsynced and UnsyncedTags count commits and tags that the bucket does not have; LocalValues
	// reports such pieces of values. Without a cloud these are all.
	Unsynced, UnsyncedTags int
	LocalValues            bool
	// Bar is why the page cannot be evicted, and Reason the text for users; EvictFree when it can.
	Bar    EvictBar
	Reason string
	// Err says why the page could not be read; nil when it could.
	Err error
}

// RepositoryUsage is the disk space of a repository.
type RepositoryUsage struct {
	// Pages has one element for each page, also for those in the cloud only, sorted by ledger, then
	// id.
	Pages []PageUsage
	// SizeBytes and Kinds are sums over the pages.
	SizeBytes int64
	Kinds     SpaceKinds
	// Garbage is the sum over the pages.
	Garbage int64
	// EvictableBytes is what Evict could free, without open pages.
	EvictableBytes int64
	// FreeBytes is the free space on the disk, -1 when unknown.
	FreeBytes int64
}

// Usage measures all pages. It briefly opens each closed page, which does not count as use, and
// makes no request. Errors: ErrClosed, ErrCorrupt (of the list of pages), those of ctx and of the
// file system; errors of a page are in its PageUsage.
func Usage(ctx context.Context, repo *ledger.Repository) (RepositoryUsage, error) {
	r := of(repo)
	infos, err := repo.Pages(ctx)
	if err != nil {
		return RepositoryUsage{}, fmt.Errorf("usage: %w", err)
	}
	u := RepositoryUsage{FreeBytes: -1}
	if n, err := r.Space.Free(); err == nil {
		u.FreeBytes = n
	}
	for _, info := range infos {
		if info.State == ledger.PageEvicted {
			u.Pages = append(u.Pages, PageUsage{PageInfo: info, Bar: EvictAway, Reason: "it is in the cloud only already"})
			continue
		}
		p := r.pageUsage(ctx, info)
		if err := ctx.Err(); err != nil {
			return RepositoryUsage{}, fmt.Errorf("usage: %w", err)
		}
		if r.hasLeft(keyOf(info.PageRef), p.Err) {
			continue
		}
		u.Pages = append(u.Pages, p)
		u.SizeBytes += p.SizeBytes
		u.Kinds.add(p.Kinds)
		u.Garbage += p.Garbage
		if p.Bar == EvictFree {
			u.EvictableBytes += p.SizeBytes
		}
	}
	return u, nil
}

func (r engines) pageUsage(ctx context.Context, info ledger.PageInfo) PageUsage {
	u := PageUsage{PageInfo: info}
	err := r.Visit(ctx, keyOf(info.PageRef), func(ctx context.Context, p *bridge.Page) error {
		err := u.fill(ctx, r, p.Store)
		p.Note(err)
		return err
	})
	if err != nil {
		u.Err, u.Bar, u.Reason = err, EvictDamaged, fmt.Sprintf("it cannot be read: %v", err)
	}
	if u.State == ledger.PageOpen {
		u.Bar, u.Reason = EvictOpen, "it is open"
	}
	return u
}

func (u *PageUsage) fill(ctx context.Context, r engines, store *storage.Store) error {
	st, err := r.Space.Look(ctx, store)
	if err != nil {
		return err
	}
	u.Unsynced, u.UnsyncedTags, u.LocalValues = st.Unsynced, st.Tags, st.Local
	u.Bar, u.Reason = st.Bar, st.Reason
	s, err := store.Space(ctx)
	if err != nil {
		return err
	}
	garbage, err := store.Garbage(ctx)
	if err != nil {
		return err
	}
	u.Garbage = garbage.Bytes
	u.Kinds = SpaceKinds{
		Values: s.Pieces.Bytes, Nodes: s.Nodes.Bytes + s.Bases.Bytes, Commits: s.Commits.Bytes,
		Rest: s.Other, Index: s.IndexBytes,
	}
	u.Kinds.Other = max(0, u.SizeBytes-s.SegmentBytes-s.IndexBytes)
	return nil
}
