package ledger

import (
	"context"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/internal/backup"
)

// Backup writes a consistent copy of the repository into the directory dir, while it is in use. dir
// must be absent or empty. The copy is a repository that Open opens; it has the same id, and no
// cloud until one is set. Each page is copied as of one moment. When Backup returns nil the copy is
// on disk; after an error dir holds no repository that opens. Errors: ErrInvalid, ErrNoSpace,
// ErrCorrupt, ErrClosed, those of ctx and of the file system.
func (r *Repository) Backup(ctx context.Context, dir string) error {
	if dir == "" {
		return fmt.Errorf("back up: the directory has no name: %w", ErrInvalid)
	}
	err := backup.ToDir(ctx, dir, r.backupSource())
	if err != nil {
		return fmt.Errorf("back up to %s: %w", dir, err)
	}
	return nil
}

// BackupTo writes the same copy as Backup to w as a tar stream. Unpacked into an empty directory it
// is a repository that Open opens. Errors: as Backup, and those of w.
func (r *Repository) BackupTo(ctx context.Context, w io.Writer) error {
	err := backup.ToTar(ctx, w, r.backupSource())
	if err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	return nil
}

func (r *Repository) backupSource() backup.Source {
	return backup.Source{
		Identity: r.identity.Load().Encode(), Now: r.clock.Now(), Away: r.pages.Gone,
		Pages: func(ctx context.Context) (all []backup.Page, err error) {
			infos, err := r.herePages(ctx)
			for _, info := range infos {
				all = append(all, backup.Page{Page: info.key(), Name: info.Name, LastClosed: info.LastClosed})
			}
			return all, err
		},
		Copy: func(ctx context.Context, k pageKey, create backup.Create) (bool, error) {
			err := r.visit(ctx, k, func(ctx context.Context, p *Page) error {
				err := p.store.CopyTo(ctx, create)
				p.note(err)
				return err
			})
			return !r.hasLeft(k, err), err
		},
	}
}
