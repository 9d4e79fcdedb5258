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

// How old the proof may be that the bucket has the right keyring: for who only reads, and for who
// appends. The log has the same bounds for its own.
const (
	proofForReading = 6 * time.Hour
	proofForWriting = time.Hour
	proofAnew       = 0
)

// CheckKeys looks whether the bucket has the keyring that is known here, and takes over what came
// after. Errors: ErrBucketWiped, ErrBucketReplaced, ErrBucketRolledBack, ErrBucketDamaged,
// ErrShutOut, base.ErrClosed, those of KeepKeys and of the bucket.
func (s *Syncer) CheckKeys(ctx context.Context) error {
	return s.outward(s.checkKeys(ctx, proofAnew, true))
}

// Keyring returns the newest keyring that is known.
func (s *Syncer) Keyring() *seal.Keyring { return s.sealer.Keyring() }

// checkKeys is CheckKeys, unless that was done less than most ago (I2). For the first time, and
// with whole, it also proves the ring that is known.
func (s *Syncer) checkKeys(ctx context.Context, most time.Duration, whole bool) error {
	release, err := s.turnOfKeys(ctx)
	if err != nil {
		return err
	}
	defer release()
	now := s.o.Clock.Now()
	if age := now.Sub(s.keysSeen); !s.keysSeen.IsZero() && age >= 0 && age < most {
		return nil
	}
	whole = whole || s.keysSeen.IsZero()
	s.keysSeen = time.Time{}
	if err := s.takeKeys(ctx, whole); err != nil {
		return fmt.Errorf("verify the bucket: %w", err)
	}
	s.keysSeen = now
	return nil
}

// turnOfKeys waits for the turn.
func (s *Syncer) turnOfKeys(ctx context.Context) (release func(), err error) {
	select {
	case s.keysTurn <- struct{}{}:
		return func() { <-s.keysTurn }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// takeKeys takes over the rings behind the newest that is known. whole proves first that this one
// is there, so that the bucket is the one that is known. Else it asks only for the next one:
// whoever has read entries proves those. The caller has the turn.
func (s *Syncer) takeKeys(ctx context.Context, whole bool) error {
	if whole {
		if err := s.proveKeys(ctx); err != nil {
			return err
		}
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

// takeRing has the next ring used, once it is kept.
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

// proveKeys proves that the newest ring that is known is there.
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

// lostKeys says what a bucket is in which the newest ring that is known is not there.
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

// maxKeyTries is how often a ring is put while other devices are quicker.
const maxKeyTries = 16

// ChangeKeys puts the next ring of the keyring, and has it used. change says, given the newest one,
// how it is to differ; it is called again when another device was quicker, and ends the call with
// an error. Nothing that the bucket has is uploaded again: three requests are made, more when
// others change the keyring at the same time. Errors: as CheckKeys, those of change and of
// seal.Keyring.Next, bucket.ErrExists when others were quicker again and again.
func (s *Syncer) ChangeKeys(ctx context.Context, change func(*seal.Keyring) (seal.Change, error)) error {
	release, err := s.turnOfKeys(ctx)
	if err != nil {
		return err
	}
	defer release()
	return s.outward(s.changeKeys(ctx, change))
}

func (s *Syncer) changeKeys(ctx context.Context, change func(*seal.Keyring) (seal.Change, error)) error {
	for tries := range maxKeyTries {
		if err := s.takeKeys(ctx, tries == 0); err != nil {
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

// withNewerKeys does what opens objects, and does it again with a newer keyring, if there is one,
// when an object has a key that is not known.
func (s *Syncer) withNewerKeys(ctx context.Context, do func() error) error {
	before := s.Keyring()
	err := do()
	if !errors.Is(err, seal.ErrUnknownKey) {
		return err
	}
	if found := s.checkKeys(ctx, proofAnew, false); found != nil {
		return found
	}
	if s.Keyring() == before {
		return err
	}
	return do()
}
