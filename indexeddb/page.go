package indexeddb

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/ordered"
)

// PageSchema reads the metadata of a page. report is as in Schema.Finish. A page without rows of
// IndexedDB has a Schema of zeros. Errors: base.ErrCorrupt, base.ErrUnsupported, those of r and
// ctx.
func PageSchema(ctx context.Context, r ordered.Reader, report func(error) error) (*Schema, error) {
	s := &Schema{}
	if err := s.AddPage(ctx, r, Row{Kind: KindGlobal}, report); err != nil {
		return nil, err
	}
	for _, d := range s.Databases {
		if err := s.AddPage(ctx, r, Row{Kind: KindDatabase, Database: d.ID}, report); err != nil {
			return nil, err
		}
	}
	return s, s.Finish(report)
}

// AddPage adds one family of metadata rows of a page. Callers add the rows of all databases before
// those of one. report gets each damage; an error that it returns stops the reading. Errors: those
// of report, r and ctx.
func (s *Schema) AddPage(ctx context.Context, r ordered.Reader, family Row, report func(error) error) error {
	for row, err := range ordered.Rows(ctx, r, ordered.Prefix(PageFamily(family))) {
		if err != nil {
			return fmt.Errorf("read %s: %w", family.Describe(), err)
		}
		decoded, value, err := DecodePageRow(row.Key, row.Value)
		if err == nil {
			err = s.Add(decoded, value)
		}
		if err != nil {
			if err := report(err); err != nil {
				return err
			}
		}
	}
	return nil
}

// PageObjects returns the external objects in the page row with the given key, and none when there
// is no such row. Errors: base.ErrCorrupt, those of r and ctx.
func PageObjects(ctx context.Context, r ordered.Reader, key []byte) ([]ExternalObject, error) {
	pageValue, err := r.Get(ctx, key)
	if errors.Is(err, base.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	_, value, err := DecodePageRow(key, pageValue)
	if err != nil {
		return nil, err
	}
	return DecodeExternalObjects(value, MaxSchemaVersion)
}
