package pagelog

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

// Look lists the epochs of the page and enters the newest. A device without an epoch founds one.
// Look costs a get and a list, and the requests of Enter if the epoch is another one. Errors:
// ErrWiped, ErrRolledBack, ErrDeleted, *DamageError.
func (l *Log) Look(ctx context.Context) error { return l.lookAnd(ctx, false) }

// lookAnd is Look. With force it enters the bucket's epoch, whatever epochs the bucket had before.
func (l *Log) lookAnd(ctx context.Context, force bool) error {
	for range maxRounds {
		seen, err := l.seen(ctx)
		if err != nil {
			return err
		}
		switch l.at.Look(seen) {
		case epoch.Current:
			next := l.at
			next.Looked = seen.At
			if err := l.keep(ctx, next); err != nil || !l.at.Deleted {
				return err
			}
			return ErrDeleted
		case epoch.Restore:
			if err := l.restore(ctx, seen.Behind()); err != nil {
				return err
			}
		case epoch.Empty:
			if l.at.Joined() {
				return fmt.Errorf("look for %s: %w", l.o.Names.Epoch(l.at.K), ErrWiped)
			}
			if err := l.found(ctx); err != nil {
				return err
			}
		case epoch.Enter:
			if l.at.Joined() && !l.at.Deleted && !seen.Own && !force {
				if l.bad != nil {
					return &DamageError{l.o.Names.Epoch(l.at.K), l.bad}
				}
				return fmt.Errorf("look for %s: %w", l.o.Names.Epoch(l.at.K), ErrRolledBack)
			}
			if err := l.enter(ctx, seen.Newest, seen.At); err != nil {
				return l.enterBelow(ctx, seen.Newest, err)
			}
		}
	}
	return ErrContended
}

// maxRounds bounds how often a call starts over because other devices were faster.
const maxRounds = 32

// keep moves the position when nothing else changes.
func (l *Log) keep(ctx context.Context, next epoch.Position) error {
	if next == l.at {
		return nil
	}
	if err := l.o.Page.Keep(ctx, next); err != nil {
		return err
	}
	l.at = next
	return nil
}

// seen lists the epochs. Its time is that of a get before the list, so that it is not too late.
func (l *Log) seen(ctx context.Context) (seen epoch.Looked, err error) {
	after := ""
	if l.at.Joined() {
		f := l.fetch(ctx, l.o.Names.Epoch(l.at.K), maxEpochObject)
		if f.err != nil && !errors.Is(f.err, base.ErrCorrupt) {
			return seen, fmt.Errorf("look for the epoch of the page: %w", f.err)
		}
		seen.At = f.now
		l.bad = f.err
		if !f.missing && f.err == nil {
			var x *epoch.Proposal
			x, l.bad = wire.OpenEpoch(l.o.Sealer, l.o.Names, f.stored)
			if seen.Own = l.bad == nil && x.ID == l.at.Epoch; seen.Own {
				l.key = max(l.key, l.keyOf(f.stored))
			}
		}
		seen.Damaged = l.bad != nil
		if seen.Own {
			after = l.o.Names.Epoch(l.at.K)
			seen.Any, seen.Newest = true, l.at.K
		}
	}
	err = l.list(ctx, after, l.o.Names.Epochs(), func(name wire.Name) bool {
		seen.Any, seen.Newest = true, name.Number
		return true
	})
	if err == nil && l.at.Deleted && seen.Any && !(seen.Own && seen.Newest == l.at.K) {
		x, readErr := l.epoch(ctx, seen.Newest)
		if readErr != nil && !errors.Is(readErr, base.ErrCorrupt) {
			return seen, readErr
		}
		seen.Deleted = readErr == nil && x.Kind == epoch.Deleted
	}
	return seen, err
}

// maxEpochObject bounds the object of an epoch.
const maxEpochObject = wire.MaxEntryBytes

// epoch reads an epoch. The error is a *DamageError if the epoch is missing or bad.
func (l *Log) epoch(ctx context.Context, k uint64) (*Epoch, error) {
	name := l.o.Names.Epoch(k)
	f := l.fetch(ctx, name, maxEpochObject)
	if f.missing {
		return nil, &DamageError{name, errMissing}
	}
	if f.err != nil && !errors.Is(f.err, base.ErrCorrupt) {
		return nil, fmt.Errorf("read epoch %d: %w", k, f.err)
	}
	var x *epoch.Proposal
	err := f.err
	if err == nil {
		x, err = wire.OpenEpoch(l.o.Sealer, l.o.Names, f.stored)
	}
	if err != nil {
		return nil, l.damaged(name, err)
	}
	return &Epoch{K: k, Proposal: x, Sealed: f.stored, Created: f.created}, nil
}

// keyOf returns the index of the data key of an epoch's sealed object, which was opened before.
func (l *Log) keyOf(sealed []byte) uint32 {
	ref, _, err := seal.Inspect(l.o.Names.EpochLabel(), sealed)
	if err != nil {
		return 0
	}
	return ref.KeyIndex
}

// damaged returns a *DamageError for bad bytes. It returns other errors, such as that of a newer
// version, with the name of the object.
func (l *Log) damaged(name string, err error) error {
	if l.isBad(err) {
		return &DamageError{name, err}
	}
	return fmt.Errorf("open %s: %w", name, err)
}

