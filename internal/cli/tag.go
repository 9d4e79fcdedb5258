package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

type tagFlags struct {
	pageArg
	dryRun
	Names  []string `arg:"..."` // the tag, and its revision
	Delete string   `flag:"delete,d" usage:"delete this tag"`
	Move   bool     `flag:"move" usage:"move a tag from another commit"`
}

func (a *app) tag(ctx context.Context, f tagFlags) error {
	removing, setting := a.changed("delete"), len(f.Names) > 0
	switch {
	case removing && setting:
		return usagef("-d takes one name and no other arguments")
	case setting && admin.ValidateTag(f.Names[0]) != nil:
		return wrong(admin.ValidateTag(f.Names[0]))
	case removing:
		return a.page(ctx, f.Page, changes, func(page *ledger.Page) error { return a.deleteTag(ctx, page, f) })
	case setting:
		return a.page(ctx, f.Page, changes, func(page *ledger.Page) error { return a.setTag(ctx, page, f) })
	}
	return a.page(ctx, f.Page, reads, func(page *ledger.Page) error { return a.listTags(ctx, page) })
}

func (a *app) listTags(ctx context.Context, page *ledger.Page) error {
	tags, err := page.Tags(ctx)
	if err != nil {
		return fmt.Errorf("read tags: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		a.printTag(name, tags[name])
	}
	return nil
}

func (a *app) printTag(name string, id ledger.CommitID) {
	a.print(object{"tag", name, "commit", id}, "%s %s\n", id, quoted(name))
}

func (a *app) setTag(ctx context.Context, page *ledger.Page, f tagFlags) error {
	name := f.Names[0]
	id, err := a.resolve(ctx, page, append(f.Names, "HEAD")[1])
	if err != nil {
		return err
	}
	old, has, err := findTag(ctx, page, name)
	switch {
	case err != nil:
		return err
	case has && old != id && !f.Move:
		return withHint(classedf(ledger.ErrConflict, "tag %s: commit %s has this name already", quoted(name), old.Short()),
			"--move moves the name")
	case f.Dry:
		a.outcome(true, "set", object{"tag", name, "commit", id})
		return nil
	}
	if err := page.Tag(ctx, name, id); err != nil {
		return fmt.Errorf("tag %s: %w", quoted(name), err)
	}
	if !a.quiet {
		a.printTag(name, id)
	}
	return nil
}

func (a *app) deleteTag(ctx context.Context, page *ledger.Page, f tagFlags) error {
	name := f.Delete
	id, has, err := findTag(ctx, page, name)
	if has && !f.Dry {
		err = page.DeleteTag(ctx, name)
	}
	switch {
	case err == nil && !has || errors.Is(err, ledger.ErrNotFound):
		return withHint(classedf(ledger.ErrNotFound, "page %s has no tag %s", pageText(page), quoted(name)),
			"%s", a.command("tag", pageText(page)))
	case err == nil:
		a.outcome(f.Dry, "deleted", object{"tag", name, "commit", id, "deleted!", true})
	}
	return err
}

// findTag returns the commit of a tag, if the tag exists.
func findTag(ctx context.Context, page *ledger.Page, name string) (id ledger.CommitID, has bool, err error) {
	tags, err := page.Tags(ctx)
	id, has = tags[name]
	return id, has, err
}
