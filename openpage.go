package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/presence"
)

// openHandle returns a new handle of a page, and starts the background work for its kind.
func (r *Repository) openHandle(ctx context.Context, l *Ledger, id PageID, name string, kind presence.Kind) (*Page, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.gate.Leave()
	call := r.gate.Call(ctx)
	defer call.Release()
	key := pageKey{Ledger: l.name, ID: id}
	p, err := r.pages.Open(call, key, name, kind)
	if err != nil {
		return nil, call.Explain(fmt.Errorf("open page %s: %w", key.Text(name), err))
	}
	s := p.shared
	if kind == presence.ForUse {
		if err := s.noteUse(); err != nil {
			return nil, errors.Join(fmt.Errorf("open page %s: %w", key.Text(name), err), p.Close())
		}
		r.keeper.Use(key)
	}
	if kind != presence.ForLook {
		s.merger.Want(false)
	}
	return p, nil
}

// keepPage opens a page of this device so that it is synced and merged in the background. Pages,
// Usage and Evict do not count this handle as use. When the page has no other handles, Evict,
// DeletePage and the quota close this one; the caller must close it, too. Errors: ErrNotFound (also
// for an evicted page), those of opening a page.
func (r *Repository) keepPage(ctx context.Context, page PageRef) (*Page, error) {
	return r.openHandle(ctx, &Ledger{repo: r, name: page.Ledger}, page.ID, "", presence.ForSync)
}
