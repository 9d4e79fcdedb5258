package cli

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// uploadSwitch is a switch of ledger.UploadRule that a verb shows or sets.
type uploadSwitch struct {
	of func(*ledger.UploadRule) *bool
	// all and some describe the switch's effect on all keys of a page, and on keys with a prefix.
	all, some string
}

var compressionSwitch = uploadSwitch{
	of:  func(u *ledger.UploadRule) *bool { return &u.CompressionOff },
	all: "no key is compressed", some: "keys that begin with %s are not compressed",
}

var dedupSwitch = uploadSwitch{
	of:  func(u *ledger.UploadRule) *bool { return &u.DedupOff },
	all: "all values are uploaded whole", some: "values of keys that begin with %s are uploaded whole",
}

type ruleFlags struct {
	Pages pageRefs `arg:"..."`
	Off   []string `flag:"off" usage:"switch it off for keys that begin with this; '' means all keys"`
	On    []string `flag:"on" usage:"switch it on again for these keys"`
}

func (a *app) cloudRule(c uploadSwitch) func(context.Context, ruleFlags) error {
	return func(ctx context.Context, f ruleFlags) error {
		pages := f.Pages
		if len(f.Off)+len(f.On) == 0 {
			return a.read(ctx, func(repo *ledger.Repository) error { return a.printRules(ctx, repo, c, pages) })
		}
		if len(pages) == 0 {
			return usagef("--off and --on need a page: name it")
		}
		on, err := mapped(f.On, a.key)
		if err != nil {
			return err
		}
		off, err := mapped(f.Off, a.key)
		if err != nil {
			return err
		}
		return a.change(ctx, func(repo *ledger.Repository) error {
			all := admin.UploadRules(repo)
			for _, p := range on {
				all = switchRule(all, pages[0], p, c.of, false)
			}
			for _, p := range off {
				all = switchRule(all, pages[0], p, c.of, true)
			}
			if err := admin.SetUploadRules(ctx, repo, all); err != nil {
				return err
			}
			return a.printRules(ctx, repo, c, pages)
		})
	}
}

// switchRule sets a switch for a prefix of a page. It removes a rule that switches nothing off.
func switchRule(all []admin.PageUploadRule, page ledger.PageRef, prefix []byte, of func(*ledger.UploadRule) *bool, off bool) []admin.PageUploadRule {
	i := slices.IndexFunc(all, func(u admin.PageUploadRule) bool { return u.Page == page && bytes.Equal(u.Prefix, prefix) })
	if i < 0 {
		i = len(all)
		all = append(all, admin.PageUploadRule{Page: page, UploadRule: ledger.UploadRule{Prefix: prefix}})
	}
	if *of(&all[i].UploadRule) = off; !all[i].CompressionOff && !all[i].DedupOff {
		return slices.Delete(all, i, i+1)
	}
	return all
}

// printRules prints the keys for which a switch is off: of all pages, or of pages if that is not
// empty.
func (a *app) printRules(ctx context.Context, repo *ledger.Repository, c uploadSwitch, pages []ledger.PageRef) error {
	infos, err := repo.Pages(ctx)
	if err != nil {
		return err
	}
	for _, u := range admin.UploadRules(repo) {
		if !*c.of(&u.UploadRule) || len(pages) > 0 && !slices.Contains(pages, u.Page) {
			continue
		}
		name := nameOf(u.Page.Ledger, "", u.Page.ID)
		if i := slices.IndexFunc(infos, func(p ledger.PageInfo) bool { return p.PageRef == u.Page }); i >= 0 {
			name = nameOf(u.Page.Ledger, infos[i].Name, u.Page.ID)
		}
		text := choose(len(u.Prefix) == 0, c.all, fmt.Sprintf(c.some, a.keyText(u.Prefix)))
		a.show(object{"page", name, "text~", plain(text), "prefix!", jsonBytes(u.Prefix)})
	}
	return nil
}
