package ledger

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"slices"
	"unicode/utf8"

	"github.com/ledgerd/ledger/merge"
)

// MergeOptions say how the heads of pages come together. The zero value merges them in the
// background by LastOneWins.
type MergeOptions struct {
	// Manual leaves several heads as they are until Page.Merge is called. Who syncs by hand, too,
	// syncs again behind it, as SyncOptions.Merge does: devices that send their merges only after
	// others have merged again need not come to one head.
	Manual bool
	// Rules returns the rules of a page for which neither Page.SetMergeRules nor
	// Ledger.SetMergeRules has set some; nil means LastOneWins for every key. It is asked before
	// each merge, on the goroutine that merges, and must return soon. Rules may be nil.
	Rules func(ledger string, page PageID) *MergeRules
}

// MergeRules say who decides when branches of a page come together. A change that only one side has
// made stands without being asked about, deletions included; a key that both sides have changed to
// different content is in conflict, and the strategy with the longest prefix of the key decides.
// For devices to come to the same result, all must have the same rules; when they do not, they
// still come to rest.
type MergeRules struct {
	// Default is for the keys of which no namespace has a prefix. The zero Strategy is LastOneWins.
	Default Strategy
	// Namespaces are in any order; of equal prefixes the last one counts.
	Namespaces []NamespaceRule
}

// NamespaceRule gives the keys that begin with Prefix a strategy.
type NamespaceRule struct {
	Prefix   []byte
	Strategy Strategy
}

// Strategy decides conflicts: LastOneWins, Automatic, Custom, ByValue, Counter, Maximum, SetUnion
// or Grouped. The zero Strategy is LastOneWins. It may be used for any number of pages at once, as
// far as what it was made from allows.
type Strategy struct {
	kind     strategyKind
	name     string
	rule     merge.ValueRule
	decider  merge.Decider // builtIn
	resolver Resolver
	group    GroupStrategy
}

type strategyKind uint8

const (
	lastOneWins strategyKind = iota
	automatic
	custom
	byValue // rule is the app's
	builtIn // rule is package merge's
	grouped
)

// LastOneWins decides for the side on which the key was written last, by the timestamp of the
// commit that wrote it there. Which side made its last commit later does not matter, nor that a
// merge commit is young.
func LastOneWins() Strategy { return Strategy{kind: lastOneWins} }

// Automatic has r asked about conflicts only.
func Automatic(r Resolver) Strategy { return Strategy{kind: automatic, resolver: r} }

// Custom has r asked about every key that a side has changed, also when only one has, or both to
// the same content; unless one of the sides has no commit of its own that is no merge: then the
// other is taken as it is.
func Custom(r Resolver) Strategy { return Strategy{kind: custom, resolver: r} }

// ByValue has conflicts decided by a function of three values, which is recorded under name: 1 to
// 128 bytes of UTF-8. A nil slice stands for absence, also where there is no base. rule returns the
// merged value, nil to remove the key, or ok false when it cannot decide; then, and for values
// above 1 MiB or where the value of the base is not known, the last one wins. It must follow from
// its arguments alone, which it must neither change nor retain.
func ByValue(name string, rule func(base, left, right []byte) (value []byte, ok bool)) Strategy {
	return Strategy{kind: byValue, name: name, rule: rule}
}

// Counter is for decimal integers of up to 1000 digits: what both sides have added is added, also
// when that is the same. Absence is 0. Where a value is no integer, the last one wins.
func Counter() Strategy {
	return Strategy{kind: builtIn, decider: merge.ByValueEqual("counter", merge.Counter, nil)}
}

// Maximum takes the greater decimal integer, or the bytewise greater value when one is no integer.
func Maximum() Strategy {
	return Strategy{kind: builtIn, decider: merge.ByValueNoBase("maximum", merge.Maximum, nil)}
}

// SetUnion is for sets of lines: what both sides have, and what one has added; what one has removed
// is gone. The result is sorted, and each line ends with a line feed.
func SetUnion() Strategy {
	return Strategy{kind: builtIn, decider: merge.ByValue("set union", merge.SetUnion, nil)}
}

// Grouped has g merge a namespace as a whole.
func Grouped(g GroupStrategy) Strategy { return Strategy{kind: grouped, group: g} }

// quick reports whether s runs no code of the app, so that it may run while the page's writers
// wait.
func (s *Strategy) quick() bool { return s.kind == lastOneWins || s.kind == builtIn }

// clone returns rules that share nothing with r, which may be nil.
func (r *MergeRules) clone() *MergeRules {
	if r == nil {
		return nil
	}
	c := &MergeRules{Default: r.Default, Namespaces: slices.Clone(r.Namespaces)}
	for i := range c.Namespaces {
		c.Namespaces[i].Prefix = bytes.Clone(c.Namespaces[i].Prefix)
	}
	return c
}

// namespaces returns a rule for each prefix, the default's first.
func (r *MergeRules) namespaces() []NamespaceRule {
	all := []NamespaceRule{{}}
	if r == nil {
		return all
	}
	all[0].Strategy = r.Default
	for _, n := range r.Namespaces {
		at := slices.IndexFunc(all, func(o NamespaceRule) bool { return bytes.Equal(o.Prefix, n.Prefix) })
		if at < 0 {
			all = append(all, n)
			continue
		}
		all[at].Strategy = n.Strategy
	}
	return all
}

// quick reports whether no rule runs code of the app.
func (r *MergeRules) quick() bool {
	return !slices.ContainsFunc(r.namespaces(), func(n NamespaceRule) bool { return !n.Strategy.quick() })
}

