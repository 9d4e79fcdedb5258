package ledger

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// leaveOthers has every page forget what it knows of other buckets than id, after it has fetched
// what is only there. The caller has the cloud's turn. A crash in between leaves pages that have
// forgotten a cloud which is still set: they join it again.
func (r *Repository) leaveOthers(ctx context.Context, id format.ID) error {
	if err := r.bringBackOthers(ctx, id); err != nil {
		return err
	}
	keys, err := r.disk.Pages()
	if err != nil {
		return err
	}
	var foreign []pageKey
	for _, k := range keys {
		err := r.visit(ctx, k, func(ctx context.Context, p *Page) error {
			other, err := p.shared.knowsOther(ctx, id)
			if err != nil || !other {
				return err
			}
			foreign = append(foreign, k)
			return p.fetchEverything(ctx)
		})
		if err != nil {
			return fmt.Errorf("leave the former cloud of page %s: %w", r.usage.Text(k), err)
		}
	}
	if len(foreign) == 0 {
		return nil
	}
	if err := r.disconnect(); err != nil {
		return err
	}
	for _, k := range foreign {
		if err := r.visit(ctx, k, func(ctx context.Context, p *Page) error { return p.store.ForgetCloud(ctx, true) }); err != nil {
			return fmt.Errorf("forget the former cloud of page %s: %w", r.usage.Text(k), err)
		}
	}
	return nil
}

// knowsOther reports whether the page has been synced with another bucket than id.
func (s *pageStore) knowsOther(ctx context.Context, id format.ID) (bool, error) {
	at, err := cloudsync.StandingOf(ctx, s.store)
	if err != nil || !at.At.Joined() {
		return false, err
	}
	return format.ID(at.Bucket) != id, nil
}

// fetchEverything brings here what the page has in its cloud only: trees of older commits and
// pieces of values. What nobody has any more does not keep it. The caller has the cloud's turn. The
// error matches ErrNeedsFetch when the cloud is not the one that has them.
func (p *Page) fetchEverything(ctx context.Context) error {
	trees, err := p.treeless(ctx)
	if err != nil {
		return err
	}
	pieces, err := p.onlyInCloud(ctx)
	if err != nil || len(trees)+len(pieces) == 0 {
		return err
	}
	synced, err := p.shared.syncedInTurn(ctx)
	if err != nil {
		return fmt.Errorf("%d older versions and %d pieces of values are in the former cloud only, which cannot be reached: %w: %w", len(trees), len(pieces), ErrNeedsFetch, err)
	}
	if len(trees) > 0 {
		err := synced.BuildTrees(ctx, trees)
		if errors.Is(err, ErrGone) {
			p.ledger.repo.o.Logger.Warn("older versions are gone in the former cloud", "ledger", p.ledger.name, "page", PageID(p.shared.key.ID).String(), "error", err)
		} else if err != nil {
			return fmt.Errorf("fetch the trees of %d commits: %w", len(trees), err)
		}
		if pieces, err = p.onlyInCloud(ctx); err != nil { // with the trees it became known where their values are
			return err
		}
	}
	for part := range slices.Chunk(pieces, fetchWindow) {
		if _, err := synced.Fetch(ctx, part); err != nil {
			return fmt.Errorf("fetch %d pieces of values: %w", len(pieces), err)
		}
	}
	return nil
}

// treeless returns the commits whose trees are not here.
func (p *Page) treeless(ctx context.Context) (ids []commit.ID, err error) {
	var heads []commit.ID
	for _, h := range p.store.Heads() {
		heads = append(heads, h.ID)
	}
	for c, err := range commit.Walk(ctx, storedCommits{p}, heads) {
		if err != nil {
			return nil, err
		}
		held, err := p.store.TreeHeld(ctx, c)
		if err != nil {
			return nil, err
		}
		if !held {
			ids = append(ids, c.ID)
		}
	}
	return ids, nil
}

// onlyInCloud returns the pieces that are in the cloud and not here.
func (p *Page) onlyInCloud(ctx context.Context) (pieces []object.Digest, err error) {
	placed, err := p.store.PlacedIn(ctx, func(storage.CloudPlace) bool { return true })
	if err != nil {
		return nil, err
	}
	for _, piece := range placed {
		st, err := p.store.PieceState(piece.Digest)
		if err != nil {
			return nil, err
		}
		if !st.Held {
			pieces = append(pieces, piece.Digest)
		}
	}
	return pieces, nil
}

// readObject returns a whole object of at most limit bytes.
func readObject(ctx context.Context, b bucket.Bucket, name string, limit int64) ([]byte, error) {
	o, err := b.Get(ctx, name, 0, -1)
	if err != nil {
		return nil, err
	}
	defer o.Body.Close() // only read: nothing is lost when it fails
	if o.Size > limit {
		return nil, &base.CorruptError{Where: "object " + name, Got: fmt.Sprintf("%d bytes, limit %d", o.Size, limit)}
	}
	return io.ReadAll(io.LimitReader(o.Body, limit+1))
}

// keyID returns digits that tell a key from others.
func keyID(m seal.MasterKey) (string, error) {
	text, err := seal.FormatKeyFile(m)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append([]byte("ledger key id\x00"), text.Expose()...))
	return hex.EncodeToString(sum[:8]), nil
}
