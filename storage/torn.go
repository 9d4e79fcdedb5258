package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/storage/index"
)

// tornAge is how long torn tails stay in torn/.
const tornAge = 7 * 24 * time.Hour

// removeTorn removes torn tails that are older than tornAge, or all. It needs a file system that
// reports the age.
func (s *Store) removeTorn(ctx context.Context, all bool) error {
	dir := filepath.Join(s.o.Dir, "torn")
	infos, err := s.o.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list torn tails: %w", err)
	}
	for _, i := range infos {
		if err := ctx.Err(); err != nil {
			return err
		}
		if i.Dir || !all && (i.Modified.IsZero() || s.o.Clock.Now().Sub(i.Modified) < tornAge) {
			continue
		}
		if err := s.o.FS.Remove(filepath.Join(dir, i.Name)); err != nil {
			return fmt.Errorf("remove an old torn tail: %w", err)
		}
	}
	return nil
}

// shrinkIndex rebuilds page.db when more than half of it is free. Readers use the old file until
// the new one replaces it. In a dry run the report estimates what that would free.
func (c *compaction) shrinkIndex(ctx context.Context) error {
	s := c.s
	if err := s.foldTurn.Take(ctx); err != nil {
		return err
	}
	defer s.foldTurn.Give()
	s.indexMu.RLock()
	f, ok := s.index.(*index.File)
	s.indexMu.RUnlock()
	if !ok {
		return nil
	}
	free, total, err := f.FreeBytes()
	if err != nil || total < minShrinkBytes || free <= total/2 {
		return err
	}
	if c.o.DryRun {
		c.r.Freed += free
		return nil
	}
	after, err := s.replaceIndex(ctx, f)
	if err != nil {
		return fmt.Errorf("give free pages of page.db back: %w", err)
	}
	c.r.Freed, c.r.IndexWritten = c.r.Freed+total-after, c.r.IndexWritten+after
	return nil
}

// replaceIndex replaces page.db by a copy without free pages, and returns its length. Readers wait
// while the files are exchanged. A crash, or an error, leaves either file. The caller holds the
// fold turn.
func (s *Store) replaceIndex(ctx context.Context, old *index.File) (int64, error) {
	path := filepath.Join(s.o.Dir, indexName)
	if err := old.CopyTo(ctx, path+".new"); err != nil {
		return 0, err
	}
	s.indexMu.Lock()
	defer s.indexMu.Unlock()
	if s.index != old { // the page was closed
		return 0, errors.Join(base.ErrClosed, os.Remove(path+".new"))
	}
	err := errors.Join(old.Close(), os.Rename(path+".new", path), vfs.OS.SyncDir(s.o.Dir))
	f, openErr := index.OpenFile(path, index.Options{})
	if openErr != nil {
		err = errors.Join(err, openErr)
		s.index = brokenIndex{fmt.Errorf("page.db that could not be replaced: %w", err)}
		return 0, err
	}
	s.index = f
	_, after, openErr := f.FreeBytes()
	return after, errors.Join(err, openErr)
}

// minShrinkBytes is the length below which page.db is not rebuilt.
const minShrinkBytes = 256 << 10
