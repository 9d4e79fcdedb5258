package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
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
	return a.printDiff(filetree.Diff(ctx, page, from, to, f.Prefix.bytes), f.Stat)
}

// printDiff prints changes as they come.
func (a *app) printDiff(changes iter.Seq2[filetree.Change, error], stat bool) error {
	counts := map[filetree.Kind]int{}
	var oldBytes, newBytes int64
	for c, err := range changes {
		if err != nil {
			return fmt.Errorf("compare commits: %w", err)
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
			a.emit(object{
				"change", kind, "key", jsonBytes(c.Path), "content", c.Content != nil, "attributes", c.Attributes != nil,
				"old?", sideObject(before), "new?", sideObject(after),
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

type tagFlags struct {
	pageArg
	dryRun
	Names  []string `arg:"..."` // the tag, and its revision
	Delete string   `flag:"delete,d" usage:"take this name away"`
	Move   bool     `flag:"move" usage:"move a name that another commit has"`
}

func (a *app) tag(ctx context.Context, f tagFlags) error {
	removing, setting := a.changed("delete"), len(f.Names) > 0
	switch {
	case removing && setting:
		return usagef("-d takes the name by itself")
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
	for _, t := range tags {
		a.printTag(t.Name, t.Commit)
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
		return withHint(classedf(ledger.ErrConflict, "tag %s: commit %s has this name", quoted(name), old.Short()), "--move moves it")
	case f.Dry:
		a.print(object{"tag", name, "commit", id, "dryRun", true}, "tag %s would be given to commit %s\n", quoted(name), id.Short())
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
	case err == nil && (f.Dry || a.json):
		a.print(object{"tag", name, "commit", id, "deleted", true, "dryRun?", f.Dry},
			"tag %s would be taken away from commit %s\n", quoted(name), id.Short())
	}
	return err
}

// findTag returns the commit that has a name, if one has.
func findTag(ctx context.Context, page *ledger.Page, name string) (id ledger.CommitID, has bool, err error) {
	tags, err := page.Tags(ctx)
	for _, t := range tags {
		if t.Name == name {
			return t.Commit, true, nil
		}
	}
	return id, false, err
}

type restoreFlags struct {
	pageArg
	mergeFlags
	dryRun
	Revision string `arg:""`
	Prefix   prefix `arg:""`
	Message  string `flag:"message,m" usage:"message of the commit (default: restore and the short id)"`
}

func (a *app) restore(ctx context.Context, page *ledger.Page, f restoreFlags) error {
	revision, prefix := f.Revision, f.Prefix.bytes
	id, err := a.resolve(ctx, page, revision)
	if err != nil {
		return err
	}
	target, err := page.Commit(ctx, id)
	if err != nil {
		return err
	}
	if target.IsFirst() { // every page has it, and nothing in it
		return withHint(classedf(ledger.ErrNotFound, "restore %s: the page had no commit then", quoted(revision)),
			"%s lists the commits; rm --all empties a page", a.command("log", pageText(page)))
	}
	before, err := a.resolve(ctx, page, "HEAD")
	if err != nil {
		return err
	}
	if f.Dry {
		return a.restoreDry(ctx, page, before, id, prefix, revision)
	}
	var after ledger.CommitID
	if len(prefix) == 0 {
		after, err = page.Restore(ctx, id, &ledger.RestoreOptions{Message: f.Message})
	} else {
		after, err = filetree.Restore(ctx, page, id, prefix, f.Message)
	}
	if err != nil {
		return fmt.Errorf("restore %s: %w", quoted(revision), err)
	}
	return a.finish(ctx, page, f.mergeFlags, before, after, "restored "+quoted(revision))
}

// restoreDry says what restore would do to the keys of the head.
func (a *app) restoreDry(ctx context.Context, page *ledger.Page, head, id ledger.CommitID, prefix []byte, revision string) error {
	n := map[filetree.Kind]int{}
	if err := each(filetree.Diff(ctx, page, head, id, prefix), func(c filetree.Change) { n[c.Kind()]++ }); err != nil {
		return fmt.Errorf("restore %s: %w", quoted(revision), err)
	}
	a.print(object{"page", pageText(page), "added", n[filetree.Added], "changed", n[filetree.Changed], "removed", n[filetree.Removed], "dryRun", true},
		"%s: %s would be added, %d changed, %d removed to be as at %s\n",
		pageText(page), countText(n[filetree.Added], "key"), n[filetree.Changed], n[filetree.Removed], quoted(revision))
	return nil
}
