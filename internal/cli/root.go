package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/spf13/cobra"
)

// root builds the command tree.
func (a *app) root() *cobra.Command {
	root := a.define("", nil)
	root.Version, root.SilenceUsage, root.SilenceErrors = version(), true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		a.verb = cmd
		if err := a.fromEnvironment(cmd); err != nil {
			return err
		}
		return a.checkFlags(cmd)
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.dir, "dir", "", "repository directory (default: $LEDGER_DIR, else a directory of the platform; see: ledgerd help environment)")
	flags.BoolVar(&a.json, "json", false, "print JSON, one object a line (see: ledgerd help json)")
	flags.BoolVarP(&a.quiet, "quiet", "q", false, "print only results and errors")
	flags.BoolVar(&a.noProgress, "no-progress", false, "do not show progress")
	flags.BoolVar(&a.hex, "hex", false, "use hexadecimal digits for keys and prefixes, in arguments and output")
	flags.StringVar(&a.device, "device", "", "name of this device in commits")
	root.Flags().Bool("version", false, "print the version of ledgerd") // no -v: elsewhere it means verbose
	flags.DurationVar(&a.lockTimeout, "lock-timeout", defaultLockTimeout, "time to wait while another process holds the repository")
	root.SetFlagErrorFunc(a.unknownFlag)
	root.SetHelpCommand(a.helpCommand())
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)

	for _, g := range verbGroups {
		root.AddGroup(&g)
	}
	root.AddCommand(a.verbs()...)
	for _, topic := range topics {
		root.AddCommand(a.define(topic, nil))
	}
	a.byUsage(root)
	for _, c := range root.Commands() {
		c.SuggestFor = strings.Fields(otherWords[c.Name()])
	}
	return root
}

// verbs are the verbs of ledgerd. Each is implemented in the function of its name; help.txt
// describes it.
func (a *app) verbs() []*cobra.Command {
	format := a.completingFlag("format", cobra.FixedCompletions([]string{formatTree, formatLines},
		cobra.ShellCompDirectiveNoFileComp))
	return []*cobra.Command{
		verb(a, "put", putFlags{}, a.put, excluding("if-absent", "if-present", "if-equal")),
		verb(a, "get", getFlags{Length: -1}, a.get),
		verb(a, "ls", lsFlags{}, a.ls, taking(0, 2)),
		verb(a, "rm", rmFlags{}, a.rm, taking(1, maxArguments)),
		a.group("catalog",
			verb(a, "catalog add", catalogAddFlags{}, a.catalogAdd),
			verb(a, "catalog find", catalogFindFlags{}, a.catalogFind),
			verb(a, "catalog lock", catalogLockFlags{}, a.catalogLock, excluding("release", "expires")),
			verb(a, "catalog rm", catalogRmFlags{}, a.catalogRm, taking(1, maxArguments)),
			verb(a, "catalog ls", catalogRead{}, a.catalogLs),
			verb(a, "catalog check", catalogCheckFlags{}, a.catalogCheck),
			verb(a, "catalog import", catalogImportFlags{}, a.catalogImport),
			verb(a, "catalog export", catalogExportFlags{}, a.catalogExport)),
		a.group("permazen", verb(a, "permazen check", permazenFlags{}, a.permazenCheck)),

		verb(a, "import", importFlags{}, a.importPath, format, excluding("mirror", "no-delete")),
		verb(a, "export", exportFlags{}, a.exportPage, format),
		a.group("indexeddb",
			verb(a, "indexeddb ls", sourceArg{}, a.indexeddbLs),
			verb(a, "indexeddb check", sourceArg{}, a.indexeddbCheck),
			verb(a, "indexeddb import", profileFlags{}, a.indexeddbImport),
			verb(a, "indexeddb export", profileExportFlags{}, a.indexeddbExport)),

		verb(a, "log", logFlags{}, a.log, excluding("at", "heads"), excluding("graph", "diff"), excluding("ids", "oneline"),
			excluding("ids", "graph"), excluding("ids", "conflicts"), excluding("ids", "diff")),
		onPage(a, "diff", reads, diffFlags{To: "HEAD"}, a.diff),
		verb(a, "tag", tagFlags{}, a.tag, taking(1, 3), excluding("delete", "move")),
		onPage(a, "restore", changes, restoreFlags{}, a.restore),
		verb(a, "merge", mergeRuleFlags{}, a.merge, a.completingFlag("rule", completeRules)),
		onPage(a, "why", reads, whyFlags{}, a.why),
		onPage(a, "undo", changes, undoFlags{}, a.undo),
		verb(a, "watch", watchFlags{}, a.watch),

		a.group("key",
			verb(a, "key init", keyInitFlags{}, a.keyInit),
			verb(a, "key show", keyShowFlags{}, a.keyShow),
			onRepository(a, "key ls", passphraseFlag{}, a.keyList),
			verb(a, "key add", keyAddFlags{}, a.keyAdd, taking(1, 2), beginning(keyKinds...)),
			onRepository(a, "key rm", keyRotateFlags{}, a.keyRotate),
			onRepository(a, "key rotate", keyRotateFlags{}, a.keyRotate),
			verb(a, "key recover", keyRecoverFlags{Label: "recovered"}, a.keyRecover)),
		verb(a, "serve", serveFlags{}, a.serve),
		a.group("cloud",
			verb(a, "cloud set", cloudFlags{}, a.cloudSet),
			a.define("cloud show", a.cloudShow),
			verb(a, "cloud probe", cloudProbeFlags{}, a.cloudProbe),
			onRepository(a, "cloud check", cloudCheckFlags{}, a.cloudCheck),
			verb(a, "cloud leak", cloudLeakFlags{}, a.cloudLeak),
			onRepository(a, "cloud gc", dryRun{}, a.cloudGC),
			onRepository(a, "cloud pause", struct{}{}, cloudPause),
			onRepository(a, "cloud resume", struct{}{}, cloudResume),
			verb(a, "cloud compression", ruleFlags{}, a.cloudRule(compressionSwitch)),
			verb(a, "cloud dedup", ruleFlags{}, a.cloudRule(dedupSwitch)),
			onRepository(a, "cloud unset", dryRun{}, a.cloudUnset)),
		verb(a, "sync", syncFlags{}, a.sync),
		verb(a, "clone", cloneFlags{}, a.clone),
		verb(a, "fetch", fetchFlags{}, a.fetch),

		a.define("init", a.init),
		verb(a, "inspect", inspectFlags{}, a.inspect, taking(1, 3), completing(a.completeViews)),
		verb(a, "check", checkFlags{}, a.check),
		verb(a, "status", statusFlags{}, a.status),
		verb(a, "gc", gcFlags{}, a.gc),
		verb(a, "evict", evictFlags{}, a.evict),
		verb(a, "delete", deleteFlags{}, a.delete),
		a.define("backup", a.backup),
		verb(a, "completion", completionFlags{}, a.completion, beginning(shells...), onlyThese),
	}
}

