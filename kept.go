package ledger

import (
	"context"
	"errors"
	"fmt"
)

// Kept is a page that Repository.Keep holds open.
type Kept struct{ page *Page }

// Keep holds a page open that is here, so that it is synced and its heads are merged in the background, as far as the options say so. That is no use of the page: it does not count as open for
// Pages, Usage and Evict, and when nobody else has it open and Evict, DeletePage or the quota takes it, it is given up; see Kept.Gone. Release must be called.
// Errors: ErrNotFound (also of a page that was evicted), ErrClosed, ErrCorrupt, ErrUnsupported, those of the file system and of ctx.
func (r *Repository) Keep(ctx context.Context, page PageRef) (*Kept, error) {
	p, err := r.openHandle(ctx, &Ledger{repo: r, name: page.Ledger}, page.ID, "", handleKept)
	if err != nil {
		return nil, err
	}
	return &Kept{p}, nil
}

// Ref names the page.
func (k *Kept) Ref() PageRef { return PageRef{k.page.ledger.name, k.page.ID()} }

// Gone returns a channel that is closed when the page is held no more: it was given up, or released, or the repository is closed.
func (k *Kept) Gone() <-chan struct{} { return k.page.gate.open.Done() }

// Release gives the page up. It closes the store when nobody else has it open. It is idempotent; what others gave up it waits for.
func (k *Kept) Release() error { return k.page.Close() }

// kept returns the handles of a page that is only kept, none when somebody uses it or looks at it.
func (s *pageStore) keptLocked() []*Page {
	var all []*Page
	for p := range s.handles {
		if !p.kept {
			return nil
		}
		all = append(all, p)
	}
	return all
}

// askKept has a page that is only kept given up, unless something bars that it departs: then it stays as it is, and so with a dry run. over reports that nothing more is
// to be done.
func (r *Repository) askKept(ctx context.Context, k pageKey, d departure) (done departed, over bool, err error) {
	r.mu.Lock()
	kept := false
	if s := r.pages[k]; s != nil {
		kept = len(s.keptLocked()) > 0
	}
	r.mu.Unlock()
	if !kept {
		return departed{}, false, nil
	}
	st := &standing{}
	err = r.withPage(ctx, k, func(p *Page) error { return r.look(ctx, p.store, st) })
	switch {
	case ctx.Err() != nil:
		return departed{}, true, ctx.Err()
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrClosed):
		return departed{}, false, nil // it has left, or was closed meanwhile
	case err != nil:
		st.bars(EvictDamaged, "it cannot be read: %v", err)
	}
	if done = d.judge(st); done.bar != EvictFree || d.dry {
		return done, true, nil
	}
	return departed{}, false, r.giveUpKept(k)
}

// giveUpKept closes the handles of a page that is only kept.
func (r *Repository) giveUpKept(k pageKey) error {
	r.mu.Lock()
	var kept []*Page
	if s := r.pages[k]; s != nil {
		kept = s.keptLocked()
	}
	r.mu.Unlock()
	var errs []error
	for _, p := range kept {
		errs = append(errs, p.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("give page %s up: %w", r.pageText(PageRef{k.ledger, k.id}), err)
	}
	return nil
}
