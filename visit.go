package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/internal/cloudlink"
	"github.com/ledgerd/ledger/internal/presence"
)

// change is a call that changes the repository: fn's context ends when the repository closes. what
// is the work, for the text of errors. dry lets it also run on one that is open for reading.
func (r *Repository) change(ctx context.Context, what string, dry bool, fn func(context.Context) error) error {
	if r.o.ReadOnly && !dry {
		return fmt.Errorf("%s: the repository is open for reading: %w", what, ErrReadOnly)
	}
	return r.call(ctx, what, fn)
}

// call is a call on the repository: fn's context ends when the repository closes.
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

// visit calls fn with a page that is here, opened for a look.
func (r *Repository) visit(ctx context.Context, k pageKey, fn func(context.Context, *Page) error) error {
	p, err := r.openHandle(ctx, &Ledger{repo: r, name: k.Ledger}, k.ID, "", presence.ForLook)
	if err != nil {
		return err
	}
	return errors.Join(p.in.Call(ctx, func(ctx context.Context) error { return fn(ctx, p) }), p.Close())
}

// visitAll visits pages one after another: those that are named, or all that are here. A page that
// fails does not keep it from the others, unless they would fail likewise. What has left since the
// pages were listed is passed over, unless it is named. The error joins a *PageError for each page
// that failed; ErrNotFound comes before any page is visited.
func (r *Repository) visitAll(ctx context.Context, only []PageRef, fn func(context.Context, *Page) error) error {
	keys, err := r.chosen(only)
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range keys {
		err := r.visit(ctx, k, fn)
		if err == nil || only == nil && r.hasLeft(k, err) {
			continue
		}
		errs = append(errs, r.pageError(k, err))
		if ctx.Err() != nil || cloudlink.Hopeless(err) || errors.Is(err, ErrNoCloud) {
			break
		}
	}
	return errors.Join(errs...)
}

// chosen returns the pages that are here, or with only those that are named. Errors: ErrNotFound.
func (r *Repository) chosen(only []PageRef) ([]pageKey, error) {
	keys, err := r.disk.Pages()
	if err != nil || only == nil {
		return keys, err
	}
	for _, ref := range only {
		if !slices.Contains(keys, ref.key()) {
			return nil, fmt.Errorf("page %s is not on this device: %w", r.usage.Text(ref.key()), ErrNotFound)
		}
	}
	return slices.DeleteFunc(keys, func(k pageKey) bool { return !slices.Contains(only, refOf(k)) }), nil
}

// refOf is the public name of a page.
func refOf(k pageKey) PageRef { return PageRef{k.Ledger, k.ID} }

func (p *Page) ref() PageRef { return refOf(p.shared.key) }

// pageError says that err is about a page.
func (r *Repository) pageError(k pageKey, err error) error {
	name, _, usageErr := r.usage.Page(k)
	if usageErr != nil {
		name = "" // the id does as well
	}
	return &PageError{refOf(k), name, err}
}
