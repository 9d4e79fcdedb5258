package cli

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Arguments that can never be right end with ExitUsage. The library says which they are: a verb has
// what it was given verified by admin.ValidateKey and its like before it opens anything, and wrong
// makes a usage error of what they say. No error of work that was begun becomes one: the library
// reports ErrInvalid also for what is no argument.

// flagRules verify the values of flags that mean the same for all verbs, by name. An empty value
// means that there is none.
var flagRules = map[string]func(string) error{
	"message": admin.ValidateMessage,
	"limit": func(n string) error {
		if n[0] == '-' {
			return classedf(ledger.ErrInvalid, "--limit is %s, want 0 or more", n)
		}
		return nil
	},
	"device": func(name string) error { return (&ledger.Options{Device: name}).Validate() },
}

// revisionFlags name revisions of the page that is the first argument.
var revisionFlags = []string{"at", "from", "parent", "to"}

// checkFlags verifies the flags that flagRules and all verbs have.
func (a *app) checkFlags(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		rule := choose(slices.Contains(revisionFlags, f.Name), admin.ValidateRevision, flagRules[f.Name])
		if rule != nil && err == nil && f.Value.String() != "" {
			err = wrong(rule(f.Value.String()))
		}
	})
	if err == nil && a.lockTimeout < 0 {
		err = usagef("--lock-timeout is %s, want 0 or more", a.lockTimeout)
	}
	return err
}

// flagError says in words which value a flag cannot have.
func flagError(err error) error {
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if want := flagWants(e.GetFlag()); want != "" {
			return fmt.Errorf("--%s wants %s, not %q", e.GetFlag().Name, want, e.GetValue())
		}
		return fmt.Errorf("--%s %q: %w", e.GetFlag().Name, e.GetValue(), errors.Unwrap(e)) // the flag's own words
	}
	if set := exclusiveFlags.FindStringSubmatch(err.Error()); set != nil {
		return fmt.Errorf("--%s exclude each other", strings.Join(strings.Fields(set[1]), " and --"))
	}
	return err
}

// unknownFlag makes a usage error of what is wrong with a flag, and says what takes its place where
// it had another name once.
func (a *app) unknownFlag(cmd *cobra.Command, err error) error {
	a.verb = cmd
	wrong := &usageError{flagError(err)}
	if e, ok := errors.AsType[*pflag.NotExistError](err); ok {
		name := "--" + e.GetSpecifiedName()
		if e.GetSpecifiedShortnames() != "" {
			name = name[1:]
		}
		if now := movedHint(cmd, name); now != "" {
			return withHint(wrong, "%s", now)
		}
	}
	return wrong
}

// exclusiveFlags finds in an error of cobra the flags that exclude each other and were set.
var exclusiveFlags = regexp.MustCompile(`^if any flags in the group .*; \[(.*)\] were all set$`)

// flagWants says what values a flag has; "" where any text may be one.
func flagWants(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		return "true or false"
	case "duration":
		return "a time such as 30s"
	case "int", "int64", "uint64":
		return "a whole number"
	}
	return ""
}

// usageWord finds the arguments of a usage line: words, and groups in brackets or braces.
var usageWord = regexp.MustCompile(`\[[^\[\]]*\]|\{[^{}]*\}|[^ ]+`)

// byUsage gives a command, and those below it, what follows from their usage lines: how many
// arguments there are, and how they and flags that name revisions are completed. A command that
// has such a function keeps it.
func (a *app) byUsage(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		a.byUsage(c)
	}
	arguments := usageWord.FindAllString(cmd.Use, -1)[1:]
	if cmd.Args == nil && cmd.Runnable() {
		least, most := 0, len(arguments)
		for _, text := range arguments {
			if text[0] != '[' {
				least++
			}
			if strings.Contains(text, "...") {
				most = maxArguments
			}
		}
		cmd.Args = cobra.RangeArgs(least, most)
	}
	if cmd.ValidArgsFunction == nil && len(arguments) > 0 && strings.Contains(arguments[0], "LEDGER/") {
		cmd.ValidArgsFunction = a.completeArguments(arguments)
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(revisionFlags, f.Name) {
			a.completeFlag(cmd, f.Name, a.completeRevisionFlag)
		}
	})
}

// maxArguments is more than a command line has.
const maxArguments = 1 << 30

// wrong makes a usage error of what the verification of an argument has found; nil stays nil.
func wrong(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{bare(err)}
}

// bare leaves out of the text of an error the sentinel at its end, where what stands before says it
// all.
func bare(err error) error {
	text := err.Error()
	for _, sentinel := range []error{ledger.ErrNotFound, ledger.ErrInvalid, ledger.ErrTooLarge} {
		text = strings.TrimSuffix(text, fmt.Sprintf(": %v", sentinel))
	}
	return &classed{text, err}
}
