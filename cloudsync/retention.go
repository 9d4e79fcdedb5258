package cloudsync

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/gc"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// silence is how long a device is waited for that has not said how far it has read, by the bucket's
// clock.
const silence = 180 * day

// GiveUpOptions say how history is given up on this device.
type GiveUpOptions struct {
	// Retention, when not nil, counts instead of what is known of the bucket's.
	Retention *format.Retention
	// Keep are further commits that stay.
	Keep []commit.ID
	// DryRun changes nothing: the commits are only counted.
	DryRun bool
}

// SetRetention writes the bucket's retention into the page's log, for all devices. What it gives up
// is not deleted yet. Errors: as Sync; base.ErrInvalid.
func (p *Page) SetRetention(ctx context.Context, r format.Retention) error {
	if err := p.Sync(ctx); err != nil {
		return err
	}
	return p.withTurn(ctx, "set retention", func(ctx context.Context) error {
		if p.ses.retention == r {
			return nil
		}
		o, err := p.retentionEntry(ctx, r)
		if err != nil {
			return err
		}
		if err := p.append(ctx, o); err != nil {
			return err
		}
		p.ses.retention, p.ses.carried = r, false
		return nil
	})
}

// retentionEntry makes an entry that says which retention there is, by which that is known here
// too.
func (p *Page) retentionEntry(ctx context.Context, r format.Retention) (*outgoing.Outgoing, error) {
	o, err := p.out.Announce(ctx, &format.Body{Retention: &r})
	if err != nil {
		return nil, err
	}
	row := format.RetentionRow{Retention: r, Bucket: format.ID(p.s.o.Keyring.BucketID())}
	settle := o.Settle
	o.Settle = func(number uint64) *storage.SyncBatch {
		b := settle(number)
		b.Metadata = append(b.Metadata, storage.Metadata{Type: format.MetadataRetention, Value: row.Encode()})
		return b
	}
	return o, nil
}

// carried returns an entry with the retention that another log had, or one that is lost, when the
// present one says nothing of any; nil when there is no such, or no log to say it in.
func (p *Page) carried(ctx context.Context) (*outgoing.Outgoing, error) {
	heads := p.store.Heads()
	if !p.ses.carried || !p.ses.looked || p.ses.log == nil || p.ses.log.Position().Number == 0 && len(heads) == 1 && heads[0].IsFirst() {
		return nil, nil
	}
	return p.retentionEntry(ctx, p.ses.retention)
}

// knowRetention takes the row of the retention.
func (p *Page) knowRetention(row []byte) {
	r := format.ParseRetentionRow(row)
	p.ses.retention = r.Retention
	p.ses.carried = r.Retention != format.Retention{} && r.Bucket != format.ID(p.s.o.Keyring.BucketID())
}

// carryRetention keeps what is known of the retention, as what the present log may not say, before
// all else that is known of the log is forgotten.
func (p *Page) carryRetention(ctx context.Context) error {
	r, err := RetentionOf(ctx, p.store)
	if err != nil || r == (format.Retention{}) {
		return err
	}
	return p.keep(ctx, storage.Metadata{Type: format.MetadataRetention, Value: format.RetentionRow{Retention: r}.Encode()})
}

// RetentionOf returns what the store of a page knows of its bucket's retention, zero where nothing
// is given up. Errors: those of the store and of ctx.
func RetentionOf(ctx context.Context, store *storage.Store) (r format.Retention, err error) {
	b, err := store.Metadata(ctx, format.MetadataRetention)
	if err != nil {
		return r, fmt.Errorf("read the retention: %w", err)
	}
	return format.ParseRetentionRow(b).Retention, nil
}

// GaveUp counts commits.
type GaveUp struct {
	Pruned int
	// Waiting are those that the retention gives up, and that stay because a known device has not
	// read them, or what is built on them.
	Waiting int
}

// GiveUp prunes on this device the commits that the bucket's retention gives up, and counts them.
// Heads, tagged and unsynced commits stay, and what merging with known devices needs: all that they
// have not read as far as their notes in the bucket tell, with what it is built on. A device whose
// last note is older than 180 days by the bucket's clock is not known any more. Commits that
// something in memory needs stay for the next time. Errors: those of the bucket (nothing was pruned
// then), of the store and of ctx, base.ErrClosed.
func (p *Page) GiveUp(ctx context.Context, o GiveUpOptions) (n GaveUp, err error) {
	err = p.withTurn(ctx, "give history up", func(ctx context.Context) error {
		n, err = p.giveUp(ctx, o)
		return err
	})
	return n, err
}

