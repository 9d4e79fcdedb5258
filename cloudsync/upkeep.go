package cloudsync

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync/replica"
)

const (
	// cutEntries is after how many entries the log is cut.
	cutEntries = 1024
	// minCutBytes is the length of a log that is not cut for its bytes, however small the page.
	minCutBytes = 256 << 10
	// firstCut is how much longer the log may be in an epoch without a checkpoint.
	firstCut = 4
	// cutPause is how long a device waits after a cut has failed.
	cutPause = 10 * time.Minute
)

// upkeep makes the log short for others, and gives up what was kept while something needed it. That
// it fails hurts nobody but them, and it is tried again later: the error goes to the log.
func (p *Page) upkeep(ctx context.Context) {
	p.mu.Lock()
	p.wantUpkeep = false
	p.mu.Unlock()
	if p.until(p.ses.retryAt, p.s.o.Clock.Now()) > 0 || !p.cutDue() {
		return
	}
	if st := p.rep.Load().State(); p.several() && st.Entries < 2*cutEntries {
		return // a cut keeps all heads; soon there is one
	}
	err := p.cutIfDue(ctx)
	if err != nil {
		p.complain(ctx, "the log could not be cut", err)
		p.ses.retryAt = p.s.o.Clock.Now().Add(cutPause)
	}
	p.tellArrived()
}

// cutIfDue cuts, unless another device has done so meanwhile.
func (p *Page) cutIfDue(ctx context.Context) error {
	if _, err := p.catchUp(ctx); err != nil || !p.cutDue() {
		return err
	}
	return p.cut(ctx)
}

// cutDue reports whether the log is to be cut for its length. Each
// device waits a little longer in its own measure, so that one is usually first.
func (p *Page) cutDue() bool {
	st := p.rep.Load().State()
	if p.ses.log.Position().Deleted || p.folding() {
		return false
	}
	late := 1 + p.ses.slack/20
	return st.Entries >= uint64(cutEntries*late) || st.Bytes > uint64(float64(cutBytes(st))*late)
}

// cutBytes returns after how many bytes the log is cut: half of what a new device reads without it.
func cutBytes(st *replica.State) uint64 {
	if st.Header == nil {
		return firstCut * minCutBytes
	}
	var n uint64
	for _, r := range st.Header.Runs {
		n += r.Bytes
	}
	for _, s := range st.Header.Snapshots {
		n += s.Diff.Stored
	}
	for i := range st.Manifest {
		if k := &st.Manifest[i]; k.Eager {
			n += k.Bytes
		}
	}
	return max(minCutBytes, n/2)
}

// cut begins an epoch that gives up what retention and an erasure name.
func (p *Page) cut(ctx context.Context) error {
	if err := p.s.checkKeys(ctx, p.b, proofForWriting, false); err != nil {
		return err
	}
	if err := p.withLog(ctx, func() error { return p.ses.log.Cut(ctx) }); err != nil {
		return fmt.Errorf("cut the log: %w", err)
	}
	p.s.checkpoints.Add(1)
	return p.tidy(ctx)
}

// Checkpoint cuts the log now, after a Sync. It does nothing where the log has no entries. Errors: as
// Sync; those of the store.
func (p *Page) Checkpoint(ctx context.Context) error {
	if err := p.Sync(ctx); err != nil {
		return err
	}
	return p.withTurn(ctx, "write a checkpoint", func(ctx context.Context) error {
		if p.rep.Load().State().Entries == 0 && p.ses.log.Position().Number == 0 {
			return nil
		}
		return p.cut(ctx)
	})
}

func (p *Page) complain(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		p.s.o.Logger.Warn(what, "ledger", p.o.Ledger, "page", p.pageID(), "error", err)
	}
}

func (p *Page) pageID() string {
	id := p.store.Page()
	return hex.EncodeToString(id[:])
}
