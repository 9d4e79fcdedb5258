package admin

import (
	"bytes"
	"context"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/cloudlink"
)

// PageUploadRule is an UploadRule for some keys of a page.
type PageUploadRule struct {
	Page ledger.PageRef
	ledger.UploadRule
}

// UploadRules returns what SetUploadRules has set. The slices are the caller's.
func UploadRules(repo *ledger.Repository) (all []PageUploadRule) {
	for _, u := range bridge.Of(repo).Cloud.Rules() {
		all = append(all, PageUploadRule{refOf(u.Page), ledger.UploadRule{Prefix: bytes.Clone(u.Prefix), CompressionOff: u.CompressionOff, DedupOff: u.DedupOff}})
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
func SetUploadRules(ctx context.Context, repo *ledger.Repository, all []PageUploadRule) error {
	r := bridge.Of(repo)
	return r.CloudTurn(ctx, "set rules of uploads", func(ctx context.Context) error {
		var rules []cloudlink.Rule
		for _, u := range all {
			if err := ValidateName(u.Page.Ledger); err != nil {
				return err
			}
			rules = append(rules, cloudlink.Rule{
				Page: keyOf(u.Page), Prefix: bytes.Clone(u.Prefix), CompressionOff: u.CompressionOff, DedupOff: u.DedupOff,
			})
		}
		return r.Cloud.SetRules(ctx, rules)
	})
}
