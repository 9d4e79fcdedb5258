package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/presence"
)

// change runs a call that changes the repository; fn's context ends when the repository closes.
// what names the work in errors. dry allows the call on a read-only repository.
func (r *Repository) change(ctx context.Context, what string, dry bool, fn func(context.Context) error) error {
	if r.o.ReadOnly && !dry {
		return fmt.Errorf("%s: the repository is open for reading: %w", what, ErrReadOnly)
	}
	return r.call(ctx, what, fn)
}

// call runs a call on the repository: fn's context ends when the repository closes.
func (r *Repository) call(ctx context.Context, what string, fn func(context.Context) error) error {
	if err := r.enter(); err != nil {
		return err
	}
	defer r.gate.Leave()
	call := r.gate.Call(ctx)
	defer call.Release()
	if err := fn(call); err != nil {
		return call.Explain(fmt.Errorf("%s: %w", what, err))
	}
	return nil
}

// visit calls fn with a handle of a page on this device, which does not count as use.
func (r *Repository) visit(ctx context.Context, k pageKey, fn func(context.Context, *Page) error) error {
	p, err := r.openHandle(ctx, k, "", presence.ForLook)
	if err != nil {
		return err
	}
	return errors.Join(p.in.Call(ctx, func(ctx context.Context) error { return fn(ctx, p) }), p.Close())
}
