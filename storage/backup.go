package storage

import (
	"context"
	"io"
)

// CopyTo copies the page for a backup while it is used: its segments up to one list of synced ends,
// without page.db, which is made anew when the copy is opened. create is called for each file with
// its name and its length in bytes.
func (s *Store) CopyTo(ctx context.Context, create func(name string, size int64) (io.WriteCloser, error)) error {
	return s.log.CopyTo(ctx, create)
}
