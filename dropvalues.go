package ledger

import (
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// dropValues drops the values of a page that the bucket has.
func (e *evictor) dropValues(ctx context.Context, c *EvictResult) error {
	k := pageKey{c.Ledger, c.ID}
	return e.repo.withPage(ctx, k, func(p *Page) error {
		if err := p.enter(); err != nil {
			return err
		}
		defer p.leave()
		bar, reason, err := e.barOfValues(ctx, p.store)
		if err != nil {
			p.note(err)
			return fmt.Errorf("page %s of ledger %q: %w", c.ID, c.Ledger, err)
		}
		if bar != EvictFree {
			e.keep(c, bar, reason)
			return nil
		}
		want := int64(0)
		if e.o.FreeBytes > 0 {
			want = e.o.FreeBytes - e.report.FreedBytes
		}
		c.Bytes, err = dropPieces(ctx, p.store, want, e.o.DryRun)
		e.report.Evicted = append(e.report.Evicted, *c)
		e.report.FreedBytes += c.Bytes
		if err != nil {
			p.note(err)
			return fmt.Errorf("drop values of page %s of ledger %q: %w", c.ID, c.Ledger, err)
		}
		return nil
	})
}

// barOfValues says why the values of a page may not be dropped: they would not come back. Those that the bucket does not have stay anyway.
func (e *evictor) barOfValues(ctx context.Context, store *storage.Store) (EvictBar, string, error) {
	file, _ := e.repo.cloud.get()
	if file == nil {
		return EvictNoCloud, "no cloud is set, so its values could not come back", nil
	}
	if e.unproved != nil {
		return EvictUnproved, "the bucket cannot be asked: " + e.unproved.Error(), nil
	}
	b, err := store.Metadata(ctx, format.MetadataPosition)
	if err != nil || b == nil {
		return EvictUnsynced, "it was never synced", err
	}
	at, err := format.ParsePosition(b)
	if err != nil {
		return EvictFree, "", err
	}
	w, err := file.wrapped()
	if err == nil && at.Bucket != format.ID(w.BucketID) {
		return EvictOtherCloud, fmt.Sprintf("it was synced with bucket %s, and the present one is %s", hexOf(at.Bucket), hexOf(w.BucketID)), nil
	}
	return EvictFree, "", err
}

// dropWindow is how many pieces are dropped before it is looked whether that is enough.
const dropWindow = 1024

// dropPieces drops pieces of values that the bucket has, in the order in which they came here, until want bytes will be free; 0 means all.
func dropPieces(ctx context.Context, store *storage.Store, want int64, dry bool) (free int64, err error) {
	placed, err := store.PlacedIn(ctx, func(storage.CloudPlace) bool { return true })
	if err != nil {
		return 0, err
	}
	placed = slices.DeleteFunc(placed, func(p storage.PlacedPiece) bool { return p.Digest.Kind() != object.Chunk })
	for part := range slices.Chunk(placed, dropWindow) {
		if want > 0 && free >= want {
			break
		}
		if err := ctx.Err(); err != nil {
			return free, err
		}
		n, err := dropPart(ctx, store, part, dry)
		free += n
		if err != nil {
			return free, err
		}
	}
	return free, nil
}

func dropPart(ctx context.Context, store *storage.Store, part []storage.PlacedPiece, dry bool) (free int64, err error) {
	if !dry {
		digests := make([]object.Digest, len(part))
		for i := range part {
			digests[i] = part[i].Digest
		}
		return store.DropPieces(ctx, digests)
	}
	for i := range part {
		st, err := store.PieceState(part[i].Digest)
		if err != nil {
			return free, err
		}
		if st.Held {
			free += int64(part[i].Place.Bytes)
		}
	}
	return free, nil
}