// otherWords are the names of verbs in other tools.
var otherWords = map[string]string{
	"put": "set add commit store write", "get": "cat read", "ls": "list keys", "rm": "remove del unset", "log": "history commits",
	"sync": "push pull", "import": "save snapshot", "export": "checkout extract dump", "undo": "revert", "cloud": "remote", "check": "fsck verify",
}

// defaultLockTimeout is long enough for a short verb of another process, such as a look of watch,
// and short enough for a user to wait.
const defaultLockTimeout = 3 * time.Second

// verbGroups are the groups of verbs, in the order of --help.
var verbGroups = []cobra.Group{
	{ID: "keys", Title: "Keys and values:"}, {ID: "files", Title: "Files:"}, {ID: "history", Title: "History:"},
	{ID: "cloud", Title: "Devices and the cloud:"}, {ID: "care", Title: "Repository:"},
}

// run makes a cobra function of fn. A serve that has the repository open runs the verb instead.
func (a *app) run(fn runFunc) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		if err := a.forward(cmd.Context()); err != nil {
			return err
		}
		return fn(cmd.Context(), args)
	}
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// While another process holds the repository, open tries the lock and that process's socket again.
// It waits socketSoon at first, and doubles the pause up to socketEvery.
const (
	socketSoon  = 50 * time.Millisecond
	socketEvery = 500 * time.Millisecond
)

// open opens the repository. While another process holds it, open waits up to --lock-timeout, and
// tries that process's socket meanwhile: a starting serve holds the lock before it answers. If a
// serve has run the verb, the error is a *forwarded.
func (a *app) open(ctx context.Context, o ledger.Options) (*ledger.Repository, error) {
	if a.dir == "" {
		return nil, a.noDirectory()
	}
	a.complete(&o)
	began, left := a.process.Clock.Now(), a.lockTimeout
	for pause := socketSoon; ; pause = min(2*pause, socketEvery) {
		o.LockTimeout = min(pause, left)
		had := looseMode(a.dir)
		repo, err := ledger.Open(ctx, a.dir, &o)
		locked, ok := errors.AsType[*ledger.LockedError](err)
		if !ok {
			if err == nil {
				a.cautionModes("directory", a.dir, had)
			}
			return repo, err
		}
		if a.started { // completions were forwarded before
			if err := a.forward(ctx); err != nil {
				return nil, err
			}
		}
		waited := a.process.Clock.Now().Sub(began)
		if left = a.lockTimeout - waited; left <= 0 {
			if a.lockTimeout > 0 {
				locked.Waited = waited
			}
			return nil, locked // not err: its text has only the last pause
		}
	}
}

