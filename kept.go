package ledger

import (
	"context"
	"errors"
	"fmt"
)

// keepPage holds a page open that is here, so that it is synced and its heads are merged in the
// background. That is no use of the page: it does not count as open for Pages, Usage and Evict.
// When nobody else has it open, Evict, DeletePage and the quota close the handle. The caller closes
// it, too. Errors: ErrNotFound (also of a page that was evicted), those of opening a page.
func (r *Repository) keepPage(ctx context.Context, page PageRef) (*Page, error) {
	return r.openHandle(ctx, &Ledger{repo: r, name: page.Ledger}, page.ID, "", handleKept)
}

// isKeptLocked reports whether a page is only kept, or about to be: nobody uses it or looks at it.
func (s *pageStore) isKeptLocked() bool {
	return len(s.handles) == 0 && s.keeping && !s.closing || len(s.keptLocked()) > 0
}

// keptLocked returns the handles of a page that is only kept, none when somebody uses it or looks
// at it.
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

// askKept has a page that is only kept given up, unless something bars that it departs: then it
// stays as it is, and so with a dry run. over reports that nothing more is to be done.
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
		return fmt.Errorf("give page %s up: %w", r.pageText(PageRef{k.Ledger, k.ID}), err)
	}
	return nil
}
