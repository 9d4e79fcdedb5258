package ledger

import (
	"bytes"

	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/merging"
)

// MergeRule gives the keys that begin with Prefix a strategy; the empty prefix is that of all keys.
// When branches of a page are merged, a change that only one side made is kept, deletions included.
// A key that both sides changed to different content is in conflict: the rule with the longest
// prefix of the key decides, and without one the last one wins. Rules are in any order; of rules
// with equal prefixes the last one counts. All devices need the same rules to get the same result;
// with different rules they still stop merging in the end.
type MergeRule struct {
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
func Automatic(r Resolver) Strategy { return asking(r, false) }

// Custom calls r for every key that a side has changed, even when only one side did, or both to the
// same content. If all commits of one side since the base are merges, the other side is taken
// whole, without calling r.
func Custom(r Resolver) Strategy { return asking(r, true) }

// engineRules returns a copy of rules for the merging engine.
func engineRules(rules []MergeRule) (out merging.Rules) {
	for _, m := range rules {
		out = append(out, merging.Rule{Prefix: bytes.Clone(m.Prefix), Strategy: merging.Strategy(m.Strategy)})
	}
	return out
}

// SetMergeRules adds rules to those that Options.MergeRules gives for the page, in this Repository
// and for all handles of the page, also later ones. A rule replaces one with the same prefix, also
// one of Options. It copies prefixes.
// Without arguments it removes all rules that were added, also those of record layers, such as
// package records. Rules are kept in memory only. A running merge with the old rules is cancelled
// and restarted, and a failed merge is retried at once. SetMergeRules does not wait for these
// merges.
func (p *Page) SetMergeRules(rules ...MergeRule) {
	p.shared.repo.rules.Add(p.shared.key, engineRules(rules)...)
	p.shared.merger.RulesChanged()
}

// otherRules returns the rules of Options for a page.
func (o *Options) otherRules(page layout.Page) merging.Rules {
	if o.MergeRules == nil {
		return nil
	}
	return engineRules(o.MergeRules(page.Ledger, page.ID))
}