func (p *Page) giveUp(ctx context.Context, o GiveUpOptions) (n GaveUp, err error) {
	r := p.ses.retention
	if o.Retention != nil {
		r = *o.Retention
	} else if p.ses.carried {
		return n, nil // the log may say something else
	}
	if r == (format.Retention{}) {
		return n, nil
	}
	floor, _, err := p.ses.log.LookFloor(ctx)
	if err != nil {
		return n, err
	}
	if floor.Deleted || p.ses.log.Position().Number+1 < floor.Low {
		return n, nil // this device has to read on first, as far as it can
	}
	waited, err := p.waitedFor(ctx)
	if err != nil {
		return n, err
	}
	keep := slices.Clone(o.Keep)
	all, err := p.eachUnread(ctx, waited, func(id commit.ID) { keep = append(keep, id) })
	if err != nil {
		return n, err
	}
	if !all {
		alone, err := p.unkept(ctx, r, keep, outgoing.Past{})
		return GaveUp{Waiting: len(alone)}, err
	}
	ids, err := p.unkept(ctx, r, keep, outgoing.Past{})
	if err != nil {
		return n, err
	}
	if len(keep) > len(o.Keep) {
		alone, err := p.unkept(ctx, r, slices.Clone(o.Keep), outgoing.Past{})
		if err != nil {
			return n, err
		}
		n.Waiting = len(alone) - len(ids)
	}
	n.Pruned = len(ids)
	if n.Pruned == 0 || o.DryRun {
		return n, nil
	}
	if err := p.in.NoteGivenUp(ctx, ids); err != nil {
		return n, err
	}
	kept, err := p.store.Prune(ctx, ids)
	n.Pruned -= len(kept)
	if errors.Is(err, base.ErrConflict) {
		err = nil // what is in use stays for the next time
	}
	return n, err
}

// unkept returns the commits here that a retention gives up, the tagged and the unsynced ones and
// what these are built on, and keep, aside. The unsynced ones in past are as others.
func (p *Page) unkept(ctx context.Context, r format.Retention, keep []commit.ID, past outgoing.Past) ([]commit.ID, error) {
	tags, err := p.store.Tags(ctx)
	if err != nil {
		return nil, fmt.Errorf("read tags: %w", err)
	}
	for _, id := range tags {
		keep = append(keep, id)
	}
	heads := p.store.Heads() // before the unsynced ones are read: what is committed in between counts there
	unsynced, err := p.store.Unsynced(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for what is not synced: %w", err)
	}
	unsynced = slices.DeleteFunc(unsynced, past.Has)
	all, err := p.store.FindCommits(ctx, nil, false, math.MaxInt)
	if err != nil {
		return nil, fmt.Errorf("list commits: %w", err)
	}
	page := gc.Page{History: p.store, Heads: heads, All: all, Keep: keep, Unsynced: unsynced}
	return gc.Prune(ctx, page, gc.Policy{Commits: int(min(r.Commits, math.MaxInt)), Age: r.Age}, p.s.gate.now())
}

// waitedFor returns up to which entry all known devices have read the log.
func (p *Page) waitedFor(ctx context.Context) (uint64, error) {
	least := p.ses.log.Position().Number
	infos, err := listAll(ctx, p.b, p.names.DevicesPrefix(), "")
	if err != nil {
		return 0, fmt.Errorf("look for the notes of devices: %w", err)
	}
	now := p.s.gate.now()
	newest := map[format.ID]bucket.Info{}
	numbers := map[format.ID]uint64{}
	for _, info := range infos {
		kind, number, _, id, ok := p.names.ParseName(info.Name)
		if !ok || kind != format.KindDevice || id == p.s.o.Device || !info.Created.IsZero() && now.Sub(info.Created) > silence {
			continue
		}
		if _, there := newest[id]; !there || number > numbers[id] {
			newest[id], numbers[id] = info, number
		}
	}
	// Those that are furthest behind come first, in one order everywhere: then one note is read if
	// it is good.
	ids := slices.SortedFunc(maps.Keys(newest), func(a, b format.ID) int {
		return cmp.Or(cmp.Compare(numbers[a], numbers[b]), bytes.Compare(a[:], b[:]))
	})
	for _, id := range ids {
		if numbers[id] >= least {
			break
		}
		err := p.readNote(ctx, newest[id].Name, id, numbers[id])
		for n := 1; n < minReads && errors.Is(err, base.ErrCorrupt); n++ {
			err = p.readNote(ctx, newest[id].Name, id, numbers[id])
		}
		switch {
		case errors.Is(err, base.ErrNotFound), errors.Is(err, base.ErrCorrupt): // a newer one has taken its place, or nobody of us has written it
		case err != nil:
			return 0, fmt.Errorf("read the note of a device: %w", err)
		default:
			least = numbers[id]
		}
	}
	return least, nil
}

