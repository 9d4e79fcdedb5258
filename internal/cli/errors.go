package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/filetree"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/spf13/cobra"
)

// The exit codes of ledgerd.
const (
	ExitDone         = 0  // the verb has done everything
	ExitError        = 1  // the verb has not done its work
	ExitUsage        = 2  // the arguments are wrong
	ExitPartly       = 3  // parts left out, each with a warning, or an error after finished work
	ExitNoRepository = 10 // the directory holds no repository
	ExitLocked       = 11 // another process holds the repository
	ExitWrongKey     = 12 // the key does not fit the cloud
	ExitCorrupt      = 20 // damage was found

	ExitInterrupted = 130 // the verb was interrupted
)

// ExitCode returns the exit code for an error; ExitDone for nil.
func ExitCode(err error) int {
	switch {
	case err == nil:
		return ExitDone
	case is[*usageError](err):
		return ExitUsage
	case errors.Is(err, ledger.ErrNoRepository):
		return ExitNoRepository
	case errors.Is(err, ledger.ErrLocked):
		return ExitLocked
	case errors.Is(err, ledger.ErrWrongKey):
		return ExitWrongKey
	case errors.Is(err, ledger.ErrCorrupt):
		return ExitCorrupt
	case is[*partlyError](err), errors.Is(err, errOutput):
		return ExitPartly
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	}
	return ExitError
}

// partlyError is the error of a verb that has done part of its work.
type partlyError struct{ error }

func (e *partlyError) Unwrap() error { return e.error }

// partly marks err as the error of a verb that has done part of its work, if done is true.
func partly(err error, done bool) error {
	if err == nil || !done {
		return err
	}
	return &partlyError{err}
}

// closing closes c and joins the error of the work with it, err, with that of closing. If there is
// only the latter, the work is done: a commit is durable before its page is closed.
func closing(err error, c io.Closer) error {
	closed := c.Close()
	return errors.Join(err, partly(closed, err == nil))
}

// errOutput reports that a verb has done its work but could not print the result.
var errOutput = errors.New("the verb is done, and its output could not be written")

// usageError reports wrong arguments of a verb.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// asUsage makes a usage error of an error about an argument; nil stays nil.
func asUsage(what string, err error) error {
	if err == nil {
		return nil
	}
	return usagef("%s%w", what, err)
}

// usage makes a usage error of an error that cobra found before the verb began.
func (a *app) usage(root *cobra.Command, err error) error {
	if is[*usageError](err) {
		return err
	}
	cmd, rest, findErr := root.Find(a.process.Args)
	if findErr != nil || cmd == nil {
		cmd = root
	}
	a.verb = cmd
	unknown := strings.HasPrefix(err.Error(), "unknown command")
	if unknown && cmd == root {
		root.Flags().SetInterspersed(false) // cobra takes a verb for the value of an unknown flag before it
		if flagErr := root.ParseFlags(a.process.Args); flagErr != nil {
			return a.unknownFlag(root, flagErr)
		}
	}
	if unknown && cmd.HasSubCommands() {
		return a.unknownVerb(cmd, rest, err)
	}
	if unknown || strings.Contains(err.Error(), "arg(s)") {
		err = fmt.Errorf("the number of arguments is wrong, want: %s", strings.TrimSuffix(cmd.UseLine(), " [flags]"))
	}
	return &usageError{flagError(err)}
}

// unknownVerb adds the verbs with a similar name to an error about an unknown verb.
func (a *app) unknownVerb(of *cobra.Command, args []string, err error) error {
	first, _, _ := strings.Cut(err.Error(), "\n") // cobra's suggestions follow
	err = usagef("%s", first)
	if i := slices.IndexFunc(args, func(arg string) bool { return strings.Contains(first, strconv.Quote(arg)) }); i >= 0 {
		if now := movedHint(of, args[i]); now != "" {
			return withHint(usagef("there is no verb %s any more", args[i]), "%s", now)
		}
		var near []string
		for distance := 1; len(near) == 0 && distance <= 2; distance++ {
			of.SuggestionsMinimumDistance = distance
			near = of.SuggestionsFor(args[i])
		}
		for i, name := range near {
			near[i] = a.process.Program + strings.TrimPrefix(of.CommandPath(), programName) + " " + name
		}
		if len(near) > 0 {
			return withHint(err, "%s; %s --help lists all verbs", strings.Join(near, ", or "), a.process.Program)
		}
	}
	return err
}

