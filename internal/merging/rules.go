package merging

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"unicode/utf8"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/merge"
)

// Rules select the strategy for each key: that of its longest prefix, and LastOneWins without a
// match. They are in any order; of rules with equal prefixes the last one counts.
type Rules []Rule

// Rule gives the keys that begin with Prefix a strategy.
type Rule struct {
	Prefix   []byte
	Strategy Strategy
}

// Strategy decides about conflicts, by one of its fields. In the zero Strategy the last one wins.
type Strategy struct {
	Resolver Resolver
	All      bool // the Resolver is asked about every key that a side has changed
	Value    merge.ValueRule
	Name     string        // of Value
	Decider  merge.Decider // a rule of package merge
	Group    GroupStrategy
	Wrong    error // why the strategy cannot decide
}

// quick reports whether s runs no code of the app, so that it may run while the page's writers
// wait.
func (s *Strategy) quick() bool { return s.Resolver == nil && s.Value == nil && s.Group == nil }

// distinct returns one rule for each prefix.
func (r Rules) distinct() (all Rules) {
	for _, n := range r {
		at := slices.IndexFunc(all, func(o Rule) bool { return bytes.Equal(o.Prefix, n.Prefix) })
		if at < 0 {
			all = append(all, n)
			continue
		}
		all[at].Strategy = n.Strategy
	}
	return all
}

// quick reports whether no rule runs code of the app.
func (r Rules) quick() bool {
	return !slices.ContainsFunc(r.distinct(), func(n Rule) bool { return !n.Strategy.quick() })
}

// compile returns the rules for one run. Errors match ErrInvalid.
func (rules Rules) compile(r *run) (merge.Rules, error) {
	var out merge.Rules
	for _, n := range append(Rules{{}}, rules...).distinct() {
		rule, err := n.compile(r)
		if err != nil {
			return out, fmt.Errorf("merge rule for the keys that begin with %q: %w", n.Prefix, err)
		}
		rule.Prefix = n.Prefix
		out.Rules = append(out.Rules, rule)
	}
	return out, nil
}

func (n *Rule) compile(r *run) (merge.Rule, error) {
	switch s := &n.Strategy; {
	case s.Wrong != nil:
		return merge.Rule{}, s.Wrong
	case s.Resolver != nil:
		return merge.Rule{Decider: &resolverDecider{run: r, resolver: s.Resolver}, All: s.All}, nil
	case s.Value != nil:
		return merge.Rule{Decider: merge.ByValue{Name: s.Name, Rule: r.guard(s.Name, s.Value)}}, checkRuleName(s.Name)
	case s.Decider != nil:
		return merge.Rule{Decider: s.Decider}, nil
	case s.Group != nil:
		return merge.Rule{Owner: &groupOwner{run: r, strategy: s.Group}}, nil
	}
	return merge.Rule{Decider: merge.LastOneWins()}, nil
}

// checkRuleName verifies a name that is to be recorded as a rule.
func checkRuleName(name string) error {
	switch {
	case name == "" || !utf8.ValidString(name):
		return fmt.Errorf("name of a rule %q is empty or not UTF-8: %w", name, base.ErrInvalid)
	case len(name) > merge.MaxRuleBytes:
		return fmt.Errorf("name of a rule has %d bytes, at most %d are allowed: %w", len(name), merge.MaxRuleBytes, base.ErrTooLarge)
	}
	return nil
}

// guard turns a panic of rule into an error of the run.
func (r *run) guard(name string, rule merge.ValueRule) merge.ValueRule {
	return func(base, left, right []byte) (value []byte, ok bool) {
		err := r.protect("rule "+name, func() error {
			value, ok = rule(base, left, right)
			return nil
		})
		if err != nil {
			r.fail(err)
			return nil, false
		}
		return value, ok
	}
}

// protect calls code of the app and turns a panic in it into an error.
func (r *run) protect(what string, call func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			r.m.env.Session.Logger.Error("code of the app panicked in a merge", "what", what, "panic", v, "stack", string(debug.Stack()))
			err = fmt.Errorf("%s panicked: %v", what, v)
		}
	}()
	return call()
}

// Book has the rules of the pages of a repository. It is safe for concurrent use.
type Book struct {
	// Other returns the rules of a page to which those of Add are added.
	Other func(page layout.Page) Rules

	mu    sync.Mutex
	pages map[layout.Page]Rules // guarded by mu
}

// Add adds rules to those of a page, and replaces rules with the same prefixes. Without rules it
// removes all that were added. The caller must not change the rules afterwards.
func (b *Book) Add(page layout.Page, rules ...Rule) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case len(rules) == 0:
		delete(b.pages, page)
	case b.pages == nil:
		b.pages = map[layout.Page]Rules{page: rules}
	default:
		b.pages[page] = append(slices.Clip(b.pages[page]), rules...).distinct()
	}
}

// Of returns the rules of a page, which are immutable.
func (b *Book) Of(page layout.Page) Rules {
	b.mu.Lock()
	added := b.pages[page]
	b.mu.Unlock()
	return append(slices.Clip(b.Other(page)), added...)
}
