package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
	indexeddbpages "github.com/ledgerd/ledger/indexeddb/pages"
	"github.com/ledgerd/ledger/metabase/catalog"
	"github.com/ledgerd/ledger/permazen/pages"
	"github.com/ledgerd/ledger/rules"
	"github.com/spf13/cobra"
)

// layerRules are the merge rules of all pages: those of the record layers with a namespace of their
// own.
func layerRules() []ledger.MergeRule {
	return []ledger.MergeRule{catalog.Rule(), indexeddbpages.MergeRule()}
}

// mergeRule is a rule of merge --rule.
type mergeRule struct {
	name     string
	strategy func(prefix []byte) ledger.Strategy
}

// always makes a strategy that is the same for all prefixes.
func always(strategy func() ledger.Strategy) func([]byte) ledger.Strategy {
	return func([]byte) ledger.Strategy { return strategy() }
}

// mergeRules are the rules that the command line offers. An app sets its own rules in Go.
var mergeRules = []mergeRule{
	{"last-one-wins", always(rules.LastOneWins)},
	{"newer", func([]byte) ledger.Strategy { return side(ledger.Resolution{Take: ledger.TakeRight, Rule: "newer"}) }},
	{"older", func([]byte) ledger.Strategy { return side(ledger.Resolution{Take: ledger.TakeLeft, Rule: "older"}) }},
	{"counter", always(rules.Counter)},
	{"maximum", always(rules.Maximum)},
	{"set-union", always(rules.SetUnion)},
	{"permazen", func(prefix []byte) ledger.Strategy { return pages.MergeRule(prefix).Strategy }},
}

// side resolves every conflict to one side. The right side is always the newer of the two merged
// commits.
func side(r ledger.Resolution) ledger.Strategy {
	return ledger.Automatic(func(context.Context, *ledger.MergeConflict) (ledger.Resolution, error) { return r, nil })
}

type mergeRuleFlags struct {
	pageArg
	Rules []string `flag:"rule" usage:"rule for conflicts, \x60[PREFIX=]NAME\x60 (default last-one-wins)"`
}

func (a *app) merge(ctx context.Context, f mergeRuleFlags) error {
	chosen, err := a.parseRules(f.Rules)
	if err != nil {
		return err
	}
	return a.page(ctx, f.Page, changes, func(page *ledger.Page) error {
		page.SetMergeRules(chosen...)
		defer page.SetMergeRules() // a serve keeps the page, and the rules are for this merge alone
		return a.mergeHeads(ctx, page)
	})
}

// parseRules parses the values of --rule.
func (a *app) parseRules(texts []string) (rules []ledger.MergeRule, err error) {
	seen := map[string]bool{}
	for _, text := range texts {
		i := strings.LastIndexByte(text, '=')
		prefix, err := a.key(text[:max(i, 0)])
		if err != nil {
			return nil, err
		}
		strategy, err := strategyOf(text[i+1:], prefix)
		if err != nil {
			return nil, err
		}
		if seen[string(prefix)] {
			return nil, usagef("--rule is given twice for the prefix %q", text[:max(i, 0)])
		}
		seen[string(prefix)] = true
		rules = append(rules, ledger.MergeRule{Prefix: prefix, Strategy: strategy})
	}
	return rules, nil
}

func strategyOf(name string, prefix []byte) (ledger.Strategy, error) {
	if i := slices.IndexFunc(mergeRules, func(r mergeRule) bool { return r.name == name }); i >= 0 {
		return mergeRules[i].strategy(prefix), nil
	}
	known := objects(mergeRules, func(r mergeRule) string { return r.name })
	return ledger.Strategy{}, usagef("unknown rule %q, want one of %s", name, strings.Join(known, ", "))
}

// completeRules completes [PREFIX=]NAME.
func completeRules(_ *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	prefix := toComplete[:strings.LastIndexByte(toComplete, '=')+1]
	found := objects(mergeRules, func(r mergeRule) string { return prefix + r.name })
	return matching(found, toComplete), cobra.ShellCompDirectiveNoFileComp
}

func (a *app) mergeHeads(ctx context.Context, page *ledger.Page) error {
	results, err := page.Merge(ctx)
	if err != nil {
		return err // the error names the operation
	}
	for _, r := range results {
		if err := a.printMerge(ctx, page, r); err != nil {
			return err
		}
	}
	if len(results) > 0 {
		return nil
	}
	head, err := a.resolve(ctx, page, "HEAD")
	if err != nil {
		return err
	}
	a.result(doneObject(page, head, false, nil), "page %s has one head, %s: nothing to merge\n", pageText(page), head.Short())
	return nil
}