// classedf returns an error with a complete text of its own, which matches a sentinel.
func classedf(sentinel error, format string, args ...any) error {
	return base.WithClass(fmt.Errorf(format, args...), sentinel)
}

// found returns the error of a verb that has found damage.
func found(n int, noun string) error {
	return fmt.Errorf("%s found: %w", countText(n, noun), ledger.ErrCorrupt)
}

// hintError is an error with a hint that replaces the general one.
type hintError struct {
	err  error
	hint string
}

func (e *hintError) Error() string { return e.err.Error() }
func (e *hintError) Unwrap() error { return e.err }

func withHint(err error, format string, args ...any) error {
	return &hintError{err, fmt.Sprintf(format, args...)}
}

// is reports whether err is, or wraps, an error of a type.
func is[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// hintFor adds a hint to an error that matches a sentinel. The hint replaces the general one.
func hintFor(err, sentinel error, format string, args ...any) error {
	if !errors.Is(err, sentinel) {
		return err
	}
	return withHint(err, format, args...)
}

// roomHint is the hint for a full disk.
const roomHint = "make room on the disk; no commit is lost"

// hintOf returns the hint that tells the user what to try.
func (a *app) hintOf(err error) string {
	if e, ok := errors.AsType[*hintError](err); ok {
		return e.hint
	}
	corrupt, _ := errors.AsType[*ledger.CorruptError](err)
	damaged := func(where string) bool { return corrupt != nil && corrupt.Where == where }
	of, ofBucket := errors.AsType[*bucket.Error](err)
	setCloud := a.command("cloud", "set", "URL", "--key-file", "FILE")
	reupload := a.command("sync", "--reupload")
	serves := a.verb != nil && a.verb.Name() == "serve"
	then := "nothing is lost; " + choose(serves, "sync then continues", "then run it again")
	for _, h := range []struct {
		holds bool
		hint  string
	}{
		{is[*usageError](err), a.usageHint()},
		{is[*ledger.LockedError](err), lockedHint(err)},
		{is[*bucket.UnfitError](err), "name a bucket of another store; " + a.command("cloud", "probe", "URL") +
			" tests one without setting it"},
		{ofBucket && errors.Is(err, ledger.ErrNoSpace), "make room in the bucket, or raise its quota; " + then},
		{ofBucket && errors.Is(err, fs.ErrPermission),
			"check the rights in the bucket, of the directory or of the credentials; " + then},
		{ofBucket && of.Op == bucket.OpPut && of.Class == bucket.ClassNotFound,
			"make the bucket, or correct its name in the URL"},
		{ofBucket && errors.Is(err, ledger.ErrNetwork) && errors.Is(err, fs.ErrNotExist),
			"if the bucket is on a disk that is not mounted, mount it; " +
				"if it was deleted on purpose, make the directory again; " + then},
		{is[*filetree.RemovalError](err), "if this is intended: --mirror; to only add and change files: --no-delete. " +
			"Removed files stay in the history"},
		{damaged("key file"), "the key file is damaged, or is not a key file: replace it by your copy of the key, " +
			"or name the copy with " + setCloud},
		{damaged("file cloud"), setCloud + ", with its former cloud"},
		{damaged("file repository"), a.command("check", "--repair") + " makes it again; no stored data is lost"},
		{errors.Is(err, ledger.ErrNoRepository), "create one with " + a.process.Program +
			" init, or name another directory with --dir or LEDGER_DIR"},
		{errors.Is(err, ledger.ErrShutOut), "set the cloud with a key file or passphrase that still opens it: " + setCloud +
			"; no local data is lost"},
		{errors.Is(err, ledger.ErrKeyFilePassphrase), "give the passphrase of the key file in " + passphraseVariable +
			" or with --passphrase-file"},
		{errors.Is(err, ledger.ErrWrongKey), "give the key of that bucket with --key-file or in " + passphraseVariable +
			", or --plaintext if it is meant to have none; cloud set stores the path of another key file"},
		{errors.Is(err, ledger.ErrDeleted), a.deletedHint(err)},
		{errors.Is(err, ledger.ErrCloudRolledBack), "if the bucket is on a disk that is not mounted, mount it; " +
			"if it was emptied or restored on purpose: " + reupload + "; no local data is lost"},
		{errors.Is(err, ledger.ErrCloudReplaced), "if the bucket is on a disk that is not mounted, mount it; " +
			"if it was replaced on purpose: " + reupload + "; no local data is lost"},
		{errors.Is(err, ledger.ErrCloudDamaged), "restore the named object; or, on a device with its content: " + a.process.Program +
			" sync --reupload, or " + a.process.Program + " cloud check --repair if that does not help"},
		{errors.Is(err, ledger.ErrNoCloud), setCloud},
		{errors.Is(err, ledger.ErrCorrupt), a.command("check")},
		{errors.Is(err, ledger.ErrNoSpace) || errors.Is(err, syscall.ENOSPC), roomHint},
		{errors.Is(err, ledger.ErrNetwork),
			"connect and run it again; nothing is lost, and local data can be read and changed meanwhile"},
		{errors.Is(err, ledger.ErrNeedsFetch) && a.unwritable, "the value is in the cloud only, and cannot be stored here: " +
			"run it as the owner, on a disk that can be written"},
		{errors.Is(err, ledger.ErrNeedsFetch), "the value is in the cloud only; connect and read it again"},
		{errors.Is(err, syscall.EROFS), "the disk is read-only: verbs that read work; to write, mount it for writing"},
		{errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOTDIR), a.fileHint(err)},
		{errors.Is(err, errServeStops), "run it again"},
		{errors.Is(err, errOutput), "the work is done; check where the output goes"},
		{errors.Is(err, context.Canceled), a.interruptedHint()},
		{errors.Is(err, fs.ErrNotExist), a.fileHint(err)},
	} {
		if h.holds {
			return h.hint
		}
	}
	return ""
}

