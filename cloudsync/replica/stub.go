package replica

import (
	"context"

	"github.com/ledgerd/ledger/cloudsync/epoch"
)

// Propose implements pagelog.Page.
func (p *Page) Propose(ctx context.Context, x *epoch.Proposal, seen epoch.Looked) error { return nil }

// Named returns ... for Sweep.
func (p *Page) Named(ctx context.Context) ([]epoch.ID, error) { return nil, nil }

// Dropped returns ... for Sweep.
func (p *Page) Dropped() []epoch.Drop { return nil }
