package cloudsync

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

const (
	// minCheckpointLog is the log in bytes that needs no checkpoint, however small the page: some
	// hundred small entries.
	minCheckpointLog = 256 << 10
	// day is how often a device says how far it has read, at the most.
	day = 24 * time.Hour
	// rangeEvery is the length of the shortest range.
	rangeEvery = 32
	// checkpointPause is how long a device waits after a checkpoint could not be written.
	checkpointPause = 10 * time.Minute
)

// upkeep does what makes the log shorter for others. That it fails hurts nobody but them, and it is
// tried again later: the error goes to the log.
func (p *Page) upkeep(ctx context.Context) {
	p.mu.Lock()
	p.wantUpkeep = false
	p.mu.Unlock()
	if err := p.checkpointIfDue(ctx); err != nil {
		p.complain(ctx, "a checkpoint could not be written", err)
		p.ses.retryAt = p.s.o.Clock.Now().Add(checkpointPause)
	}
	// Not only at close and after a day: who is always killed before, as apps on telephones are,
	// would never tell, and nobody would wait for him.
	now := p.s.gate.now()
	if now.Sub(p.ses.opened) >= day || !p.ses.first && now.Sub(p.ses.untold) >= day {
		if err := p.tell(ctx, p.b); err != nil {
			p.complain(ctx, "the bucket could not be told how far this device is", err)
			p.ses.opened, p.ses.untold = now, now // not before tomorrow
		}
	}
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

// writeRanges writes the ranges that end with an entry of this device.
func (p *Page) writeRanges(ctx context.Context, number uint64) {
	if number%rangeEvery != 0 {
		return
	}
	if _, err := p.out.WriteRanges(ctx, number); err != nil {
		p.complain(ctx, "a range of the log could not be written", err)
	}
}

// checkpointIfDue writes a checkpoint when the log behind the last one is longer than half of what
// the page holds, or than what who begins with the checkpoint can read of it so that all he reads
// is not much more than one and a half times that; the first one when the log is three times as
// long. Each device adds a little of its own, so that one is usually first, and looks whether
// another was.
func (p *Page) checkpointIfDue(ctx context.Context) error {
	since, err := p.since(ctx)
	if err != nil || since <= p.checkpointAt() {
		return err
	}
	if p.until(p.ses.retryAt, p.s.o.Clock.Now()) > 0 {
		return nil
	}
	row := p.ses.checkpoint
	heads, err := outgoing.SyncedHeads(ctx, p.store)
	if err != nil {
		return err
	}
	// The page may have grown since it was measured.
	m, err := p.measure(ctx, heads[len(heads)-1])
	if err != nil {
		return err
	}
	row.room = m.room()
	if err := p.knowRow(ctx, row); err != nil || since <= p.checkpointAt() {
		return err
	}
	if since, err = p.othersCheckpoint(ctx, since); err != nil || since <= p.checkpointAt() {
		return err
	}
	return p.writeCheckpoint(ctx, heads)
}

// knowRow keeps what was measured.
func (p *Page) knowRow(ctx context.Context, row checkpointRow) error {
	p.ses.checkpoint = row
	return p.keep(ctx, storage.Metadata{Type: format.MetadataCheckpoint, Value: row.encode()})
}

// checkpointAt returns the length of the log at which this device writes a checkpoint.
func (p *Page) checkpointAt() uint64 {
	row := p.ses.checkpoint
	bound := float64(max(row.room, row.size/2))
	if row.number == 0 {
		bound *= 3
	}
	return uint64(max(minCheckpointLog, bound) * (1 + p.ses.slack/20))
}

// othersCheckpoint looks for a newer checkpoint than is known, and returns the length of the log
// behind the newest.
func (p *Page) othersCheckpoint(ctx context.Context, since uint64) (uint64, error) {
	row := p.ses.checkpoint
	infos, err := listAll(ctx, p.b, p.names.CheckpointsPrefix(), p.names.Checkpoint(row.number))
	if err != nil {
		return 0, fmt.Errorf("look for checkpoints: %w", err)
	}
	at := p.ses.log.Position().Number
	for i := len(infos) - 1; i >= 0; i-- {
		kind, number, _, _, ok := p.names.ParseName(infos[i].Name)
		if !ok || kind != format.KindCheckpoint || number <= row.number || number > at {
			continue
		}
		// Entries are of about one length: the share of them is that of the bytes.
		since = uint64(float64(since) * float64(at-number) / float64(at-row.number))
		return since, p.knowCheckpoint(ctx, checkpointRow{number: number, room: row.room, size: uint64(max(infos[i].Size, 0))}, since)
	}
	return since, nil
}

// writeCheckpoint writes the checkpoint of the present position.
func (p *Page) writeCheckpoint(ctx context.Context, heads []*commit.Commit) error {
	at := p.ses.log.Position()
	size, err := p.out.WriteCheckpoint(ctx, at, heads)
	if err != nil {
		return fmt.Errorf("write checkpoint %d: %w", at.Number, err)
	}
	if size > 0 {
		p.s.checkpoints.Add(1)
	}
	return p.knowCheckpoint(ctx, checkpointRow{number: at.Number, room: p.ses.checkpoint.room, size: uint64(size)}, 0)
}

// Checkpoint writes a checkpoint now, after a Sync. It does nothing when there is one of the
// present position. Errors: as Sync; those of the store.
func (p *Page) Checkpoint(ctx context.Context) error {
	if err := p.Sync(ctx); err != nil {
		return err
	}
	return p.withTurn(ctx, "write a checkpoint", func(ctx context.Context) error {
		if p.ses.log.Position().Number == 0 {
			return nil
		}
		heads, err := outgoing.SyncedHeads(ctx, p.store)
		if err != nil {
			return err
		}
		return p.writeCheckpoint(ctx, heads)
	})
}

// withTurn calls fn for a call of the API, with the turn and a bucket that is the right one.
func (p *Page) withTurn(ctx context.Context, what string, fn func(ctx context.Context) error) error {
	ctx, leave, err := p.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	if ctx, err = p.lock(ctx); err == nil {
		defer p.unlock()
		if err = p.begin(ctx); err == nil {
			err = fn(ctx)
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	return p.outward(err)
}

// measured is what a page holds, and what of it comes down to a new device.
type measured struct {
	content uint64 // bytes of keys and values, but for LAZY ones
	cost    uint64 // about what a checkpoint of it has, and what is read of packs with it
}

// room returns how long the log behind a checkpoint may be: half of the content, less when the
// checkpoint and its packs are so much longer than the content that a new device would read more
// than 1.66 times the content in all. Slack and what ranges add to the log take an eighth of that.
func (m measured) room() uint64 {
	least, most := m.content/4, m.content/2
	all := m.content / 100 * 166
	if all < m.cost {
		return least
	}
	return max(least, min(most, (all-m.cost)/9*8))
}

// measure walks over the whole tree of a commit.
func (p *Page) measure(ctx context.Context, c *commit.Commit) (measured, error) {
	var m measured
	if err := p.measureNode(ctx, c.Root, &m); err != nil {
		return m, fmt.Errorf("measure the page: %w", err)
	}
	return m, nil
}

// What stands in a checkpoint beside a key or value, beside the name of a value, and about a piece
// in the table of its pack and in index pieces. Chunks are not shorter than leastChunk in the mean.
const (
	eachPart, eachName, eachPiece = 2, 37, 82
	leastChunk                    = 12 << 10
)

// measureNode measures a subtree. It goes no deeper than trees have levels, since the store
// verifies nodes.
func (p *Page) measureNode(ctx context.Context, d object.Digest, m *measured) error {
	if d == commit.First().Root { // the empty tree is not stored
		return nil
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	n, err := p.store.Node(ctx, d)
	if err != nil {
		return err
	}
	for i := range n.Len() {
		key := uint64(len(n.Key(i)))
		m.content, m.cost = m.content+key, m.cost+key+eachPart
		if n.Inline(i) {
			value := uint64(len(n.Value(i)))
			m.content, m.cost = m.content+value, m.cost+value+eachPart
			continue
		}
		m.cost += eachName
		if e := n.Entry(i); e.Priority == object.Eager {
			m.content, m.cost = m.content+e.Size, m.cost+e.Size+outgoing.Waste(e.Size)+eachPiece*(e.Size/leastChunk)+eachPiece/2
		}
	}
	for i := range n.NumChildren() {
		if err := p.measureNode(ctx, n.Child(i).Digest, m); err != nil {
			return err
		}
	}
	return nil
}

// tell says in the bucket how far this device has read, if it has read on since it last said so,
// and not more than once a day.
func (p *Page) tell(ctx context.Context, b bucket.Bucket) error {
	now := p.s.gate.now()
	row, at := p.ses.device, p.ses.log.Position().Number
	if at <= row.number || !row.told.IsZero() && now.Sub(row.told) < day && !now.Before(row.told) {
		return nil
	}
	fingerprint := p.s.o.Device
	sealed, err := format.SealDevice(p.s.sealer, p.names, format.DevicePosition{Fingerprint: fingerprint, Number: at})
	if err != nil {
		return fmt.Errorf("seal the position: %w", err)
	}
	err = b.PutIfAbsent(ctx, p.names.Device(fingerprint, at), int64(len(sealed)), bytes.NewReader(sealed))
	if err != nil && !errors.Is(err, bucket.ErrExists) {
		return fmt.Errorf("put the position: %w", err)
	}
	next := deviceRow{number: at, told: now}
	if err := p.keep(ctx, storage.Metadata{Type: format.MetadataDevice, Value: next.encode(fingerprint)}); err != nil {
		return err
	}
	p.ses.device = next
	if row.number > 0 {
		if err := b.Delete(ctx, p.names.Device(fingerprint, row.number)); err != nil {
			return fmt.Errorf("delete the position before: %w", err)
		}
	}
	return nil
}

// tellAtClose is tell for a page whose work has ended. It asks nothing of a bucket that did not
// answer last.
func (p *Page) tellAtClose(ctx context.Context) {
	p.mu.Lock()
	well := p.up.err == nil && p.down.err == nil
	p.mu.Unlock()
	if !well || p.ses.log == nil || !p.ses.looked {
		return
	}
	if err := p.tell(ctx, p.s.b); err != nil && !errors.Is(err, base.ErrClosed) {
		p.s.o.Logger.Debug("the bucket could not be told how far this device is", "ledger", p.o.Ledger, "page", p.pageID(), "error", err)
	}
}