// usageHint returns the command that prints the verb's help.
func (a *app) usageHint() string {
	if a.verb == nil {
		return ""
	}
	return a.process.Program + strings.TrimPrefix(a.verb.CommandPath(), programName) + " --help"
}

// lockedHint is the hint for a repository that another process holds.
func lockedHint(err error) string {
	if e, ok := errors.AsType[*ledger.LockedError](err); ok && e.PID != 0 {
		return fmt.Sprintf("wait with --lock-timeout 30s; process %d holds the repository, and runs other verbs if it is serve", e.PID)
	}
	return "wait with --lock-timeout 30s"
}

// deletedHint is the hint for a page that another device has deleted for all devices.
func (a *app) deletedHint(err error) string {
	name := ""
	if e, ok := errors.AsType[*ledger.PageError](err); ok {
		name = nameOf(e.Page.Ledger, e.Name, e.Page.ID)
	} else if len(a.named) == 1 {
		name = a.named[0].text
	}
	helps := "delete the page here too with --discard-unsynced"
	if name != "" {
		helps = a.command("delete", name, "--discard-unsynced") + " deletes it here too"
	}
	return helps + "; to keep the data, copy it to a page with another name"
}

// fileHint says what to do about the file of an error. It is "" when the error has no file as such;
// then the error's text says more.
func (a *app) fileHint(err error) string {
	path, op := "", ""
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		path, op = e.Path, e.Op
	} else if e, ok := errors.AsType[*os.LinkError](err); ok {
		path = e.New
	}
	in, inErr := inside(path, a.dir)
	_, parentErr := os.Stat(filepath.Dir(path))
	file, parent := shellQuote(path), shellQuote(filepath.Dir(path))
	switch own := a.dir != "" && inErr == nil && in; {
	case path == "":
		return ""
	case errors.Is(err, syscall.ENOTDIR) && path == a.dir:
		return "it is a file: name the directory of a repository with --dir or LEDGER_DIR"
	case errors.Is(err, syscall.ENOTDIR):
		return file + " is a file, or is below one: name another path"
	case errors.Is(err, fs.ErrNotExist) && (op == "mkdir" || parentErr != nil):
		return parent + " does not exist, or cannot be written: name another directory"
	case errors.Is(err, fs.ErrNotExist):
		return "check that " + file + " exists, or name another file"
	case op == "mkdir":
		return "check the permissions of " + parent
	case own && isFile(path):
		return "check the permissions of " + file
	case own:
		return fmt.Sprintf("this user may not %s the directory of the repository: run it as its owner (see ls -ld %s)",
			choose(path == a.dir, "read", "write in"), shellQuote(a.dir))
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) { // a file that cannot be made
		file = parent
	}
	return "check the permissions of " + file
}

