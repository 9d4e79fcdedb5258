package cloudsync

import (
	"context"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/object"
)

const (
	// cutEntries is after how many entries the log is cut.
	cutEntries = 1024
	// minCutBytes is the length of a log that is not cut for its bytes, however small the page.
	minCutBytes = 128 << 10
	// The log is cut when it has so many tenths of the content; firstParts in an epoch without a
	// checkpoint, which has all of the content itself.
	firstParts, laterParts = 15, 3
	// cutPause is how long a device waits after a cut has failed.
	cutPause = 10 * time.Minute
)

// upkeep makes the log short for others, and gives up what was kept while something needed it. That
// it fails hurts nobody but them, and it is tried again later: the error goes to the log.
func (p *Page) upkeep(ctx context.Context) {
	p.mu.Lock()
	p.wantUpkeep = false
	p.mu.Unlock()
	if !p.ses.appended || p.until(p.ses.retryAt, p.s.o.Clock.Now()) > 0 {
		return // who makes the log longer makes it short: a device that only reads stays cheap
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

// cutIfDue cuts when that is due, unless another device has done so meanwhile.
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
	return p.cut(ctx)
}

// cutDue reports whether the log is to be cut for its length. Each device waits a little longer in
// its own measure, so that one is usually first.
func (p *Page) cutDue(ctx context.Context) (bool, error) {
	st := p.rep.Load().State()
	if folding, err := p.folding(ctx); err != nil || folding || p.ses.log.Position().Deleted {
		return false, err
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
	content, err := p.measure(ctx, p.store.NewestHead().Root) // it may have grown
	if err != nil {
		return false, fmt.Errorf("measure the page: %w", err)
	}
	p.ses.content = content
	return st.Bytes > bound(), nil
}

// measure returns how many bytes the keys and values of a tree have, but for LAZY ones.
func (p *Page) measure(ctx context.Context, d object.Digest) (bytes uint64, err error) {
	if d == commit.First().Root { // the empty tree is not stored
		return 0, nil
	}
	if err := ctx.Err(); err != nil {
		return 0, context.Cause(ctx)
	}
	n, err := p.store.Node(ctx, d)
	if err != nil {
		return 0, err
	}
	for i := range n.Len() {
		if bytes += uint64(len(n.Key(i))); n.Inline(i) {
			bytes += uint64(len(n.Value(i)))
		} else if e := n.Entry(i); e.Priority == object.Eager {
			bytes += e.Size
		}
	}
	for i := range n.NumChildren() {
		below, err := p.measure(ctx, n.Child(i).Digest)
		if err != nil {
			return 0, err
		}
		bytes += below
	}
	return bytes, nil
}

// cut begins an epoch that gives up what retention and an erasure name.
func (p *Page) cut(ctx context.Context) error {
	if err := p.s.checkKeys(ctx, proofForWriting, true); err != nil {
		return err
	}
	if err := p.withLog(ctx, func() error { return p.ses.log.Cut(ctx) }); err != nil {
		return fmt.Errorf("cut the log: %w", err)
	}
	p.s.checkpoints.Add(1)
	return p.tidy(ctx)
}

// Checkpoint cuts the log now, after a Sync. It does nothing where the log has no entries. Errors:
// as Sync; those of the store.
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
