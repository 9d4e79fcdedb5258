package replica

import (
	"context"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
)

// Apply implements pagelog.Page.
func (p *Page) Apply(ctx context.Context, e *pagelog.Entry, next epoch.Position) error { return nil }

// Adopt implements pagelog.Page.
func (p *Page) Adopt(ctx context.Context, e *pagelog.Entry) error { return nil }

// Enter implements pagelog.Page.
func (p *Page) Enter(ctx context.Context, x *pagelog.Epoch, next epoch.Position) error { return nil }

// BuildTrees makes the trees of commits that are known as history only, from the checkpoint and from
// the entries of the epoch. ...
func (p *Page) BuildTrees(ctx context.Context, ids []commit.ID) error { return nil }

// Fold ... the heads of the log that have to be merged first; nil: nothing is to be done.
func (p *Page) Folding() []commit.ID { return nil }

// Folded takes note that the heads of the log were merged into one ...
func (p *Page) Folded(ctx context.Context, head commit.ID) error { return nil }

// Prune takes commits of State.GiveUp out of storage, as far as nothing needs them.
func (p *Page) Prune(ctx context.Context) (pruned int, err error) { return 0, nil }

// Propose implements pagelog.Page.
func (p *Page) Propose(ctx context.Context, x *epoch.Proposal, seen epoch.Looked) error { return nil }

type outgoing struct{}

// Outgoing is a body that is ready to be appended.
type Outgoing struct {
	Body    *wire.SealedBody
	Commits int
	More    bool
}

// Next makes the next body, nil when there is nothing to send. ...
func (p *Page) Next(ctx context.Context) (*Outgoing, error) { return nil, nil }

// Retain returns the body that says a retention, and nothing else.
func (p *Page) Retain(ctx context.Context, r wire.Retention) (*Outgoing, error) { return nil, nil }

// Resend has Next look for pieces that are held, belong to synced commits and have no place.
func (p *Page) Resend() {}

// EntryPieces returns the pieces that stand in an entry of the epoch: see pack.FetchOptions.Entries.
// It may be called concurrently with the calls of the Page.
func (p *Page) EntryPieces(ctx context.Context, number uint64) (map[object.Digest][]byte, error) {
	return nil, nil
}

// Named returns ... for Sweep.
func (p *Page) Named(ctx context.Context) ([]epoch.ID, error) { return nil, nil }

// Dropped returns ... for Sweep.
func (p *Page) Dropped() []epoch.Drop { return nil }
