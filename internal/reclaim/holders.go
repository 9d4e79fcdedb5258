package reclaim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// Holders returns the commits with an entry of key other than the heads', or with a lost tree, and
// the digests of their values. tree returns the tree of a commit, whose missing parts are fetched.
// Errors: base.ErrConflict for a tagged commit, those of the store, of trees and of ctx.
func Holders(ctx context.Context, store *storage.Store, tree func(*commit.Commit) btree.Tree, key []byte) (ids []commit.ID, values []object.Digest, err error) {
	heads := store.Heads()
	same := func(t btree.Tree, has bool, value []byte, d object.Digest) (bool, error) {
		e, ok, err := t.Get(ctx, key)
		return err == nil && ok == has && (!ok || e.Digest == d && string(e.Value) == string(value)), err
	}
	isHead := map[commit.ID]bool{commit.First().ID: true}
	for _, h := range heads {
		isHead[h.ID] = true
	}
	all, err := store.FindCommits(ctx, nil, false, math.MaxInt)
	if err != nil {
		return nil, nil, err
	}
	for _, id := range all {
		if isHead[id] {
			continue
		}
		c, err := store.Commit(ctx, id)
		if err == nil {
			err = store.WaitDurable(c)
		}
		if err != nil {
			return nil, nil, err
		}
		e, has, err := tree(c).Get(ctx, key)
		switch {
		case errors.Is(err, base.ErrGone): // its content is lost everywhere
			ids = append(ids, id)
			continue
		case err != nil:
			return nil, nil, err
		case !has:
			continue
		}
		now := true
		for _, h := range heads {
			is, err := same(tree(h), has, e.Value, e.Digest)
			if err != nil {
				return nil, nil, err
			}
			now = now && is
		}
		if now {
			continue
		}
		if ids = append(ids, id); !e.Inline && !slices.Contains(values, e.Digest) {
			values = append(values, e.Digest)
		}
	}
	tags, err := store.Tags(ctx)
	if err != nil {
		return nil, nil, err
	}
	for name, id := range tags {
		if slices.Contains(ids, id) {
			return nil, nil, fmt.Errorf("tag %q keeps commit %s, in which the key has what is to be erased: %w", name, id.Short(), base.ErrConflict)
		}
	}
	return ids, values, nil
}
