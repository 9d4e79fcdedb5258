package filetree

import (
	"cmp"
	"context"
	"fmt"

	"github.com/ledgerd/ledger"
)

// Restore makes a new commit on the newest head that resets the keys that begin with prefix, and
// the attributes of those paths, to commit id; other keys stay. It returns the id of the new
// commit, or of the head when nothing differs. When it returns nil, the commit survives a crash;
// after an error the page is unchanged. Errors: those of ledger.Page.Restore.
func Restore(ctx context.Context, page *ledger.Page, id ledger.CommitID, prefix []byte, message string) (ledger.CommitID, error) {
	message = cmp.Or(message, fmt.Sprintf("restore %q from %s", prefix, id.Short()))
	return page.Restore(ctx, id, message, prefix, AttributesKey(prefix))
}
