package cloudlink

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/storage"
)

// awayError is why an evicted page could not be downloaded again. It matches base.ErrNeedsFetch.
type awayError struct{ err error }

func (e *awayError) Error() string {
	return "bring the page back, which is in the cloud only: " + e.err.Error()
}
func (e *awayError) Unwrap() error        { return e.err }
func (e *awayError) Is(target error) bool { return target == base.ErrNeedsFetch }

// Fill makes a page in dir from the bucket's content (A3). Errors: base.ErrNeedsFetch, with the
// reason why the bucket cannot supply it; cloudsync.ErrBucketRolledBack; those of syncing.
func (l *Link) Fill(ctx context.Context, k base.Page, dir string, a *layout.Absence) error {
	conn, err := l.Connect(ctx)
	if err != nil {
		return &awayError{err}
	}
	if err = l.o.Disk.FS.RemoveAll(dir); err == nil {
		err = l.fillFrom(ctx, conn, k, dir, a)
	}
	if err != nil {
		return &awayError{errors.Join(err, l.o.Disk.FS.RemoveAll(dir))}
	}
	l.o.Logger.Info("an evicted page came back", "ledger", k.Ledger, "page", hexOf(k.ID))
	return nil
}

func (l *Link) fillFrom(ctx context.Context, conn *Conn, k base.Page, dir string, away *layout.Absence) (err error) {
	o := l.o.Fresh(k)
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
		if name, err = l.o.Name(k); err != nil {
			return err
		}
	}
	synced := conn.Syncer.OpenPage(l.opened(k, name, store))
	if err := errors.Join(synced.Sync(ctx), synced.Close()); err != nil {
		return err
	}
	return provedBack(ctx, away, store, conn.id())
}

// provedBack returns an error when the downloaded page has less than the evicted one.
func provedBack(ctx context.Context, a *layout.Absence, store *storage.Store, bucket seal.ID) error {
	at, err := cloudsync.StandingOf(ctx, store)
	if err != nil {
		return err
	}
	switch {
	case at.At.Number == 0:
		return fmt.Errorf("bucket %s has nothing of the page, which bucket %s had: %w", hexOf(bucket), hexOf(a.Bucket), cloudsync.ErrBucketRolledBack)
	case a.Bucket == bucket && at.At.Number < a.Number:
		return fmt.Errorf("the page's log in the bucket ends with entry %d, and had entry %d when the page was evicted: %w", at.At.Number, a.Number, cloudsync.ErrBucketRolledBack)
	}
	return nil
}

// BringBackOthers downloads the pages that were evicted to buckets other than id, before the
// present bucket is left. The caller holds the cloud's turn.
func (l *Link) BringBackOthers(ctx context.Context, id seal.ID) error {
	away, err := l.o.Gone(ctx)
	if err != nil {
		return err
	}
	for _, p := range away {
		if p.Kind != layout.Evicted || p.Bucket == id {
			continue
		}
		if _, err := l.connectInTurn(ctx); err != nil { // Fill, by this or another caller, then needs no turn
			return fmt.Errorf("page %s was evicted: %w", p.Page.Text(p.Name), err)
		}
		if err := l.o.Fetch(ctx, p.Page, l.Fill); err != nil {
			return fmt.Errorf("page %s was evicted: %w", p.Page.Text(p.Name), err)
		}
	}
	return nil
}
