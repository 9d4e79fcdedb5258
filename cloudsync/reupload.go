package cloudsync

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/ingest"
	"github.com/ledgerd/ledger/cloudsync/outgoing"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// errTaken reports that another device has written what was to be written: the checkpoint with
// which history begins, or the entry with which the log does.
var errTaken = errors.New("another device was first")

// maxReuploads bounds how often it begins anew because another device was first at the same moment.
const maxReuploads = 8

// Reupload makes the bucket whole again from what this device has: it forgets what it knew of the
// bucket, joins whatever log there is, and sends what that lacks. Where the log cannot be read on,
// since something is missing in it or damaged, it begins anew behind that (see renew). The bucket
// must have the Syncer's keyring: who meets ErrBucketWiped or another id connects anew first.
// Commits whose trees are not here go up as history, in a checkpoint. missing is the number of
// pieces of values that are not here and that nobody has sent yet: other devices may have them, and
// send them when they do the same. Reading one gives base.ErrGone until then. It may be called
// again after an error. Errors: as Sync.
func (p *Page) Reupload(ctx context.Context) (missing int, err error) {
	ctx, leave, err := p.enter(ctx)
	if err != nil {
		return 0, err
	}
	defer leave()
	err = p.reupload(ctx, nil)
	if err == nil {
		err = p.store.MissingPieces(ctx, func(object.Digest) error { missing++; return nil })
	}
	if err != nil {
		err = fmt.Errorf("upload anew: %w", err)
	}
	return missing, p.outward(err)
}

// reupload is Reupload. d, if not nil, is what is damaged in the bucket.
func (p *Page) reupload(ctx context.Context, d *damage) error {
	for range maxReuploads {
		held, err := p.lock(ctx)
		if err != nil {
			return err
		}
		if err = p.startOver(held, d); err == nil {
			founder := p.ses.founder
			if err = p.barrier(ctx, held); err == nil && founder {
				err = p.found(ctx)
			}
			return err
		}
		p.unlock()
		if !errors.Is(err, errTaken) {
			return err
		}
	}
	return fmt.Errorf("write the checkpoint of history, or begin the log anew: %w", errTaken)
}

// found writes a checkpoint of what is in the log, for who comes new, unless somebody has changed a
// tag meanwhile: then another one will.
func (p *Page) found(ctx context.Context) error {
	ctx, err := p.lock(ctx)
	if err != nil {
		return err
	}
	defer p.unlock()
	if err := p.begin(ctx); err != nil {
		return err
	}
	heads, err := outgoing.SyncedHeads(ctx, p.store)
	if err != nil {
		return err
	}
	if held, err := p.holds(ctx, heads); err != nil || !held {
		return err
	}
	if err = p.writeCheckpoint(ctx, heads); errors.Is(err, base.ErrConflict) && !wrongBucket(err) {
		return nil
	}
	return err
}

// startOver forgets the bucket, joins the log that is there, and offers as history what cannot go
// up otherwise.
func (p *Page) startOver(ctx context.Context, d *damage) error {
	if err := p.s.checkKeys(ctx, p.b, proofAnew, true); err != nil { // before anything is forgotten (I2)
		return err
	}
	if err := p.restoreFloors(ctx, d); err != nil {
		return err
	}
	if err := p.forget(ctx); err != nil {
		return err
	}
	if err := p.ready(ctx); err != nil {
		return err
	}
	if err := p.dropSpare(ctx, d); err != nil {
		return err
	}
	if err := p.joinLog(ctx, d); err != nil {
		return err
	}
	if p.ses.log.Position().Number > 0 { // whoever announced the page, that may be gone
		if err := p.announce(ctx); err != nil {
			return err
		}
	}
	_, err := p.offerHistory(ctx, allCommits)
	return err
}

