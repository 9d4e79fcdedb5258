package ledger

import (
	"context"

	"github.com/ledgerd/ledger/internal/session"
)

// Get returns the value of a key in the handle's head. The slice belongs to the caller. A value
// that is only in the cloud is fetched. Each call reads the newest head: use View for related
// reads. Errors: ErrNotFound, ErrTooLarge (the value does not fit into memory as one slice: see
// Reader.Open), ErrNeedsFetch, ErrNetwork, ErrClosed, ErrCorrupt, those of ctx.
func (p *Page) Get(ctx context.Context, key []byte) (value []byte, err error) {
	err = p.in.View(ctx, func(s *session.Snapshot) error {
		value, err = s.Get(ctx, key)
		return err
	})
	return value, err
}

// Put gives a key a value, in a transaction of its own, which is durable when Put returns nil. Key
// and value are copied. Use one Update for related changes, or for many. Errors: as Update and
// Tx.Put.
func (p *Page) Put(ctx context.Context, key, value []byte) error {
	_, err := p.in.Update(ctx, func(tx *session.Tx) error { return tx.Put(ctx, key, value, Eager) })
	return err
}

// Delete removes a key, in a transaction of its own, which is durable when Delete returns nil.
// Errors: as Update and Tx.Delete.
func (p *Page) Delete(ctx context.Context, key []byte) error {
	_, err := p.in.Update(ctx, func(tx *session.Tx) error { return tx.Delete(ctx, key) })
	return err
}
