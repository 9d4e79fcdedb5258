package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/daemon"
	"github.com/spf13/cobra"
)

// servedPages is the number of pages that serve keeps open for sync.
const servedPages = 1024

// runsHere reports whether a verb never runs in the process of serve. Such a verb works on
// something other than the repository, or on serve itself.
func runsHere(cmd *cobra.Command) bool {
	switch strings.TrimPrefix(cmd.CommandPath(), programName+" ") {
	case "serve", "clone", "key init", "key recover", "cloud probe", "completion":
		return true
	case "key show": // of a key file
		return cmd.Flags().NArg() > 0
	}
	return false
}

type serveFlags struct {
	passphraseFlag
	spaceFlags
	paceFlags
	MinPoll time.Duration `flag:"min-poll" usage:"shortest interval between polls of the cloud (default 2s)"`
	MaxPoll time.Duration `flag:"max-poll" usage:"longest interval between polls of the cloud (default 5m)"`
	NoGC    bool          `flag:"no-gc" usage:"do not collect garbage"`
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	if f.MinPoll < 0 || f.MaxPoll < 0 {
		return usagef("--min-poll and --max-poll want 0 or more")
	}
	if least := cmp.Or(f.MinPoll, 2*time.Second); f.MaxPoll > 0 && f.MaxPoll < least {
		return usagef("--max-poll is %v, below --min-poll, which is %v", f.MaxPoll, least)
	}
	o := ledger.Options{MustExist: true} // as sync: a mistyped directory must not pass for an empty repository
	o.Sync.MinPoll, o.Sync.MaxPoll, o.Sync.OpenPages = f.MinPoll, f.MaxPoll, servedPages
	o.Collection.Off = f.NoGC
	f.bound(&o)
	f.limit(&o)
	repo, err := a.open(ctx, o)
	if err != nil {
		return err
	}
	return errors.Join(a.serveRepository(ctx, repo), repo.Close())
}

// errServeStops is the cancellation cause of a verb's context when the serve that runs the verb
// stops.
var errServeStops = errors.New("serve has stopped")

func (a *app) serveRepository(ctx context.Context, repo *ledger.Repository) error {
	s, err := daemon.Listen(a.dir)
	if err != nil {
		return err
	}
	serving, stop := context.WithCancelCause(context.WithoutCancel(ctx)) // so that stop sets the cause
	unhook := context.AfterFunc(ctx, func() { stop(errServeStops) })
	defer unhook()
	var wg sync.WaitGroup
	wg.Go(func() { a.report(serving, repo, stop) })
	if _, ok := repo.Cloud(); !ok {
		a.tell("no cloud is set: serve only runs the verbs of this machine")
	}
	a.tell("serving %s until an interrupt", a.dir)
	err = s.Serve(serving, func(ctx context.Context, r daemon.Request, stdin io.Reader, stdout, stderr io.Writer) int {
		return Main(ctx, Process{
			Program: r.Program, Args: r.Args, Stdin: stdin, Stdout: stdout, Stderr: stderr, Buckets: a.process.Buckets, Clock: a.process.Clock,
			LookupEnv: func(name string) (string, bool) { v, ok := r.Env[name]; return v, ok },
			served:    repo, workDir: r.Dir, pid: r.PID, Asks: r.Asks,
		})
	})
	stop(errServeStops)
	wg.Wait()
	a.warnings = 0 // trouble in the meantime does not set the exit code
	if cause := context.Cause(serving); !errors.Is(cause, errServeStops) {
		err = errors.Join(err, cause)
	}
	return err
}

// report prints failures of sync until ctx ends. It stops serve if nothing can be synced.
func (a *app) report(ctx context.Context, repo *ledger.Repository, stop func(error)) {
	log := &serveLog{app: a, since: map[string]time.Time{}}
	for {
		c, ok := repo.Cloud()
		if ok && c.Err != nil { // not connected to the cloud: waiting does not help
			stop(fmt.Errorf("nothing can be synced: %w", c.Err))
			return
		}
		log.look(repo.SyncStates(), c.ListErr)
		if pause(ctx, a.process.Clock, reportEvery) != nil {
			return
		}
	}
}

// forwarded is the error that ends a verb which another process has run.
type forwarded struct{ code int }

func (f *forwarded) Error() string { return fmt.Sprintf("exit code %d", f.code) }

// forward lets the process that serves the repository run the command. It returns nil if no process
// serves the repository, a *forwarded if the command has run, else the error.
func (a *app) forward(ctx context.Context) error {
	if a.process.served != nil || a.dir == "" || runsHere(a.verb) {
		return nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return nil // run here: without it the server cannot resolve relative paths
	}
	args := a.process.Args
	if len(a.again) > 0 {
		end := slices.Index(args, "--")
		if end < 0 {
			end = len(args)
		}
		args = slices.Concat(args[:end], a.again, args[end:])
	}
	r := daemon.Request{Program: a.process.Program, Args: args, Env: a.environment(), Dir: dir, PID: os.Getpid(), Asks: a.asks()}
	code, ok, err := daemon.Run(ctx, a.dir, r, a.process.Stdin, a.stdout, a.process.Stderr)
	switch {
	case err != nil:
		return err
	case ok:
		return &forwarded{code}
	}
	return nil
}

