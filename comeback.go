package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/storage"
)

// awayError says why an evicted page could not be brought back. It matches ErrNeedsFetch.
type awayError struct{ err error }

func (e *awayError) Error() string {
	return "bring the page back, which is in the cloud only: " + e.err.Error()
}
func (e *awayError) Unwrap() error        { return e.err }
func (e *awayError) Is(target error) bool { return target == ErrNeedsFetch }

// fillPage makes a page in dir of what the bucket has (A3). Errors: ErrNeedsFetch, with why the
// bucket does not give it; ErrCloudRolledBack; those of Sync.
func (r *Repository) fillPage(ctx context.Context, k pageKey, dir string, a *layout.Absence) error {
	return r.fillBy(ctx, r.connect, k, dir, a)
}

// fillInTurn is fillPage for a caller that has the cloud's turn.
func (r *Repository) fillInTurn(ctx context.Context, k pageKey, dir string, a *layout.Absence) error {
	return r.fillBy(ctx, r.connectInTurn, k, dir, a)
}

func (r *Repository) fillBy(ctx context.Context, connect func(context.Context) (*cloudLink, error), k pageKey, dir string, a *layout.Absence) error {
	if r.o.ReadOnly {
		return &awayError{fmt.Errorf("the repository is open for reading: %w", ErrReadOnly)}
	}
	link, err := connect(ctx)
	if err == nil {
		err = r.fs.RemoveAll(dir)
	}
	if err == nil {
		err = r.fillFrom(ctx, link, k, dir, a)
	}
	if err != nil {
		return &awayError{errors.Join(err, r.fs.RemoveAll(dir))}
	}
	r.o.Logger.Info("an evicted page came back", "ledger", k.Ledger, "page", PageID(k.ID).String())
	return nil
}

func (r *Repository) fillFrom(ctx context.Context, link *cloudLink, k pageKey, dir string, away *layout.Absence) (err error) {
	r.mu.Lock()
	delete(r.indexes, k) // nothing is known of a page that comes
	r.mu.Unlock()
	o := r.storageOptions(k)
	o.Dir = dir
	if err := storage.Create(ctx, o); err != nil {
		return err
	}
	store, err := storage.Open(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	name := away.Name
	if name == "" {
		if name, _, err = r.usage.Page(k); err != nil {
			return err
		}
	}
	synced := link.syncer.OpenPage(cloudsync.PageOptions{
		Store: store, Ledger: k.Ledger, Name: name,
		Plain: r.keysUnder(k, UploadRule.compressionOff), Again: r.keysUnder(k, UploadRule.dedupOff),
	})
	if err := errors.Join(synced.Sync(ctx), synced.Close()); err != nil {
		return err
	}
	return provedBack(ctx, away, store, link.id())
}

// provedBack returns an error when what came from a bucket is less than what was evicted.
func provedBack(ctx context.Context, a *layout.Absence, store *storage.Store, bucket format.ID) error {
	at, err := cloudsync.StandingOf(ctx, store)
	if err != nil {
		return err
	}
	switch {
	case at.At.Number == 0:
		return fmt.Errorf("bucket %s has nothing of the page, which bucket %s had: %w", hexOf(bucket), hexOf(a.Bucket), ErrCloudRolledBack)
	case a.Bucket == bucket && at.At.Number < a.Number:
		return fmt.Errorf("the page's log in the bucket ends with entry %d, and had entry %d when the page was evicted: %w", at.At.Number, a.Number, ErrCloudRolledBack)
	}
	return nil
}

// bringBackOthers brings back the pages that were evicted to another bucket than id, before that
// one is left. The caller has the cloud's turn.
func (r *Repository) bringBackOthers(ctx context.Context, id format.ID) error {
	away, err := r.pages.Gone(ctx)
	if err != nil {
		return err
	}
	for _, p := range away {
		if p.Kind != layout.Evicted || p.Bucket == id {
			continue
		}
		if _, err := r.connectInTurn(ctx); err != nil { // also for those who fetch the page already
			return fmt.Errorf("page %s was evicted: %w", p.Page.Text(p.Name), err)
		}
		if err := r.pages.Fetch(ctx, p.Page, r.fillInTurn); err != nil {
			return fmt.Errorf("page %s was evicted: %w", p.Page.Text(p.Name), err)
		}
	}
	return nil
}
