package cloudsync

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// Erase gives the named commits up for all devices, with the data that only these commits use.
// values are the roots of the values to erase. Erase syncs, and cuts the log: the new epoch has
// none of the commits, and no pack with a piece of the values. Pieces in such packs that are still
// needed are moved first. The bucket is rid of the values when CollectGarbage is called after the
// grace. Other devices give the commits up when they enter the epoch. None of the commits may be a
// head, tagged or in use. After an error, call Erase again. Errors: as Sync; base.ErrConflict for a
// commit that is needed, and while the log has several heads.
func (p *Page) Erase(ctx context.Context, commits []commit.ID, values []object.Digest) (*GCReport, error) {
	err := errHeads
	for try := 0; try < maxMerges && errors.Is(err, errHeads); try++ { // heads may arrive after Sync
		if err = p.Sync(ctx); err == nil {
			err = p.withTurn(ctx, 0, "erase from history", func(ctx context.Context) error {
				if err := BeginErasing(ctx, p.store); err != nil {
					return err
				}
				if len(commits) == 0 {
					return p.tidy(ctx)
				}
				return p.erase(ctx, commits, values)
			})
		}
	}
	if err == nil {
		err = p.Sync(ctx) // needed pieces that have lost their place are sent again
	}
	if err != nil {
		return nil, err
	}
	return &GCReport{Commits: len(commits), Cut: len(commits) > 0}, nil
}

// errHeads is the error of Erase while the log has several heads.
var errHeads = fmt.Errorf("the page has several heads, which have to be merged first: %w", base.ErrConflict)

func (p *Page) erase(ctx context.Context, commits []commit.ID, values []object.Digest) error {
	rep := p.rep.Load()
	rep.SetErase(replica.Erase{Commits: commits, Values: values})
	defer rep.SetErase(replica.Erase{})
	if done, err := p.cut(ctx); err != nil || !done {
		return cmp.Or(err, errHeads)
	}
	for _, id := range commits {
		_, err := p.store.Commit(ctx, id)
		switch {
		case err == nil:
			return fmt.Errorf("commit %s stays, as something needs it: %w", id.Short(), base.ErrConflict)
		case !errors.Is(err, base.ErrNotFound) && !errors.Is(err, base.ErrGone):
			return err
		}
	}
	return nil
}

// metadataErasing is the type of the metadata row of an erasure that is not finished.
const metadataErasing = storage.MetadataErasing

// Erasing reports whether BeginErasing or Erase has begun an erasure in a page that is not
// finished: it has to be done again. Errors: those of the store and of ctx.
func Erasing(ctx context.Context, store *storage.Store) (bool, error) {
	row, err := store.Metadata(ctx, metadataErasing)
	return row != nil, err
}

// BeginErasing records that commits of a page are about to be given up to erase a value. It returns
// when the record is durable. Errors: those of the store and of ctx.
func BeginErasing(ctx context.Context, store *storage.Store) error {
	return keepRows(ctx, store, storage.Metadata{Type: metadataErasing, Value: []byte{1}})
}

// EndErasing records that nothing is left to erase. It returns when the record is durable. Errors:
// those of the store and of ctx.
func EndErasing(ctx context.Context, store *storage.Store) error {
	return keepRows(ctx, store, storage.Metadata{Type: metadataErasing})
}
