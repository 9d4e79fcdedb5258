package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/ledgerd/ledger"
)

// watchEvery is how often the growth of a backup is looked at.
const watchEvery = time.Second

// directorySize returns the length and number of the files in a directory. Files that vanish
// meanwhile do not count.
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

// watch shows how dir grows towards the size of the pages of repo. The function returned ends it
// and waits.
func (p *progress) watch(ctx context.Context, dir string, repo *ledger.Repository) (stop func()) {
	return p.measure(ctx, func(ctx context.Context, _ func(files, bytes int64)) error {
		if pages, err := repo.Pages(ctx); err == nil { // without it the time left is not shown
			var total int64
			for _, page := range pages {
				total += page.SizeBytes
			}
			p.update(func(c *counters) { c.totalBytes = total })
		}
		for pause(ctx, p.clock, watchEvery) == nil {
			if bytes, files, err := directorySize(os.DirFS(dir)); err == nil { // else it is shown as it was
				p.update(func(c *counters) { c.bytes, c.files = bytes, files })
			}
		}
		return ctx.Err()
	})
}