// isBad reports whether err says that an object is bad.
func (l *Log) isBad(err error) bool {
	return errors.Is(err, base.ErrCorrupt) || l.newer && errors.Is(err, base.ErrUnsupported)
}

// enter enters epoch k, which a look found to be the newest.
func (l *Log) enter(ctx context.Context, k uint64, looked epoch.Time) error {
	x, err := l.epoch(ctx, k)
	if err == nil {
		if err = l.tooOld(l.keyOf(x.Sealed)); err != nil {
			err = &DamageError{l.o.Names.Epoch(k), err}
		}
	}
	if err == nil {
		err = l.join(ctx, x, looked)
	}
	return err
}

// enterBelow handles a page without a position that could not enter the newest epoch k because of
// err. If the object at k is not an epoch, it enters the newest valid epoch below, and applies its
// log. So an object put there by any party hides nothing, and the renewal that is due keeps the
// bucket's data. It returns err, or another error that occurred.
func (l *Log) enterBelow(ctx context.Context, k uint64, err error) error {
	var bad *DamageError
	if l.at.Joined() || !errors.As(err, &bad) || bad.Object != l.o.Names.Epoch(k) {
		return err
	}
	var newest *Epoch
	eachErr := l.eachEpoch(ctx, func(x *Epoch) bool {
		if x.K < k {
			newest = x
		}
		return newest == nil
	})
	if eachErr != nil || newest == nil {
		return cmp.Or(eachErr, err)
	}
	epochErr := l.join(ctx, newest, 0)
	if epochErr == nil && !l.at.Deleted {
		epochErr = l.applyAll(ctx)
	}
	if epochErr != nil && !errors.As(epochErr, &bad) {
		return epochErr
	}
	return err
}

// applyAll applies the log of an epoch that is not known to be the newest.
func (l *Log) applyAll(ctx context.Context) error {
	seen, err := l.seen(ctx) // for the time: nothing of the epoch can be deleted before that
	if err != nil {
		return err
	}
	next := l.at
	next.Looked = seen.At
	err = l.keep(ctx, next)
	for more := true; more && err == nil; {
		more, _, err = l.step(ctx)
	}
	if l.at.Epoch != next.Epoch {
		return err // another device has made the closing entry's proposal an epoch
	}
	next = l.at
	next.Looked = 0 // the next call looks
	return errors.Join(err, l.keep(ctx, next))
}

// join takes the page into an epoch.
func (l *Log) join(ctx context.Context, x *Epoch, looked epoch.Time) error {
	if l.at.Adopts(x.Proposal) && x.Kind != epoch.Deleted {
		if err := l.adopt(ctx); err != nil {
			return err
		}
	}
	next := x.At(x.K, looked)
	err := l.o.Page.Enter(ctx, x, next)
	if errors.Is(err, ErrUnjoinable) || l.isBad(err) {
		return &DamageError{l.o.Names.Checkpoint(x.ID, x.Checkpoint), err}
	}
	if err != nil {
		return fmt.Errorf("enter epoch %d: %w", x.K, err)
	}
	l.at = next
	l.key = l.keyOf(x.Sealed)
	l.forget()
	return nil
}

// adopt adopts the entries after the position in the log of the epoch, and skips missing and bad
// ones. If the entry at the position is not the applied one, it adopts the whole log.
func (l *Log) adopt(ctx context.Context) error {
	var numbers []uint64
	e, from := l.at.Epoch, l.at.Number
	var other *DamageError
	err := l.prove(ctx)
	if errors.As(err, &other) {
		from, err = 0, nil
	}
	if err != nil {
		return err
	}
	err = l.list(ctx, l.o.Names.Entry(e, from), l.o.Names.Log(e), func(name wire.Name) bool {
		numbers = append(numbers, name.Number)
		return true
	})
	if err != nil {
		return err
	}
	for _, n := range numbers {
		err := l.adoptEntry(ctx, n)
		for more := adoptReads - 1; more > 0 && l.isBad(err); more-- {
			err = l.adoptEntry(ctx, n)
		}
		if err != nil && !l.isBad(err) {
			return fmt.Errorf("adopt log entry %d: %w", n, err)
		}
	}
	return nil
}

// adoptReads is how often a bad entry is read before it is given up for all devices: transfers may
// have changed it.
const adoptReads = 5

func (l *Log) adoptEntry(ctx context.Context, n uint64) error {
	f := l.fetch(ctx, l.o.Names.Entry(l.at.Epoch, n), wire.MaxEntryBytes)
	entry, err := l.open(n, f)
	if f.missing || err != nil || entry.Closing != nil {
		return err
	}
	return l.o.Page.Adopt(ctx, entry)
}

// found begins the first epoch of the page.
func (l *Log) found(ctx context.Context) error {
	return l.putEpoch(ctx, 0, &epoch.Proposal{ID: l.o.NewID(), Kind: epoch.Found})
}

// putEpoch puts an epoch that needs no closing entry, unless its number is taken.
func (l *Log) putEpoch(ctx context.Context, k uint64, x *epoch.Proposal) error {
	sealed, err := wire.SealEpoch(l.o.Sealer, l.o.Names, x)
	if err != nil {
		return err
	}
	_, _, err = l.put(ctx, l.o.Names.Epoch(k), sealed)
	return err
}

// restore puts another epoch that deletes the page.
func (l *Log) restore(ctx context.Context, k uint64) error {
	return l.putEpoch(ctx, k, l.at.Propose(l.o.NewID(), epoch.Deleted))
}
