package ledger

import (
	"bytes"

	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/merging"
)

// MergeOptions say how the heads of pages are merged. The zero value merges them in the background;
// the last one wins.
type MergeOptions struct {
	// Manual leaves several heads as they are until Page.Merge is called. With SyncOptions.Manual
	// as well, call Sync again after Page.Merge, or set SyncOptions.Merge. Otherwise devices that
	// upload their merges only after others have merged again may never reach one head.
	Manual bool
	// Rules returns the rules of a page without rules from Page.SetMergeRules; nil means that the
	// last one wins for every key. It is called before each merge, on the merging goroutine, and
	// must return soon. Rules may be nil.
	Rules func(ledger string, page PageID) *MergeRules
}

// MergeRules select the strategy for each key when branches of a page are merged. A change that
// only one side made, deletions included, is kept. A key that both sides changed to different
// content is in conflict: the strategy with the longest prefix of the key decides. All devices need
// the same rules to get the same result; with different rules they still stop merging in the end.
type MergeRules struct {
	// Default is for the keys without a matching prefix in Namespaces. In the zero Strategy the
	// last one wins.
	Default Strategy
	// Namespaces are in any order; of rules with equal prefixes the last one counts.
	Namespaces []NamespaceRule
}

// NamespaceRule gives the keys that begin with Prefix a strategy.
type NamespaceRule struct {
	Prefix   []byte
	Strategy Strategy
}

// Strategy decides conflicts. In the zero Strategy the last one wins: the side that wrote the key
// last, by the timestamp of the commit with that write. The timestamps of the sides' last commits
// and of merge commits do not matter. Automatic and Custom call a resolver. Package rules has
// strategies for counters, for sets, for functions of values, and for keys that belong together. A
// Strategy may be used for several pages at once if its parts may.
type Strategy merging.Strategy

// Automatic calls r for conflicts only.
func Automatic(r Resolver) Strategy { return asking(merging.Automatic, r) }

// Custom calls r for every key that a side has changed, even when only one side did, or both to the
// same content. If all commits of one side since the base are merges, the other side is taken
// whole, without calling r.
func Custom(r Resolver) Strategy { return asking(merging.Custom, r) }

// engine returns a copy of the rules for the merging engine, which shares nothing with r. r may be
// nil.
func (r *MergeRules) engine() *merging.Rules {
	if r == nil {
		return nil
	}
	out := &merging.Rules{Default: merging.Strategy(r.Default)}
	for _, n := range r.Namespaces {
		out.Namespaces = append(out.Namespaces, n.engine())
	}
	return out
}

func (n *NamespaceRule) engine() merging.Namespace {
	return merging.Namespace{Prefix: bytes.Clone(n.Prefix), Strategy: merging.Strategy(n.Strategy)}
}

// SetMergeRules sets the rules of the page in this Repository, for all its handles, also later
// ones; nil restores those of Options. They are kept in memory only. It removes the rules of
// AddMergeRule: call it before records.Open. A running merge with the old rules is cancelled and
// restarted, and a failed merge is retried at once. SetMergeRules does not wait for these merges.
func (p *Page) SetMergeRules(r *MergeRules) {
	p.shared.repo.rules.SetPage(p.shared.key, r.engine())
	p.shared.merger.RulesChanged()
}

// AddMergeRule adds a rule to those of the page in this Repository; it replaces a rule with the
// same prefix. Record layers, such as package records, use it for their rows. Otherwise it works
// like SetMergeRules, which removes added rules.
func (p *Page) AddMergeRule(n NamespaceRule) {
	p.shared.repo.rules.Add(p.shared.key, n.engine())
	p.shared.merger.RulesChanged()
}

// otherRules returns the rules of Options for a page without rules of its own.
func (o *Options) otherRules(page layout.Page) *merging.Rules {
	if o.Merge.Rules == nil {
		return nil
	}
	return o.Merge.Rules(page.Ledger, page.ID).engine()
}
