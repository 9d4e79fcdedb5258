package cloudsync

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/storage"
)

// tellPast tells apart, of what is to be sent, what the log is past: commits that another log had,
// and that have come to be unsynced with it, while the present one has what was built on them. Who
// has given them up would take them for heads, and what was deleted since would come back. What the
// bucket's retention gives up of them is not sent any more; the rest is sent as what it is.
func (p *Page) tellPast(ctx context.Context) error {
	if p.ses.toldPast {
		return nil
	}
	past, err := outgoing.FindPast(ctx, p.store)
	if err != nil {
		return fmt.Errorf("look for what the log is past: %w", err)
	}
	if r := p.ses.retention; !past.IsEmpty() && r != (format.Retention{}) && !p.ses.carried {
		if err := p.leavePast(ctx, r, past); err != nil {
			return err
		}
	}
	p.out.SetPast(past)
	p.ses.toldPast = true
	return nil
}

// leavePast has those of what the log is past count as synced that a retention gives up.
func (p *Page) leavePast(ctx context.Context, r format.Retention, past outgoing.Past) error {
	gone, err := p.unkept(ctx, r, p.inUse(), past)
	if err != nil {
		return err
	}
	b := &storage.SyncBatch{}
	for _, id := range gone {
		if past.Has(id) {
			b.Synced = append(b.Synced, id)
		}
	}
	if len(b.Synced) == 0 {
		return nil
	}
	pending, err := p.store.SubmitSync(ctx, nil, b)
	if err == nil {
		err = pending.Wait()
	}
	if err != nil {
		return fmt.Errorf("pass over what history gives up: %w", err)
	}
	p.ses.resend = true // their values are not sent again
	return nil
}
