package cli

import (
	"context"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
)

type diffFlags struct {
	pageArg
	From   string `arg:""`
	To     string `arg:""`
	Prefix prefix `flag:"prefix" usage:"only keys that begin with this"`
}

func (a *app) diff(ctx context.Context, page *ledger.Page, f diffFlags) error {
	from, err := a.resolve(ctx, page, f.From)
	if err != nil {
		return err
	}
	to, err := a.resolve(ctx, page, f.To)
	if err != nil {
		return err
	}
	return a.printDiff(ctx, filetree.Diff(ctx, page, from, to, f.Prefix.bytes), func() {})
}

// printDiff prints changes one at a time. It calls begin before the first one.
func (a *app) printDiff(ctx context.Context, changes iter.Seq2[filetree.Change, error], begin func()) error {
	begun := false
	for c, err := range changes {
		if err != nil {
			return fmt.Errorf("compare commits: %w", err)
		}
		if !begun {
			begin()
			begun = true
		}
		if !a.json {
			a.printf("%c %s\n", c.Kind(), a.keyText(c.Path))
			continue
		}
		content := &ledger.Change{}
		if c.Content != nil {
			content = c.Content
		}
		values, err := mapped([]*ledger.Entry{content.Old, content.New}, func(e *ledger.Entry) (object, error) { return valueObject(ctx, e) })
		if err != nil {
			return err
		}
		a.emit(object{
			"change", c.Kind(), "key", jsonBytes(c.Path), "content", c.Content != nil, "attributes", c.Attributes != nil,
			"old?", values[0], "new?", values[1],
		})
	}
	return nil
}