func (p *Page) readNote(ctx context.Context, name string, id format.ID, number uint64) error {
	stored, err := readAll(ctx, p.b, name, maxNoteBytes)
	if err == nil {
		err = format.OpenDevice(p.s.sealer, p.names, id, number, stored)
	}
	return err
}

// maxNoteBytes bounds a stored note of a device.
const maxNoteBytes = 4 << 10

// eachUnread calls fn with the commits of entries behind a number, and with their parents and the
// bases of their diffs. It reports false when some of these entries are deleted, or damaged: then
// all that is still kept of what they had may be needed.
func (p *Page) eachUnread(ctx context.Context, number uint64, fn func(commit.ID)) (all bool, err error) {
	from, err := p.positionAt(ctx, number)
	if err == nil {
		err = p.entriesFrom(ctx, from, fn)
	}
	if errors.Is(err, base.ErrNotFound) || errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrGone) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read what other devices have not read: %w", err)
	}
	return true, nil
}

// errSkipped reports that entries are gone in the midst of those that are read.
var errSkipped = fmt.Errorf("the log was given up meanwhile: %w", base.ErrNotFound)

func (p *Page) entriesFrom(ctx context.Context, from format.Position, fn func(commit.ID)) error {
	next := from.Number
	return p.entriesBehind(ctx, from, func(e *format.Entry) error {
		if next++; e.Number != next {
			return errSkipped
		}
		for i := range e.Body.Commits {
			c := &e.Body.Commits[i]
			fn(c.Commit.ID)
			for _, id := range c.Commit.Parents {
				fn(id)
			}
			if !c.Base.Empty {
				fn(c.Base.Commit)
			}
		}
		return nil
	})
}

// positionAt returns the position behind an entry before the page's own position, as the entry that
// follows it tells.
func (p *Page) positionAt(ctx context.Context, number uint64) (format.Position, error) {
	at := p.ses.log.Position()
	switch {
	case number == 0:
		return format.Position{Bucket: at.Bucket}, nil
	case number >= at.Number:
		return at, nil
	}
	name := p.names.Entry(number + 1)
	o, err := p.b.Get(ctx, name, 0, format.HeaderBytes)
	if err != nil {
		return at, fmt.Errorf("look for entry %d: %w", number+1, err)
	}
	defer o.Body.Close()
	b, err := io.ReadAll(io.LimitReader(o.Body, format.HeaderBytes))
	if err != nil {
		return at, fmt.Errorf("read %s: %w", name, err)
	}
	h, _, err := format.OpenHeader(p.s.sealer, p.names, number+1, b)
	if err != nil {
		return at, err
	}
	return format.Position{Bucket: at.Bucket, Number: number, Hash: h.Previous}, nil
}

// firstWaiting returns the number of the first entry that is there without a gap up to the floor:
// those below it are deleted.
func (p *Page) firstWaiting(old []bucket.Info, floor format.Floor, since time.Time) uint64 {
	there := map[uint64]bool{}
	for _, info := range old {
		kind, from, _, _, ok := p.names.ParseName(info.Name)
		// What was created later stands at the name of one that was deleted.
		if ok && kind == format.KindEntry && info.Size > 0 && (since.IsZero() || info.Created.IsZero() || !info.Created.After(since)) {
			there[from] = true
		}
	}
	n := max(floor.Low, 1)
	for n > 1 && there[n-1] {
		n--
	}
	return n
}
