package cloudlink

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

// Rejoin makes or takes over the keyring of the bucket when it differs from the stored keyring. The
// caller holds the cloud's turn.
func (l *Link) Rejoin(ctx context.Context) error {
	f, _ := l.get()
	if f == nil {
		return base.ErrNoCloud
	}
	if err := l.CheckKeyring(ctx, true); err != nil {
		return err
	}
	pass := l.passphrase()
	next := *f
	ring, err := l.join(ctx, &next, pass, true)
	if err != nil {
		return err
	}
	w, err := f.ring()
	if err == nil && w.BucketID == ring.BucketID() {
		return nil
	}
	return l.adopt(ctx, &next, pass, ring, true)
}

// CheckKeyring verifies that a bucket with pages of this repository has all stored rings, and that
// the next ring, if any, is intact. With repair it restores damaged and missing rings, and deletes
// a damaged next ring, which a newer device restores. The caller holds the cloud's turn. The error
// matches base.ErrCorrupt for unrepaired damage, and cloudsync.ErrBucketReplaced when the bucket
// has another ring at the same number.
func (l *Link) CheckKeyring(ctx context.Context, repair bool) error {
	conn, err := l.connectInTurn(ctx)
	if err != nil {
		return err
	}
	f, _ := l.get()
	chain, err := f.chain()
	if err != nil {
		return err
	}
	id := chain.Newest().BucketID
	b := conn.Syncer.Bucket()
	ours := false
	for i, ring := range chain.Rings() {
		name := wire.RingName(id, uint64(i))
		there, err := cloudsync.ReadRing(ctx, b, name)
		damaged := errors.Is(err, base.ErrCorrupt)
		switch {
		case err != nil && !damaged && !errors.Is(err, base.ErrNotFound):
			return err
		case there != nil && bytes.Equal(there.Bytes(), ring):
			ours = true
			continue
		case there != nil && there.BucketID == id:
			return fmt.Errorf("ring %d of the keyring of bucket %s is another one than this device has seen: %w", i, f.url, cloudsync.ErrBucketReplaced)
		case there != nil:
			return nil // a different bucket
		}
		if !ours {
			if ours, err = l.announcedHere(ctx, b, conn); err != nil || !ours {
				return err
			}
		}
		if !repair {
			return &base.CorruptError{Where: "bucket", Key: name, Got: "a ring of the keyring that is damaged or missing"}
		}
		l.o.Logger.Warn("a ring of the keyring of the bucket is damaged or missing, and is put back", "bucket", f.url, "ring", i)
		if damaged {
			if err := b.Delete(ctx, name); err != nil && !errors.Is(err, base.ErrNotFound) {
				return fmt.Errorf("delete the damaged ring: %w", err)
			}
		}
		err = b.PutIfAbsent(ctx, name, int64(len(ring)), bytes.NewReader(ring))
		if err != nil && !errors.Is(err, bucket.ErrExists) {
			return fmt.Errorf("put the ring back: %w", err)
		}
	}
	return l.checkNextRing(ctx, b, conn.Syncer.Keyring(), repair)
}

// checkNextRing is CheckKeyring for the rings after the stored ones. A valid successor is correct,
// whether this device may use it or not.
func (l *Link) checkNextRing(ctx context.Context, b bucket.Bucket, known *seal.Keyring, repair bool) error {
	for {
		name := wire.RingName(known.BucketID(), known.Number()+1)
		next := known
		ring, err := cloudsync.ReadRing(ctx, b, name)
		if err == nil {
			next, err = known.Accept(ring.Bytes())
		}
		switch {
		case errors.Is(err, base.ErrNotFound), errors.Is(err, base.ErrShutOut), errors.Is(err, base.ErrUnsupported): // the next connection reports it
			return nil
		case errors.Is(err, base.ErrCorrupt) && repair:
			l.o.Logger.Warn("what stands in the place of the next ring of the keyring is none, and is deleted", "object", name, "error", err)
			if err := b.Delete(ctx, name); err != nil && !errors.Is(err, base.ErrNotFound) {
				return fmt.Errorf("delete what is no ring: %w", err)
			}
			return nil
		case err != nil:
			return fmt.Errorf("read the next ring of the keyring, %s: %w", name, err)
		}
		known = next
	}
}

// announcedHere reports whether the bucket has an announcement of a page of this repository, under
// the name that the keyring derives: then the keyring belongs to the bucket.
func (l *Link) announcedHere(ctx context.Context, b bucket.Bucket, conn *Conn) (bool, error) {
	keys, err := l.o.Disk.Pages()
	if err != nil {
		return false, err
	}
	names := map[string]bool{}
	for _, k := range keys {
		names[wire.AnnouncementName(conn.Syncer.Keyring(), k.Ledger, k.ID)] = true
	}
	ours := false
	err = bucket.Each(ctx, b, "", wire.PagesPrefix, func(info bucket.Info) bool {
		ours = names[info.Name]
		return !ours
	})
	if err != nil {
		return false, fmt.Errorf("look whose the bucket is: %w", err)
	}
	return ours, nil
}