func (a *app) noDirectory() error {
	return withHint(fmt.Errorf("find the repository: no directory is given and the environment names no home: %w", ledger.ErrNoRepository),
		"name one with --dir or LEDGER_DIR")
}

// complete adds to the options of a verb those that all verbs share.
func (a *app) complete(o *ledger.Options) {
	o.LockTimeout, o.Device, o.Now = a.lockTimeout, a.device, a.process.Clock.Now
	alone := o.Sync.OpenPages == 0 // not serve, which merges and syncs in the background
	o.ManualMerge = alone          // verbs merge at their end, and report it
	o.MergeRules = func(string, ledger.PageID) []ledger.MergeRule { return layerRules() }
	o.Buckets, o.Sync.Manual, o.Sync.Merge = a.process.Buckets, alone, true
	if o.Sync.Passphrase = a.pass; len(a.pass) == 0 {
		o.Sync.Passphrase, _ = a.passphrase("") // from the environment alone, which cannot fail
	}
}

// read calls fn with the repository, opened read-only.
func (a *app) read(ctx context.Context, fn func(*ledger.Repository) error) error {
	return a.with(ctx, ledger.Options{ReadOnly: true}, fn)
}

// change calls fn with the repository, opened for writing. The repository must exist. With
// --dry-run it is opened for writing only if fn needs that.
func (a *app) change(ctx context.Context, fn func(*ledger.Repository) error) error {
	if f := a.verb.Flags().Lookup("dry-run"); f != nil && f.Value.String() == "true" {
		return a.fetching(ctx, reads, fn)
	}
	return a.with(ctx, ledger.Options{MustExist: true}, fn)
}

// with calls fn with the repository and closes it.
func (a *app) with(ctx context.Context, o ledger.Options, fn func(*ledger.Repository) error) error {
	if a.process.served != nil {
		if a.changed("device") {
			a.ofServe("name of the device")
		}
		return a.absentPage(ctx, a.process.served, fn(a.process.served))
	}
	repo, err := a.open(ctx, o)
	if err != nil {
		return err
	}
	return closing(a.absentPage(ctx, repo, fn(repo)), repo)
}

// absentPage replaces an error by errNoPage if a page among the arguments does not exist. The new
// error has the name that the user gave.
func (a *app) absentPage(ctx context.Context, repo *ledger.Repository, err error) error {
	if !errors.Is(err, ledger.ErrNotFound) || errors.Is(err, ledger.ErrNoCloud) {
		return err
	}
	for _, name := range a.named {
		if _, err := repo.PageInfo(ctx, name.ref()); errors.Is(err, ledger.ErrNotFound) {
			return a.noPage(name)
		}
	}
	return err
}

// errNoPage reports that a page among the arguments does not exist.
var errNoPage = base.WithClass(errors.New("no such page"), ledger.ErrNotFound)

func (a *app) noPage(name pageName) error {
	where := choose(a.verb.Name() == "sync", ", nor in the bucket", "")
	return withHint(classedf(errNoPage, "page %s does not exist in %s%s", quoted(name.text), quoted(a.dir), where), "%s", a.command("ls"))
}

// access is the way in which a verb uses its page.
type access int

const (
	reads   access = iota // creates nothing, and writes only what it must fetch
	fetches               // as reads, for verbs that read values: keeps what it fetches
	changes               // the page must exist
	creates               // the page is created when it is absent
)

// page calls fn with the named page and closes the page.
func (a *app) page(ctx context.Context, name pageName, how access, fn func(*ledger.Page) error) error {
	do := func(repo *ledger.Repository) error { return a.pageIn(ctx, repo, name, how, fn) }
	if how == changes || how == creates {
		return a.change(ctx, do)
	}
	return a.fetching(ctx, how, do)
}

// pageIn calls fn with a page of an open repository and closes the page. If pageIn created the page
// and fn fails, pageIn removes the page, unless something was written to it.
func (a *app) pageIn(ctx context.Context, repo *ledger.Repository, name pageName, how access, fn func(*ledger.Page) error) error {
	page, has, err := a.openPage(ctx, repo, name, how)
	if err != nil {
		return err
	}
	err = closing(fn(page), page)
	if err == nil || has {
		return err
	}
	// ctx may have ended, and the removal must not wait for a bucket that does not answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), dropTimeout)
	defer cancel()
	_, dropErr := admin.Evict(ctx, repo, &admin.EvictOptions{Pages: []ledger.PageRef{name.ref()}, Blank: true})
	if errors.Is(dropErr, ledger.ErrConflict) || errors.Is(dropErr, ledger.ErrNotFound) { // it has content now, or is gone
		return err
	}
	return errors.Join(err, dropErr)
}

