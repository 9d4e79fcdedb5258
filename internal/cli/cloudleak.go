package cli

import (
	"context"
	"errors"
	"slices"

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
		return err
	}
	return a.printLeak(&seen)
}

func (a *app) printLeak(l *admin.CloudLeak) error {
	if a.json {
		pages := []object{}
		for _, p := range l.Pages {
			pages = append(pages, object{
				"name", p.Name, "objects", p.Objects, "bytes", p.Bytes, "entries", p.Entries, "packs", p.Packs, "checkpoints", p.Checkpoints,
				"epochs", p.Epochs, "lengths", p.Lengths, "first?", p.First, "last?", p.Last, "days", p.Days, "hours", p.Hours,
			})
		}
		a.emit(object{
			"ledgers", l.Ledgers, "objects", l.Objects, "bytes", l.Bytes, "pages", pages, "notPadded", append([]string{}, l.Odd...), "moreNotPadded?", l.MoreOdd,
		})
		return nil
	}
	a.printf("The owner of the bucket sees %s with %s, of %s in %s.\n", countText(l.Objects, "object"), sizeText(l.Bytes), countText(len(l.Pages), "page"), countText(l.Ledgers, "ledger"))
	for _, p := range l.Pages {
		a.printf("\n%s\n", p.Name)
		a.printf("  %s in %s of %s: about how much the page holds\n", sizeText(p.Bytes), countText(p.Objects, "object"), countText(p.Lengths, "different length"))
		a.printf("  %s: how often it was written\n", countText(p.Entries, "log entry"))
		a.printf("  %s: how often its log was shortened, history given up, or the bucket repaired\n", countText(p.Epochs, "epoch"))
		if !p.First.IsZero() {
			busiest := slices.Index(p.Hours[:], slices.Max(p.Hours[:]))
			a.printf("  written on %s from %s to %s, most often from %d to %d o'clock (UTC)\n", countText(p.Days, "day"), p.First.Format("2006-01-02"), p.Last.Format("2006-01-02"), busiest, busiest+1)
		}
	}
	a.printf(`
The owner can tell that objects in one directory belong to one page. If a device writes a value that
its page has already, little is uploaded. The owner can see that too, unless deduplication is off
for the key (ledgerd cloud dedup). The owner cannot tell which objects hold equal content. The owner
cannot read names, keys or values, or see where in an object something begins.
`)
	if n := len(l.Odd) + l.MoreOdd; n > 0 {
		for _, name := range l.Odd {
			a.printf("not padded: %s\n", name)
		}
		return errors.New(countText(n, "object") + " with unpadded lengths: another program has written them, or their end is missing")
	}
	return nil
}
