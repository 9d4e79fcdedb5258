package session

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/commit"
)

// Tag gives a commit a name, or moves an existing name to it; see ValidateTag. The zero id means
// the session's head. When Tag returns nil, the tag survives a crash. Errors: base.ErrNotFound (no
// such commit), base.ErrInvalid, base.ErrTooLarge, base.ErrClosed, base.ErrReadOnly.
func (p *Page) Tag(ctx context.Context, name string, id commit.ID) error {
	if err := ValidateTag(name); err != nil {
		return err
	}
	if err := p.enter(); err != nil {
		return fmt.Errorf("tag %q: %w", name, err)
	}
	defer p.leave()
	c, release, err := p.pin(ctx, id)
	if err != nil {
		return fmt.Errorf("tag %q: %w", name, err)
	}
	defer release()
	return p.env.Store.SetTag(ctx, name, c.ID)
}

// DeleteTag deletes a tag. Errors: base.ErrNotFound, base.ErrClosed, base.ErrReadOnly.
func (p *Page) DeleteTag(ctx context.Context, name string) error {
	if err := p.enter(); err != nil {
		return err
	}
	defer p.leave()
	return p.env.Store.DeleteTag(ctx, name)
}

// Tags returns all tags. Errors: base.ErrClosed, base.ErrCorrupt.
func (p *Page) Tags(ctx context.Context) (map[string]commit.ID, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	defer p.leave()
	tags, err := p.env.Store.Tags(ctx)
	if err != nil {
		p.note(err)
		return nil, fmt.Errorf("read tags: %w", err)
	}
	return tags, nil
}
