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
	"github.com/ledgerd/ledger/internal/base"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Arguments that can never be right end with ExitUsage. Before a verb opens anything, it verifies
// its arguments with functions of the library, such as admin.ValidateKey. wrong turns their errors
// into usage errors. An error of work that has begun is never a usage error: the library returns
// ErrInvalid for other causes, too.

// flagRules maps the flags that mean the same for all verbs to functions that verify their values.
// An empty value is that of the default.
var flagRules = map[string]func(string) error{
	"message":      admin.ValidateMessage,
	"limit":        notBelowZero("limit"),
	"offset":       notBelowZero("offset"),
	"lock-timeout": notBelowZero("lock-timeout"),
	"device":       admin.ValidateDevice,
}

func notBelowZero(flag string) func(string) error {
	return func(n string) error {
		if n[0] == '-' {
			return classedf(ledger.ErrInvalid, "--%s is %s, want 0 or more", flag, n)
		}
		return nil
	}
}

// revisionFlags are the flags that name a revision of the page in the first argument.
var revisionFlags = []string{"at", "from", "parent", "to"}

// checkFlags verifies the values of revisionFlags and of the flags in flagRules.
func (a *app) checkFlags(cmd *cobra.Command) error {
	var err error
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		revision := slices.Contains(revisionFlags, f.Name)
		rule := choose(revision, admin.ValidateRevision, flagRules[f.Name])
		if rule != nil && err == nil && (f.Value.String() != "" || revision && f.Changed) {
			err = wrong(rule(f.Value.String()))
		}
	})
	return err
}

// flagError describes in words which values a flag accepts.
func flagError(err error) error {
	if e, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		if want := flagWants(e.GetFlag()); want != "" {
			return fmt.Errorf("--%s wants %s, not %q", e.GetFlag().Name, want, e.GetValue())
		}
		return fmt.Errorf("--%s %q: %w", e.GetFlag().Name, e.GetValue(), errors.Unwrap(e)) // text of the parser
	}
	if set := exclusiveFlags.FindStringSubmatch(err.Error()); set != nil {
		return fmt.Errorf("--%s exclude each other", strings.Join(strings.Fields(set[1]), " and --"))
	}
	return err
}

// unknownFlag makes a usage error of an error about a flag. For a former flag, the hint names its
// replacement.
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
		return withHint(wrong, "%s; %s", a.usageHint(), choose(cmd.HasParent(),
			"an argument that begins with - stands behind --", "the flags of a verb stand behind the verb"))
	}
	return wrong
}

// exclusiveFlags matches cobra's error about flags that exclude each other. Its group is the flags
// that were set.
var exclusiveFlags = regexp.MustCompile(`^if any flags in the group .*; \[(.*)\] were all set$`)

// flagWants describes the values that a flag accepts; "" if it accepts any text.
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

// usageWord matches the arguments in a usage line: words, and groups in brackets or braces.
var usageWord = regexp.MustCompile(`\[[^\[\]]*\]|\{[^{}]*\}|[^ ]+`)

// byUsage derives properties of a command, and of those below it, from their usage lines: the
// number of arguments, and the completion of arguments and of flags that name revisions. It
// replaces no function that a command already has.
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

// maxArguments is more than any command line has.
const maxArguments = 1 << 30

// wrong makes a usage error of an error about an argument; nil stays nil.
func wrong(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{bare(err)}
}

// bare removes the sentinel from the end of an error's text, where the text before it says
// everything. The result still matches err.
func bare(err error) error {
	text := err.Error()
	for _, sentinel := range []error{ledger.ErrNotFound, ledger.ErrInvalid, ledger.ErrTooLarge, ledger.ErrGone} {
		text = strings.TrimSuffix(text, fmt.Sprintf(": %v", sentinel))
	}
	return base.WithClass(errors.New(text), err)
}

// size is a flag in bytes, and rate one in bytes a second. age is a time with the units of
// parseAge, and commaList a list in one argument.
type (
	size      int64
	rate      int64
	age       time.Duration
	commaList []string
)

