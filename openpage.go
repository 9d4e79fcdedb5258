package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/session"
)

// Page opens the page with a human name in a ledger, and creates it when it is absent. A ledger is
// a namespace of pages; it exists once it has a page. Its name has 1 to 150 bytes of any value, and
// that of a page 1 to 1024. The id of the page is DerivePageID(ledger, name). The caller must close
// each Page. Errors: ErrInvalid, ErrTooLarge, ErrNotFound (read-only), ErrClosed, ErrCorrupt,
// ErrUnsupported, ErrNoSpace, those of ctx.
func (r *Repository) Page(ctx context.Context, ledger, name string) (*Page, error) {
	if err := session.ValidatePageName(name); err != nil {
		return nil, err
	}
	return r.openForUse(ctx, pageKey{Ledger: ledger, ID: DerivePageID(ledger, name)}, name)
}

// OpenPage opens a page by its id, and creates it when it is absent: one that Pages lists, the root
// page of a ledger, which has the zero id, or a new page without a name, for which the caller draws
// a random PageID. A wrong id makes a new page: ask PageInfo first. The caller must close each
// Page. Errors: as Page.
func (r *Repository) OpenPage(ctx context.Context, page PageRef) (*Page, error) {
	return r.openForUse(ctx, page.key(), "")
}

func (r *Repository) openForUse(ctx context.Context, key pageKey, name string) (*Page, error) {
	if err := session.ValidateLedgerName(key.Ledger); err != nil {
		return nil, err
	}
	return r.openHandle(ctx, key, name, presence.ForUse)
}

// openHandle returns a new handle of a page, and starts the background work for its kind.
func (r *Repository) openHandle(ctx context.Context, key pageKey, name string, kind presence.Kind) (*Page, error) {
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.gate.Leave()
	call := r.gate.Call(ctx)
	defer call.Release()
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
	return r.openHandle(ctx, page.key(), "", presence.ForSync)
}