// forget makes the page one that knows nothing of the bucket, but that there may be pieces which
// only the bucket had.
func (p *Page) forget(ctx context.Context) error {
	if err := p.carryRetention(ctx); err != nil {
		return err
	}
	if err := p.store.ForgetCloud(ctx, false); err != nil {
		return fmt.Errorf("forget the bucket: %w", err)
	}
	p.connect()
	errOne := errors.New("one is enough")
	err := p.store.MissingPieces(ctx, func(object.Digest) error { return errOne })
	if errors.Is(err, errOne) {
		return p.keep(ctx, storage.Metadata{Type: format.MetadataLacks, Value: []byte{1}}, storage.Metadata{Type: ingest.MetadataUnplaced, Value: []byte{1}},
			storage.Metadata{Type: storage.MetadataAdopted, Value: []byte{1}}) // who reads such a piece has it looked for
	}
	return err
}

// How many of the unsynced commits are looked at for such without trees: those come first, being
// old.
const (
	fewCommits = 64
	allCommits = math.MaxInt
)

// offerHistory sends commits that are not in the log and whose trees are not here: an entry to
// stand at, and a checkpoint with all commits. There are such after Reupload, and when the log has
// passed this device by, or has begun anew. The others go up as ever: who has read the log past the
// entry learns by them that there is such a checkpoint (see takeUnknown), and builds on their
// trees. It reports whether nothing is left to offer: a checkpoint needs the trees of the heads,
// and where this device has lost one, sending that says so.
func (p *Page) offerHistory(ctx context.Context, limit int) (done bool, err error) {
	unsynced, err := p.store.Unsynced(ctx)
	if err != nil {
		return false, fmt.Errorf("look for what is not synced: %w", err)
	}
	treeless, err := p.treeless(ctx, unsynced[:min(len(unsynced), limit)], 1)
	if err != nil || len(treeless) == 0 {
		return err == nil, err
	}
	if held, err := p.holds(ctx, p.store.Heads()); err != nil || !held {
		return false, err
	}
	err = errTaken
	for n := 0; n < maxReuploads && errors.Is(err, errTaken); n++ { // by another device, or by this one, to which nobody has said so
		var o *outgoing.Outgoing
		if o, err = p.retentionEntry(ctx, p.ses.retention); err == nil {
			err = p.append(ctx, o)
		}
		if err == nil {
			p.ses.carried = false
			err = p.writeHistory(ctx)
		}
	}
	if err != nil {
		return false, fmt.Errorf("send history: %w", err)
	}
	return true, nil
}

// writeHistory writes the checkpoint of history. Who ends before it is known that it is there
// writes another one later.
func (p *Page) writeHistory(ctx context.Context) error {
	unsynced, err := p.store.Unsynced(ctx)
	if err != nil {
		return fmt.Errorf("look for what is not synced: %w", err)
	}
	treeless, err := p.treeless(ctx, unsynced, len(unsynced))
	if err != nil {
		return err
	}
	at := p.ses.log.Position()
	size, err := p.out.WriteHistory(ctx, at, p.store.Heads())
	if err != nil {
		return err
	}
	if size == 0 {
		return errTaken
	}
	p.s.checkpoints.Add(1)
	pending, err := p.store.SubmitSync(ctx, nil, &storage.SyncBatch{Synced: treeless})
	if err == nil {
		err = pending.Wait()
	}
	if err != nil {
		return fmt.Errorf("settle the checkpoint of history: %w", err)
	}
	return p.knowCheckpoint(ctx, checkpointRow{number: at.Number, room: p.ses.checkpoint.room, size: uint64(size)}, 0)
}

// treeless returns commits that cannot be sent, since their trees are not here, at most so many.
func (p *Page) treeless(ctx context.Context, ids []commit.ID, most int) (found []commit.ID, err error) {
	for _, id := range ids {
		if len(found) == most {
			break
		}
		c, err := p.store.Known(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("look for commits without trees: %w", err)
		}
		held, err := p.store.TreeHeld(ctx, c)
		if err != nil {
			return nil, fmt.Errorf("look for commits without trees: %w", err)
		}
		if !held {
			found = append(found, id)
		}
	}
	return found, nil
}
