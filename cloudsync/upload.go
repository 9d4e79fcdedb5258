package cloudsync

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/cloudlog"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/storage"
)

const (
	// maxMerges bounds how often a barrier merges heads that came while it was at it.
	maxMerges = 4
	// maxRemakes bounds how often in a row an entry is made anew because others condemn what it
	// needs.
	maxRemakes = 16
	// maxOvertaken is how many entries of others may come before an entry whose diffs lead from
	// what is no head any more because of them.
	maxOvertaken = 8
)

// barrier does what Sync promises. held says that the caller has the turn, which barrier gives
// back; it does not hold it while heads are merged.
func (p *Page) barrier(ctx, held context.Context) error {
	proved, err := p.reach(held)
	p.unlock()
	var mergeErr error
	for range maxMerges {
		if err != nil {
			return err
		}
		if p.several() {
			if mergeErr = p.o.Merge(ctx); mergeErr != nil {
				mergeErr = fmt.Errorf("merge heads: %w", mergeErr)
			}
		}
		if held, err = p.lock(ctx); err != nil {
			return err
		}
		err = p.push(held, proved)
		p.unlock()
		if proved = true; mergeErr != nil || !p.several() {
			break
		}
	}
	if err == nil {
		err = mergeErr
	}
	return err
}

// several reports whether there are heads that somebody can merge.
func (p *Page) several() bool { return p.o.Merge != nil && len(p.store.Heads()) > 1 }

// reach brings down what there is, unless there is something to send that will prove that there is
// nothing. It reports whether it has looked.
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

// push sends everything. If nothing was sent and nobody has looked, it looks.
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
		p.upkeep(ctx)
		return nil
	}
	p.mu.Lock()
	p.wantUpkeep = true
	p.mu.Unlock()
	p.wake(false)
	return nil
}

// succeeded notes when everything was up and down.
func (p *Page) succeeded(ctx context.Context) {
	unsynced, err := p.store.Unsynced(ctx)
	if err != nil || len(unsynced) > 0 || !p.fresh() {
		return
	}
	now := p.s.o.Clock.Now()
	p.change(func() { p.lastSuccess = now })
}

// upload sends what there is to send, and returns how many entries that took.
func (p *Page) upload(ctx context.Context) (sent int, err error) {
	for again, more := 0, true; more && err == nil; {
		var o *outgoing.Outgoing
		if o, err = p.next(ctx); err == nil && o != nil {
			err = p.append(ctx, o)
		}
		switch {
		case err == nil && o == nil:
			more = false
		case err == nil:
			sent++
			again = 0
			more = o.More || p.ses.resend
			if o.Body.Body.Retention != nil { // see carried; what else there is comes behind it
				p.ses.carried, more = false, true
			}
		case again < maxRemakes:
			again++
			err = p.mend(ctx, err)
		}
	}
	if err == nil { // appending may have looked at the floor
		err = p.lookBeyond(ctx)
	}
	if err == nil {
		err = p.keepFloor(ctx)
	}
	if err != nil {
		p.ses.log = nil // an entry may have landed without its answer
		p.ses.tip = time.Time{}
		p.out.Doubt()
		err = p.explain(ctx, err)
	}
	p.mu.Lock()
	down := p.down.activity == InProgress // since others were first, and their entries were applied
	p.mu.Unlock()
	switch {
	case down && err == nil, wrongBucket(err), down && unreadable(err):
		p.ends(ctx, &p.down, err)
	case down: // it need not be what came down that has failed: a look will tell
		p.change(func() {
			if p.nextPoll, p.down.activity = (time.Time{}), Pending; p.down.err != nil {
				p.down.activity = p.down.failing()
			}
		})
	}
	p.ends(ctx, &p.up, err)
	p.tellArrived()
	return sent, err
}

// next makes the next entry, nil when there is nothing to send.
func (p *Page) next(ctx context.Context) (*outgoing.Outgoing, error) {
	if err := p.tellPast(ctx); err != nil {
		return nil, err
	}
	if p.ses.resend {
		// What history gives up is not sent again.
		if n, err := p.giveUp(ctx, GiveUpOptions{Keep: p.inUse()}); err != nil {
			return nil, err
		} else if n.Pruned > 0 {
			if err := p.collect(ctx); err != nil {
				return nil, err
			}
		}
		p.out.Resend()
		p.ses.resend = false
	}
	now := p.s.o.Clock.Now()
	if age := now.Sub(p.ses.trusted); age < 0 || age >= proofForWriting {
		p.out.Doubt()
		p.ses.trusted = now
	}
	o, err := p.carried(ctx)
	if err == nil && o == nil {
		o, err = p.out.Next(ctx)
	}
	if err == nil && o != nil {
		p.begins(&p.up)
	}
	return o, err
}

// mend returns nil when an entry that could not be appended is to be made anew.
func (p *Page) mend(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, cloudlog.ErrRemake):
		return nil
	case errors.Is(err, errOvertaken):
		return p.load(ctx)
	}
	return p.supply(ctx, err)
}

// errOvertaken reports that so many entries of others came before an entry that its diffs had
// better lead from other commits.
var errOvertaken = errors.New("the log has gone on")