// ofServe warns that serve's own settings count for a verb that runs in it.
func (a *app) ofServe(what string) {
	a.printWarning("serve runs this verb with its own "+what, "give them to serve, or run the verb without it")
}

// environment returns the variables that commands read.
func (a *app) environment() map[string]string {
	env := map[string]string{}
	names := []string{passphraseVariable, "HOME", "XDG_DATA_HOME", "LocalAppData"}
	for _, name := range slices.AppendSeq(names, maps.Values(environmentFlags)) {
		if v, ok := a.process.LookupEnv(name); ok {
			env[name] = v
		}
	}
	return env
}

// path resolves a path of the user. When another process runs the verb, the base is the directory
// in which the user started the verb, and open files such as /dev/stdin are those of that process.
func (a *app) path(p string) string {
	if a.process.workDir == "" || p == "" || p == "-" {
		return p
	}
	if !filepath.IsAbs(p) {
		return filepath.Join(a.process.workDir, p)
	}
	process := fmt.Sprintf("/proc/%d/", a.process.pid)
	for i, own := range []string{"/dev/stdin", "/dev/stdout", "/dev/stderr"} {
		if p == own {
			return process + "fd/" + strconv.Itoa(i)
		}
	}
	if rest, ok := strings.CutPrefix(p, "/dev/fd/"); ok {
		return process + "fd/" + rest
	}
	if rest, ok := strings.CutPrefix(p, "/proc/self/"); ok {
		return process + rest
	}
	return p
}

// reportEvery is the interval at which serve looks for failures of sync.
const reportEvery = 10 * time.Second

// remindEvery is the interval at which lasting failures are reported again.
const remindEvery = time.Hour

// maxNamed bounds the page names in one line about pages that fail for the same reason.
const maxNamed = 3

// serveLog prints what serve reports of sync, one line with a timestamp each.
type serveLog struct {
	app   *app
	since map[string]time.Time // begin of the failures, by page name, or otherPages for the list of pages
	next  time.Time            // of the next report of all failures
}

// otherPages stands for a page when listing the pages of other devices fails. No page has that
// name.
const otherPages = ""

// look reports the pages that have begun to fail, and those that sync again. Every remindEvery it
// reports all that fail. listErr is the error of listing the pages of other devices.
func (l *serveLog) look(states []ledger.SyncState, listErr error) {
	errs, here := map[string]error{}, map[string]bool{otherPages: true}
	if listErr != nil {
		errs[otherPages] = listErr
	}
	for _, s := range states {
		name := nameOf(s.Ledger, s.Name, s.Page)
		here[name] = true
		if err := syncErr(s); err != nil {
			errs[name] = err
		}
	}
	now := l.app.process.Clock.Now()
	var again []string
	for name := range l.since {
		if errs[name] == nil {
			delete(l.since, name)
			if here[name] { // else the page was evicted or deleted
				again = append(again, name)
			}
		}
	}
	remind := !now.Before(l.next)
	due := map[string][]string{} // by hint: pages whose failures have the same hint share a line
	for name, err := range errs {
		if l.since[name].IsZero() || remind {
			hint := l.app.hintOf(err)
			due[hint] = append(due[hint], name)
		}
	}
	if remind {
		l.next = now.Add(remindEvery)
	}
	for hint, names := range due {
		slices.Sort(names)
		text := fmt.Sprintf("sync of %s fails", namesText(names))
		if at := l.since[names[0]]; !at.IsZero() {
			text += " since " + timeText(at.Truncate(time.Second))
		}
		l.app.told(now, text+": "+errs[names[0]].Error(), hint)
		for _, name := range names {
			l.since[name] = cmp.Or(l.since[name], now)
		}
	}
	if len(again) > 0 {
		slices.Sort(again)
		l.app.told(now, "sync of "+namesText(again)+" works again", "")
	}
}

// namesText names the pages of one line.
func namesText(names []string) string {
	if len(names) > 1 && names[0] == otherPages {
		names = names[1:] // the list fails for the same reason
	}
	switch rest := len(names) - maxNamed; {
	case names[0] == otherPages:
		return "the list of pages"
	case len(names) == 1:
		return "page " + names[0]
	case rest > 0:
		return fmt.Sprintf("%s (%s and %d more)", countText(len(names), "pages"), strings.Join(names[:maxNamed], ", "), rest)
	}
	return "pages " + strings.Join(names, ", ")
}
