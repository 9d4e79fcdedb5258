package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/clock"
)

// keeper keeps all pages that are here, so that they are synced. It gives up those that are evicted or deleted.
type keeper struct {
	app   *app
	repo  *ledger.Repository
	wake  chan struct{} // holds one token
	pages map[ledger.PageRef]*ledger.Kept
	wg    sync.WaitGroup // of those who wait for pages to be given up
	stop  func(error)    // ends serve with an error
	log   *serveLog
}

func newKeeper(a *app, repo *ledger.Repository, stop func(error)) *keeper {
	return &keeper{app: a, repo: repo, wake: make(chan struct{}, 1), pages: map[ledger.PageRef]*ledger.Kept{}, stop: stop, log: newServeLog(a)}
}

// poke has the keeper look for new pages.
func (k *keeper) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// run opens pages as they come, until ctx ends.
func (k *keeper) run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { k.list(ctx) })
	wg.Go(func() { k.report(ctx) })
	for ctx.Err() == nil {
		if err := k.look(ctx); err != nil && ctx.Err() == nil {
			k.log.tell(err)
		}
		select {
		case <-k.wake:
		case <-ctx.Done():
		}
	}
}

// list has the pages made, now and then, that other devices have announced. A bucket that hangs keeps it, and not those who look for pages that are here.
func (k *keeper) list(ctx context.Context) {
	for ctx.Err() == nil {
		if c, ok := k.repo.Cloud(); ok && !c.Paused {
			pages, err := k.repo.Sync(ctx)
			if c, _ := k.repo.Cloud(); err != nil && c.Err != nil && ctx.Err() == nil {
				k.stop(fmt.Errorf("nothing can be synced: %w", err)) // the bucket was not even asked: nothing here will change by waiting
				return
			}
			k.log.listed(pages, err)
			k.poke()
		}
		wait(ctx, k.app.process.Clock, listEvery)
	}
}

// report tells of the syncing that fails, until ctx ends.
func (k *keeper) report(ctx context.Context) {
	for ctx.Err() == nil {
		k.log.look(k.repo.SyncStates())
		wait(ctx, k.app.process.Clock, reportEvery)
	}
}

// wait returns after a while, or when ctx ends.
func wait(ctx context.Context, c clock.Clock, d time.Duration) {
	tick, release := c.After(d)
	defer release()
	select {
	case <-tick:
	case <-ctx.Done():
	}
}

// look keeps the pages that are there.
func (k *keeper) look(ctx context.Context) error {
	var errs []error
	for ref, p := range k.pages {
		select {
		case <-p.Gone():
			delete(k.pages, ref)
			errs = append(errs, p.Release())
		default:
		}
	}
	infos, err := k.repo.Pages(ctx)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	shut := map[string]error{}
	defer func() { k.log.opened(shut) }()
	for _, i := range infos {
		ref := ledger.PageRef{Ledger: i.Ledger, ID: i.ID}
		if k.pages[ref] != nil {
			continue
		}
		p, err := k.repo.Keep(ctx, ref)
		switch {
		case errors.Is(err, ledger.ErrNotFound): // it was evicted meanwhile
			continue
		case err != nil:
			shut[nameOf(i.Ledger, i.Name, i.ID)] = err
			continue
		}
		k.pages[ref] = p
		k.wg.Go(func() { // somebody has it given up, and it may stay after all
			<-p.Gone()
			k.poke()
		})
	}
	return errors.Join(errs...)
}

// close releases the pages. run has ended.
func (k *keeper) close() error {
	var errs []error
	for _, p := range k.pages {
		errs = append(errs, p.Release())
	}
	k.wg.Wait()
	return errors.Join(errs...)
}
