package ledger

import (
	"context"

	"github.com/ledgerd/ledger/internal/session"
)

// PrefetchResult counts what a Prefetch downloaded.
type PrefetchResult struct {
	// Values is the number of values examined, without inline ones.
	Values int64
	// Pieces and Bytes were downloaded from the cloud.
	Pieces, Bytes int64
}

// Prefetch downloads all values whose keys have a prefix, and returns when they are here; an empty
// prefix means all. Reading them then needs no network. Adjacent pieces in the bucket take one
// request. After an error the downloaded values stay. progress, when not nil, is called with the
// result so far; it must not block. Errors: those of Page.Sync, ErrGone, ErrClosed.
func (s *Snapshot) Prefetch(ctx context.Context, prefix []byte, progress func(PrefetchResult)) (PrefetchResult, error) {
	var told func(session.PrefetchResult)
	if progress != nil {
		told = func(r session.PrefetchResult) { progress(PrefetchResult(r)) }
	}
	r, err := s.in.Prefetch(ctx, prefix, told)
	return PrefetchResult(r), err
}
