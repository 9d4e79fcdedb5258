package indexeddb

import (
	"context"
	"fmt"

	"github.com/ledgerd/ledger/ordered"
)

// PageSchema reads the metadata of a page. report is that of Schema.Finish. A page without rows of
// IndexedDB has a Schema of zeros. Errors: base.ErrCorrupt, base.ErrUnsupported, those of r and
// ctx.
func PageSchema(ctx context.Context, r ordered.Reader, report func(error) error) (*Schema, error) {
	s := &Schema{}
	if err := addRows(ctx, r, s, Row{Kind: KindGlobal}, report); err != nil {
		return nil, err
	}
	for _, d := range s.Databases {
		if err := addRows(ctx, r, s, Row{Kind: KindDatabase, Database: d.ID}, report); err != nil {
			return nil, err
		}
	}
	return s, s.Finish(report)
}

// addRows adds the rows of a family to the schema.
func addRows(ctx context.Context, r ordered.Reader, s *Schema, family Row, report func(error) error) error {
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
