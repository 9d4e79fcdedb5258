package pagelog

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

// Cut begins an epoch that gives up what the Page proposes, after applying all entries. Entries
// that others append meanwhile are applied first. Errors: as Look; ErrContended.
func (l *Log) Cut(ctx context.Context) error { return l.turn(ctx, epoch.Cut) }

// Delete ends the page for all devices.
func (l *Log) Delete(ctx context.Context) error {
	err := l.turn(ctx, epoch.Deleted)
	if errors.Is(err, ErrDeleted) {
		return nil
	}
	return err
}

// turn makes turns until an epoch of the kind was the first to follow the position.
func (l *Log) turn(ctx context.Context, kind epoch.Kind) error {
	for range maxRounds {
		if _, err := l.CatchUp(ctx); err != nil {
			return err
		}
		x := l.at.Propose(l.o.NewID(), kind)
		sealed, err := l.propose(ctx, x, epoch.Looked{})
		if err != nil {
			return err
		}
		first, err := l.close(ctx, l.at.Number+1, l.at.Hash, sealed)
		if err != nil {
			return err
		}
		if !first {
			continue
		}
		if err := l.help(ctx, x, sealed); err != nil {
			return err
		}
		if l.at.Epoch == x.ID {
			return nil
		}
	}
	return ErrContended
}

// propose makes the page write the checkpoint of an epoch, and returns the object of the epoch.
func (l *Log) propose(ctx context.Context, x *epoch.Proposal, seen epoch.Looked) ([]byte, error) {
	if x.Kind != epoch.Deleted {
		if err := l.o.Page.Propose(ctx, x, seen); err != nil {
			return nil, fmt.Errorf("write the checkpoint of an epoch: %w", err)
		}
	}
	return wire.SealEpoch(l.o.Sealer, l.o.Names, x)
}

// Renew repairs the bucket. It begins an epoch that keeps everything the device has, or enters one
// that already does. It accepts the state of the bucket, even if that was wiped or is older. A page
// without a position enters the bucket's epoch. If that fails, it begins an epoch without commits:
// other devices send their commits again. anyway is set if the user has confirmed that the bucket
// is damaged. Then the epoch of another device does not suffice, and objects of a newer version
// count as damaged. Errors: as Look.
func (l *Log) Renew(ctx context.Context, anyway bool) error {
	l.newer = anyway
	defer func() { l.newer = false }()
	for range maxRounds {
		before := l.at
		err := l.lookAnd(ctx, true)
		var bad *DamageError
		if err != nil && !errors.Is(err, ErrWiped) && !errors.As(err, &bad) {
			return err
		}
		if err == nil && l.at.Epoch != before.Epoch && (!anyway || !before.Joined()) {
			return nil
		}
		done, err := l.renewal(ctx)
		if done || err != nil {
			return err
		}
	}
	return ErrContended
}

// renewal proposes a renewal and helps it. It reports false if other devices were first.
func (l *Log) renewal(ctx context.Context) (bool, error) {
	seen, err := l.seen(ctx)
	if err != nil {
		return false, err
	}
	x := l.at.Propose(l.o.NewID(), epoch.Renewal)
	x.Behind = seen.Behind()
	if x.Erased, err = l.erased(ctx); err != nil {
		return false, err
	}
	sealed, err := l.propose(ctx, x, seen)
	if err != nil {
		return false, err
	}
	if first, err := l.stop(ctx, sealed); err != nil || !first {
		return false, err
	}
	if err := l.help(ctx, x, sealed); err != nil {
		return false, err
	}
	return true, nil
}

// stop puts a closing entry after the last entry of the epoch's log. It reports whether it was the
// first there. After the greatest number none can stand, and the epoch counts without it.
func (l *Log) stop(ctx context.Context, sealed []byte) (bool, error) {
	if !l.at.Joined() {
		return true, nil
	}
	n, previous, err := l.top(ctx)
	if err != nil || n == wire.MaxNumber {
		return err == nil, err
	}
	return l.close(ctx, n+1, previous, sealed)
}

// erased returns the commits that the bucket's epochs have erased. A renewal lists those of all
// epochs below it.
func (l *Log) erased(ctx context.Context) (all epoch.Set, err error) {
	err = l.eachEpoch(ctx, func(e *Epoch) bool {
		all = all.Union(e.Erased)
		return e.Kind != epoch.Renewal
	})
	return all, err
}

// top returns the greatest number in the log of the epoch, and the hash of that entry. It returns
// the position if that is greater. For a bad entry it returns the hash of the position, since no
// device reads past a bad entry.
func (l *Log) top(ctx context.Context) (n uint64, hash epoch.Hash, err error) {
	n, hash = l.at.Number, l.at.Hash
	e := l.at.Epoch
	err = l.list(ctx, l.o.Names.Entry(e, n), l.o.Names.Log(e), func(name wire.Name) bool {
		n = name.Number
		return true
	})
	if err != nil || n == l.at.Number {
		return n, hash, err
	}
	f := l.fetch(ctx, l.o.Names.Entry(e, n), wire.MaxEntryBytes)
	if f.err != nil && !errors.Is(f.err, base.ErrCorrupt) {
		return 0, hash, f.err
	}
	if entry, err := l.open(n, f); err == nil && entry != nil {
		hash = entry.Hash
	}
	return n, hash, nil
}

// help makes a proposal an epoch, unless there is another epoch that can be entered. Then it enters
// the newest epoch.
func (l *Log) help(ctx context.Context, x *epoch.Proposal, sealed []byte) error {
	seen, err := l.seen(ctx)
	if err != nil {
		return err
	}
	var bad *DamageError
	if seen.Any && !(seen.Own && seen.Newest == l.at.K) {
		err := l.enter(ctx, seen.Newest, seen.At)
		if !errors.As(err, &bad) {
			return err
		}
	}
	switch verdict, k := l.at.Help(x, seen); verdict {
	case epoch.PutEpoch:
		if _, _, err := l.put(ctx, l.o.Names.Epoch(k), sealed); err != nil {
			return err
		}
	case epoch.Renew:
		if bad != nil {
			return bad
		}
		return &DamageError{l.o.Names.Epoch(seen.Newest), ErrUnjoinable}
	}
	return l.lookAnd(ctx, true)
}
