package ledger

import (
	"bytes"

	"github.com/ledgerd/ledger/internal/cloudlink"
)

// UploadRule says what the lengths in a bucket must not tell of some keys. Each switch costs
// uploads and storage.
type UploadRule struct {
	// Prefix is what the keys begin with; empty: all keys of the page.
	Prefix []byte
	// CompressionOff has lengths depend on those of keys and values alone, and not on how well they
	// compress, which says something about their content. A commit that changes such a key goes up
	// without compression as a whole, and so do differences that are objects of their own.
	CompressionOff bool
	// DedupOff has a value go up whole when a transaction puts it, also where the bucket has it, or
	// parts of it, from before, so that no length tells that it was in the page. It goes up once
	// for all commits that go up together, and a merge sends nothing again. What a device does not
	// hold (a copied value of priority Lazy that was never read there) is only named.
	DedupOff bool
}

// uploadRules returns what Options.Upload says of a page.
func (o *Options) uploadRules(k pageKey) (all []cloudlink.Rule) {
	if o.Upload == nil {
		return nil
	}
	for _, u := range o.Upload(k.Ledger, k.ID) {
		all = append(all, cloudlink.Rule{Page: k, Prefix: bytes.Clone(u.Prefix), CompressionOff: u.CompressionOff, DedupOff: u.DedupOff})
	}
	return all
}
