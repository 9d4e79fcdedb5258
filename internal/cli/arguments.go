package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

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
	"message":      admin.ValidateMessage,
	"limit":        notBelowZero("limit"),
	"offset":       notBelowZero("offset"),
	"lock-timeout": notBelowZero("lock-timeout"),
	"device":       func(name string) error { return (&ledger.Options{Device: name}).Validate() },
}

func notBelowZero(flag string) func(string) error {
	return func(n string) error {
		if n[0] == '-' {
			return classedf(ledger.ErrInvalid, "--%s is %s, want 0 or more", flag, n)
		}
		return nil
	}
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

// size and rate are flags that are bytes, and bytes a second. age is a time with the units of
// parseAge, and commaList a list in one argument.
type (
	size      int64
	rate      int64
	age       time.Duration
	commaList []string
)

// verb makes the command of a verb, whose flags and arguments are the fields of a struct. do is
// given them when it runs, and more says what else the command has.
func verb[F any](a *app, path string, f F, do func(context.Context, F) error,
	more ...func(*cobra.Command)) *cobra.Command {
	fields := reflect.ValueOf(&f).Elem()
	cmd := a.define(path, func(ctx context.Context, args []string) error {
		if _, err := a.readArguments(fields, args); err != nil {
			return err
		}
		return do(ctx, f)
	})
	addFlags(cmd.Flags(), fields)
	for _, add := range more {
		add(cmd)
	}
	return cmd
}

// onPage is verb for one that does something with the page that is its first argument.
func onPage[F interface{ page() pageName }](a *app, path string, how access, f F,
	do func(context.Context, *ledger.Page, F) error) *cobra.Command {
	return verb(a, path, f, func(ctx context.Context, f F) error {
		return a.page(ctx, f.page(), how, func(page *ledger.Page) error { return do(ctx, page, f) })
	})
}

// onRepository is verb for one that does something with the repository, which is open for writing.
func onRepository[F any](a *app, path string, f F,
	do func(context.Context, *ledger.Repository, F) error) *cobra.Command {
	return verb(a, path, f, func(ctx context.Context, f F) error {
		return a.change(ctx, func(repo *ledger.Repository) error { return do(ctx, repo, f) })
	})
}

// excluding has flags exclude each other.
func excluding(flags ...string) func(*cobra.Command) {
	return func(cmd *cobra.Command) { cmd.MarkFlagsMutuallyExclusive(flags...) }
}

// taking bounds the number of arguments where the usage line does not.
func taking(least, most int) func(*cobra.Command) {
	return func(cmd *cobra.Command) { cmd.Args = cobra.RangeArgs(least, most) }
}

// completing has fn complete the arguments.
func completing(fn cobra.CompletionFunc) func(*cobra.Command) {
	return func(cmd *cobra.Command) { cmd.ValidArgsFunction = fn }
}

// onlyThese refuses a first argument that beginning does not name.
func onlyThese(cmd *cobra.Command) {
	cmd.Args = cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)
}

// beginning says which words the first argument may be.
func beginning(words ...string) func(*cobra.Command) {
	return func(cmd *cobra.Command) { cmd.ValidArgs = words }
}

// changed reports whether the command line has a flag.
func (a *app) changed(flag string) bool { return a.verb.Flags().Changed(flag) }

// argument is a field that is read from an argument, or one after another.
type argument interface {
	read(a *app, text string) error
}

// readArguments reads the fields that have the tag arg from arguments, in their order: one each, or
// with arg:"..." all that are left. It reads prefixes that are flags, too, now that --hex is known.
func (a *app) readArguments(fields reflect.Value, args []string) (rest []string, err error) {
	for i := range fields.NumField() {
		field := fields.Type().Field(i)
		tag, isArgument := field.Tag.Lookup("arg")
		if field.Anonymous {
			if args, err = a.readArguments(fields.Field(i), args); err != nil {
				return nil, err
			}
			continue
		}
		if !field.IsExported() {
			continue
		}
		to := fields.Field(i).Addr().Interface()
		if p, ok := to.(*prefix); ok && !isArgument && p.text != "" {
			err = p.read(a, p.text)
		}
		for n := 0; isArgument && err == nil && len(args) > 0 && (n == 0 || tag == "..."); n++ {
			switch to := to.(type) {
			case *string:
				*to = args[0]
			case *[]string:
				*to = append(*to, args[0])
			case argument:
				err = to.read(a, args[0])
			}
			args = args[1:]
		}
		if err != nil {
			return nil, err
		}
	}
	return args, nil
}

