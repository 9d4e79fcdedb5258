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

// UploadRules returns the rules of SetUploadRules. The slices belong to the caller.
func UploadRules(repo *ledger.Repository) (all []PageUploadRule) {
	for _, u := range bridge.Of(repo).Cloud.Rules() {
		all = append(all, PageUploadRule{refOf(u.Page), ledger.UploadRule{Prefix: bytes.Clone(u.Prefix), CompressionOff: u.CompressionOff, DedupOff: u.DedupOff}})
	}
	return all
}

// SetUploadRules replaces the stored upload rules, which apply in addition to those of
// Options.Upload. They are stored on this device while it has a cloud, also across a change of
// cloud; each device has its own rules. They apply to open pages at once. Objects already in the
// bucket stay as they are. all is not retained. The call waits for a running sync of open pages.
//
// Errors: ErrNoCloud, ErrInvalid for the name of a ledger and for a rule without a switch,
// ErrTooLarge for a prefix of more than 65,535 bytes or more than 65,536 of them, ErrReadOnly,
// ErrClosed, those of the file system and of ctx.
func SetUploadRules(ctx context.Context, repo *ledger.Repository, all []PageUploadRule) error {
	r := bridge.Of(repo)
	return r.CloudTurn(ctx, "set rules of uploads", func(ctx context.Context) error {
		var rules []cloudlink.Rule
		for _, u := range all {
			if err := ValidateLedgerName(u.Page.Ledger); err != nil {
				return err
			}
			rules = append(rules, cloudlink.Rule{
				Page: keyOf(u.Page), Prefix: bytes.Clone(u.Prefix), CompressionOff: u.CompressionOff, DedupOff: u.DedupOff,
			})
		}
		return r.Cloud.SetRules(ctx, rules)
	})
}