// append puts an entry with what it says into the log. When others were first, diffs may lead from
// what is no head of the log any more. A checkpoint that was written meanwhile does not have the
// trees of those, so that whoever begins with it has to build one from the checkpoint before. So
// after some entries of others the entry is made anew, which costs no upload but its own; fewer are
// let pass, so that devices which are always overtaken come to an end.
func (p *Page) append(ctx context.Context, o *outgoing.Outgoing) error {
	others := 0
	return p.appendAfter(ctx, o, func(ctx context.Context, entries []*format.Entry, at format.Position) error {
		if err := p.apply(ctx, entries, at); err != nil {
			return err
		}
		if o.Commits > 0 && slices.ContainsFunc(entries, func(e *format.Entry) bool { return e.Body.Renewed }) {
			p.ses.log = nil // as below; what the body builds on may not be in the bucket any more
			return errOvertaken
		}
		if others += len(entries); others < maxOvertaken || len(o.Bases) == 0 {
			return nil
		}
		heads, err := outgoing.SyncedHeads(ctx, p.store)
		if err != nil {
			return err
		}
		for _, id := range o.Bases {
			if !slices.ContainsFunc(heads, func(h *commit.Commit) bool { return h.ID == id }) {
				p.ses.log = nil // what was applied is durable: the log goes on from there
				return errOvertaken
			}
		}
		return nil
	})
}

// appendAfter is append for who wants to see the entries of others that come before.
func (p *Page) appendAfter(ctx context.Context, o *outgoing.Outgoing, apply cloudlog.Apply) error {
	if err := p.s.checkKeys(ctx, p.b, proofForWriting, p.ses.log.Position().Number == 0); err != nil {
		return err
	}
	if err := p.proveOwn(ctx); err != nil {
		return err
	}
	if err := p.announce(ctx); err != nil {
		return err
	}
	settle := func(ctx context.Context, a cloudlog.Appended, _ *format.Entry) error { return p.settle(ctx, o, a) }
	var a cloudlog.Appended
	again := false
	err := p.passing(ctx, func() (err error) {
		if again && o.Commits > 0 {
			return errOvertaken // what the body builds on may not be in the checkpoint
		}
		again = true
		a, err = p.ses.log.Append(ctx, o.Body, apply, settle)
		return err
	})
	if err != nil {
		return err
	}
	p.s.entries.Add(1)
	p.ses.looked, p.ses.tip = true, p.s.o.Clock.Now()
	p.change(func() { p.position = a.Position.Number })
	p.schedule(true)
	p.recorder.confirm(a.Position.Number, a.Position.Hash)
	if err := p.keepFloor(ctx); err != nil {
		return err
	}
	p.writeRanges(ctx, a.Position.Number)
	return nil
}

// settle makes durable what an entry that counts has made true, together with the position (I3).
func (p *Page) settle(ctx context.Context, o *outgoing.Outgoing, a cloudlog.Appended) error {
	since, err := p.since(ctx)
	if err != nil {
		return err
	}
	if a.Stored > 0 { // else it was counted when it was read
		since += uint64(a.Stored) + o.Body.Body.Elsewhere()
	}
	b := o.Settle(a.Position.Number)
	if b == nil {
		b = &storage.SyncBatch{}
	}
	b.Metadata = append(b.Metadata, storage.Metadata{Type: format.MetadataPosition, Value: a.Position.Encode()},
		storage.Metadata{Type: format.MetadataSince, Value: binary.BigEndian.AppendUint64(nil, since)})
	own := p.ownAppended()
	b.Metadata = append(b.Metadata, own...)
	pending, err := p.store.SubmitSync(ctx, nil, b)
	if err == nil {
		err = pending.Wait()
	}
	if err != nil {
		return fmt.Errorf("settle entry %d: %w", a.Position.Number, err)
	}
	p.noteOwn(own)
	p.up.progress.Settle()
	return nil
}

// since returns the bytes of the log behind the newest checkpoint that is known, with those of the
// diffs and EAGER packs that it names.
func (p *Page) since(ctx context.Context) (uint64, error) {
	b, err := p.store.Metadata(ctx, format.MetadataSince)
	if err != nil {
		return 0, fmt.Errorf("read the length of the log: %w", err)
	}
	if len(b) != 8 {
		return 0, nil
	}
	return binary.BigEndian.Uint64(b), nil
}

// announce puts the page's announcement, once, before its first entry of this device.
func (p *Page) announce(ctx context.Context) error {
	if p.ses.announced {
		return nil
	}
	ring := p.s.o.Keyring
	sealed, err := format.SealAnnouncement(p.s.sealer, format.Announcement{Ledger: p.o.Ledger, Name: p.o.Name, Page: p.store.Page()})
	if err != nil {
		return fmt.Errorf("announce the page: %w", err)
	}
	name := format.AnnouncementName(ring, p.o.Ledger, p.store.Page())
	if err := p.b.PutIfAbsent(ctx, name, int64(len(sealed)), bytes.NewReader(sealed)); err != nil && !errors.Is(err, bucket.ErrExists) {
		return fmt.Errorf("announce the page: %w", err)
	}
	id := ring.BucketID()
	if err := p.keep(ctx, storage.Metadata{Type: metadataAnnounced, Value: id[:]}); err != nil {
		return err
	}
	p.ses.announced = true
	return nil
}
