package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
)

type rmFlags struct {
	pageArg
	Keys someKeys `arg:"..."`
	writeFlags
	consent
	Prefix    prefix `flag:"prefix" usage:"remove all keys that begin with this"`
	All       bool   `flag:"all" usage:"remove all keys of the page"`
	Force     bool   `flag:"force" usage:"ignore keys that have no entry"`
	Message   string `flag:"message,m" usage:"commit message"`
	hasPrefix bool
}

func (a *app) rm(ctx context.Context, f rmFlags) error {
	f.hasPrefix = a.changed("prefix")
	if counted(len(f.Keys) > 0, f.hasPrefix, f.All) != 1 {
		return usagef("want one of keys, --prefix and --all")
	}
	if f.hasPrefix && f.Prefix.text == "" {
		return usagef("an empty prefix would remove everything: if that is intended, use --all")
	}
	danger := choose(f.All, "the page will be empty", "")
	return a.destroy(ctx, f.consent, danger, func(dry bool) error {
		if dry {
			return a.rmDry(ctx, f)
		}
		return a.rmNow(ctx, f)
	})
}

func (a *app) rmNow(ctx context.Context, f rmFlags) error {
	return a.page(ctx, f.Page, changes, func(page *ledger.Page) error {
		before, after, err := a.write(ctx, page, f.Parent, f.Message, func(tx *ledger.Tx) error {
			if len(f.Keys) == 0 {
				return filetree.RemovePrefix(ctx, tx, f.Prefix.bytes)
			}
			return a.rmKeys(ctx, page, tx, f)
		})
		if err != nil {
			return err
		}
		return a.finish(ctx, page, f.mergeFlags, after, before != after, "removed "+a.rmText(f))
	})
}

// rmDry prints how many keys rm would remove.
func (a *app) rmDry(ctx context.Context, f rmFlags) error {
	return a.pageAt(ctx, f.Page, reads, f.Parent, func(page *ledger.Page, snap *ledger.Snapshot) error {
		n, err := a.countRemoved(ctx, page, snap, f)
		if err != nil {
			return err
		}
		a.outcome(true, "removed", object{"page", pageText(page), "keys", n})
		return nil
	})
}

// countRemoved counts the keys that rm would remove: the named keys, or those with a prefix.
func (a *app) countRemoved(ctx context.Context, page *ledger.Page, snap *ledger.Snapshot,
	f rmFlags) (n int, err error) {
	for _, key := range f.Keys {
		switch _, err := snap.Stat(ctx, key); {
		case err == nil:
			n++
		case !errors.Is(err, ledger.ErrNotFound):
			return n, fmt.Errorf("look for key %s: %w", a.shortKey(key), err)
		case !f.Force:
			return n, a.rmAbsent(page, key)
		}
	}
	if len(f.Keys) > 0 {
		return n, nil
	}
	list := filetree.List(ctx, snap, filetree.ListOptions{Prefix: f.Prefix.bytes, KeysOnly: true})
	if err := each(list, func(filetree.Item) { n++ }); err != nil {
		return n, fmt.Errorf("list keys: %w", err)
	}
	return n, nil
}

func (a *app) rmText(f rmFlags) string {
	switch {
	case f.All:
		return "all keys"
	case f.hasPrefix:
		return "all keys that begin with " + quoted(f.Prefix.text)
	case len(f.Keys) == 1:
		return a.shortKey(f.Keys[0])
	}
	return countText(len(f.Keys), "keys")
}

func (a *app) rmKeys(ctx context.Context, page *ledger.Page, tx *ledger.Tx, f rmFlags) error {
	for _, key := range f.Keys {
		removed, err := filetree.Remove(ctx, tx, key)
		if err != nil {
			return fmt.Errorf("remove %s: %w", a.shortKey(key), err)
		}
		if !removed && !f.Force {
			return a.rmAbsent(page, key)
		}
	}
	return nil
}

func (a *app) rmAbsent(page *ledger.Page, key []byte) error {
	return withHint(classedf(ledger.ErrNotFound, "remove %s: page %s has no such key, nothing was removed", a.shortKey(key), pageText(page)),
		"--force ignores keys that do not exist")
}
