package merging

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
)

// Resolver decides about one key. It must return soon when ctx ends. When it fails or panics,
// nothing is merged.
type Resolver func(ctx context.Context, c *Conflict) (Resolution, error)

// Conflict is a key of a merge. The values of its entries can be read during the call that receives
// it; for Changes of a Group, until the merge of the namespace ends.
type Conflict struct {
	*merge.Conflict
	// Pair are the merged commits.
	Pair *merge.Pair
	// Origin reads the values of the entries.
	Origin session.Origin
}

// Resolution is the decision about a key. The zero Resolution makes the merge fail.
type Resolution struct {
	Take merge.Outcome
	// Value is the new value, or Reader supplies it: Size bytes, with 0 any number. A Reader that
	// is an io.Closer is closed.
	Value    []byte
	Reader   io.Reader
	Size     int64
	Priority object.Priority
	// Rule is recorded as the name of the rule that decided; "" means "resolver".
	Rule string
}

// resolverDecider decides by a Resolver.
type resolverDecider struct {
	run      *run
	resolver Resolver
}

// defaultRule is recorded for decisions of a Resolver without a rule name.
const defaultRule = "resolver"

// Decide implements merge.Decider.
func (d *resolverDecider) Decide(ctx context.Context, p *merge.Pair, cs []merge.Conflict) error {
	for i := range cs {
		err := ctx.Err()
		if err == nil {
			err = d.decide(ctx, p, &cs[i])
		}
		if err != nil {
			return &merge.Error{Left: p.Left.ID, Right: p.Right.ID, Err: err}
		}
	}
	return nil
}

func (d *resolverDecider) decide(ctx context.Context, p *merge.Pair, c *merge.Conflict) error {
	values := d.run.m.page.Draft(p.Left, d.run.sink, nil) // to which nothing is written
	conflict := Conflict{Conflict: c, Pair: p, Origin: values.Origin()}
	var r Resolution
	err := d.run.protect("resolver", func() (err error) {
		r, err = d.resolver(ctx, &conflict)
		return err
	})
	if err == nil {
		// The new value may be read from the values of the conflict.
		err = d.run.protect("reader of a resolution", func() error { return r.apply(ctx, p, c) })
	}
	values.Freeze()
	if err != nil {
		return fmt.Errorf("resolve a conflict: %w", err)
	}
	return nil
}

// apply makes r the outcome of c.
func (r *Resolution) apply(ctx context.Context, p *merge.Pair, c *merge.Conflict) (err error) {
	if closer, ok := r.Reader.(io.Closer); ok {
		defer func() { err = errors.Join(err, closer.Close()) }()
	}
	rule := r.Rule
	if rule == "" {
		rule = defaultRule
	}
	if err := checkRuleName(rule); err != nil {
		return err
	}
	c.Outcome, c.Rule = r.Take, rule
	switch r.Take {
	case merge.TakeLeft, merge.TakeRight, merge.TakeNone:
		return nil
	case merge.TakeNew:
	default:
		return fmt.Errorf("the resolution is none: %w", base.ErrInvalid)
	}
	switch {
	case r.Priority > object.Lazy:
		return fmt.Errorf("new value: %s: %w", r.Priority, base.ErrInvalid)
	case r.Size < 0 || r.Size > 0 && r.Reader == nil:
		return fmt.Errorf("new value of %d bytes: %w", r.Size, base.ErrInvalid)
	case r.Reader == nil:
		c.New, err = p.Store(ctx, r.Value, r.Priority)
	default:
		c.New, err = p.StoreReader(ctx, session.NewSizedReader(r.Reader, cmp.Or(r.Size, -1)), r.Priority)
	}
	if err != nil {
		return fmt.Errorf("store the new value: %w", err)
	}
	c.New.Key = bytes.Clone(c.Key)
	return nil
}
