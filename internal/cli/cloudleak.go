package cli

import (
	"context"
	"errors"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

type cloudLeakFlags struct {
	URL         bucketURL `arg:""`
	Credentials string    `flag:"credentials-file" usage:"file with credentials for the bucket at URL (default: from the environment)"`
}

func (a *app) cloudLeak(ctx context.Context, f cloudLeakFlags) error {
	url, key := f.URL.url, a.path(f.Credentials)
	if url == "" {
		info, err := a.cloud(ctx)
		if err != nil {
			return err
		}
		url, key = info.URL, info.CredentialsFile
	}
	seen, err := admin.LookAtCloud(ctx, url, key, &ledger.Options{Buckets: a.process.Buckets})
	if err != nil {
		return hintFor(err, ledger.ErrNotFound, "check the URL; if the bucket is on a disk that is not mounted, mount it")
	}
	return a.printLeak(&seen)
}

func (a *app) printLeak(l *admin.CloudLeak) error {
	var pages []object
	for _, p := range l.Pages {
		pages = append(pages, object{
			"name", p.Name, "objects", p.Objects, "bytes", size(p.Bytes), "entries", p.Entries, "packs", p.Packs,
			"checkpoints", p.Checkpoints, "epochs", p.Epochs, "lengths", p.Lengths, "first?", p.First, "last?", p.Last, "days", p.Days, "hours!", p.Hours,
		})
	}
	a.block("", object{
		"ledgers", l.Ledgers, "objects", l.Objects, "bytes", size(l.Bytes), "notPadded", append([]string{}, l.Odd...), "moreNotPadded?", l.MoreOdd,
		"pages", append([]object{}, pages...),
	})
	if n := len(l.Odd) + l.MoreOdd; n > 0 {
		return errors.New(countText(n, "objects") + " with unpadded lengths: another program has written them, or their end is missing")
	}
	return nil
}
