package admin

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/reclaim"
)

// Erasure says what was erased from the history of a page.
type Erasure struct {
	ledger.PageRef
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

// EraseOptions say how Erase works.
type EraseOptions struct {
	// DryRun changes nothing, and syncs nothing before: Commits counts what would be given up.
	DryRun bool
}

// Erase erases from the history of a page what a key had before: it gives up all commits
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
func Erase(ctx context.Context, repo *ledger.Repository, page ledger.PageRef, key []byte, o *EraseOptions) (Erasure, error) {
	r, e := of(repo), Erasure{PageRef: page}
	_, e.InBucket = repo.Cloud()
	err := r.Change(ctx, "erase from the history", false, func(ctx context.Context) error {
		return r.visitAll(ctx, []ledger.PageRef{page}, func(ctx context.Context, p *bridge.Page) error {
			e.Name = p.Name
			return r.erase(ctx, p, key, given(o), &e)
		})
	})
	return e, err
}

func (r engines) erase(ctx context.Context, p *bridge.Page, key []byte, o EraseOptions, e *Erasure) error {
	if e.InBucket && !o.DryRun {
		if err := p.WithSync(ctx, "", syncPage); err != nil {
			return err
		}
	}
	if _, err := p.Session.Refresh(ctx); err != nil { // what came down is newer than where this handle stands
		return err
	}
	ids, values, err := reclaim.Holders(ctx, p.Store, p.Session.Tree, key)
	if err != nil {
		p.Note(err)
		return err
	}
	begun, err := cloudsync.Erasing(ctx, p.Store) // and was interrupted
	if err != nil {
		return err
	}
	if len(ids) == 0 && !begun {
		if o.DryRun {
			return fmt.Errorf("no commit has anything else under the key than the page has now: %w", ledger.ErrNotFound)
		}
		if err := clearFiles(ctx, p, e.InBucket); err != nil { // who asks for this may have given it up before, by a retention
			return err
		}
		return fmt.Errorf("no commit has anything else under the key than the page has now, and what was given up before is out of the files: %w", ledger.ErrNotFound)
	}
	for _, id := range p.Positions() {
		if slices.Contains(ids, id) {
			return fmt.Errorf("a handle of the page stands on commit %s: %w", id.Short(), ledger.ErrConflict)
		}
	}
	if o.DryRun {
		e.Commits = len(ids)
		return nil
	}
	before, err := r.Disk.PageSize(p.Key)
	if err != nil {
		return err
	}
	if e.InBucket {
		err = p.WithSync(ctx, "erase in the bucket", func(ctx context.Context, s *cloudsync.Page) error {
			_, err := s.Erase(ctx, ids, values)
			return err
		})
	} else {
		if err = cloudsync.Forget(ctx, p.Store); err == nil { // a cloud that it had knows nothing of this
			err = cloudsync.BeginErasing(ctx, p.Store)
		}
		if err == nil {
			_, err = cloudsync.Prune(ctx, p.Store, ids)
		}
	}
	if err == nil {
		err = clearFiles(ctx, p, e.InBucket)
	}
	if err == nil {
		err = cloudsync.EndErasing(ctx, p.Store)
	}
	if err != nil {
		return err
	}
	after, err := r.Disk.PageSize(p.Key)
	e.Commits, e.Bytes = len(ids), before-after
	return err
}

// clearFiles rids the page's files of all that nothing refers to any more, and of what was set
// aside of damage. Errors: ErrConflict while a transaction is open that may keep something of it.
func clearFiles(ctx context.Context, p *bridge.Page, cloud bool) error {
	open := p.Transactions()
	if err := p.Collector.All(ctx, nil); err != nil {
		return err
	}
	r, err := p.Collector.Purge(ctx)
	if err != nil {
		return err
	}
	still := r.Left > 0
	if cloud { // then the collector leaves what a transaction may rely on that is older than it
		for t := range p.Transactions() {
			still = still || open[t]
		}
	}
	if still {
		return fmt.Errorf("a transaction is open that may need what is to go: erase once more when it has ended: %w", ledger.ErrConflict)
	}
	return nil
}
