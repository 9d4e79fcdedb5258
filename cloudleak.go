package ledger

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/leak"
	"github.com/ledgerd/ledger/internal/clock"
)

// CloudLeak is what the owner of a bucket can tell from it.
type CloudLeak struct{ leak.Report }

// LookAtCloud lists the bucket at a URL, and returns what its owner can tell from the names,
// lengths and times of its objects. o may be nil. It needs no repository and no key, as the owner
// has neither. It takes a request for each thousand objects. Errors: those of the bucket.
func LookAtCloud(ctx context.Context, url, credentialsFile string, o *Options) (CloudLeak, error) {
	b, err := openBucket(ctx, bucketsOf(o), url, bucket.OpenOptions{CredentialsFile: credentialsFile}, bucket.DefaultStall)
	if err != nil {
		return CloudLeak{}, fmt.Errorf("look at the cloud: %w", err)
	}
	defer bucket.Close(b) // see join
	report, err := leak.Look(ctx, patient(b, clock.System, bucket.DefaultStall))
	if err != nil {
		return CloudLeak{}, fmt.Errorf("look at the cloud: %w", err)
	}
	return CloudLeak{*report}, nil
}
