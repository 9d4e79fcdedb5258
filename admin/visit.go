package admin

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/cloudlink"
)

// keyOf converts the public name of a page to that of the engines, refOf the reverse.
func keyOf(p ledger.PageRef) base.Page { return base.Page{Ledger: p.Ledger, ID: p.ID} }
func refOf(k base.Page) ledger.PageRef { return ledger.PageRef{Ledger: k.Ledger, ID: k.ID} }

func keysOf(pages []ledger.PageRef) (keys []base.Page) {
	for _, p := range pages {
		keys = append(keys, keyOf(p))
	}
	return keys
}

// given returns options that may be nil.
func given[O any](o *O) (out O) {
	if o != nil {
		out = *o
	}
	return out
}

// engines is a repository with methods that visit its pages.
type engines struct{ *bridge.Repository }

func of(repo *ledger.Repository) engines { return engines{bridge.Of(repo)} }

// visitAll visits the named pages or, with nil, all pages on this device, one after another. It
// continues after a failure, unless the other pages would fail likewise. It skips unnamed pages
// that were evicted or deleted after the listing. The error joins a *ledger.PageError for each
// failed page; ErrNotFound is returned before any visit.
func (r engines) visitAll(ctx context.Context, only []ledger.PageRef, fn func(context.Context, *bridge.Page) error) error {
	keys, err := r.chosen(only)
	if err != nil {
		return err
	}
	var errs []error
	for _, k := range keys {
		err := r.Visit(ctx, k, fn)
		if err == nil || only == nil && r.hasLeft(k, err) {
			continue
		}
		errs = append(errs, r.pageError(k, err))
		if ctx.Err() != nil || cloudlink.Hopeless(err) || errors.Is(err, ledger.ErrNoCloud) {
			break
		}
	}
	return errors.Join(errs...)
}

// chosen returns the pages in only or, with nil, all pages on this device; an empty list means
// none. Errors: ErrNotFound.
func (r engines) chosen(only []ledger.PageRef) ([]base.Page, error) {
	keys, err := r.Disk.Pages()
	if err != nil || only == nil {
		return keys, err
	}
	for _, ref := range only {
		if !slices.Contains(keys, keyOf(ref)) {
			return nil, fmt.Errorf("page %s is not on this device: %w", r.Usage.Text(keyOf(ref)), ledger.ErrNotFound)
		}
	}
	return slices.DeleteFunc(keys, func(k base.Page) bool { return !slices.Contains(only, refOf(k)) }), nil
}

// pageError adds the page to err.
func (r engines) pageError(k base.Page, err error) error {
	name, _, usageErr := r.Usage.Page(k)
	if usageErr != nil {
		name = "" // the id suffices
	}
	return &ledger.PageError{Page: refOf(k), Name: name, Err: err}
}

// hasLeft reports whether err means that a listed page was evicted or deleted after the listing.
func (r engines) hasLeft(k base.Page, err error) bool {
	if !errors.Is(err, ledger.ErrNotFound) {
		return false
	}
	here, err := r.Disk.HasPage(k)
	return err == nil && !here
}

// herePages returns the pages on this device, sorted by ledger, then id.
func herePages(ctx context.Context, repo *ledger.Repository) ([]ledger.PageInfo, error) {
	infos, err := repo.Pages(ctx)
	return slices.DeleteFunc(infos, func(p ledger.PageInfo) bool { return p.State == ledger.PageEvicted }), err
}
