package pages

import (
	"bytes"
	"context"

	"github.com/ledgerd/ledger"
)

// Differ reports whether two entries of a key differ; nil is a key without a value. It reads inline
// values only: long values are equal when they are the same object. Errors: those of Entry.Value.
func Differ(ctx context.Context, a, b *ledger.Entry) (bool, error) {
	switch {
	case a == nil || b == nil:
		return a != b, nil
	case a.Size != b.Size || a.Object != b.Object:
		return true, nil
	case !a.Inline:
		return false, nil
	}
	x, err := a.Value(ctx)
	if err != nil {
		return false, err
	}
	y, err := b.Value(ctx)
	return !bytes.Equal(x, y), err
}
