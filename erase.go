package ledger

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/storage"
)

// Erasure says what was erased from the history of a page.
type Erasure struct {
	PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	// Commits counts the commits that were given up.
	Commits int
	// Bytes is by how much the page has become smaller on the disk.
	Bytes int64
	// InBucket reports that it was erased in the bucket, too: CollectCloud deletes it there after
	// 30 days.
	InBucket bool
}

// EraseOptions say how EraseFromHistory works.
type EraseOptions struct {
	// DryRun changes nothing, and syncs nothing before: Commits counts what would be given up.
	DryRun bool
}

// EraseFromHistory erases from the history of a page what a key had before: it gives up all commits
// in which the key has something else than in the page's heads, and what only these have, and
// writes the page's files anew without it, at once. To erase what a key has now, delete it first.
// Older history than such commits is cut off with them, but for tagged commits. With a cloud all
// devices give the commits up when they sync next, and the bucket is rid of them 30 days after, by
// CollectCloud; what is tagged elsewhere meanwhile stays there.
//
// Trees that are only in the cloud are fetched. A commit whose tree is nowhere any more is given up
// as well. What the page has set aside of damage goes too. After an error, or a crash, it is to be
// called again, and goes on; it may have no commit to give up any more then. Errors: ErrNotFound
// (no such page, or no commit in which the key had anything else; also then the files are rid of
// what was given up before), ErrConflict (such a commit is tagged, a head, or in use by a snapshot
// or another handle, or a transaction is open that may need it), ErrReadOnly, ErrClosed, those of
// Sync and of the disk.
func (r *Repository) EraseFromHistory(ctx context.Context, page PageRef, key []byte, o EraseOptions) (Erasure, error) {
	e := Erasure{PageRef: page}
	err := r.change(ctx, "erase from the history", false, func(ctx context.Context) error {
		return r.visitAll(ctx, []PageRef{page}, func(ctx context.Context, p *Page) error {
			e.Name = p.Name()
			return p.erase(ctx, key, o, &e)
		})
	})
	return e, err
}

func (p *Page) erase(ctx context.Context, key []byte, o EraseOptions, e *Erasure) error {
	_, e.InBucket = p.ledger.repo.Cloud()
	if e.InBucket && !o.DryRun {
		if err := p.Sync(ctx); err != nil {
			return err
		}
	}
	if _, err := p.Refresh(ctx); err != nil { // what came down is newer than where this handle stands
		return err
	}
	ids, values, err := reclaim.Holders(ctx, p.store, p.in.Tree, key)
	if err != nil {
		p.note(err)
		return err
	}
	begun, err := cloudsync.Erasing(ctx, p.store) // and was interrupted
	if err != nil {
		return err
	}
	if len(ids) == 0 && !begun {
		if o.DryRun {
			return fmt.Errorf("no commit has anything else under the key than the page has now: %w", ErrNotFound)
		}
		if err := p.clearFiles(ctx); err != nil { // who asks for this may have given it up before, by a retention
			return err
		}
		return fmt.Errorf("no commit has anything else under the key than the page has now, and what was given up before is out of the files: %w", ErrNotFound)
	}
	for _, id := range p.shared.positions() {
		if slices.Contains(ids, id) {
			return fmt.Errorf("a handle of the page stands on commit %s: %w", id.Short(), ErrConflict)
		}
	}
	if o.DryRun {
		e.Commits = len(ids)
		return nil
	}
	before, err := p.ledger.repo.disk.PageSize(p.shared.key)
	if err != nil {
		return err
	}
	if e.InBucket {
		err = p.withSync(ctx, "erase in the bucket", func(ctx context.Context, s *cloudsync.Page) error {
			_, err := s.Erase(ctx, ids, values)
			return err
		})
	} else {
		if err = cloudsync.Forget(ctx, p.store); err == nil { // a cloud that it had knows nothing of this
			err = cloudsync.BeginErasing(ctx, p.store)
		}
		if err == nil {
			_, err = cloudsync.Prune(ctx, p.store, ids)
		}
	}
	if err == nil {
		err = p.clearFiles(ctx)
	}
	if err == nil {
		err = cloudsync.EndErasing(ctx, p.store)
	}
	if err != nil {
		return err
	}
	after, err := p.ledger.repo.disk.PageSize(p.shared.key)
	e.Commits, e.Bytes = len(ids), before-after
	return err
}

// clearFiles rids the page's files of all that nothing refers to any more, and of what was set
// aside of damage. Errors: ErrConflict while a transaction is open that may keep something of it.
func (p *Page) clearFiles(ctx context.Context) error {
	open := p.shared.transactions()
	if err := p.shared.collector.All(ctx, nil); err != nil {
		return err
	}
	r, err := p.store.Compact(ctx, storage.CompactOptions{Purge: true})
	if err != nil {
		return err
	}
	still := r.Left > 0
	if _, cloud := p.ledger.repo.Cloud(); cloud { // then the collector leaves what a transaction may rely on that is older than it
		for t := range p.shared.transactions() {
			still = still || open[t]
		}
	}
	if still {
		return fmt.Errorf("a transaction is open that may need what is to go: erase once more when it has ended: %w", ErrConflict)
	}
	return nil
}
