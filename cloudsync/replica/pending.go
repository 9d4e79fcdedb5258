package replica

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// ProvePending asks the bucket for each pending pack, with one request, and forgets the lost ones:
// an entry that names them would be damage. Their content goes up again. Without pending packs it
// makes no request. Errors are those of the bucket and of the store.
func (p *Page) ProvePending(ctx context.Context) error {
	p.out.long = nil
	q := p.state.Pending
	lost := map[epoch.ID]bool{}
	for _, w := range q.Packs {
		there, err := p.hasPack(ctx, w)
		if err != nil {
			return err
		}
		lost[w.ID] = !there
	}
	maps.DeleteFunc(lost, func(_ epoch.ID, is bool) bool { return !is })
	if len(lost) == 0 {
		return nil
	}
	placed, err := p.o.Store.PlacedIn(ctx, func(at storage.CloudPlace) bool { return at.Entry == 0 && lost[at.Pack] })
	if err != nil {
		return err
	}
	b := &storage.SyncBatch{}
	for i := range placed {
		b.Unplaced = append(b.Unplaced, placed[i].Digest)
	}
	n := p.state.Next()
	q.Packs = slices.DeleteFunc(slices.Clone(q.Packs), func(w wire.Pack) bool { return lost[w.ID] })
	n.Pending = q
	if err := p.write(ctx, nil, b, n); err != nil {
		return fmt.Errorf("forget what the bucket has lost: %w", err)
	}
	p.out = outgoing{in: p.out.in} // pieces that have lost their place go up again
	return nil
}

// isSent reports whether a place is in a pack uploaded for unsynced commits. It is safe for
// concurrent use.
func (p *Page) isSent(at *storage.CloudPlace) bool { return p.shared.Load().Pending.has(at) }

func (q *Pending) has(at *storage.CloudPlace) bool {
	return at.Entry == 0 && (slices.Contains(q.Sent, at.Pack) || slices.ContainsFunc(q.Packs, func(w wire.Pack) bool { return w.ID == at.Pack }))
}

// Sent returns a function that reports whether a place lies in a pack whose commits are in no entry
// yet. The bucket may delete such a pack, and a page that forgets the bucket forgets the pack too.
// So a piece at such a place must not be dropped. The function is right about all places that the
// caller read before the call: recordPack records the pack before its places. Errors:
// *base.CorruptError for a bad row; those of the store.
func Sent(ctx context.Context, store *storage.Store) (func(*storage.CloudPlace) bool, error) {
	var q Pending
	_, err := readPart(ctx, store, rowPending, &q)
	return q.has, err
}

// hasPack reports whether the bucket has a pack, with its length.
func (p *Page) hasPack(ctx context.Context, w wire.Pack) (bool, error) {
	size, err := bucket.SizeOf(ctx, p.o.Bucket, p.o.Names.Pack(w.Epoch, w.ID))
	if errors.Is(err, base.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look whether what was uploaded is there: %w", err)
	}
	return uint64(size) == w.Bytes, nil
}
