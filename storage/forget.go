package storage

import (
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// PlacedIn returns, in any order, the pieces whose place in selects. It reads all cloud rows: it
// folds first and may take long. in must not call the page. Errors match base.ErrCorrupt or
// base.ErrClosed, or are those of the disk or of ctx.
func (s *Store) PlacedIn(ctx context.Context, in func(CloudPlace) bool) ([]PlacedPiece, error) {
	var out []PlacedPiece
	err := s.eachRow(ctx, bucketCloud, func(tx index.Tx, k, v []byte) error {
		p, err := readCloudRowAt(tx, k, v)
		if err == nil && in(p.Place) {
			out = append(out, p)
		}
		return err
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("look for pieces in the bucket: %w", err)
	}
	return out, nil
}

// LocalPieces calls fn for each local piece of a value: it is held, it is not in the bucket, and
// something refers to it. Without MetadataPlaced, a commit whose tree is not here may refer to any
// piece. It folds first. fn may call the page; its error ends LocalPieces and is returned. Other
// errors match base.ErrCorrupt or base.ErrClosed, or are those of the disk or of ctx.
func (s *Store) LocalPieces(ctx context.Context, fn func(object.Digest) error) error {
	return s.eachPiece(ctx, bucketLocal, func(tx index.Tx, k, _ []byte) (object.Digest, bool, error) {
		d, err := keyDigest(tx, bucketLocal, k)
		if err != nil {
			return d, false, err
		}
		row, _, err := readObjectRow(tx, &d)
		all := !hasTrees(tx) && !hasKey(tx.Bucket(bucketMetadata), []byte(MetadataPlaced))
		return d, row.held && (all || referred(tx, row.number)), err
	}, fn)
}

// ForgetCloud prepares the page for another bucket. It makes everything local and unsynced again,
// and then removes all metadata of sync except MetadataRetention and types that begin with
// MetadataGivenUp. Pieces that are not held lose their place; while there are such pieces,
// MetadataLacks and MetadataAdopted are set. Treeless commits stay treeless and become unsynced
// too. With keep it is refused with base.ErrNeedsFetch while OnlyInCloud returns a piece. It writes
// batches of some hundred pieces or commits, and returns when they are durable.
// After an error or a crash some are written, but not the removal of metadata: call it again. Sync
// must not run meanwhile. Other errors match base.ErrClosed or base.ErrReadOnly, or are those of
// the disk or of ctx.
func (s *Store) ForgetCloud(ctx context.Context, keep bool) (err error) {
	s.drops.Lock() // a piece that is dropped meanwhile would be lost
	defer s.drops.Unlock()
	if err = s.writable(); err == nil && keep {
		err = s.allHere(ctx)
	}
	if err == nil { // first: a reader between two batches has the piece searched for
		err = s.submitOps(ctx, []op{metadataOp(MetadataLacks, []byte{1}), metadataOp(MetadataAdopted, []byte{1})}, submission{})
	}
	if err == nil {
		err = s.unplaceAll(ctx)
	}
	if err == nil {
		err = s.unsyncAll(ctx)
	}
	if err != nil {
		return fmt.Errorf("forget the bucket: %w", err)
	}
	return nil
}

// allHere returns an error that matches base.ErrNeedsFetch when pieces are in the bucket only.
func (s *Store) allHere(ctx context.Context) error {
	only, err := s.OnlyInCloud(ctx)
	if err == nil && len(only) > 0 {
		err = fmt.Errorf("piece %s is in the bucket only: %w", only[0].Short(), base.ErrNeedsFetch)
	}
	return err
}

// unplaceAll removes the places of all pieces.
func (s *Store) unplaceAll(ctx context.Context) error {
	var some []object.Digest
	return s.eachRow(ctx, bucketCloud, func(tx index.Tx, k, _ []byte) error {
		d, err := keyDigest(tx, bucketCloud, k)
		some = append(some, d)
		return err
	}, func() error {
		ops := digestOps(nil, recUnplaced, some)
		some = nil
		return s.submitOps(ctx, ops, submission{})
	})
}

// unsyncAll makes all commits and tags unsynced, and removes the metadata of sync last.
func (s *Store) unsyncAll(ctx context.Context) error {
	var ids []commit.ID
	err := s.eachRow(ctx, bucketCommits, func(tx index.Tx, k, _ []byte) error {
		if len(k) != commit.IDSize {
			return badRow(bucketCommits, hex.EncodeToString(k), "bad key")
		}
		if !hasKey(tx.Bucket(bucketUnsynced), k) {
			ids = append(ids, commit.ID(k))
		}
		return nil
	}, func() error {
		ops := statusOps(nil, statusUnsynced, ids)
		ids = nil
		return s.submitOps(ctx, ops, submission{})
	})
	if err != nil {
		return err
	}
	tags, err := s.Tags(ctx)
	if err != nil {
		return err
	}
	var last []op
	for _, name := range slices.Sorted(maps.Keys(tags)) {
		last = append(last, op{kind: recTag, tag: &TagChange{Name: name, Commit: tags[name]}})
	}
	lacks := false
	if err := s.MissingPieces(ctx, func(object.Digest) error { lacks = true; return nil }); err != nil {
		return err
	}
	err = s.eachRow(ctx, bucketMetadata, func(_ index.Tx, k, _ []byte) error {
		typ := string(k)
		if !staysForgotten(typ) && !(lacks && (typ == MetadataLacks || typ == MetadataAdopted)) {
			last = append(last, metadataOp(typ, nil))
		}
		return nil
	}, nil)
	if err != nil {
		return err
	}
	return s.submitOps(ctx, last, submission{news: true})
}

// OnlyInCloud returns, in any order, the pieces that the bucket has and the page does not hold.
// Those to which nothing refers do not count, unless a commit is treeless, whose references are
// unknown. It folds first, and reads all cloud rows. Errors match base.ErrCorrupt or
// base.ErrClosed, or are those of the disk or of ctx.
func (s *Store) OnlyInCloud(ctx context.Context) (only []object.Digest, err error) {
	err = s.eachPiece(ctx, bucketCloud, func(tx index.Tx, k, _ []byte) (object.Digest, bool, error) {
		d, err := keyDigest(tx, bucketCloud, k)
		if err != nil {
			return d, false, err
		}
		row, _, err := readObjectRow(tx, &d)
		return d, !row.held && (!hasTrees(tx) || referred(tx, row.number)), err
	}, func(d object.Digest) error {
		only = append(only, d)
		return nil
	})
	return only, err
}

// metadataOp returns the operation that writes a row of sync_metadata, or removes it if value is
// nil.
func metadataOp(typ string, value []byte) op {
	return op{kind: recMetadata, sync: &syncOp{meta: Metadata{typ, value}}}
}
