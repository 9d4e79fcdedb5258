package storage

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// A piece of a value is missing when something refers to it, the page does not hold it, and the
// bucket is not known to have it. That is no damage: a bucket was lost, and the device that had the
// piece has not sent it again, or there is none. The index says so by a row of the object without
// content, with no row of its place.

// notSent returns the error of who reads a piece that is missing.
func notSent(d *object.Digest) error {
	return fmt.Errorf("read piece %s, which is not here and which nobody has sent to the bucket: %w", d.Short(), base.ErrGone)
}

// isMissing reports whether a piece is missing in a page that is known to lack some, or not to know
// the places of all. With fold, it lets the index reflect the log first if there is no row of the
// piece.
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

// hasMissingRowFolded is hasMissingRow that lets the index reflect the log first if there is no row
// of the piece: what refers to it may have come just now, as with a tree that is built of an old
// commit.
func (s *Store) hasMissingRowFolded(d *object.Digest) (bool, error) {
	known, err := s.hasMissingRow(d)
	if err != nil || known || !s.foldable() {
		return known, err
	}
	if rows, _ := s.over.pending(); rows == 0 {
		return false, nil
	}
	if err := s.Fold(context.Background()); err != nil { // as for an index that is made anew, which waits for the same turn
		return false, err
	}
	return s.hasMissingRow(d)
}

// hasMissingRow reports whether the index knows of a piece that something refers to, that is not
// held, and that has no place.
func (s *Store) hasMissingRow(d *object.Digest) (known bool, err error) {
	if d.Kind().IsNode() {
		return false, nil
	}
	err = s.view(func(tx index.Tx) error {
		row, ok, err := readObjectRow(tx, d)
		known = err == nil && ok && isMissingRow(tx, d, &row)
		return err
	})
	return known, err
}

// MissingPieces calls fn for each piece of a value that something refers to, that is not held, and
// that the bucket is not known to have. What is listed by index pieces that are missing themselves
// is not among them. They are readable again when a device has sent them (a place arrives), or when
// they are put again. It folds first, and holds some of them at a time. fn may call the page; its
// error ends MissingPieces and is returned. Other errors match base.ErrCorrupt or base.ErrClosed,
// or are those of the disk or of ctx.
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

// isMissingRow reports whether the row of a piece says that it is missing.
func isMissingRow(tx index.Tx, d *object.Digest, row *objectRow) bool {
	return !d.Kind().IsNode() && !row.held && !hasKey(tx.Bucket(bucketCloud), appendNumber(nil, row.number)) && referred(tx, row.number)
}

// isMissingPiece reports whether an error is about a piece that is not here.
func isMissingPiece(err error) bool {
	c, ok := errors.AsType[*base.CorruptError](err)
	return ok && c.Where == "object" && c.Got == gotMissing
}

// gotMissing is what errors about pieces say that are not here and should be.
const gotMissing = "the piece is missing"

func missing(d *object.Digest) error {
	return &base.CorruptError{Where: "object", Key: d.String(), Got: gotMissing}
}

func needsFetch(d *object.Digest) error {
	return fmt.Errorf("read piece %s, which is in the bucket only: %w", d.Short(), base.ErrNeedsFetch)
}
