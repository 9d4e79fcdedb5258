package pack

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// entrySource returns the source of a log entry, for errors.
func (f *Fetcher) entrySource(number uint64) *source {
	n := fmt.Sprint(number)
	return &source{b: f.o.Bucket, kind: kindEntry, short: n, name: n}
}

// readEntry reads the log entry of a place. The decoder of its pieces computes their digests.
func (f *Fetcher) readEntry(ctx context.Context, p storage.CloudPlace) (blockContent, error) {
	if f.o.Entries == nil {
		return nil, base.ErrNotFound
	}
	return f.o.Entries(ctx, p.Entry)
}
