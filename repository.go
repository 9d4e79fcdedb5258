package ledger

import (
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledger/internal/checkup"
	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/internal/gate"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/merging"
	"github.com/ledgerd/ledger/internal/reclaim"
	"github.com/ledgerd/ledger/pageusage"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// Repository is everything of one user on one device: a directory of ledgers. It is safe for
// concurrent use.
type Repository struct {
	machine
	dir      string // "" in memory
	o        Options
	disk     layout.Dir
	identity atomic.Pointer[layout.Identity]
	mended   *checkup.Problem // what Options.Mend has repaired; set by open
	table    atomic.Pointer[split.Table]
	cache    *storage.NodeCache
	recency  *storage.Recency
	reserve  *storage.Reserve // nil in memory
	lock     *layout.Lock
	usage    *pageusage.DB
	gate     *gate.Gate
	cloud    *cloudlink.Link
	keeper   *cloudlink.Keeper
	pages    *openPages
	rules    merging.Book

	space *reclaim.Host // set by open, as quota is
	quota *reclaim.Quota

	background sync.WaitGroup // the garbage collector and the quota

	once     sync.Once
	closeErr error

	mu      sync.Mutex
	indexes map[pageKey]*index.Memory // guarded by mu; of the pages of a repository in memory

	listed chan struct{} // guarded by mu; closed when a page is made or deleted
}

// enter begins a call; when it succeeds, the caller must call r.gate.leave.
func (r *Repository) enter() error {
	if !r.gate.Enter() {
		return fmt.Errorf("repository: %w", ErrClosed)
	}
	return nil
}
