package cloudsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/replica"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

const (
	// maxMerges bounds how often a barrier merges heads that arrived meanwhile.
	maxMerges = 4
	// maxOvertaken bounds how often in a row other devices are faster.
	maxOvertaken = 256
)

// barrier does what Sync promises. held says that the caller has the turn, which barrier releases.
// barrier does not hold the turn while heads are merged.
func (p *Page) barrier(ctx, held context.Context) error {
	proved, err := p.reach(held)
	p.turn.Give()
	var mergeErr error
	waits := false
	for range maxMerges {
		if err != nil {
			return err
		}
		if mergeErr = p.merge(ctx); mergeErr != nil {
			mergeErr = fmt.Errorf("merge heads: %w", mergeErr)
		}
		if held, err = p.lock(ctx, 0); err != nil {
			return err
		}
		err = p.push(held, proved)
		waits = p.ses.waits
		p.turn.Give()
		if proved = true; mergeErr != nil || !p.several() {
			break
		}
	}
	if err == nil {
		err = mergeErr
	}
	if err == nil && waits {
		err = replica.ErrWaits
	}
	return err
}

// several reports whether there are several heads and a Merge for them.
func (p *Page) several() bool { return p.o.Merge != nil && len(p.store.Heads()) > 1 }

// merge merges the heads, if there are several and a Merge for them.
func (p *Page) merge(ctx context.Context) error {
	if !p.several() {
		return nil
	}
	return p.o.Merge(ctx)
}

// reach downloads new entries, unless there is something to send: the append then proves that there
// are none. It reports whether it has looked.
func (p *Page) reach(ctx context.Context) (bool, error) {
	if err := p.ready(ctx); err != nil {
		return false, err
	}
	if p.fresh() {
		unsynced, err := p.store.Unsynced(ctx)
		if err != nil {
			return false, fmt.Errorf("look for what is not synced: %w", err)
		}
		if len(unsynced) > 0 {
			return false, nil
		}
	}
	_, err := p.download(ctx)
	return true, err
}

// push sends everything. If it sent nothing and proved is not set, it looks.
func (p *Page) push(ctx context.Context, proved bool) error {
	if err := p.ready(ctx); err != nil {
		return err
	}
	sent, err := p.upload(ctx)
	if err == nil && sent == 0 && !proved {
		_, err = p.download(ctx)
	}
	if err != nil {
		return err
	}
	p.succeeded(ctx)
	if p.s.o.Manual {
		in := p.ses.log.Position().Epoch
		if p.upkeep(ctx); p.ses.log.Position().Epoch != in { // the new epoch may lack what was sent into the old one
			_, err = p.upload(ctx)
		}
		return err
	}
	return nil // the upkeep is part of the next round of the background
}

// succeeded records the time when everything is up and down.
func (p *Page) succeeded(ctx context.Context) {
	unsynced, err := p.store.Unsynced(ctx)
	if err != nil || len(unsynced) > 0 || !p.fresh() {
		return
	}
	now := p.s.o.Clock.Now()
	p.change(func() { p.lastSuccess = now })
}

// upload sends everything unsynced, and returns how many entries it appended.
func (p *Page) upload(ctx context.Context) (sent int, err error) {
	sent, err = p.send(ctx)
	if err == nil {
		err = p.audit(ctx)
	}
	if err == nil {
		err = p.tidy(ctx)
	}
	if err != nil {
		p.ses.tip = time.Time{}
	}
	p.mu.Lock()
	down := p.down.activity == InProgress // other devices were first, and their entries were applied
	p.mu.Unlock()
	if wrongBucket(err) {
		p.ends(ctx, &p.down, err)
	} else if down { // another failure may not be of the download: the next look will show
		p.ends(ctx, &p.down, nil)
	}
	p.ends(ctx, &p.up, err)
	p.tellArrived()
	return sent, err
}

func (p *Page) send(ctx context.Context) (sent int, err error) {
	if !p.ses.log.Position().Joined() {
		if unsynced, err := p.store.Unsynced(ctx); err != nil || len(unsynced) == 0 {
			return 0, err
		}
		p.begins(&p.up)
		if err := p.join(ctx); err != nil {
			return 0, err
		}
	}
	if err := p.carry(ctx); err != nil {
		return 0, err
	}
	if err := p.rep.Load().ProvePending(ctx); err != nil {
		return 0, err
	}
	for lost := 0; lost < maxOvertaken; {
		body, err := p.rep.Load().Next(ctx, func(ctx context.Context, announced *wire.EntryBody) (bool, error) {
			p.begins(&p.up)
			landed, err := p.append(ctx, announced)
			if landed {
				sent++
			}
			return landed, err
		})
		if p.ses.waits = errors.Is(err, replica.ErrWaits); p.ses.waits {
			p.ses.arrived = true // the owner of the page merges
			return sent, nil
		}
		if err != nil || body == nil {
			return sent, err
		}
		p.begins(&p.up)
		landed, err := p.append(ctx, body)
		if err != nil {
			return sent, err
		}
		if lost++; landed {
			p.up.progress.Settle() // an entry that only announces packs completes nothing
			sent, lost = sent+1, 0
		}
	}
	return sent, fmt.Errorf("append to the log: %w: %w", pagelog.ErrContended, base.ErrNetwork)
}

// append puts an entry into the log. It reports false if other devices were faster; then the body
// has to be made again.
func (p *Page) append(ctx context.Context, body *wire.EntryBody) (landed bool, err error) {
	if err := p.s.checkKeys(ctx, proofForWriting); err != nil {
		return false, err
	}
	if p.ses.log.Position().Number == 0 { // who appended the first entry has announced the page
		if err := p.announce(ctx); err != nil {
			return false, err
		}
	}
	in := p.ses.log.Position().Epoch
	err = p.withLog(ctx, func() error {
		if p.ses.log.Position().Epoch != in {
			return nil
		}
		landed, err = p.ses.log.Append(ctx, body)
		return err
	})
	now := p.s.o.Clock.Now()
	if err != nil || !landed {
		return false, err
	}
	p.s.entries.Add(1)
	p.s.applied.Add(-1) // it counts those of other devices
	p.ses.tip = now
	if !p.ses.appended { // the entry may stand after an older state of the bucket
		p.ses.appended = true
		if soon := now.Add(auditSoon); p.ses.auditAt.After(soon) {
			p.ses.auditAt = soon
		}
	}
	p.schedule(true)
	return true, nil
}

// auditSoon is how long after its first entry a session audits the log.
const auditSoon = time.Hour

// announce puts the page's announcement, before the first entry of the log. A renewal puts it
// again: the bucket may have lost it.
func (p *Page) announce(ctx context.Context) error {
	sealed, err := wire.SealAnnouncement(p.s.sealer, wire.Announcement{Ledger: p.o.Ledger, Name: p.o.Name, Page: p.store.Page()})
	if err != nil {
		return fmt.Errorf("announce the page: %w", err)
	}
	name := wire.AnnouncementName(p.s.o.Keyring, p.o.Ledger, p.store.Page())
	if err := p.b.PutIfAbsent(ctx, name, int64(len(sealed)), bytes.NewReader(sealed)); err != nil && !errors.Is(err, bucket.ErrExists) {
		return fmt.Errorf("announce the page: %w", err)
	}
	return nil
}