// howTexts describe how a merge found its content.
var howTexts = map[string]string{
	"three-way": "key by key",
	"equal":     "both had the same content",
	"subset":    "one side had no changes of its own",
	"rest":      "neither side had changes of its own, the newer was taken",
}

func (a *app) printMerge(ctx context.Context, page *ledger.Page, r ledger.MergeResult) error {
	a.result(object{"page", pageText(page), "commit", r.Commit.ID, "left", r.Left.ID, "right", r.Right.ID, "how", r.How, "conflicts", r.Conflicts},
		"commit %s: merged %s and %s, %s: %s\n", r.Commit.ID.Short(), r.Left.ID.Short(), r.Right.ID.Short(), cmp.Or(howTexts[r.How], r.How), countText(r.Conflicts, "conflicts"))
	if r.Conflicts == 0 || a.quiet && !a.json {
		return nil
	}
	return a.printConflicts(ctx, page, r.Commit.ID, "    ")
}

// printConflicts prints the decisions of a merge, one line for each key.
func (a *app) printConflicts(ctx context.Context, page *ledger.Page, merge ledger.CommitID, indent string) error {
	for d, err := range page.Conflicts(ctx, merge, nil) {
		if err != nil {
			return err // the error names the operation
		}
		if a.json {
			j, err := conflictObject(ctx, merge, d)
			if err != nil {
				return err
			}
			a.emit(j)
			continue
		}
		text, err := a.decisionText(ctx, d)
		if err != nil {
			return err
		}
		a.printf("%s%s\n", indent, text)
	}
	return nil
}

// conflictObject is the decision about a key, as --json prints it.
func conflictObject(ctx context.Context, merge ledger.CommitID, d ledger.Decision) (object, error) {
	values, err := mapped([]*ledger.Entry{d.Left, d.Right, d.Result},
		func(e *ledger.Entry) (object, error) { return valueObject(ctx, e) })
	if err != nil {
		return nil, err
	}
	return object{
		"merge", merge, "key", jsonBytes(d.Key), "outcome", d.Outcome, "rule", d.Rule,
		"leftWriter?", d.LeftWriter, "rightWriter?", d.RightWriter,
		"left?", values[0], "right?", values[1], "result?", values[2], "pruned?", d.Pruned,
	}, nil
}

// decisionText describes the decision about a key in one line.
func (a *app) decisionText(ctx context.Context, d ledger.Decision) (string, error) {
	key, text := a.shortKey(d.Key), valueText
	if path, ok := filetree.AttributesPath(d.Key); ok {
		key, text = "attributes of "+a.shortKey(path), attributesText
	}
	values, err := mapped([]*ledger.Entry{d.Left, d.Right, d.Result},
		func(e *ledger.Entry) (string, error) { return text(ctx, e) })
	if err != nil {
		return "", err
	}
	for i, e := range []*ledger.Entry{d.Left, d.Right} {
		if e == nil && d.Pruned {
			values[i] = "a given up value"
		}
	}
	left, right := values[0]+ofText(d.LeftWriter), values[1]+ofText(d.RightWriter)
	what := ""
	switch d.Outcome {
	case "left":
		what = "took " + left + ", dropped " + right
	case "right":
		what = "took " + right + ", dropped " + left
	case "deleted":
		what = "removed, dropped " + left + " and " + right
	default:
		what = "made " + values[2] + " from " + left + " and " + right
	}
	return fmt.Sprintf("%s: %s (%s)", key, what, printable(d.Rule)), nil
}

// attributesText formats the attributes of an imported file for people. Those that cannot be read
// are formatted as any value.
func attributesText(ctx context.Context, e *ledger.Entry) (string, error) {
	text, err := valueText(ctx, e)
	if e == nil || err != nil {
		return text, err
	}
	value, err := e.Value(ctx)
	if err != nil {
		return "", fmt.Errorf("read value: %w", err)
	}
	attributes, err := filetree.DecodeAttributes(value)
	if err != nil {
		return text, nil
	}
	return attributes.String() + " " + clockText(attributes.ModTime), nil
}

// ofText names the commit that wrote a value.
func ofText(writer ledger.CommitID) string {
	return choose(writer.IsZero(), "", " of "+writer.Short())
}
