package admin

import (
	"context"
	"fmt"
	"io"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/backup"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/bridge"
)

// BackupOptions are the options of Backup and BackupTo; nil means the zero value.
type BackupOptions struct {
	// Progress, when not nil, is called for each file of a page before it is written.
	Progress func(ledger.Progress)
}

// Backup writes a consistent copy of the repository into the directory dir, while it is in use. dir
// must be absent or empty. Open can open the copy, which has the same id and no cloud. To restore,
// open the copy and set its cloud again; it is then a new device of that cloud. Each page is copied
// as of one moment. When Backup returns nil the copy is durable; after an error dir holds no
// repository that can be opened. Errors: ErrInvalid, ErrNoSpace, ErrCorrupt, ErrClosed, those of
// ctx and of the file system.
func Backup(ctx context.Context, repo *ledger.Repository, dir string, o *BackupOptions) error {
	if dir == "" {
		return fmt.Errorf("back up: the directory has no name: %w", ledger.ErrInvalid)
	}
	err := backup.ToDir(ctx, dir, backupSource(repo, o))
	if err != nil {
		return fmt.Errorf("back up to %s: %w", dir, err)
	}
	return nil
}

// BackupTo writes the same copy as Backup to w as a tar stream. Unpacked into an empty directory,
// it is a repository that Open can open. Errors: as Backup, and those of w.
func BackupTo(ctx context.Context, repo *ledger.Repository, w io.Writer, o *BackupOptions) error {
	err := backup.ToTar(ctx, w, backupSource(repo, o))
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	return nil
}

func backupSource(repo *ledger.Repository, o *BackupOptions) backup.Source {
	r, how := of(repo), given(o)
	var at ledger.Progress
	return backup.Source{
		Progress: func(bytes int64) {
			if at.Done, at.Bytes = at.Done+1, at.Bytes+bytes; how.Progress != nil {
				how.Progress(at)
			}
		},
		Identity: r.Identity.Encode(), Now: r.Clock.Now(), Away: r.Gone,
		Pages: func(ctx context.Context) (all []backup.Page, err error) {
			infos, err := herePages(ctx, repo)
			for _, info := range infos {
				at.TotalBytes += info.SizeBytes
				all = append(all, backup.Page{Page: keyOf(info.PageRef), Name: info.Name, LastClosed: info.LastClosed})
			}
			return all, err
		},
		Copy: func(ctx context.Context, k base.Page, create backup.Create) (bool, error) {
			err := r.Visit(ctx, k, func(ctx context.Context, p *bridge.Page) error {
				err := p.Store.CopyTo(ctx, create)
				p.Note(err)
				return err
			})
			return !r.hasLeft(k, err), err
		},
	}
}