// verb makes the command of a verb. The fields of F are its flags and arguments, and do receives
// their values. more adds properties of the command.
func verb[F any](a *app, path string, f F, do func(context.Context, F) error,
	more ...func(*cobra.Command)) *cobra.Command {
	fields := reflect.ValueOf(&f).Elem()
	cmd := a.define(path, func(ctx context.Context, args []string) error {
		_, err := a.readArguments(fields, args)
		if opens, ok := any(&f).(interface {
			open(context.Context, *app) error
		}); ok && err == nil {
			err = opens.open(ctx, a)
		}
		if err != nil {
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

// onPage is verb for a verb on the page in its first argument.
func onPage[F interface{ page() pageName }](a *app, path string, how access, f F,
	do func(context.Context, *ledger.Page, F) error) *cobra.Command {
	return verb(a, path, f, func(ctx context.Context, f F) error {
		return a.page(ctx, f.page(), how, func(page *ledger.Page) error { return do(ctx, page, f) })
	})
}

// onRepository is verb for a verb on the repository, opened for writing.
func onRepository[F any](a *app, path string, f F,
	do func(context.Context, *ledger.Repository, F) error) *cobra.Command {
	return verb(a, path, f, func(ctx context.Context, f F) error {
		return a.change(ctx, func(repo *ledger.Repository) error { return do(ctx, repo, f) })
	})
}

// excluding makes flags exclude each other.
func excluding(flags ...string) func(*cobra.Command) {
	return func(cmd *cobra.Command) { cmd.MarkFlagsMutuallyExclusive(flags...) }
}

// taking bounds the number of arguments, in place of the usage line.
func taking(least, most int) func(*cobra.Command) {
	return func(cmd *cobra.Command) { cmd.Args = cobra.RangeArgs(least, most) }
}

// completing sets the function that completes the arguments.
func completing(fn cobra.CompletionFunc) func(*cobra.Command) {
	return func(cmd *cobra.Command) { cmd.ValidArgsFunction = fn }
}

// onlyThese rejects a first argument that beginning does not list.
func onlyThese(cmd *cobra.Command) {
	cmd.Args = cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs)
}

// beginning lists the words that the first argument may be.
func beginning(words ...string) func(*cobra.Command) {
	return func(cmd *cobra.Command) { cmd.ValidArgs = words }
}

// changed reports whether the command line sets a flag.
func (a *app) changed(flag string) bool { return a.verb.Flags().Changed(flag) }

// argument is a field that parses itself from one argument, or from several in turn.
type argument interface {
	read(a *app, text string) error
}

// readArguments parses arguments into the fields with the tag arg, in their order: one for each
// field, or all remaining ones with arg:"...". It also parses flags of type prefix, which depend on
// --hex.
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

// addFlags defines a flag for every field with the tag flag. The tag has the flag's name and, after
// a comma, its letter. The tag usage describes the flag, and the value of the field is its default.
// Embedded structs add their flags.
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

// addParsed adds a flag whose value parse reads. The word what in its usage stands for the value.
func addParsed[T, P ~int64](flags *pflag.FlagSet, to *T, name, usage, what string, parse func(string) (P, error)) {
	flags.Func(name, strings.Replace(usage, what, "`"+what+"`", 1), func(text string) error {
		value, err := parse(text)
		*to = T(value)
		return err
	})
}

// parseRate parses a number of bytes a second: a size with its unit, or 0 for no limit.
func parseRate(text string) (int64, error) {
	switch {
	case text == "0":
		return 0, nil
	case strings.Trim(text, "0123456789.") == "": // older versions took a number of KiB
		return 0, errors.New("want a number and a unit, such as 512K")
	}
	return parseSize(text)
}

// parseSize parses a number of bytes with a unit: K, M, G or T, which are powers of 1024, with or
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
		return 0, errors.New("unknown unit, want K, M, G or T")
	}
	factor := float64(int64(1) << (10 * power))
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || !(n*factor >= 1) || n*factor > 1<<62 || strings.ContainsAny(number, "EXPN_") {
		return 0, errors.New("want a number and a unit, such as 500M")
	}
	return int64(n * factor), nil
}

// parseAge parses a duration. It adds units to those of time.ParseDuration: d for days, w for
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
