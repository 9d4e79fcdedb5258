package replica

import (
	"context"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// PackEpoch returns the epoch in whose directory a pack of the log is, zero for an unnamed pack:
// see pack.FetchOptions.Epoch. It may be called concurrently with the calls of the Page.
func (p *Page) PackEpoch(id epoch.ID) epoch.ID {
	w, _ := p.shared.Load().pack(id)
	return w.Epoch
}

// EntryPieces returns the pieces in an entry of the epoch: see pack.FetchOptions.Entries. It may be
// called concurrently with the calls of the Page.
func (p *Page) EntryPieces(ctx context.Context, number uint64) (map[object.Digest][]byte, error) {
	pieces := map[object.Digest][]byte{}
	err := p.readEntry(ctx, p.shared.Load().At.Epoch, number, func(r wire.Record, _ storage.CloudPlace) error {
		if x, ok := r.(*wire.Piece); ok {
			pieces[x.Digest] = x.Content
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return pieces, nil
}

// readEntry calls fn with the records in the body of an entry, pieces with their places. Errors
// name the object. They match base.ErrNotFound for a missing entry, base.ErrCorrupt for a bad one.
func (p *Page) readEntry(ctx context.Context, e epoch.ID, number uint64, fn func(wire.Record, storage.CloudPlace) error) error {
	name := p.o.Names.Entry(e, number)
	stored, _, err := bucket.Read(ctx, p.o.Bucket, name, wire.MaxEntryBytes)
	if err != nil {
		return badObject(name, fmt.Errorf("read log entry %d: %w", number, err))
	}
	x, err := wire.OpenEntry(p.o.Sealer, p.o.Names, e, number, stored)
	if err != nil {
		return badObject(name, err)
	}
	return p.eachRecord(ctx, name, x, fn)
}

// eachRecord calls fn with the records in the body of an entry, pieces with their places, up to the
// proved end.
func (p *Page) eachRecord(ctx context.Context, name string, e *wire.Entry, fn func(wire.Record, storage.CloudPlace) error) error {
	at := storage.CloudPlace{Entry: e.Number, KeyIndex: e.KeyIndex}
	for rec, err := range p.Body(ctx, e) {
		if err != nil {
			return badObject(name, fmt.Errorf("read body of log entry %d: %w", e.Number, err))
		}
		if err := fn(rec, at); err != nil {
			return err
		}
		if _, ok := rec.(*wire.Piece); ok {
			at.Block++
		}
	}
	return nil
}

// Body yields the records in the body of an entry that is not closing: see checkpoint.Store.Body.
// It may be called concurrently with the calls of the Page.
func (p *Page) Body(ctx context.Context, e *wire.Entry) iter.Seq2[wire.Record, error] {
	return p.runs.Body(ctx, e)
}
