package ledger

import "context"

// KeepPage holds a page as the keeper does.
func (r *Repository) KeepPage(ctx context.Context, page PageRef) (*Page, error) {
	return r.keepPage(ctx, page)
}
