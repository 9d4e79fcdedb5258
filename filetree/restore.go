package filetree

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger"
)

// Restore makes a new commit on the newest head that resets the keys that begin with prefix, and
// the attributes of those paths, to commit id; other keys stay. It returns the id of the new
// commit, or of the head when nothing differs. When it returns nil, the commit survives a crash;
// after an error the page is unchanged. Errors: ledger.ErrNotFound (no such commit), those of
// ledger.Tx.
func Restore(ctx context.Context, page *ledger.Page, id ledger.CommitID, prefix []byte, message string) (ledger.CommitID, error) {
	tx, err := page.Begin(ctx, &ledger.TxOptions{FailOnConflict: true})
	if err != nil {
		return ledger.CommitID{}, err
	}
	defer tx.Rollback() // does nothing after Commit
	if message == "" {
		message = fmt.Sprintf("restore %q from %s", prefix, id.Short())
	}
	if err := tx.SetMessage(message); err != nil {
		return ledger.CommitID{}, err
	}
	for change, err := range diffAll(ctx, page, tx.Base().ID, id, prefix) {
		if err != nil {
			return ledger.CommitID{}, err
		}
		for _, c := range []*ledger.Change{change.Content, change.Attributes} {
			if err := restoreEntry(ctx, tx, c); err != nil {
				return ledger.CommitID{}, fmt.Errorf("restore %q: %w", change.Path, err)
			}
		}
	}
	return tx.Commit(ctx)
}

// restoreEntry gives a key the new state of c, which may be nil.
func restoreEntry(ctx context.Context, tx *ledger.Tx, c *ledger.Change) error {
	if c == nil {
		return nil
	}
	if c.New == nil {
		return tx.Delete(ctx, c.Key)
	}
	value, err := c.New.Open(ctx)
	if err != nil {
		return err
	}
	defer value.Close() // read-only: its error does not matter
	return tx.PutReader(ctx, c.Key, value, value.Size(), c.New.Priority)
}