// dropTimeout bounds the removal of a page that a failed verb created.
const dropTimeout = 5 * time.Second

// fetching calls do for a verb that reads. A read-only repository fetches nothing. So if the verb
// needs data from the cloud, fetching opens the repository for writing, which stores that data.
func (a *app) fetching(ctx context.Context, how access, do func(*ledger.Repository) error) error {
	cloud := false
	err := a.read(ctx, func(repo *ledger.Repository) error {
		if _, cloud = repo.Cloud(); cloud && how == fetches {
			return nil
		}
		return do(repo)
	})
	more := cloud && (err == nil && how == fetches || errors.Is(err, ledger.ErrNeedsFetch)) || errors.Is(err, ledger.ErrReadOnly)
	if !more || !a.out.discard() {
		return err
	}
	err = a.with(ctx, ledger.Options{MustExist: true}, do)
	if how == fetches && unwritable(err) && a.out.discard() {
		a.unwritable = true // this user or disk cannot write: read what this device stores
		return a.read(ctx, do)
	}
	return err
}

// unwritable reports whether err means that the repository cannot be written.
func unwritable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

// openPage opens a page. A page that does not exist is an error unless how is creates. has reports
// whether the page existed before.
func (a *app) openPage(ctx context.Context, repo *ledger.Repository, name pageName,
	how access) (page *ledger.Page, has bool, err error) {
	_, err = repo.PageInfo(ctx, name.ref())
	has = !errors.Is(err, ledger.ErrNotFound)
	switch {
	case err != nil && has:
		return nil, false, fmt.Errorf("look for page %s: %w", quoted(name.text), err)
	case !has && how != creates:
		return nil, false, a.noPage(name)
	case name.page != "":
		page, err = repo.Page(ctx, name.ledger, name.page)
	default:
		page, err = repo.OpenPage(ctx, name.ref())
	}
	return page, has, err // the error names the page
}

// snapshot calls fn with the page as of revision; "" means HEAD.
func (a *app) snapshot(ctx context.Context, page *ledger.Page, revision string, fn func(*ledger.Snapshot) error) error {
	id, err := a.commitAt(ctx, page, revision)
	if err != nil {
		return err
	}
	snap, err := page.At(ctx, id)
	if err != nil {
		return fmt.Errorf("read page: %w", err)
	}
	return errors.Join(fn(snap), snap.Close())
}

// pageAt calls fn with the named page, and with its snapshot at revision; "" means HEAD.
func (a *app) pageAt(ctx context.Context, name pageName, how access, revision string,
	fn func(*ledger.Page, *ledger.Snapshot) error) error {
	return a.page(ctx, name, how, func(page *ledger.Page) error {
		return a.snapshot(ctx, page, revision, func(snap *ledger.Snapshot) error { return fn(page, snap) })
	})
}

// commitAt resolves revision. For "" it returns the zero id, which means HEAD.
func (a *app) commitAt(ctx context.Context, page *ledger.Page, revision string) (id ledger.CommitID, err error) {
	if revision == "" {
		return id, nil
	}
	return a.resolve(ctx, page, revision)
}

// resolve returns the commit that a revision names.
func (a *app) resolve(ctx context.Context, page *ledger.Page, revision string) (ledger.CommitID, error) {
	hint := a.command("log", pageText(page)) + " lists the commits; " + a.process.Program + " help revisions tells how they are named"
	if err := admin.ValidateRevision(revision); err != nil {
		return ledger.CommitID{}, withHint(wrong(err), "%s", hint)
	}
	id, err := page.Resolve(ctx, revision)
	if errors.Is(err, ledger.ErrNotFound) || errors.Is(err, ledger.ErrInvalid) || errors.Is(err, ledger.ErrGone) {
		return id, withHint(bare(err), "%s", hint)
	}
	return id, err // the error names the revision
}

// pageText is the name of an open page on the command line.
func pageText(page *ledger.Page) string {
	return nameOf(page.Ref().Ledger, page.Name(), page.Ref().ID)
}

// absolute returns path as an absolute path. Symbolic links are resolved as far as the path exists.
func absolute(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	rest := ""
	for at := abs; ; {
		real, err := filepath.EvalSymlinks(at)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		parent := filepath.Dir(at)
		if parent == at || !errors.Is(err, os.ErrNotExist) {
			return abs, nil
		}
		at, rest = parent, filepath.Join(filepath.Base(at), rest)
	}
}

// inside reports whether path is dir or lies below it.
func inside(path, dir string) (bool, error) {
	p, err := absolute(path)
	if err != nil {
		return false, err
	}
	d, err := absolute(dir)
	if err != nil {
		return false, err
	}
	rel, err := filepath.Rel(d, p)
	return err == nil && (rel == "." || filepath.IsLocal(rel)), nil
}
