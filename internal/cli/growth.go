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
	return p.poll(ctx, watchEvery, func(ctx context.Context, c *counters) {
		if c.totalBytes == 0 { // without it the time left is not shown
			pages, _ := repo.Pages(ctx)
			for _, page := range pages {
				c.totalBytes += page.SizeBytes
			}
		}
		if bytes, files, err := directorySize(os.DirFS(dir)); err == nil { // else it is shown as it was
			c.bytes, c.files = bytes, files
		}
	})
}
