package cloudsync

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/storage"
)

// RetentionOf returns what the store of a page knows of its bucket's retention, zero where nothing
// is given up. Errors: those of the store and of ctx.
func RetentionOf(ctx context.Context, store *storage.Store) (Retention, error) {
	st, err := replica.StandingOf(ctx, store)
	if err != nil {
		return Retention{}, fmt.Errorf("read the retention: %w", err)
	}
	return st.Retention, nil
}
