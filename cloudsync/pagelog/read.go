package pagelog

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

// CatchUp applies the entries after the position and enters newer epochs, until there are no more.
// It reports whether there were any. A page without a position looks first. A call that finds
// nothing costs a get. Errors: as Look.
func (l *Log) CatchUp(ctx context.Context) (came bool, err error) {
	if !l.at.Joined() || l.at.Deleted || l.at.Looked == 0 {
		before := l.at.Epoch
		if err := l.Look(ctx); err != nil {
			return false, err
		}
		came = before != l.at.Epoch
	}
	l.forget() // an interrupted call may have recorded a miss that is out of date
	for stood := 0; ; {
		if err := ctx.Err(); err != nil {
			return came, context.Cause(ctx)
		}
		at := l.at
		more, _, err := l.step(ctx)
		came = came || more
		if stood++; l.at.Epoch != at.Epoch || l.at.Number != at.Number {
			stood = 0
		}
		switch {
		case err != nil:
			return came, err
		case l.at.Deleted:
			return came, ErrDeleted
		case !more:
			return came, nil
		case stood == maxStood:
			return came, fmt.Errorf("log entry %d ends the epoch, and the bucket does not show %s: %w", l.at.Number+1, l.o.Names.Epoch(l.at.K+1), base.ErrUnsupported)
		}
	}
}

// maxStood is how often a closing entry's epoch is put that no list then shows. A lost answer
// causes this once; a store that does not list its objects causes it for ever.
const maxStood = 8

// step reads the entry after the position and executes its verdict. It reports whether there was an
// entry, and the hash of an applied one.
func (l *Log) step(ctx context.Context) (more bool, applied epoch.Hash, err error) {
	for range maxRounds {
		n := l.at.Number + 1
		e, r, err := l.next(ctx)
		if err != nil {
			return false, applied, err
		}
		switch l.at.Read(r.Reading) {
		case epoch.End:
			return false, applied, nil
		case epoch.LookFirst:
			at := l.at
			if err := l.Look(ctx); err != nil {
				return false, applied, err
			}
			if l.at.Epoch != at.Epoch {
				return true, applied, nil
			}
			if l.at.Looked <= at.Looked {
				return false, applied, fmt.Errorf("read log entry %d: the bucket does not tell the time: %w", n, base.ErrUnsupported)
			}
		case epoch.Damaged:
			if e != nil { // another entry may stand at the position, which proves more
				if err := l.prove(ctx); err != nil {
					return false, applied, err
				}
			}
			return false, applied, &DamageError{l.o.Names.Entry(l.at.Epoch, n), r.bad()}
		case epoch.Help:
			l.forget()
			return true, applied, l.help(ctx, e.Closing, e.Sealed)
		case epoch.Apply:
			return true, e.Hash, l.apply(ctx, e)
		}
	}
	return false, applied, ErrContended
}

// apply applies an entry to the page.
func (l *Log) apply(ctx context.Context, e *Entry) error {
	next := l.at.Applied(e.Hash)
	err := l.o.Page.Apply(ctx, e, next)
	if errors.Is(err, base.ErrCorrupt) {
		return &DamageError{l.o.Names.Entry(e.Epoch, e.Number), err}
	}
	if err != nil {
		return fmt.Errorf("apply log entry %d: %w", e.Number, err)
	}
	delete(l.ahead, e.Number)
	l.at = next
	l.key = e.KeyIndex
	return nil
}

// reading is a Reading with the error of a bad entry.
type reading struct {
	epoch.Reading
	err error
}

func (r reading) bad() error {
	switch {
	case !r.Found:
		return errMissing
	case r.err != nil:
		return r.err
	}
	return errors.New("it does not follow from the entry before it")
}

// next reads the entry after the position. The entry stays in l.ahead until it is applied.
func (l *Log) next(ctx context.Context) (*Entry, reading, error) {
	n := l.at.Number + 1
	f, ok := l.ahead[n]
	if !ok {
		l.fetchAhead(ctx, n)
		f = l.ahead[n]
	}
	r := reading{Reading: epoch.Reading{Found: !f.missing, Created: f.created}}
	if f.missing || f.err != nil {
		delete(l.ahead, n)
	}
	if f.missing {
		for m, a := range l.ahead {
			r.Later = r.Later || m > n && !a.missing && a.err == nil
		}
		l.forget()
		return nil, r, nil
	}
	if f.err != nil && !errors.Is(f.err, base.ErrCorrupt) {
		return nil, r, fmt.Errorf("read log entry %d: %w", n, f.err)
	}
	e, err := l.open(n, f)
	if err != nil && !errors.Is(err, base.ErrCorrupt) {
		return nil, r, err
	}
	if err != nil {
		delete(l.ahead, n) // the next read may be right
		r.Bad, r.err = true, err
		return nil, r, nil
	}
	r.Previous, r.Closing = e.Previous, e.Closing
	return e, r, nil
}

// open opens an entry of the present epoch. It returns f.err, if any.
func (l *Log) open(n uint64, f fetched) (*Entry, error) {
	if f.err != nil || f.missing {
		return nil, f.err
	}
	e, err := wire.OpenEntry(l.o.Sealer, l.o.Names, l.at.Epoch, n, f.stored)
	if err == nil && n > l.at.Number {
		err = l.tooOld(e.KeyIndex)
	}
	if err != nil {
		return nil, err
	}
	return &Entry{Entry: *e, Created: f.created}, nil
}

// fetchAhead reads entry n and some after it at once: more, the more were found. A long entry is
// only read as entry n.
func (l *Log) fetchAhead(ctx context.Context, n uint64) {
	got := make([]fetched, l.window)
	var wg sync.WaitGroup
	for i := range got {
		limit := int64(maxAheadBytes)
		if i == 0 {
			limit = wire.MaxEntryBytes
		}
		wg.Go(func() { got[i] = l.fetch(ctx, l.o.Names.Entry(l.at.Epoch, n+uint64(i)), limit) })
	}
	wg.Wait()
	l.ahead = map[uint64]fetched{}
	long := len(got[0].stored) > maxAheadBytes
	for i, f := range got {
		if i == 0 || f.err == nil {
			l.ahead[n+uint64(i)] = f
		}
		long = long || f.err != nil
	}
	if l.hits++; l.hits > 1 { // single entries are the most frequent
		l.window = min(2*l.window, maxAhead)
	}
	if long {
		l.window = 1
	}
}

const (
	// maxAhead is how many entries are read at once.
	maxAhead = 16
	// maxAheadBytes is the length of the longest entry that is read ahead. After a longer one,
	// entries are read one by one.
	maxAheadBytes = 1 << 20
)

// forget discards the entries that were read ahead.
func (l *Log) forget() { l.ahead, l.hits, l.window = map[uint64]fetched{}, 0, 1 }
