package filetree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/base"
)

// Item is a file of a page: the entry with its content and, when it was imported, its attributes.
type Item struct {
	// Entry has the content; its Key is the path.
	Entry ledger.Entry
	// Attributes are nil for an entry that was not imported.
	Attributes *Attributes
	// Problem is why the stored attributes cannot be read; Attributes are nil then.
	Problem error
}

// ListOptions select the listed items and their order. The zero value means all, in the order of
// keys.
type ListOptions struct {
	// Prefix selects the keys that begin with it.
	Prefix []byte
	// Reverse lists from the last key to the first.
	Reverse bool
	// Limit is the greatest number of items; 0 means no limit.
	Limit int
	// KeysOnly leaves attributes and inline values unread.
	KeysOnly bool
}

// List lists the entries of a snapshot, each with its attributes; attributes entries are not listed
// separately. An error ends the sequence, as the last element and without an item.
func List(ctx context.Context, snap *ledger.Snapshot, o ListOptions) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		n := 0
		for _, part := range withoutAttributes(o) {
			for entry, err := range snap.Scan(ctx, part) {
				if err != nil {
					yield(Item{}, err)
					return
				}
				item := Item{Entry: entry}
				if !o.KeysOnly {
					err = item.addAttributes(ctx, snap)
				}
				if err != nil {
					yield(Item{}, err)
					return
				}
				if n++; !yield(item, nil) || n == o.Limit {
					return
				}
			}
		}
	}
}

// withoutAttributes returns the scans for o without attributes entries, in order.
func withoutAttributes(o ListOptions) []ledger.ScanOptions {
	parts := make([]ledger.ScanOptions, 2)
	for i := range parts {
		parts[i] = ledger.ScanOptions{Prefix: o.Prefix, Reverse: o.Reverse, KeysOnly: o.KeysOnly}
	}
	parts[0].End, parts[1].Start = []byte(attributesPrefix), []byte(attributesEnd)
	if o.Reverse {
		slices.Reverse(parts)
	}
	return parts
}

// attributesIn returns the attributes of an entry, nil when there are none, and why they cannot be
// decoded. The empty key is not a file: its attributes entry describes the imported directory.
func attributesIn(ctx context.Context, r ledger.Reader, path []byte) (a *Attributes, problem, err error) {
	if len(path) == 0 {
		return nil, nil, nil
	}
	return attributesUnder(ctx, r, path)
}

// attributesUnder returns the attributes stored for path, even if path has no entry.
func attributesUnder(ctx context.Context, r ledger.Reader, path []byte) (a *Attributes, problem, err error) {
	if len(path) > maxPathBytes {
		return nil, nil, nil
	}
	entry, err := r.Stat(ctx, AttributesKey(path))
	if errors.Is(err, ledger.ErrNotFound) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return attributesOfEntry(ctx, entry)
}

// attributesOfEntry decodes the value of an attributes entry.
func attributesOfEntry(ctx context.Context, entry ledger.Entry) (a *Attributes, problem, err error) {
	if entry.Size > 2*attributesSize { // do not read a value of any length
		return nil, corruptAttributes(fmt.Sprintf("%d bytes", attributesSize), fmt.Sprintf("%d bytes", entry.Size)), nil
	}
	value, err := entry.Value(ctx)
	if err != nil {
		return nil, nil, err
	}
	decoded, problem := DecodeAttributes(value)
	if problem != nil {
		return nil, problem, nil
	}
	return &decoded, nil, nil
}

// Stat returns the item at path. Errors: ledger.ErrNotFound when there is no entry.
func Stat(ctx context.Context, snap *ledger.Snapshot, path []byte) (Item, error) {
	entry, err := snap.Stat(ctx, path)
	if err != nil {
		return Item{}, err
	}
	item := Item{Entry: entry}
	err = item.addAttributes(ctx, snap)
	return item, err
}

// addAttributes reads the attributes of an entry.
func (i *Item) addAttributes(ctx context.Context, snap *ledger.Snapshot) (err error) {
	i.Attributes, i.Problem, err = attributesIn(ctx, snap.Reader, i.Entry.Key)
	return err
}

// Touch marks the attributes of path, when it has any, as those of a file written at now. An import
// then sees a difference, and an export makes a file. The mode of a file stays.
func Touch(ctx context.Context, tx *ledger.Tx, path []byte, now time.Time) error {
	a, problem, err := attributesIn(ctx, tx.Reader, path)
	if err != nil || a == nil && problem == nil {
		return err
	}
	if a == nil || a.Type != File {
		a = &Attributes{Type: File, Mode: defaultMode}
	}
	a.ModTime = now
	return tx.Put(ctx, AttributesKey(path), a.Encode())
}

// Remove deletes path with its attributes. It reports whether there was such an entry.
func Remove(ctx context.Context, tx *ledger.Tx, path []byte) (bool, error) {
	_, err := tx.Stat(ctx, path)
	if errors.Is(err, ledger.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, removeFile(ctx, tx, path)
}

// RemovePrefix deletes every entry whose key begins with prefix, with its attributes. An empty
// prefix deletes everything.
func RemovePrefix(ctx context.Context, tx *ledger.Tx, prefix []byte) error {
	if len(prefix) == 0 {
		return tx.DeleteRange(ctx, nil, nil)
	}
	if err := tx.DeleteRange(ctx, prefix, base.PrefixEnd(prefix)); err != nil {
		return err
	}
	key := AttributesKey(prefix)
	return tx.DeleteRange(ctx, key, base.PrefixEnd(key))
}

func removeFile(ctx context.Context, tx *ledger.Tx, path []byte) error {
	if err := tx.Delete(ctx, path); err != nil {
		return err
	}
	if len(path) > maxPathBytes {
		return nil
	}
	return tx.Delete(ctx, AttributesKey(path))
}

// sameEntry reports whether key has equal entries in a and b.
func sameEntry(ctx context.Context, a, b ledger.Reader, key []byte) (bool, error) {
	x, err := a.Stat(ctx, key)
	if errors.Is(err, ledger.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	y, err := b.Stat(ctx, key)
	if err != nil || x.Priority != y.Priority {
		return false, err
	}
	return SameValue(ctx, x, y)
}

// SameValue reports whether two entries of one repository have equal values, without reading long
// ones. Values stored under different chunking secrets may compare as different although their
// bytes are equal.
func SameValue(ctx context.Context, x, y ledger.Entry) (bool, error) {
	if x.Size != y.Size || x.Inline != y.Inline {
		return false, nil
	}
	if !x.Inline {
		return x.Object == y.Object, nil
	}
	v, err := x.Value(ctx)
	if err != nil {
		return false, err
	}
	u, err := y.Value(ctx)
	return bytes.Equal(u, v), err
}
