package cloudsync

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// Erase gives commits up by name, for all devices, with what only they have: values are the roots
// of the values for whose sake that is done. It syncs, and cuts the log: the new epoch has none of
// the commits, and no pack with a piece of the values; what is still needed of these is moved
// before. The bucket is rid of it when CollectGarbage is called after the grace. Other devices give
// the commits up when they enter the epoch. None of the commits may be a head, tagged or in use.
// After an error it is called again. Errors: as Sync; base.ErrConflict for a commit that something
// needs.
func (p *Page) Erase(ctx context.Context, commits []commit.ID, values []object.Digest) (*GCReport, error) {
	if err := p.Sync(ctx); err != nil {
		return nil, err
	}
	err := p.withTurn(ctx, "erase from history", func(ctx context.Context) error {
		if err := BeginErasing(ctx, p.store); err != nil {
			return err
		}
		if len(commits) == 0 {
			return p.tidy(ctx)
		}
		return p.erase(ctx, commits, values)
	})
	if err == nil {
		err = p.Sync(ctx) // what has lost its place and is needed is sent again
	}
	if err != nil {
		return nil, err
	}
	return &GCReport{Commits: len(commits), Cut: len(commits) > 0}, nil
}

func (p *Page) erase(ctx context.Context, commits []commit.ID, values []object.Digest) error {
	rep := p.rep.Load()
	rep.SetErase(replica.Erase{Commits: commits, Values: values})
	defer rep.SetErase(replica.Erase{})
	if err := p.cut(ctx); err != nil {
		return err
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

// metadataErasing is the type of the metadata row that says that an erasure has begun and not come
// to its end.
const metadataErasing = storage.MetadataErasing

// Erasing reports whether the erasure of a value has begun in a page, by BeginErasing or Erase, and
// has not come to its end: what was begun is to be done again. Errors: those of the store and of
// ctx.
func Erasing(ctx context.Context, store *storage.Store) (bool, error) {
	row, err := store.Metadata(ctx, metadataErasing)
	return row != nil, err
}

// BeginErasing notes that commits are about to be given up in a page so that a value goes. It
// returns when that is durable. Errors: those of the store and of ctx.
func BeginErasing(ctx context.Context, store *storage.Store) error {
	return keepRows(ctx, store, storage.Metadata{Type: metadataErasing, Value: []byte{1}})
}

// EndErasing notes that nothing of what was to be erased is left. It returns when that is durable.
// Errors: those of the store and of ctx.
func EndErasing(ctx context.Context, store *storage.Store) error {
	return keepRows(ctx, store, storage.Metadata{Type: metadataErasing})
}
