package admin

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/leak"
	"github.com/ledgerd/ledger/internal/cloudlink"
)

// CloudLeak is what the owner of a bucket can learn from it.
type CloudLeak = leak.Report

// LookAtCloud lists the bucket at a URL, and returns what its owner can learn from the names,
// lengths and times of its objects. o has the openers of buckets, and may be nil. It needs no
// repository and no key. It makes one request per thousand objects. Errors: ErrNotFound (there is
// no bucket), those of the bucket.
func LookAtCloud(ctx context.Context, url, credentialsFile string, o *ledger.Options) (out CloudLeak, err error) {
	err = withBucket(ctx, o, url, bucket.OpenOptions{CredentialsFile: credentialsFile, MustExist: true}, func(b bucket.Bucket) error {
		report, err := leak.Look(ctx, b)
		if err == nil {
			out = *report
		}
		return err
	})
	if err != nil {
		return out, fmt.Errorf("look at the cloud: %w", err)
	}
	return out, nil
}

// ProbePoint is one tested promise of a bucket: Err says how it was broken, nil that it was kept.
type ProbePoint = bucket.ProbePoint

// ProbeCloud tests with about 70 requests whether the bucket at a URL keeps the promises on which
// sync relies. It uses names of its own, which it removes. o has the openers of buckets, and may be
// nil. It needs no repository and no key. It returns the tested points; the error is a
// *bucket.UnfitError when the bucket is unfit.
func ProbeCloud(ctx context.Context, url, credentialsFile string, o *ledger.Options) (points []ProbePoint, err error) {
	err = withBucket(ctx, o, url, bucket.OpenOptions{CredentialsFile: credentialsFile}, func(b bucket.Bucket) (err error) {
		points, err = bucket.Probe(ctx, b, "")
		return err
	})
	if err != nil {
		err = fmt.Errorf("probe: %w", err)
	}
	return points, err
}

func withBucket(ctx context.Context, o *ledger.Options, url string, how bucket.OpenOptions, fn func(bucket.Bucket) error) error {
	return cloudlink.WithBucket(ctx, cloudlink.Openers(given(o).Buckets), url, how, fn)
}
