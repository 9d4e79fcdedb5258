package ledger

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
)

// CompressionOptions say what goes to a cloud without compression. Lengths in the bucket then
// depend on the lengths of keys and values alone, and not on how well they compress, which says
// something about their content. The zero value lets everything be compressed.
type CompressionOptions struct {
	// Off returns the prefixes of the keys of a page that must not be compressed: an empty prefix
	// stands for the whole page, none for nothing. A commit that changes such a key goes up without
	// compression as a whole, and so does what has all keys of the page: checkpoints, and
	// differences that are objects of their own. It is asked whenever a page begins to sync, and
	// must return soon. What is in the bucket already stays as it is. Each device goes by its own
	// options.
	Off func(ledger string, page PageID) (prefixes [][]byte)
}

// UncompressedKeys are keys of a page that are not compressed, as CompressionOptions.Off says them.
type UncompressedKeys struct {
	Page PageRef
	// Prefix is what the keys begin with; empty: all keys of the page.
	Prefix []byte
}

// Uncompressed returns what SetUncompressed has set. The slices are the caller's.
func (r *Repository) Uncompressed() []UncompressedKeys {
	file, _ := r.cloud.get()
	if file == nil {
		return nil
	}
	return cloneUncompressed(file.plain)
}

// SetUncompressed sets which keys go to the cloud without compression, beside those that
// Options.Compression has, in place of what was set before. It is remembered on this device, as
// long as it has a cloud, also another one; each device has its own. Open pages go by it at once.
// What is in the bucket stays as it is. all is not retained. It waits until a sync of open pages
// has ended.
//
// Errors: ErrNoCloud, ErrInvalid for the name of a ledger, ErrTooLarge for a prefix of more than
// 65,535 bytes or more than 65,536 of them, ErrReadOnly, ErrClosed, those of the file system and of
// ctx.
func (r *Repository) SetUncompressed(ctx context.Context, all []UncompressedKeys) error {
	err := r.inCloudTurn(ctx, func(ctx context.Context) error {
		for _, k := range all {
			if err := ValidateName(k.Page.Ledger); err != nil {
				return err
			}
			if len(k.Prefix) > math.MaxUint16 || len(all) > maxPlainKeys {
				return fmt.Errorf("a prefix of %d bytes, one of %d: %w", len(k.Prefix), len(all), ErrTooLarge)
			}
		}
		err := r.changeCloudFile(func(f *cloudFile) error {
			f.plain = cloneUncompressed(all)
			return nil
		})
		if err != nil {
			return err
		}
		for _, s := range r.openStores() {
			if err := s.detach(); err != nil {
				return err
			}
		}
		return r.attachAll(ctx, false)
	})
	if err != nil {
		return fmt.Errorf("set what is not compressed: %w", err)
	}
	return nil
}

func cloneUncompressed(all []UncompressedKeys) []UncompressedKeys {
	all = slices.Clone(all)
	for i := range all {
		all[i].Prefix = bytes.Clone(all[i].Prefix)
	}
	return all
}

// plainKeys returns whether a key of a page must not be compressed; nil: none.
func (r *Repository) plainKeys(k pageKey) func(key []byte) bool {
	var prefixes [][]byte
	if off := r.o.Compression.Off; off != nil {
		for _, p := range off(k.Ledger, k.ID) {
			prefixes = append(prefixes, bytes.Clone(p))
		}
	}
	for _, u := range r.Uncompressed() {
		if u.Page.Ledger == k.Ledger && u.Page.ID == k.ID {
			prefixes = append(prefixes, u.Prefix)
		}
	}
	if len(prefixes) == 0 {
		return nil
	}
	return func(key []byte) bool {
		return slices.ContainsFunc(prefixes, func(p []byte) bool { return bytes.HasPrefix(key, p) })
	}
}