// isFile reports whether there is something other than a directory at path.
func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && !info.IsDir()
}

// interruptedHint describes the state after an interrupted verb.
func (a *app) interruptedHint() string {
	committing := []string{"put", "rm", "import", "add", "lock", "tag", "restore", "merge", "undo"}
	added := a.verb == nil || !slices.Contains(committing, a.verb.Name())
	return choose(added, "finished work is kept; run it again", "no commit was made; run it again")
}

// printError prints an error and its hint.
func (a *app) printError(err error) {
	hint := a.hintOf(err)
	message := strings.Join(uniq(strings.Split(err.Error(), "\n")), "; ") // of joined errors
	if errors.Is(err, context.Canceled) {
		message = "interrupted: " + message
	}
	a.complain(object{"error", message, "kind", kindName(err), "hint?", hint, "exit", ExitCode(err)}, message, hint)
}

// complain prints to the standard error: j with --json, else the text and the hint.
func (a *app) complain(j object, text, hint string) {
	if line, err := marshal(j); a.json && err == nil {
		fmt.Fprintf(a.process.Stderr, "%s\n", line)
		return
	}
	fmt.Fprintf(a.process.Stderr, "ledgerd: %s\n", printable(text))
	if hint != "" {
		fmt.Fprintf(a.process.Stderr, "   try: %s\n", printable(hint))
	}
}

// uniq removes empty lines and repeated ones.
func uniq(lines []string) []string {
	seen := map[string]bool{"": true}
	return slices.DeleteFunc(lines, func(line string) bool {
		again := seen[line]
		seen[line] = true
		return again
	})
}

// kindNames are the kinds of errors, as --json prints them.
var kindNames = map[ledger.Kind]string{
	ledger.KindInvalid: "invalid", ledger.KindNotFound: "notFound", ledger.KindConflict: "conflict", ledger.KindUnavailable: "unavailable",
	ledger.KindNoSpace: "noSpace", ledger.KindCorrupt: "corrupt", ledger.KindClosed: "closed", ledger.KindUnsupported: "unsupported",
	ledger.KindPermission: "permission",
}

func kindName(err error) string {
	if ExitCode(err) == ExitUsage {
		return "usage"
	}
	return cmp.Or(kindNames[ledger.KindOf(err)], "internal")
}

// warn prints a warning about an omission, and makes the exit code ExitPartly.
func (a *app) warn(err error) {
	a.warnings++
	a.printWarning(err.Error(), a.hintOf(err))
}

// printWarning prints a warning and its hint.
func (a *app) printWarning(text, hint string) {
	a.complain(object{"warning", text, "hint?", hint}, "warning: "+text, hint)
}

// told prints a line with a timestamp, as in a log, for a verb that keeps running.
func (a *app) told(at time.Time, text, hint string) {
	stamp := timeText(at.Truncate(time.Second))
	a.complain(object{"warning", text, "time?", stamp, "hint?", hint},
		stamp+" "+text+choose(hint != "", "; try: "+hint, ""), "")
}

// marshal encodes v on one line. It does not escape for HTML, but escapes control characters of
// terminals.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return filetree.EscapeJSON(bytes.TrimSuffix(b.Bytes(), []byte("\n"))), nil
}

// command returns a command line that works on the current repository.
func (a *app) command(words ...string) string {
	if a.dir != "" {
		words = append([]string{"--dir", a.dir}, words...)
	}
	return strings.TrimRight(a.process.Program+" "+shellWords(words), " ")
}

// shellWords returns words as a user types them in a shell.
func shellWords(words []string) string { return strings.Join(objects(words, shellQuote), " ") }

// plainWord matches a word that needs no quotes in a shell.
var plainWord = regexp.MustCompile(`^[a-zA-Z0-9/._+:=@%~,-]+$`)

// shellQuote quotes a word for a POSIX shell, if necessary.
func shellQuote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
