package replica

import (
	"context"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
)

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

// Named returns ... for Sweep.
func (p *Page) Named(ctx context.Context) ([]epoch.ID, error) { return nil, nil }

// Dropped returns ... for Sweep.
func (p *Page) Dropped() []epoch.Drop { return nil }
