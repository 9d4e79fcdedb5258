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
	Stat   bool   `flag:"stat" usage:"show sizes and a summary"`
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
	return a.printDiff(ctx, filetree.Diff(ctx, page, from, to, f.Prefix.bytes), f.Stat, func() {})
}

// printDiff prints changes one at a time. It calls begin before the first one.
func (a *app) printDiff(ctx context.Context, changes iter.Seq2[filetree.Change, error], stat bool, begin func()) error {
	counts := map[filetree.Kind]int{}
	var oldBytes, newBytes int64
	for c, err := range changes {
		if err != nil {
			return fmt.Errorf("compare commits: %w", err)
		}
		if len(counts) == 0 {
			begin()
		}
		kind := c.Kind()
		counts[kind]++
		var before, after *ledger.Entry
		if c.Content != nil {
			before, after = c.Content.Old, c.Content.New
		}
		if before != nil {
			oldBytes += before.Size
		}
		if after != nil {
			newBytes += after.Size
		}
		switch {
		case a.json:
			values, err := mapped([]*ledger.Entry{before, after}, func(e *ledger.Entry) (object, error) { return valueObject(ctx, e) })
			if err != nil {
				return err
			}
			a.emit(object{
				"change", kind, "key", jsonBytes(c.Path), "content", c.Content != nil, "attributes", c.Attributes != nil,
				"old?", values[0], "new?", values[1],
			})
		case stat:
			a.printf("%c %s  %s\n", kind, a.keyText(c.Path), changeText(before, after))
		default:
			a.printf("%c %s\n", kind, a.keyText(c.Path))
		}
	}
	if stat && !a.json {
		a.printf("%d added, %d removed, %d changed: %s became %s\n",
			counts[filetree.Added], counts[filetree.Removed], counts[filetree.Changed], sizeText(oldBytes), sizeText(newBytes))
	}
	return nil
}

func changeText(before, after *ledger.Entry) string {
	switch {
	case before == nil && after == nil:
		return "attributes"
	case before == nil:
		return sizeText(after.Size)
	case after == nil:
		return sizeText(before.Size)
	}
	return sizeText(before.Size) + " -> " + sizeText(after.Size)
}
