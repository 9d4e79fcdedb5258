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
	// Values are the pieces of long values, Nodes the trees with the inline values in them, of all
	// versions that are kept, Commits the commits.
	Values, Nodes, Commits int64
	// Rest is what else is in the segments: what was deleted and is not compacted away, and records
	// of tags, of sync and of transactions.
	Rest int64
	// Index is page.db, which can be made anew from the segments.
	Index int64
	// Other is in other files: torn ends that were set aside, files of transactions.
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

// PageUsage says what a page takes, when it was used last, and whether it could be evicted.
type PageUsage struct {
	ledger.PageInfo
	// Kinds are what it takes by kind of data.
	Kinds SpaceKinds
	// Garbage is what pieces and nodes take that nothing refers to, and that Collect has still to
	// delete: what only they refer to comes on top.
	Garbage int64
	// Unsynced and UnsyncedTags are commits and tags that the bucket does not have, LocalValues
	// reports pieces of values that it does not have. Without a cloud that is all of them.
	Unsynced, UnsyncedTags int
	LocalValues            bool
	// Bar says why the page cannot be evicted, and Reason tells it to people; EvictFree when it
	// can.
	Bar    EvictBar
	Reason string
	// Err says why the page could not be read; nil when it could.
	Err error
}

// RepositoryUsage says what takes space in a repository.
type RepositoryUsage struct {
	// Pages has one element for each page, those that are in the cloud only too, sorted by ledger,
	// then id.
	Pages []PageUsage
	// SizeBytes and Kinds are sums.
	SizeBytes int64
	Kinds     SpaceKinds
	// Garbage is the sum of what Collect has still to delete.
	Garbage int64
	// EvictableBytes is what Evict could free, pages that are open not counted.
	EvictableBytes int64
	// FreeBytes is what is free on the disk, -1 when that is not known.
	FreeBytes int64
}

// Usage measures all pages. It opens each for a moment that is not open, which is no use of it, and
// asks no bucket. Errors: ErrClosed, ErrCorrupt (of the list of pages), those of ctx and of the
// file system; what is wrong with a page is in its PageUsage.
func Usage(ctx context.Context, repo *ledger.Repository) (RepositoryUsage, error) {
	r := of(repo)
	infos, err := repo.Pages(ctx)
	if err != nil {
		return RepositoryUsage{}, fmt.Errorf("usage: %w", err)
	}
	u := RepositoryUsage{FreeBytes: -1}
	if n, err := r.Free(); err == nil {
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
