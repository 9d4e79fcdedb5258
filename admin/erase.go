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

// Erasure is the result of Erase.
type Erasure struct {
	ledger.PageRef
	// Name is the page's human name, "" when there is none.
	Name string
	// Commits counts the commits that were given up.
	Commits int
	// Bytes is how much disk space the page has freed.
	Bytes int64
	// InBucket reports that the bucket's copy was given up, too: CollectCloud deletes it after 30
	// days.
	InBucket bool
}

// EraseOptions configure Erase.
type EraseOptions struct {
	// DryRun changes nothing and does not sync: Commits counts the commits that would be given up.
	DryRun bool
}

// Erase removes every commit that holds an older value of a key, and the data that only those
// commits use, and rewrites the page's files without them at once. The heads keep their value of
// the key: to erase the present value, delete the key first. History before the erased commits is
// cut off, except tagged commits. With a cloud, all devices give the commits up at their next sync,
// and CollectCloud removes them from the bucket after 30 days; commits that other devices have
// tagged meanwhile stay there.
//
// Trees that are only in the cloud are fetched. A commit whose tree is lost everywhere is given up,
// too. Damaged data that the page has set aside is deleted. After an error or a crash, call Erase
// again to continue; it may then find no commit to give up. Errors: ErrNotFound (no such page, or
// no commit with an older value; the files are still cleared of commits given up before),
// ErrConflict (such a commit is tagged, a head, or in use by a snapshot or another handle, or an
// open transaction may need it), ErrReadOnly, ErrClosed, those of Sync and of the disk.
func Erase(ctx context.Context, repo *ledger.Repository, page ledger.PageRef, key []byte, o *EraseOptions) (Erasure, error) {
	r, e := of(repo), Erasure{PageRef: page}
	_, e.InBucket = repo.Cloud()
	err := r.Change(ctx, "erase from the history", given(o).DryRun, func(ctx context.Context) error {
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
	if _, err := p.Session.Refresh(ctx); err != nil { // downloaded heads are newer than this handle's
		return err
	}
	ids, values, err := reclaim.Holders(ctx, p.Store, p.Session.Tree, key)
	if err != nil {
		p.Note(err)
		return err
	}
	begun, err := cloudsync.Erasing(ctx, p.Store) // an interrupted erasure
	if err != nil {
		return err
	}
	if len(ids) == 0 && !begun {
		if o.DryRun {
			return fmt.Errorf("no commit has anything else under the key than the page has now: %w", ledger.ErrNotFound)
		}
		if err := clearFiles(ctx, p, e.InBucket); err != nil { // a retention may have given the commits up before
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
		if err = cloudsync.Forget(ctx, p.Store); err == nil { // a former cloud has no record of this erasure
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

// clearFiles removes all unreferenced data and set-aside damage from the page's files. Errors:
// ErrConflict while a transaction is open that may need such data.
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
	if cloud { // with a cloud, the collector keeps older data that a transaction may rely on
		for t := range p.Transactions() {
			still = still || open[t]
		}
	}
	if still {
		return fmt.Errorf("a transaction is open that may need what is to go: erase once more when it has ended: %w", ledger.ErrConflict)
	}
	return nil
}
