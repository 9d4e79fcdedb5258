package cloudsync

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync/replica"
)

const (
	// cutEntries is the number of entries after which the log is cut.
	cutEntries = 1024
	// minCutBytes is the least length of a log that is cut for its bytes, even in a small page.
	minCutBytes = 128 << 10
	// The log is cut when its length is this many tenths of the content. firstParts holds in an
	// epoch without a checkpoint, whose log has all of the content itself.
	firstParts, laterParts = 15, 3
	// cutPause is how long a device waits after a failed cut.
	cutPause = 10 * time.Minute
)

// upkeep shortens the log for other devices, and gives up commits that were kept only while they
// were needed. A failure hurts only other devices and is retried later, so the error is only
// logged.
func (p *Page) upkeep(ctx context.Context) {
	if !p.ses.appended || p.until(p.ses.retryAt) > 0 {
		return // only a device that appends cuts: a device that only reads stays cheap
	}
	heads, err := p.rep.Load().HeadsOfLog(ctx)
	if err == nil && len(heads) < 2 { // else soon there is only one
		err = p.cutIfDue(ctx)
	}
	if err != nil {
		p.complain(ctx, "the log could not be cut", err)
		p.ses.retryAt = p.s.o.Clock.Now().Add(cutPause)
	}
	p.tellArrived()
}

// cutIfDue cuts if a cut is due and no other device has cut meanwhile.
func (p *Page) cutIfDue(ctx context.Context) error {
	due, err := p.cutDue(ctx)
	if err != nil || !due {
		return err
	}
	if _, err := p.catchUp(ctx); err != nil {
		return err
	}
	if due, err = p.cutDue(ctx); err != nil || !due {
		return err
	}
	done, err := p.cut(ctx)
	if err == nil && !done { // what it has written is of no use
		p.ses.retryAt = p.s.o.Clock.Now().Add(cutPause)
	}
	return err
}

// cutDue reports whether the log is long enough for a cut. Each device waits a little longer by its
// own slack, so that one device is usually first.
func (p *Page) cutDue(ctx context.Context) (bool, error) {
	st := p.rep.Load().State()
	if p.ses.log.Position().Deleted {
		return false, nil
	}
	late := 1 + p.ses.slack/20
	if st.Entries >= uint64(cutEntries*late) {
		return true, nil
	}
	bound := func() uint64 {
		parts := uint64(laterParts)
		if st.Header == nil {
			parts = firstParts
		}
		return uint64(max(minCutBytes, float64(p.ses.content*parts/10)) * late)
	}
	if st.Bytes <= bound() {
		return false, nil
	}
	content, err := p.rep.Load().Content(ctx, p.store.NewestHead()) // the content may have grown
	if err != nil {
		return false, fmt.Errorf("measure the page: %w", err)
	}
	p.ses.content = content
	return st.Bytes > bound(), nil
}

// cut begins an epoch that gives up the commits that retention and an erasure name. It reports
// false if the log has several heads.
func (p *Page) cut(ctx context.Context) (done bool, err error) {
	if err := p.s.checkKeys(ctx, proofForWriting); err != nil {
		return false, err
	}
	err = p.withLog(ctx, func() error { return p.ses.log.Cut(ctx) })
	if errors.Is(err, replica.ErrHeads) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cut the log: %w", err)
	}
	p.s.checkpoints.Add(1)
	return true, p.tidy(ctx)
}

// Checkpoint syncs, then cuts the log. It does not cut a log without entries or with several heads.
// Errors: as Sync; those of the store.
func (p *Page) Checkpoint(ctx context.Context) error {
	if err := p.Sync(ctx); err != nil {
		return err
	}
	return p.withTurn(ctx, 0, "write a checkpoint", func(ctx context.Context) error {
		if p.rep.Load().State().Entries == 0 && p.ses.log.Position().Number == 0 {
			return nil
		}
		_, err := p.cut(ctx)
		return err
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
