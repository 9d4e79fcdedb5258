package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/cloudlink"
)

// Clone makes a repository in dir that is a device of a bucket. The next Sync, or background sync,
// downloads everything in the bucket; values of priority Lazy are downloaded when they are read.
// dir is absent, empty, or holds the result of an interrupted Clone from the same bucket, which
// Clone then continues. Options.Cloud is ignored. With the wrong key, or without a bucket, Clone
// makes nothing. The repository must be closed.
//
// Errors: ErrInvalid (c is nil), ErrNotFound (the bucket is not one of Ledger's), ErrWrongKey,
// ErrCloudReplaced (the bucket does not have the id Cloud.BucketID), ErrConflict (dir holds another
// repository), those of Open and of reading the bucket's keyring.
func Clone(ctx context.Context, dir string, o *Options, c *Cloud) (*Repository, error) {
	r, err := openClone(ctx, dir, o, c)
	if err != nil {
		return nil, fmt.Errorf("clone: %w", err)
	}
	return r, nil
}

// openClone opens the repository of a clone with its cloud set.
func openClone(ctx context.Context, dir string, o *Options, c *Cloud) (*Repository, error) {
	if c == nil {
		return nil, fmt.Errorf("there is no cloud: %w", ErrInvalid)
	}
	open := o.withDefaults()
	open.Cloud = nil // c replaces it
	// Prove the key before making anything.
	named := cloudlink.Cloud(*c)
	m := machineOf(&open)
	joined, err := cloudlink.Join(ctx, &named, open.openers(), m.clock, m.stall)
	if err != nil {
		return nil, err
	}
	open.Sync.Passphrase = joined.Passphrase()
	r, err := Open(ctx, dir, &open)
	if err != nil {
		return nil, err
	}
	err = r.inCloudTurn(ctx, "set the cloud", func(ctx context.Context) error {
		if err := r.fitForClone(ctx, joined.BucketID()); err != nil {
			return err
		}
		return r.cloud.Adopt(ctx, joined)
	})
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// fitForClone refuses a repository that has pages or a cloud of its own.
func (r *Repository) fitForClone(_ context.Context, bucketID string) error {
	if info, ok := r.Cloud(); ok {
		if info.BucketID != bucketID {
			return fmt.Errorf("%s holds a repository of another cloud, %s: %w", r.dir, info.URL, ErrConflict)
		}
		return nil
	}
	pages, err := r.disk.Pages()
	if err == nil && len(pages) > 0 {
		err = fmt.Errorf("%s holds a repository with pages of its own: set the cloud there and sync: %w", r.dir, ErrConflict)
	}
	return err
}
