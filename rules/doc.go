// Package rules has strategies for merging keys that two devices have changed: counters, maxima,
// sets, functions of three values, and strategies that merge all keys of a namespace together.
//
//	page.SetMergeRules(
//		ledger.MergeRule{Prefix: []byte("count/"), Strategy: rules.Counter()},
//		ledger.MergeRule{Prefix: []byte("tags/"), Strategy: rules.SetUnion()},
//		ledger.MergeRule{Prefix: []byte("person/"), Strategy: rules.Grouped(people{})},
//	)
//
// To merge one key at a time by code of the app, use ledger.Automatic or ledger.Custom. Devices
// that merge the same heads by the same rules make the same commit, provided that the rules depend
// on their arguments alone. All functions may be called concurrently.
//
// The package holds no state. It uses internal/merging, which drives merges, package merge, which
// decides, and internal/bridge, which gives strategies access to a page. Its API may change with
// any release.
package rules
