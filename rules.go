package ledger

import (
	"bytes"

	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/merging"
)

// MergeOptions say how the heads of pages come together. The zero value merges them in the
// background; the last one wins.
type MergeOptions struct {
	// Manual leaves several heads as they are until Page.Merge is called. With SyncOptions.Manual
	// too, call Sync again after Page.Merge, as SyncOptions.Merge does: devices that send their
	// merges only after others have merged again need not come to one head.
	Manual bool
	// Rules returns the rules of a page for which neither Page.SetMergeRules nor
	// Ledger.SetMergeRules has set some; nil means that the last one wins for every key. It is
	// asked before each merge, on the goroutine that merges, and must return soon. Rules may be
	// nil.
	Rules func(ledger string, page PageID) *MergeRules
}

// MergeRules say who decides when branches of a page come together. A change that only one side has
// made stands without being asked about, deletions included; a key that both sides have changed to
// different content is in conflict, and the strategy with the longest prefix of the key decides.
// For devices to come to the same result, all must have the same rules; when they do not, they
// still come to rest.
type MergeRules struct {
	// Default is for the keys of which no namespace has a prefix. The zero Strategy is that the
	// last one wins.
	Default Strategy
	// Namespaces are in any order; of equal prefixes the last one counts.
	Namespaces []NamespaceRule
}

// NamespaceRule gives the keys that begin with Prefix a strategy.
type NamespaceRule struct {
	Prefix   []byte
	Strategy Strategy
}

// Strategy decides conflicts. The zero Strategy is that the last one wins: the side on which the
// key was written last, by the timestamp of the commit that wrote it there. Which side made its
// last commit later does not matter, nor that a merge commit is young. Automatic and Custom ask a
// resolver, and package rules has strategies for counters and sets, for functions of values, and
// for keys that belong together. A Strategy may be used for any number of pages at once, as far as
// what it was made from allows.
type Strategy merging.Strategy

// Automatic has r asked about conflicts only.
func Automatic(r Resolver) Strategy { return asking(merging.Automatic, r) }

// Custom has r asked about every key that a side has changed, also when only one has, or both to
// the same content. Where all commits of one side since the base are merges, the other side is
// taken whole, and r is not asked.
func Custom(r Resolver) Strategy { return asking(merging.Custom, r) }

// engine returns the rules as the driver of merges takes them, which shares nothing with r. r may
// be nil.
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

// SetMergeRules sets the rules for all pages of the ledger in this Repository that have none of
// their own; nil goes back to those of Options. They are kept in memory only. A running merge that
// they concern is called off and begun anew, and one that had failed is tried again at once. It
// does not wait for that.
func (l *Ledger) SetMergeRules(r *MergeRules) {
	l.repo.rules.SetLedger(l.name, r.engine())
	for _, s := range l.repo.pages.Stores(false) {
		if s.key.Ledger == l.name {
			s.merger.RulesChanged()
		}
	}
}

// SetMergeRules sets the rules for the page in this Repository, for all its handles, also those
// opened later; nil goes back to those of the ledger. It takes away what AddMergeRule has added:
// call it before records.Open. See Ledger.SetMergeRules.
func (p *Page) SetMergeRules(r *MergeRules) {
	p.ledger.repo.rules.SetPage(p.shared.key, r.engine())
	p.shared.merger.RulesChanged()
}

// AddMergeRule adds a rule to those that the page has in this Repository, in place of one with the
// same prefix. It is how a layer of records, such as package records, says how its rows are merged.
// Else it is as SetMergeRules, which takes what was added away.
func (p *Page) AddMergeRule(n NamespaceRule) {
	p.ledger.repo.rules.Add(p.shared.key, n.engine())
	p.shared.merger.RulesChanged()
}

// otherRules returns the rules of pages for which none are set, as Options have them.
func (o *Options) otherRules(page layout.Page) *merging.Rules {
	if o.Merge.Rules == nil {
		return nil
	}
	return o.Merge.Rules(page.Ledger, page.ID).engine()
}
