package storage

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage/index"
)

// MetadataLacks is the type of the metadata row that says that values of the page may have missing
// pieces. Without it, and without MetadataAdopted, an unrecorded piece is first looked for in the
// page's log, by rebuilding the index.
const MetadataLacks = "lacks"

// MetadataAdopted is the type of the metadata row that exists, with the value 1, while the bucket's
// log may record places of pieces that the page lacks: the page began with a checkpoint, for
// example.
const MetadataAdopted = "adopted"

// MetadataPlaced is the type of the metadata row that says that all pieces which commits of the log
// need have a place, or are listed as missing, with or without their trees. A local piece without a
// reference in the page is then garbage.
const MetadataPlaced = "sent"

// Types of the metadata rows that ForgetCloud leaves, since they do not describe a bucket.
// MetadataRetention holds a user's setting; types that begin with MetadataGivenUp list the commits
// given up on this device.
const (
	MetadataRetention = "retention"
	MetadataGivenUp   = "givenup"
)

// MetadataErasing is the type of a metadata row that exists while a value is erased from the page's
// history. A page without a bucket may have it, and does not sync because of it.
const MetadataErasing = "erasing"

// staysForgotten reports whether ForgetCloud leaves the row of a type.
func staysForgotten(typ string) bool {
	return typ == MetadataRetention || strings.HasPrefix(typ, MetadataGivenUp)
}

// Metadata is a row sync_metadata/{Type}. A nil Value removes it.
type Metadata struct {
	Type  string
	Value []byte
}

// Metadata returns the value of a row of sync_metadata, durable or submitted, nil when there is
// none. The caller owns the slice. Errors match base.ErrCorrupt or base.ErrClosed.
func (s *Store) Metadata(_ context.Context, typ string) (value []byte, err error) {
	wanted := func(o *op) bool { return o.kind == recMetadata && o.sync.meta.Type == typ }
	err = s.viewPending(true, wanted, func(tx index.Tx, pending []pendingOp) error {
		value = nil
		found := len(pending) > 0
		if found {
			value = bytes.Clone(pending[len(pending)-1].sync.meta.Value)
		}
		v := tx.Bucket(bucketMetadata).Get([]byte(typ))
		if found || v == nil {
			return nil
		}
		b, err := parseMetadataRow(typ, v)
		value = append([]byte{}, b...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read metadata %q: %w", typ, err)
	}
	return value, nil
}

func checkMetadata(typ string, value []byte) error {
	if typ == "" || len(typ) > maxMetadataTypeBytes {
		return fmt.Errorf("metadata whose type has %d bytes: %w", len(typ), base.ErrInvalid)
	}
	if len(value) > maxMetadataBytes {
		return fmt.Errorf("metadata %q of %d bytes, limit %d: %w", typ, len(value), maxMetadataBytes, base.ErrTooLarge)
	}
	return nil
}

// metadataRow is the value of a row of bucket sync_metadata.
func metadataRow(typ string, value []byte) []byte { return withSum([]byte(typ), bytes.Clone(value)) }

func parseMetadataRow(typ string, v []byte) ([]byte, error) {
	b, ok := cutSum([]byte(typ), v)
	if !ok {
		return nil, badRow(bucketMetadata, typ, "bad checksum")
	}
	return b, nil
}
