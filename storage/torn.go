package storage

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/ledgerd/ledger/storage/index"
)

// tornAge is how long torn tails are kept that were set aside.
const tornAge = 7 * 24 * time.Hour

// removeTorn removes torn tails that were set aside long ago, or all. Their age is known on file
// systems that tell it.
func (s *Store) removeTorn(ctx context.Context, all bool) (removed int, err error) {
	dir := filepath.Join(s.o.Dir, "torn")
	infos, err := s.o.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("list torn tails: %w", err)
	}
	for _, i := range infos {
		if err := ctx.Err(); err != nil {
			return removed, err
		}
		if i.Dir || !all && (i.Modified.IsZero() || s.o.Clock.Now().Sub(i.Modified) < tornAge) {
			continue
		}
		if err := s.o.FS.Remove(filepath.Join(dir, i.Name)); err != nil {
			return removed, fmt.Errorf("remove an old torn tail: %w", err)
		}
		removed++
	}
	return removed, nil
}

// shrinkIndex makes page.db anew when more than half of it is free. Readers go on until the new
// file takes the place of the old one. With dry it only says about how long the new file would be.
func (s *Store) shrinkIndex(ctx context.Context, dry bool) (before, after int64, err error) {
	if err := s.foldTurn.take(ctx); err != nil {
		return 0, 0, err
	}
	defer s.foldTurn.release()
	s.indexMu.RLock()
	defer s.indexMu.RUnlock()
	f, ok := s.index.(*index.File)
	if !ok {
		return 0, 0, nil
	}
	free, total, err := f.FreeBytes()
	if err != nil || total < minShrinkBytes || free <= total/2 {
		return 0, 0, err
	}
	if dry {
		return total, total - free, nil
	}
	if err := f.Shrink(ctx); err != nil {
		return 0, 0, fmt.Errorf("give free pages of page.db back: %w", err)
	}
	return total, f.SizeBytes(), nil
}

// minShrinkBytes is the length below which page.db stays as it is.
const minShrinkBytes = 256 << 10
