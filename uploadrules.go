package ledger

import (
	"bytes"
	"context"

	"github.com/ledgerd/ledger/internal/cloudlink"
)

// UploadRule says what the lengths in a bucket must not tell of some keys. Each switch costs
// uploads and storage.
type UploadRule struct {
	// Prefix is what the keys begin with; empty: all keys of the page.
	Prefix []byte
	// CompressionOff has lengths depend on those of keys and values alone, and not on how well they
	// compress, which says something about their content. A commit that changes such a key goes up
	// without compression as a whole, and so does what has all keys of the page: checkpoints, and
	// differences that are objects of their own.
	CompressionOff bool
	// DedupOff has a value go up whole when a transaction puts it, also where the bucket has it, or
	// parts of it, from before, so that no length tells that it was in the page. It goes up once
	// for all commits that go up together, and a merge sends nothing again. What a device does not
	// hold (a copied LAZY value that was never read there) is only named.
	DedupOff bool
}

// UploadOptions say how the keys of pages go to a cloud. The zero value lets everything be
// compressed, and nothing go up twice.
type UploadOptions struct {
	// Rules returns the rules of a page. It is asked whenever a page begins to sync, and must
	// return soon. What is in the bucket already stays as it is. Each device goes by its own rules.
	Rules func(ledger string, page PageID) []UploadRule
}

// PageUploadRule is an UploadRule for some keys of a page.
type PageUploadRule struct {
	Page PageRef
	UploadRule
}

// UploadRules returns what SetUploadRules has set. The slices are the caller's.
func (r *Repository) UploadRules() (all []PageUploadRule) {
	for _, u := range r.cloud.Rules() {
		all = append(all, PageUploadRule{refOf(u.Page), UploadRule{bytes.Clone(u.Prefix), u.CompressionOff, u.DedupOff}})
	}
	return all
}

// SetUploadRules sets how keys go to the cloud, beside the rules that Options.Upload has, in place
// of what was set before. It is remembered on this device, as long as it has a cloud, also another
// one; each device has its own. Open pages go by it at once. What is in the bucket stays as it is.
// all is not retained. It waits until a sync of open pages has ended.
//
// Errors: ErrNoCloud, ErrInvalid for the name of a ledger and for a rule without a switch,
// ErrTooLarge for a prefix of more than 65,535 bytes or more than 65,536 of them, ErrReadOnly,
// ErrClosed, those of the file system and of ctx.
func (r *Repository) SetUploadRules(ctx context.Context, all []PageUploadRule) error {
	return r.inCloudTurn(ctx, "set rules of uploads", func(ctx context.Context) error {
		var rules []cloudlink.Rule
		for _, u := range all {
			if err := ValidateName(u.Page.Ledger); err != nil {
				return err
			}
			rules = append(rules, u.rule(u.Page.key()))
		}
		return r.cloud.SetRules(ctx, rules)
	})
}

func (u *UploadRule) rule(k pageKey) cloudlink.Rule {
	return cloudlink.Rule{Page: k, Prefix: bytes.Clone(u.Prefix), CompressionOff: u.CompressionOff, DedupOff: u.DedupOff}
}

// rules returns what Options.Upload says of a page.
func (o *UploadOptions) rules(k pageKey) (all []cloudlink.Rule) {
	if o.Rules == nil {
		return nil
	}
	for _, u := range o.Rules(k.Ledger, k.ID) {
		all = append(all, u.rule(k))
	}
	return all
}
