package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"golang.org/x/term"
)

func (a *app) backup(ctx context.Context, args []string) error {
	to := a.path(args[0])
	if to == "" {
		return usagef("the name of the directory is empty")
	}
	if to == "-" {
		if _, ok := isTerminal(a.process.Stdout, term.IsTerminal); ok {
			return usagef("a tar stream cannot go to a terminal: redirect the output, or name a directory")
		}
		return a.read(ctx, func(repo *ledger.Repository) error {
			p := a.startProgress(ctx, "writing backup", "pages")
			defer p.finish()
			return admin.BackupTo(ctx, repo, writerFunc(func(b []byte) (int, error) {
				p.update(func(c *counters) { c.bytes += int64(len(b)) })
				return a.out.Write(b)
			}))
		})
	}
	if in, err := inside(to, a.dir); err != nil || in {
		return cmp.Or(err, usagef("back up to %s: it lies in the repository %s itself", quoted(to), quoted(a.dir)))
	}
	return a.read(ctx, func(repo *ledger.Repository) error {
		p := a.startProgress(ctx, "writing backup", "files")
		stop := p.watch(ctx, to, repo)
		err := admin.Backup(ctx, repo, to)
		stop()
		p.finish()
		if errors.Is(err, ledger.ErrInvalid) {
			return withHint(bare(err),
				"name another directory, or remove the remains of an incomplete backup")
		}
		if err != nil {
			return err
		}
		bytes, _, err := directorySize(os.DirFS(to))
		if err != nil {
			return fmt.Errorf("look at backup: %w", err)
		}
		a.outcome(false, "backed up", object{"dir", to, "size", size(bytes)})
		return nil
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// watchEvery is the interval at which the size of a backup is measured.
const watchEvery = time.Second

// directorySize returns the total length and the number of files in a directory. It ignores files
// that vanish meanwhile.
func directorySize(dir fs.FS) (bytes, files int64, err error) {
	err = fs.WalkDir(dir, ".", func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return ignoreAbsent(err)
		}
		info, err := e.Info()
		if err != nil {
			return ignoreAbsent(err)
		}
		bytes += info.Size()
		files++
		return nil
	})
	return bytes, files, err
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// watch shows how dir grows towards the size of the pages of repo. stop ends the display and waits
// for it.
func (p *progress) watch(ctx context.Context, dir string, repo *ledger.Repository) (stop func()) {
	return p.poll(ctx, watchEvery, func(ctx context.Context, c *counters) {
		if c.totalBytes == 0 { // without a total no time left is shown
			pages, _ := repo.Pages(ctx)
			for _, page := range pages {
				c.totalBytes += page.SizeBytes
			}
		}
		if bytes, files, err := directorySize(os.DirFS(dir)); err == nil { // else the last figures stay
			c.bytes, c.files = bytes, files
		}
	})
}