// compile returns the rules for one run. Errors match ErrInvalid.
func (r *MergeRules) compile(run *mergeRun) (merge.Rules, error) {
	var out merge.Rules
	all := r.namespaces()
	for _, n := range all {
		rule, err := n.compile(run, all)
		if err != nil {
			return out, fmt.Errorf("merge rule for the keys that begin with %q: %w", n.Prefix, err)
		}
		rule.Prefix = n.Prefix
		out.Rules = append(out.Rules, rule)
	}
	return out, nil
}

func (n *NamespaceRule) compile(run *mergeRun, all []NamespaceRule) (merge.Rule, error) {
	s := &n.Strategy
	switch s.kind {
	case automatic, custom:
		if s.resolver == nil {
			return merge.Rule{}, fmt.Errorf("no resolver: %w", ErrInvalid)
		}
		return merge.Rule{Decider: &resolverDecider{run: run, resolver: s.resolver}, All: s.kind == custom}, nil
	case byValue:
		if s.rule == nil {
			return merge.Rule{}, fmt.Errorf("no function: %w", ErrInvalid)
		}
		if err := checkRuleName(s.name); err != nil {
			return merge.Rule{}, err
		}
		return merge.Rule{Decider: merge.ByValue(s.name, run.guard(s.name, s.rule), merge.LastOneWins())}, nil
	case builtIn:
		return merge.Rule{Decider: s.decider}, nil
	case grouped:
		if s.group == nil {
			return merge.Rule{}, fmt.Errorf("no group strategy: %w", ErrInvalid)
		}
		o := &groupOwner{run: run, strategy: s.group}
		for _, other := range all {
			if len(other.Prefix) > len(n.Prefix) && bytes.HasPrefix(other.Prefix, n.Prefix) {
				o.others = append(o.others, other.Prefix)
			}
		}
		return merge.Rule{Owner: o}, nil
	}
	return merge.Rule{Decider: merge.LastOneWins()}, nil
}

// checkRuleName verifies what is to be recorded as a rule.
func checkRuleName(name string) error {
	switch {
	case name == "" || !utf8.ValidString(name):
		return fmt.Errorf("name of a rule %q is empty or not UTF-8: %w", name, ErrInvalid)
	case len(name) > merge.MaxRuleBytes:
		return fmt.Errorf("name of a rule has %d bytes, at most %d are allowed: %w", len(name), merge.MaxRuleBytes, ErrTooLarge)
	}
	return nil
}

// guard makes a panic of rule an error of the run.
func (run *mergeRun) guard(name string, rule merge.ValueRule) merge.ValueRule {
	return func(base, left, right []byte) (value []byte, ok bool) {
		err := run.protect("rule "+name, func() error {
			value, ok = rule(base, left, right)
			return nil
		})
		if err != nil {
			run.fail(err)
			return nil, false
		}
		return value, ok
	}
}

// protect calls code of the app and makes a panic in it an error.
func (run *mergeRun) protect(what string, call func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			run.m.page.log().Error("code of the app panicked in a merge", "what", what, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("%s panicked: %v", what, v)
		}
	}()
	return call()
}

// SetMergeRules sets the rules for all pages of the ledger in this Repository that have none of
// their own; nil goes back to those of Options. They are kept in memory only. A running merge that
// they concern is called off and begun anew, and one that had failed is tried again at once. It
// does not wait for that.
func (l *Ledger) SetMergeRules(r *MergeRules) {
	l.repo.setRules(l.name, nil, r.clone())
}

// SetMergeRules sets the rules for the page in this Repository, for all its handles, also those
// opened later; nil goes back to those of the ledger. See Ledger.SetMergeRules.
func (p *Page) SetMergeRules(r *MergeRules) {
	p.ledger.repo.setRules(p.shared.key.Ledger, &p.shared.key, r.clone())
}

// AddMergeRule adds a rule to those that the page has in this Repository, in place of one with the
// same prefix. It is how a layer of records, such as package records, says how its rows are merged.
// Else it is as SetMergeRules, which takes what was added away.
func (p *Page) AddMergeRule(n NamespaceRule) {
	repo, key := p.ledger.repo, p.shared.key
	repo.addRule.Lock()
	defer repo.addRule.Unlock()
	rules := repo.rules(key).clone()
	if rules == nil {
		rules = &MergeRules{}
	}
	rules.Namespaces = append(rules.Namespaces, NamespaceRule{Prefix: bytes.Clone(n.Prefix), Strategy: n.Strategy})
	repo.setRules(key.Ledger, &key, &MergeRules{Default: rules.Default, Namespaces: (rules.namespaces())[1:]})
}

// setRules sets the rules of a page, or with nil of a ledger, and tells the open pages that they
// concern.
func (r *Repository) setRules(ledger string, page *pageKey, rules *MergeRules) {
	r.mu.Lock()
	if page != nil {
		setOrDelete(r.pageRules, *page, rules)
	} else {
		setOrDelete(r.ledgerRules, ledger, rules)
	}
	r.mu.Unlock()
	for _, s := range r.pages.Stores(false) {
		if s.key.Ledger == ledger && (page == nil || s.key == *page) {
			s.merger.rulesChanged()
		}
	}
}

func setOrDelete[K comparable](m map[K]*MergeRules, key K, rules *MergeRules) {
	if rules == nil {
		delete(m, key)
		return
	}
	m[key] = rules
}

// rules returns the rules of a page; nil is LastOneWins.
func (r *Repository) rules(key pageKey) *MergeRules {
	r.mu.Lock()
	rules := r.pageRules[key]
	if rules == nil {
		rules = r.ledgerRules[key.Ledger]
	}
	r.mu.Unlock()
	if rules == nil && r.o.Merge.Rules != nil {
		rules = r.o.Merge.Rules(key.Ledger, key.ID).clone()
	}
	return rules
}
