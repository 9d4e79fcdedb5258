package ledger

import (
	"bytes"
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

// plain returns whether a key of a page must not be compressed; nil: none.
func (o *CompressionOptions) plain(k pageKey) func(key []byte) bool {
	if o.Off == nil {
		return nil
	}
	var prefixes [][]byte
	for _, p := range o.Off(k.ledger, k.id) {
		prefixes = append(prefixes, bytes.Clone(p))
	}
	if len(prefixes) == 0 {
		return nil
	}
	return func(key []byte) bool {
		return slices.ContainsFunc(prefixes, func(p []byte) bool { return bytes.HasPrefix(key, p) })
	}
}
