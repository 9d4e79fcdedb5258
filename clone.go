package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/secret"
)

// Clone makes a repository in dir of what a bucket has, and syncs it: all pages with their newest content come here, values of priority Lazy when they are read. dir is absent, or holds what a
// Clone from the same bucket has left that was interrupted, which goes on. With the wrong key, or without a bucket, nothing is made. The repository is returned open, and is to be closed, also when the
// first sync fails: what is missing then comes with the next one.
//
// Errors: ErrNotFound (the bucket is not one of Ledger's), ErrWrongKey, ErrConflict (dir holds another repository), those of Open and Sync.
func Clone(ctx context.Context, dir string, o *Options, c CloudOptions) (*Repository, []PageSync, error) {
	r, err := openClone(ctx, dir, o, c)
	if err != nil {
		return nil, nil, fmt.Errorf("clone: %w", err)
	}
	pages, err := r.Sync(ctx)
	if err != nil {
		return r, pages, fmt.Errorf("clone: %w", err)
	}
	return r, pages, nil
}

// openClone opens the repository of a clone with its cloud set.
func openClone(ctx context.Context, dir string, o *Options, c CloudOptions) (*Repository, error) {
	file, err := c.file()
	if err != nil {
		return nil, err
	}
	open := o.withDefaults()
	open.Sync.Passphrase = c.Passphrase
	pass := secret.New(c.Passphrase)
	// Nothing is made before the key is known to fit.
	j := &joining{openers: bucketsOf(&open.Sync), clock: clockOf(&open), stall: stallOf(&open), file: file, pass: pass}
	ring, err := j.join(ctx, false)
	if errors.Is(err, ErrNotFound) {
		return nil, fmt.Errorf("there is nothing of Ledger's in %s: %w", file.url, err)
	}
	if err != nil {
		return nil, err
	}
	r, err := Open(ctx, dir, &open)
	if err != nil {
		return nil, err
	}
	err = r.inCloudTurn(ctx, func(ctx context.Context) error {
		if err := r.fitForClone(ctx, hexOf(ring.BucketID())); err != nil {
			return err
		}
		return r.adopt(ctx, file, pass, ring, false)
	})
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// fitForClone refuses a repository that has something of its own.
func (r *Repository) fitForClone(_ context.Context, bucketID string) error {
	if info, ok := r.Cloud(); ok {
		if info.BucketID != bucketID {
			return fmt.Errorf("%s holds a repository of another cloud, %s: %w", r.dir, info.URL, ErrConflict)
		}
		return nil
	}
	pages, err := r.pageDirs()
	if err == nil && len(pages) > 0 {
		err = fmt.Errorf("%s holds a repository with pages of its own: set the cloud there and sync: %w", r.dir, ErrConflict)
	}
	return err
}
