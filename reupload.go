package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/presence"
)

// Reupload makes the bucket whole again from what this device has: after it was wiped, restored
// from an older copy, or replaced. Keys are made anew when there are none; otherwise those that are
// there are taken over; one that is damaged, or missing beside pages of this repository, is put
// back from what is remembered here. Each page, or those that are named, enters the epoch that is
// there where that is another than it knew, or begins one with all that it has, and sends what that
// lacks. Nothing here is deleted. Run on each device, it brings back everything that any of them
// has. PageSync.Missing counts the pieces that are neither here nor in the bucket.
//
// After a crash it is called again. Errors: those of Sync.
func (r *Repository) Reupload(ctx context.Context, only ...PageRef) ([]PageSync, error) {
	if err := r.inCloudTurn(ctx, "upload anew", r.rejoin); err != nil {
		return nil, err
	}
	return r.syncPages(ctx, only, presence.ForLook, func(p *Page, ctx context.Context, out *PageSync) error {
		if err := p.reupload(ctx, out); err != nil {
			return err
		}
		return p.syncOne(ctx, out)
	})
}

// rejoin makes or takes over the keyring of the bucket when it is another than the one that is
// remembered. The caller has the cloud's turn.
func (r *Repository) rejoin(ctx context.Context) error {
	file, _ := r.cloud.get()
	if file == nil {
		return ErrNoCloud
	}
	if err := r.checkKeyring(ctx, true); err != nil {
		return err
	}
	r.cloud.mu.Lock()
	pass := r.cloud.pass
	r.cloud.mu.Unlock()
	next := *file
	ring, err := r.join(ctx, &next, pass)
	if err != nil {
		return err
	}
	w, err := file.ring()
	if err == nil && w.BucketID == ring.BucketID() {
		return nil
	}
	return r.adopt(ctx, &next, pass, ring, true)
}

// ringReads is how often a ring is found damaged before it is believed.
const ringReads = 3

// checkKeyring looks whether the rings that are remembered are in the bucket, in which pages of
// this repository are, and none behind them that is not what was written. With repair it puts back
// those that are damaged or missing, and deletes one behind them: a device that knows better puts
// it back. The caller has the cloud's turn. The error matches ErrCorrupt for what is not repaired,
// and ErrCloudReplaced when the bucket has another ring in the place of one.
func (r *Repository) checkKeyring(ctx context.Context, repair bool) error {
	link, err := r.connectInTurn(ctx)
	if err != nil {
		return err
	}
	file, _ := r.cloud.get()
	chain, err := file.chain()
	if err != nil {
		return err
	}
	id := format.ID(chain.Newest().BucketID)
	b := bucket.NewRetry(link.own, bucket.RetryOptions{Clock: r.clock})
	ours := false
	for i, ring := range chain.Rings() {
		name := format.RingName(id, uint64(i))
		there, damaged, err := readRing(ctx, b, name)
		switch {
		case err != nil:
			return err
		case there != nil && bytes.Equal(there.Bytes(), ring):
			ours = true
			continue
		case there != nil && there.BucketID == seal.ID(id):
			return fmt.Errorf("ring %d of the keyring of bucket %s is another one than this device has seen: %w", i, file.url, ErrCloudReplaced)
		case there != nil:
			return nil // it is another bucket
		}
		if !ours {
			if ours, err = r.announcedHere(ctx, b, link); err != nil || !ours {
				return err
			}
		}
		if !repair {
			return &CorruptError{Where: "bucket", Key: name, Got: "a ring of the keyring that is damaged or missing"}
		}
		r.o.Logger.Warn("a ring of the keyring of the bucket is damaged or missing, and is put back", "bucket", file.url, "ring", i)
		if damaged {
			if err := b.Delete(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
				return fmt.Errorf("delete the damaged ring: %w", err)
			}
		}
		err = b.PutIfAbsent(ctx, name, int64(len(ring)), bytes.NewReader(ring))
		if err != nil && !errors.Is(err, bucket.ErrExists) {
			return fmt.Errorf("put the ring back: %w", err)
		}
	}
	return r.checkNextRing(ctx, b, link.syncer.Keyring(), repair)
}

// checkNextRing is checkKeyring for what stands behind the rings that are remembered. One that
// follows is right, whether this device may use it or not.
func (r *Repository) checkNextRing(ctx context.Context, b bucket.Bucket, known *seal.Keyring, repair bool) error {
	for {
		name := format.RingName(format.ID(known.BucketID()), known.Number()+1)
		next, err := known, error(nil)
		for range ringReads {
			var raw []byte
			if raw, err = readObject(ctx, b, name, seal.MaxKeyringBytes); err == nil {
				next, err = known.Accept(raw)
			}
			if !errors.Is(err, ErrCorrupt) {
				break
			}
		}
		switch {
		case errors.Is(err, ErrNotFound), errors.Is(err, ErrShutOut), errors.Is(err, ErrUnsupported): // who connects next is told
			return nil
		case errors.Is(err, ErrCorrupt) && repair:
			r.o.Logger.Warn("what stands in the place of the next ring of the keyring is none, and is deleted", "object", name, "error", err)
			if err := b.Delete(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
				return fmt.Errorf("delete what is no ring: %w", err)
			}
			return nil
		case err != nil:
			return fmt.Errorf("read the next ring of the keyring, %s: %w", name, err)
		}
		known = next
	}
}

// readRing returns a ring of the keyring; nil when it is not there or, which damaged says, not what
// was written.
func readRing(ctx context.Context, b bucket.Bucket, name string) (ring *seal.Ring, damaged bool, err error) {
	for range ringReads {
		raw, err := readObject(ctx, b, name, seal.MaxKeyringBytes)
		if errors.Is(err, ErrNotFound) {
			return nil, false, nil
		}
		if err == nil {
			ring, err = seal.ParseRing(raw)
		}
		if !errors.Is(err, ErrCorrupt) { // it is good, or nothing is known of it
			return ring, false, err
		}
	}
	return nil, true, nil
}

// announcedHere reports whether the bucket has an announcement of a page that is here, by the name
// that the keyring gives it: then it is the bucket of that.
func (r *Repository) announcedHere(ctx context.Context, b bucket.Bucket, link *cloudLink) (bool, error) {
	keys, err := r.disk.Pages()
	if err != nil {
		return false, err
	}
	names := map[string]bool{}
	for _, k := range keys {
		names[format.AnnouncementName(link.ring, k.Ledger, k.ID)] = true
	}
	for after := ""; ; {
		infos, err := b.List(ctx, after, format.PagesPrefix, bucket.MaxList)
		if err != nil {
			return false, fmt.Errorf("look whose the bucket is: %w", err)
		}
		for _, info := range infos {
			if names[info.Name] {
				return true, nil
			}
		}
		if len(infos) < bucket.MaxList || infos[len(infos)-1].Name <= after {
			return false, nil
		}
		after = infos[len(infos)-1].Name
	}
}

// reupload is for a page that may have been synced with another bucket, which is gone.
func (p *Page) reupload(ctx context.Context, out *PageSync) error {
	return p.call(ctx, func(ctx context.Context) error {
		link, err := p.ledger.repo.connect(ctx)
		if err != nil {
			return err
		}
		synced, err := p.shared.attach(ctx, link, true)
		if err == nil {
			out.Missing, err = synced.Reupload(ctx)
		}
		return err
	})
}