// addFlags makes a flag of every field of a struct that has the tag flag: its name and, behind a
// comma, its letter. The tag usage says what the flag does, and the value of the field is its
// default. Embedded structs add their flags.
func addFlags(flags *pflag.FlagSet, fields reflect.Value) {
	for i := range fields.NumField() {
		field := fields.Type().Field(i)
		name, letter, _ := strings.Cut(field.Tag.Get("flag"), ",")
		usage := field.Tag.Get("usage")
		switch {
		case field.Anonymous:
			addFlags(flags, fields.Field(i))
			continue
		case name == "":
			continue
		}
		switch to := fields.Field(i).Addr().Interface().(type) {
		case *bool:
			flags.BoolVarP(to, name, letter, *to, usage)
		case *string:
			flags.StringVarP(to, name, letter, *to, usage)
		case *prefix:
			flags.StringVarP(&to.text, name, letter, to.text, usage)
		case *[]string:
			flags.StringArrayVarP(to, name, letter, *to, usage)
		case *commaList:
			flags.StringSliceVarP((*[]string)(to), name, letter, *to, usage)
		case *int:
			flags.IntVarP(to, name, letter, *to, usage)
		case *int64:
			flags.Int64VarP(to, name, letter, *to, usage)
		case *uint64:
			flags.Uint64VarP(to, name, letter, *to, usage)
		case *time.Duration:
			flags.DurationVarP(to, name, letter, *to, usage)
		case *size:
			addParsed(flags, to, name, usage, "size", parseSize)
		case *rate:
			addParsed(flags, to, name, usage, "size", parseRate)
		case *age:
			addParsed(flags, to, name, usage, "time", parseAge)
		}
	}
}

// addParsed adds a flag whose value parse reads. Its usage has the word what for the value.
func addParsed[T, P ~int64](flags *pflag.FlagSet, to *T, name, usage, what string, parse func(string) (P, error)) {
	flags.Func(name, strings.Replace(usage, what, "`"+what+"`", 1), func(text string) error {
		value, err := parse(text)
		*to = T(value)
		return err
	})
}

// parseRate reads a number of bytes a second, a size with its unit, or 0 for no limit.
func parseRate(text string) (int64, error) {
	switch {
	case text == "0":
		return 0, nil
	case strings.Trim(text, "0123456789.") == "": // such flags were numbers of KiB once
		return 0, errors.New("want a number and a unit, such as 512K")
	}
	return parseSize(text)
}

// parseSize reads a number of bytes with a unit: K, M, G or T, which are powers of 1024, with or
// without iB. "" is 0.
func parseSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	upper := strings.ToUpper(strings.TrimSpace(text))
	number := strings.TrimRight(upper, "KMGTIB ")
	unit := strings.TrimSpace(upper[len(number):])
	power := strings.Index("BKMGT", strings.TrimSuffix(cmp.Or(unit, "B"), "IB"))
	if power < 0 || len(unit) > 1 && len(unit) != len("KIB") {
		return 0, errors.New("the unit is none of K, M, G, T")
	}
	factor := float64(int64(1) << (10 * power))
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !(n*factor >= 1) || n*factor > 1<<62 || strings.ContainsAny(number, "EXPN_") {
		return 0, errors.New("want a number and a unit, such as 500M")
	}
	return int64(n * factor), nil
}

// parseAge reads a duration with units that time.ParseDuration does not know: d for days, w for
// weeks, y for years of 365 days. "" is 0.
func parseAge(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	const day = 24 * time.Hour
	unit := map[byte]time.Duration{'d': day, 'w': 7 * day, 'y': 365 * day}[text[len(text)-1]]
	if unit == 0 {
		if d, err := time.ParseDuration(text); err == nil && d > 0 {
			return d, nil
		}
	} else if n, err := strconv.ParseUint(text[:len(text)-1], 10, 32); err == nil && n > 0 && n <= uint64(math.MaxInt64/unit) {
		return time.Duration(n) * unit, nil
	}
	return 0, errors.New("want a time above 0, such as 12h, 30d, 8w or 1y")
}
