package cloudsync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

// The proof that the bucket has the right keyring may have these ages, for a device that only reads
// and for one that appends. The log has the same bounds for its own.
const (
	proofForReading = 6 * time.Hour
	proofForWriting = time.Hour
	proofAnew       = 0
)

// CheckKeys verifies that the bucket has the known keyring, and takes over later rings. Errors:
// ErrBucketWiped, ErrBucketReplaced, ErrBucketRolledBack, ErrBucketDamaged, ErrShutOut,
// base.ErrClosed, those of KeepKeys and of the bucket.
func (s *Syncer) CheckKeys(ctx context.Context) error {
	return s.outward(s.checkKeys(ctx, proofAnew))
}

// Keyring returns the newest known keyring.
func (s *Syncer) Keyring() *seal.Keyring { return s.sealer.Keyring() }

// checkKeys is CheckKeys, unless the last check is younger than most (I2).
func (s *Syncer) checkKeys(ctx context.Context, most time.Duration) error {
	if s.keysTurn.Take(ctx) != nil {
		return context.Cause(ctx)
	}
	defer s.keysTurn.Give()
	now := s.o.Clock.Now()
	if age := now.Sub(s.keysSeen); !s.keysSeen.IsZero() && age >= 0 && age < most {
		return nil
	}
	s.keysSeen = time.Time{}
	if err := s.takeKeys(ctx); err != nil {
		return fmt.Errorf("verify the bucket: %w", err)
	}
	s.keysSeen = now
	return nil
}

// takeKeys proves that the newest known ring is there, so that the bucket is the known one. Then it
// takes over the rings after it. The caller has the turn.
func (s *Syncer) takeKeys(ctx context.Context) error {
	if err := s.proveKeys(ctx); err != nil {
		return err
	}
	for {
		known := s.Keyring()
		ring, err := ReadRing(ctx, s.b, wire.RingName(known.BucketID(), known.Number()+1))
		if errors.Is(err, base.ErrNotFound) {
			return nil
		}
		if err == nil {
			err = s.takeRing(ring.Bytes())
		}
		if err != nil {
			return fmt.Errorf("read ring %d of the keyring: %w", known.Number()+1, err)
		}
	}
}

// takeRing makes the next ring durable, then uses it.
func (s *Syncer) takeRing(ring []byte) error {
	next, err := s.Keyring().Accept(ring)
	if err != nil {
		return damagedIf(err)
	}
	if s.o.KeepKeys != nil {
		if err := s.o.KeepKeys(ring); err != nil {
			return fmt.Errorf("keep ring %d of the keyring: %w", next.Number(), err)
		}
	}
	s.sealer.Use(next)
	return nil
}

// proveKeys proves that the bucket has the newest known ring.
func (s *Syncer) proveKeys(ctx context.Context) error {
	known := s.Keyring()
	ring, err := ReadRing(ctx, s.b, wire.RingName(known.BucketID(), known.Number()))
	switch {
	case errors.Is(err, base.ErrNotFound):
		return s.lostKeys(ctx)
	case err != nil:
		return err
	case ring.BucketID != known.BucketID():
		return fmt.Errorf("its id is %s, not %s: %w", ring.BucketID, known.BucketID(), ErrBucketReplaced)
	case ring.Hash != known.Hash():
		return fmt.Errorf("ring %d of its keyring is another one: %w", known.Number(), ErrBucketReplaced)
	}
	return nil
}

// lostKeys returns the error for a bucket without the newest known ring.
func (s *Syncer) lostKeys(ctx context.Context) error {
	known := s.Keyring()
	first, err := ReadRing(ctx, s.b, wire.FirstRing)
	switch {
	case errors.Is(err, base.ErrNotFound):
		return ErrBucketWiped
	case err != nil:
		return err
	case first.BucketID != known.BucketID():
		return fmt.Errorf("its keyring is not that of %s: %w", known.BucketID(), ErrBucketReplaced)
	}
	return fmt.Errorf("ring %d of its keyring is not there: %w", known.Number(), ErrBucketRolledBack)
}

// maxKeyTries is how often a ring is put when other devices are faster.
const maxKeyTries = 16

// ChangeKeys puts the next ring of the keyring and uses it. change gets the newest ring and returns
// the difference; an error ends the call. change is called again if another device was faster. No
// object of the bucket is uploaded again: there are three requests, more if others change the
// keyring at the same time. Errors: as CheckKeys, those of change and of seal.Keyring.Next,
// bucket.ErrExists if others were faster again and again.
func (s *Syncer) ChangeKeys(ctx context.Context, change func(*seal.Keyring) (seal.Change, error)) error {
	if s.keysTurn.Take(ctx) != nil {
		return context.Cause(ctx)
	}
	defer s.keysTurn.Give()
	return s.outward(s.changeKeys(ctx, change))
}

func (s *Syncer) changeKeys(ctx context.Context, change func(*seal.Keyring) (seal.Change, error)) error {
	for range maxKeyTries {
		if err := s.takeKeys(ctx); err != nil {
			return fmt.Errorf("verify the bucket: %w", err)
		}
		known := s.Keyring()
		c, err := change(known)
		if err != nil {
			return err
		}
		ring, next, err := known.Next(c, s.o.Random)
		if err != nil {
			return err
		}
		put, err := putRing(ctx, s.b, wire.RingName(next.BucketID(), next.Number()), ring)
		if err != nil {
			return fmt.Errorf("put ring %d of the keyring: %w", next.Number(), err)
		}
		if put {
			return s.takeRing(ring)
		}
	}
	return fmt.Errorf("change the keyring: %w", bucket.ErrExists)
}

// withNewerKeys calls do, which opens objects. If an object has an unknown key and there is a newer
// keyring, it calls do again.
func (s *Syncer) withNewerKeys(ctx context.Context, do func() error) error {
	before := s.Keyring()
	err := do()
	if !errors.Is(err, seal.ErrUnknownKey) {
		return err
	}
	if found := s.checkKeys(ctx, proofAnew); found != nil {
		return found
	}
	if s.Keyring() == before {
		return err
	}
	return do()
}
