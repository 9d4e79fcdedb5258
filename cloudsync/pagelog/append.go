package pagelog

import (
	"context"

	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
)

// Append puts an entry after the position, and applies it. It reports false if other devices were
// first: it has applied their entry or entered their epoch, and the caller makes the body again
// from the new state. The caller has uploaded the objects that the body names. Errors: as Look;
// ErrDeleted.
func (l *Log) Append(ctx context.Context, body *wire.EntryBody) (landed bool, err error) {
	if l.at.Deleted {
		return false, ErrDeleted
	}
	e, n, previous := l.at.Epoch, l.at.Number+1, l.at.Hash
	stored, hash, err := wire.SealEntry(l.o.Sealer, l.o.Names, e, n, previous, body)
	if err != nil {
		return false, err
	}
	for range maxRounds {
		ok, created, err := l.put(ctx, l.o.Names.Entry(e, n), stored)
		if err != nil {
			return false, err
		}
		l.forget()
		if l.at.Put(ok, created) {
			own, err := l.open(n, fetched{stored: stored, created: created})
			if err != nil {
				return false, err
			}
			return true, l.apply(ctx, own)
		}
		more, applied, err := l.step(ctx)
		if err != nil || more {
			return applied == hash, err
		}
		if err := ctx.Err(); err != nil {
			return false, context.Cause(ctx)
		}
	}
	return false, ErrContended
}

// close puts a closing entry at the number after previous. It reports whether the entry is there
// now.
func (l *Log) close(ctx context.Context, n uint64, previous epoch.Hash, sealed []byte) (bool, error) {
	e := l.at.Epoch
	stored, hash, err := wire.SealEntry(l.o.Sealer, l.o.Names, e, n, previous, wire.ClosingBody(sealed))
	if err != nil {
		return false, err
	}
	name := l.o.Names.Entry(e, n)
	for range maxRounds {
		ok, _, err := l.put(ctx, name, stored)
		if err != nil || ok {
			return ok, err
		}
		f := l.fetch(ctx, name, wire.MaxEntryBytes)
		if f.missing {
			continue
		}
		there, err := l.open(n, f)
		if err == nil {
			return there.Hash == hash, nil
		}
		return false, l.damaged(name, err)
	}
	return false, ErrContended
}
