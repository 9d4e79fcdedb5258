package storage

import (
	"context"
	"io"
)

// CopyTo copies a page in use for a backup: its segments up to one list of synced ends, without
// page.db, which is rebuilt when the copy is opened. It calls create for each file with its name
// and its length in bytes.
func (s *Store) CopyTo(ctx context.Context, create func(name string, size int64) (io.WriteCloser, error)) error {
	return s.log.CopyTo(ctx, create)
}
