package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
	"github.com/spf13/cobra"
)

type rmFlags struct {
	writeFlags
	consent
	Prefix    string `flag:"prefix" usage:"remove all keys that begin with this"`
	All       bool   `flag:"all" usage:"remove all keys of the page"`
	Force     bool   `flag:"force" usage:"pass over keys that have no entry"`
	Message   string `flag:"message,m" usage:"message of the commit"`
	hasPrefix bool
}

func (a *app) rmCommand() *cobra.Command {
	cmd := verb(a, "rm", rmFlags{}, a.rm)
	cmd.Args = cobra.MinimumNArgs(1)
	return cmd
}

func (a *app) rm(ctx context.Context, cmd *cobra.Command, args []string, f rmFlags) error {
	f.hasPrefix = cmd.Flags().Changed("prefix")
	ways := 0
	for _, given := range []bool{len(args) > 1, f.hasPrefix, f.All} {
		if given {
			ways++
		}
	}
	if ways != 1 {
		return usagef(cmd, "want either keys, --prefix or --all")
	}
	if f.hasPrefix && f.Prefix == "" {
		return usagef(cmd, "an empty prefix would remove everything: use --all if that is meant")
	}
	prefix, err := a.key(cmd, f.Prefix)
	if err != nil {
		return err
	}
	var keys [][]byte
	for _, text := range args[1:] {
		key, err := a.oneKey(cmd, text)
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	danger := ""
	if f.All {
		danger = "the page will be empty"
	}
	return a.destroy(ctx, cmd, f.consent, danger, func(dry bool) error {
		if dry {
			return a.rmDry(ctx, cmd, args[0], keys, prefix, f)
		}
		return a.rmNow(ctx, cmd, args[0], keys, prefix, f)
	})
}

func (a *app) rmNow(ctx context.Context, cmd *cobra.Command, text string, keys [][]byte, prefix []byte, f rmFlags) error {
	return a.page(ctx, cmd, text, changes, func(page *ledger.Page) error {
		before, after, err := a.write(ctx, page, f.Parent, func(tx *ledger.Tx) error {
			if err := tx.SetMessage(f.Message); err != nil {
				return err
			}
			if len(keys) == 0 {
				return filetree.RemovePrefix(ctx, tx, prefix)
			}
			return a.rmKeys(ctx, page, tx, keys, f.Force)
		})
		if err != nil {
			return err
		}
		return a.finish(ctx, page, f.mergeFlags, before, after, "removed "+a.rmText(keys, f))
	})
}

// rmDry says how many keys rm would remove.
func (a *app) rmDry(ctx context.Context, cmd *cobra.Command, text string, keys [][]byte, prefix []byte, f rmFlags) error {
	return a.pageAt(ctx, cmd, text, reads, f.Parent, func(page *ledger.Page, snap *ledger.Snapshot) error {
		n, err := a.countRemoved(ctx, page, snap, keys, prefix, f.Force)
		if err != nil {
			return err
		}
		a.print(object{"page", pageText(page), "keys", n, "dryRun", true}, "%s: %s would be removed; the history keeps what is removed\n", pageText(page), countText(n, "key"))
		return nil
	})
}

// countRemoved counts the keys that rm would remove: those that are named, or those with a prefix.
func (a *app) countRemoved(ctx context.Context, page *ledger.Page, snap *ledger.Snapshot, keys [][]byte, prefix []byte, force bool) (n int, err error) {
	for _, key := range keys {
		switch _, err := snap.Stat(ctx, key); {
		case err == nil:
			n++
		case !errors.Is(err, ledger.ErrNotFound):
			return n, fmt.Errorf("look for key %s: %w", a.shortKey(key), err)
		case !force:
			return n, a.rmAbsent(page, key)
		}
	}
	if len(keys) > 0 {
		return n, nil
	}
	for _, err := range filetree.List(ctx, snap, filetree.ListOptions{Prefix: prefix, KeysOnly: true}) {
		if err != nil {
			return n, fmt.Errorf("list keys: %w", err)
		}
		n++
	}
	return n, nil
}

func (a *app) rmText(keys [][]byte, f rmFlags) string {
	switch {
	case f.All:
		return "all keys"
	case f.hasPrefix:
		return "all keys that begin with " + quoted(f.Prefix)
	case len(keys) == 1:
		return a.shortKey(keys[0])
	}
	return countText(len(keys), "key")
}

func (a *app) rmKeys(ctx context.Context, page *ledger.Page, tx *ledger.Tx, keys [][]byte, force bool) error {
	for _, key := range keys {
		removed, err := filetree.Remove(ctx, tx, key)
		if err != nil {
			return fmt.Errorf("remove %s: %w", a.shortKey(key), err)
		}
		if !removed && !force {
			return a.rmAbsent(page, key)
		}
	}
	return nil
}

func (a *app) rmAbsent(page *ledger.Page, key []byte) error {
	return withHint(classedf(ledger.ErrNotFound, "remove %s: page %s has no such key, nothing was removed", a.shortKey(key), pageText(page)),
		"--force passes over keys that are not there")
}
