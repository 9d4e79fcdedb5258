package ledger

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/leak"
	"github.com/ledgerd/ledger/internal/cloudlink"
)

// CloudLeak is what the owner of a bucket can tell from it.
type CloudLeak struct{ leak.Report }

// LookAtCloud lists the bucket at a URL, and returns what its owner can tell from the names,
// lengths and times of its objects. o may be nil. It needs no repository and no key, as the owner
// has neither. It takes a request for each thousand objects. Errors: those of the bucket.
func LookAtCloud(ctx context.Context, url, credentialsFile string, o *Options) (out CloudLeak, err error) {
	err = cloudlink.WithBucket(ctx, o.openers(), url, bucket.OpenOptions{CredentialsFile: credentialsFile}, func(b bucket.Bucket) error {
		report, err := leak.Look(ctx, b)
		if err == nil {
			out.Report = *report
		}
		return err
	})
	if err != nil {
		return out, fmt.Errorf("look at the cloud: %w", err)
	}
	return out, nil
}
