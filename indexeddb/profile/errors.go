package profile

import (
	"errors"

	ldberrors "github.com/syndtr/goleveldb/leveldb/errors"
	"github.com/syndtr/goleveldb/leveldb/storage"
)

// isCorrupted reports whether an error of goleveldb means damaged bytes.
func isCorrupted(err error) bool {
	if ldberrors.IsCorrupted(err) {
		return true
	}
	var corrupted *storage.ErrCorrupted
	var table *ldberrors.ErrCorrupted
	return errors.As(err, &corrupted) || errors.As(err, &table)
}
