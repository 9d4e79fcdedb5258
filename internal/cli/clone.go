package cli

import (
	"context"
	"errors"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

type cloneFlags struct {
	cloudFlags
	spaceFlags
}

func (a *app) clone(ctx context.Context, f cloneFlags) error {
	c, err := f.options(ctx, a)
	if err != nil {
		return err
	}
	if a.dir == "" {
		return a.noDirectory()
	}
	if _, err := a.hasRepository(); err != nil {
		return err
	}
	var o ledger.Options
	f.bound(&o)
	a.complete(&o)
	p := a.startProgress(ctx, "cloning", "pages")
	repo, err := ledger.Clone(ctx, a.dir, &o, c)
	if err != nil {
		p.finish()
		return a.cloneHint(err)
	}
	pages, err := repo.Sync(ctx)
	p.finish()
	if err == nil && len(pages) == 0 {
		a.tell("the bucket has no pages yet: sync brings them when another device has sent them")
	}
	err = errors.Join(a.synced(repo, admin.SyncMetrics{}, pages, err), f.keep(ctx, repo))
	return errors.Join(err, repo.Close())
}

// cloneHint adds a hint to the errors that a wrong bucket causes.
func (a *app) cloneHint(err error) error {
	err = hintFor(err, ledger.ErrConflict, "name another directory with --dir")
	err = hintFor(err, ledger.ErrCloudReplaced, "use the URL and the id that %s key show prints on another device; "+
		"this may be another bucket with the same key", a.process.Program)
	return hintFor(err, ledger.ErrNotFound, "use the URL that %s key show prints on a device that has synced, "+
		"and mount its disk; to start with an empty bucket: %s, %s and %s",
		a.process.Program, a.command("init"), a.command("cloud", "set", "URL"), a.command("sync"))
}
