// Package rules has strategies for what becomes of keys that two devices have changed: counters,
// maxima, sets, functions of three values, and strategies that merge all keys of a namespace
// together.
//
//	page.SetMergeRules(&ledger.MergeRules{Namespaces: []ledger.NamespaceRule{
//		{Prefix: []byte("count/"), Strategy: rules.Counter()},
//		{Prefix: []byte("tags/"), Strategy: rules.SetUnion()},
//		{Prefix: []byte("person/"), Strategy: rules.Grouped(people{})},
//	}})
//
// An app that asks its own code about one key at a time finds ledger.Automatic and ledger.Custom in
// the root. Devices that merge the same heads by the same rules make the same commit, provided that
// the rules look at nothing but what they are given. All functions may be called concurrently.
//
// The package holds no state. It stands on internal/merging, which drives merges, and on package
// merge, which decides; what a strategy sees of a page is made through internal/bridge. Its names
// may change with any release.
package rules
