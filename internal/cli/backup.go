package cli

import (
	"cmp"
	"context"
	"errors"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"golang.org/x/term"
)

func (a *app) backup(ctx context.Context, args []string) error {
	to := a.path(args[0])
	if to == "" {
		return usagef("the name of the directory is empty")
	}
	if _, ok := isTerminal(a.process.Stdout, term.IsTerminal); ok && to == "-" {
		return usagef("a tar stream cannot go to a terminal: redirect the output, or name a directory")
	}
	if to != "-" {
		if in, err := inside(to, a.dir); err != nil || in {
			return cmp.Or(err, usagef("back up to %s: it lies in the repository %s itself", quoted(to), quoted(a.dir)))
		}
	}
	return a.read(ctx, func(repo *ledger.Repository) error {
		p := a.startProgress(ctx, "writing backup", "files")
		defer p.finish()
		var done ledger.Progress
		o := &admin.BackupOptions{Progress: func(now ledger.Progress) {
			done = now
			p.follow(now)
		}}
		if to == "-" {
			return admin.BackupTo(ctx, repo, a.out, o)
		}
		err := admin.Backup(ctx, repo, to, o)
		if errors.Is(err, ledger.ErrInvalid) {
			return withHint(bare(err), "name another directory, or remove the remains of an incomplete backup")
		}
		if err == nil {
			p.finish()
			a.outcome(false, "backed up", object{"dir", to, "size", size(done.Bytes)})
		}
		return err
	})
}
