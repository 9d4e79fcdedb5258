package ledger

import (
	"bytes"

	"github.com/ledgerd/ledger/internal/cloudlink"
)

// UploadRule limits what object lengths in a bucket reveal about some keys. Each switch costs
// uploads and storage.
type UploadRule struct {
	// Prefix selects the keys; empty means all keys of the page.
	Prefix []byte
	// CompressionOff makes lengths depend only on those of keys and values, and not on how well the
	// content compresses. A commit that changes such a key is uploaded without compression as a
	// whole, and so are differences that are objects of their own.
	CompressionOff bool
	// DedupOff uploads a value whole whenever a transaction puts it, even if the bucket has all or
	// parts of it already, so that no length reveals earlier content of the page. Commits that are
	// uploaded together share one copy, and a merge uploads none again. A value that the device
	// does not hold (a copied Lazy value that was never read there) is only referenced.
	DedupOff bool
}

// uploadRules returns the rules of Options.Upload for a page.
func (o *Options) uploadRules(k pageKey) (all []cloudlink.Rule) {
	if o.Upload == nil {
		return nil
	}
	for _, u := range o.Upload(k.Ledger, k.ID) {
		all = append(all, cloudlink.Rule{Page: k, Prefix: bytes.Clone(u.Prefix), CompressionOff: u.CompressionOff, DedupOff: u.DedupOff})
	}
	return all
}
