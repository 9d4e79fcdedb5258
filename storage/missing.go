package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// A piece of a value is missing when something refers to it, the page does not hold it, and no
// place in the bucket is recorded. That is no damage: a bucket was lost, and no device has sent the
// piece again. The index records it as a row of the object without content, with no row of its
// place.

// notSent returns the error for reading a missing piece.
func notSent(d *object.Digest) error {
	return fmt.Errorf("read piece %s, which no device has sent to the bucket: %w", d.Short(), base.ErrGone)
}

// isMissing reports whether a piece is missing in a page that is marked as lacking pieces or
// places. With fold it folds first if the piece has no row.
func (s *Store) isMissing(d *object.Digest, fold bool) (bool, error) {
	for _, typ := range []string{MetadataLacks, MetadataAdopted} {
		v, err := s.Metadata(context.Background(), typ)
		switch {
		case err != nil:
			return false, err
		case v != nil && fold:
			return s.hasMissingRowFolded(d)
		case v != nil:
			return s.hasMissingRow(d)
		}
	}
	return false, nil
}

// hasMissingRowFolded is hasMissingRow that folds first if the piece has no row: the reference to
// it may be recent, as with a tree that is built of an old commit.
func (s *Store) hasMissingRowFolded(d *object.Digest) (bool, error) {
	known, err := s.hasMissingRow(d)
	if err != nil || known || !s.foldable() {
		return known, err
	}
	if rows, _ := s.over.pending(); rows == 0 {
		return false, nil
	}
	if err := s.Fold(context.Background()); err != nil { // as for a rebuild of the index, which waits for the same turn
		return false, err
	}
	return s.hasMissingRow(d)
}

// hasMissingRow reports whether the index has a piece with a reference that is neither held nor
// placed.
func (s *Store) hasMissingRow(d *object.Digest) (known bool, err error) {
	err = s.view(func(tx index.Tx) error {
		row, ok, err := readObjectRow(tx, d)
		known = err == nil && ok && isMissingRow(tx, d, &row)
		return err
	})
	return known, err
}

// MissingPieces calls fn for each piece of a value that something refers to, that is not held, and
// that has no recorded place in the bucket. It does not find the children of index pieces that are
// themselves missing. Missing pieces become readable when a device has sent them (a place is
// received), or when they are put again. It folds first, and holds some pieces at a time. fn may
// call the page; its error ends MissingPieces and is returned. Other errors match base.ErrCorrupt
// or base.ErrClosed, or are those of the disk or of ctx.
func (s *Store) MissingPieces(ctx context.Context, fn func(object.Digest) error) error {
	return s.eachPiece(ctx, bucketObjects, func(tx index.Tx, k, v []byte) (object.Digest, bool, error) {
		d, ok := digestOf(k)
		if !ok {
			return d, false, badRow(bucketObjects, fmt.Sprintf("%x", k), "bad key")
		}
		row, ok := parseObjectRow(v)
		if !ok {
			return d, false, badRow(bucketObjects, d.String(), "bad value")
		}
		return d, isMissingRow(tx, &d, &row), nil
	}, fn)
}

// isMissingRow reports whether the row of a piece marks it as missing.
func isMissingRow(tx index.Tx, d *object.Digest, row *objectRow) bool {
	return !d.Kind().IsNode() && !row.held && !isPlaced(tx, d, row.number) && referred(tx, row.number)
}

// isPlaced reports whether the bucket has a piece.
func isPlaced(tx index.Tx, d *object.Digest, number uint64) bool {
	return !d.Kind().IsNode() && hasKey(tx.Bucket(bucketCloud), appendNumber(nil, number))
}

// isMissingPiece reports whether an error is about an absent piece.
func isMissingPiece(err error) bool {
	c, ok := errors.AsType[*base.CorruptError](err)
	return ok && c.Where == "object" && c.Got == gotMissing
}

// gotMissing is the text of errors about absent pieces that should be there.
const gotMissing = "the piece is missing"

func missing(d *object.Digest) error {
	return &base.CorruptError{Where: "object", Key: d.String(), Got: gotMissing}
}

func needsFetch(d *object.Digest) error {
	return fmt.Errorf("read piece %s, which is in the bucket only: %w", d.Short(), base.ErrNeedsFetch)
}
