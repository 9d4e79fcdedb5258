package ledger

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// errAway reports that a page was evicted and must be brought back before it is opened.
var errAway = errors.New("the page is in the cloud only")

// awayError says why an evicted page could not be brought back. It matches ErrNeedsFetch.
type awayError struct{ err error }

func (e *awayError) Error() string {
	return "bring the page back, which is in the cloud only: " + e.err.Error()
}
func (e *awayError) Unwrap() error        { return e.err }
func (e *awayError) Is(target error) bool { return target == ErrNeedsFetch }

// takeAway waits until nobody else brings back or deletes a page that is away.
func (r *Repository) takeAway(ctx context.Context, k pageKey) (release func(), err error) {
	return r.takePageTurn(ctx, r.moving, k)
}

// bringBack fetches an evicted page from the bucket, so that it can be opened. It does nothing when
// somebody else has done so. Errors: ErrNeedsFetch, with why the bucket does not give it;
// ErrCloudRolledBack; those of Sync.
func (r *Repository) bringBack(ctx context.Context, k pageKey) error {
	return r.bringBackBy(ctx, k, r.connect)
}

// bringBackBy is bringBack with a way to connect, which who has the cloud's turn needs.
func (r *Repository) bringBackBy(ctx context.Context, k pageKey, connect func(context.Context) (*cloudLink, error)) error {
	if r.o.ReadOnly {
		return &awayError{fmt.Errorf("the repository is open for reading: %w", ErrReadOnly)}
	}
	release, err := r.takeAway(ctx, k)
	if err != nil {
		return err
	}
	defer release()
	if here, err := r.disk.HasPage(k); err != nil || here {
		return err
	}
	away, err := r.readAbsence(k)
	if err != nil || away == nil || away.Kind != layout.Evicted {
		return err
	}
	link, err := connect(ctx)
	if err == nil {
		err = r.fetchPage(ctx, link, k, away)
	}
	if err != nil {
		return &awayError{err}
	}
	r.o.Logger.Info("an evicted page came back", "ledger", k.Ledger, "page", PageID(k.ID).String())
	return nil
}

// fetchPage makes the page anew from the bucket (A3). The caller has the page's turn.
func (r *Repository) fetchPage(ctx context.Context, link *cloudLink, k pageKey, away *layout.Absence) error {
	dir := r.disk.PageDir(k)
	coming := r.disk.ComingDir(k)
	if err := r.fs.RemoveAll(coming); err != nil {
		return err
	}
	o := r.storageOptions(k)
	o.Dir = coming
	if r.o.InMemory {
		o.MemoryIndex = index.NewMemory()
	}
	err := r.fillPage(ctx, link, k, away, o)
	if err == nil {
		r.stage("fetched", k)
		if r.o.InMemory {
			r.mu.Lock()
			r.indexes[dir] = o.MemoryIndex
			r.mu.Unlock()
		}
		err = r.fs.Rename(coming, dir)
	}
	if err != nil {
		return errors.Join(err, r.fs.RemoveAll(coming))
	}
	// The file that says why the page was away goes when it is opened (A1): from now on it may
	// leave again, and write that file anew.
	if err := r.fs.SyncDir(filepath.Dir(dir)); err != nil {
		return err
	}
	r.stage("back", k)
	return nil
}

// fillPage makes a page in the directory of o and syncs it.
func (r *Repository) fillPage(ctx context.Context, link *cloudLink, k pageKey, away *layout.Absence, o storage.Options) (err error) {
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
		if name, _, err = r.usage.page(k.Ledger, k.ID); err != nil {
			return err
		}
	}
	synced := link.syncer.OpenPage(cloudsync.PageOptions{Store: store, Ledger: k.Ledger, Name: name, Plain: r.plainKeys(k)})
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
	away, err := r.awayPages(ctx)
	if err != nil {
		return err
	}
	for _, p := range away {
		if p.Kind != layout.Evicted || p.Bucket == id {
			continue
		}
		if err := r.bringBackBy(ctx, p.key, r.connectInTurn); err != nil {
			return fmt.Errorf("page %s was evicted: %w", p.key.Text(p.Name), err)
		}
	}
	return nil
}
