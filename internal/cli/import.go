package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
)

// The formats of import and export.
const (
	formatTree  = "tree"
	formatLines = "jsonl"
)

type importFlags struct {
	pageArg
	Path string `arg:""`
	mergeFlags
	dryRun
	Format   string `flag:"format" usage:"tree (files and directories) or jsonl (default: by PATH)"`
	Checksum bool   `flag:"checksum" usage:"read all files, even if they look unchanged"`
	Mirror   bool   `flag:"mirror" usage:"make the page equal to PATH, whatever that removes"`
	NoDelete bool   `flag:"no-delete" usage:"do not remove files"`
	Lazy     bool   `flag:"lazy" usage:"let other devices fetch long values on first use"`
	Message  string `flag:"message,m" usage:"commit message (default: import and the name of PATH)"`
	empty    bool   // PATH is a directory with nothing to import
}

// formatFor determines the format of a PATH.
func formatFor(format, path string) (string, error) {
	switch {
	case format == formatTree && path == "-":
		return "", usagef("a tree cannot be streamed: use --format jsonl with -")
	case format == formatTree || format == formatLines:
		return format, nil
	case format != "":
		return "", usagef("unknown --format %q, want tree or jsonl", format)
	case path == "-":
		return "", usagef("PATH is -: give --format jsonl")
	}
	info, err := os.Stat(path)
	lines := strings.HasSuffix(path, ".jsonl") && (err != nil || !info.IsDir())
	return choose(lines, formatLines, formatTree), nil
}

func (a *app) importPath(ctx context.Context, f importFlags) error {
	path := a.path(f.Path)
	format, err := formatFor(f.Format, path)
	if err != nil {
		return err
	}
	if f.Mirror && format == formatLines {
		return usagef("--mirror is for directories: JSON lines are added to the page")
	}
	if f.Dry && format == formatLines {
		return usagef("--dry-run is for files and directories, not for JSON lines")
	}
	if path != "-" {
		info, err := os.Stat(path)
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		if format == formatTree && !info.IsDir() && !info.Mode().IsRegular() {
			return usagef("import %s: it is neither a directory nor a file", quoted(path))
		}
		if root, err := absolute(path); err == nil && root == filepath.Dir(root) && !f.Mirror {
			err := usagef("import %s: it is the whole file system, with its virtual files", quoted(path))
			return withHint(err, "name the directories that you want; --mirror imports it all the same")
		}
		if f.empty, err = a.isEmpty(path, info); err != nil {
			return err
		}
		if in, err := inside(path, a.dir); err != nil || in {
			return cmp.Or(err, withHint(usagef("import %s: it belongs to the repository %s itself", quoted(path), quoted(a.dir)),
				"name another directory with --dir"))
		}
		if has, err := a.hasRepository(); err != nil || f.empty && !has {
			return cmp.Or(err, nothingIn(path))
		}
	}
	if f.Message == "" {
		f.Message = importMessage(path)
	}
	o := &filetree.ImportOptions{
		Message: f.Message, Checksum: f.Checksum, Lazy: f.Lazy, Mirror: f.Mirror, NoDelete: f.NoDelete, DryRun: f.Dry, Warn: func(w filetree.Warning) { a.warn(w) },
	}
	run := func(page *ledger.Page) (filetree.Result, error) {
		if f.empty { // the import decides whether it may empty a page with files
			err := a.snapshot(ctx, page, "", func(snap *ledger.Snapshot) error {
				return needKey(ctx, snap, filetree.AttributesKey(nil), nothingIn(path))
			})
			if err != nil {
				return filetree.Result{}, err
			}
		}
		o.Exclude, _ = os.Stat(a.dir) // nil without a repository
		p := a.startProgress(ctx, choose(f.Dry, "looking", "importing"), "files")
		defer p.finish()
		o.Progress = p.follow
		return a.runImport(ctx, page, path, format, o, p)
	}
	if f.Dry {
		return a.importDry(ctx, f.Page, run)
	}
	if path == "-" {
		if a.process.Stdin, err = readAhead(ctx, a.process.Stdin); err != nil {
			return fmt.Errorf("import: %w", err)
		}
	}
	created, err := a.createForImport(ctx)
	if err != nil {
		return err
	}
	return a.page(ctx, f.Page, creates, func(page *ledger.Page) error {
		r, err := run(page)
		if err == nil && r.Commit == ledger.FirstCommit() && format == formatTree {
			err = nothingIn(path) // the page is not created
		}
		if err != nil {
			return err
		}
		err = a.finish(ctx, page, f.mergeFlags, r.Commit, r.Committed, "", append(importedObject(r), "repositoryCreated", created)...)
		a.tell("next: %s, or %s", a.command("log", pageText(page)), a.command("export", pageText(page), "DIR"))
		return err
	})
}

// isEmpty reports whether path is a directory with nothing to import.
func (a *app) isEmpty(path string, info fs.FileInfo) (bool, error) {
	if !info.IsDir() {
		return false, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return false, fmt.Errorf("import: %w", err)
	}
	own, _ := os.Stat(a.dir) // nil without a repository
	isOwn := func(e fs.DirEntry) bool {
		at, err := e.Info() // the import reports the error
		return err == nil && own != nil && os.SameFile(at, own)
	}
	return len(slices.DeleteFunc(entries, isOwn)) == 0, nil
}

func nothingIn(path string) error {
	return withHint(classedf(ledger.ErrNotFound, "import %s: there is nothing to import in it", quoted(path)), "check whether its disk is mounted")
}

// needKey returns the error none if no key begins with prefix.
func needKey(ctx context.Context, snap *ledger.Snapshot, prefix []byte, none error) error {
	for _, err := range snap.Scan(ctx, ledger.ScanOptions{Prefix: prefix, Limit: 1}) {
		return err
	}
	return none
}

// importDry reports the effect of an import without making it. A page or repository that does not
// exist counts as empty.
func (a *app) importDry(ctx context.Context, name pageName, run func(*ledger.Page) (filetree.Result, error)) error {
	foresee := func(page *ledger.Page) error {
		r, err := run(page)
		if err != nil {
			return err
		}
		a.outcome(true, "imported", append(object{"page", pageText(page)}, importedObject(r)...))
		return nil
	}
	has, err := a.hasRepository()
	if err != nil {
		return err
	}
	if has {
		err := a.page(ctx, name, reads, foresee)
		if !errors.Is(err, errNoPage) {
			return err
		}
	}
	repo, err := ledger.Open(ctx, "", &ledger.Options{InMemory: true})
	if err != nil {
		return err
	}
	return errors.Join(a.pageIn(ctx, repo, name, creates, foresee), repo.Close())
}

func importMessage(path string) string {
	if path == "-" {
		return "import"
	}
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return "import " + strings.ToValidUTF8(filepath.Base(path), "\uFFFD")
}

func (a *app) runImport(ctx context.Context, page *ledger.Page, path, format string, o *filetree.ImportOptions, p *progress) (filetree.Result, error) {
	if format == formatTree && o.DryRun {
		return filetree.Import(ctx, page, path, o)
	}
	if format == formatTree {
		stop := p.measure(ctx, func(ctx context.Context) (files, bytes int64, err error) {
			r, err := filetree.Import(ctx, page, path, &filetree.ImportOptions{
				Checksum: o.Checksum, Mirror: o.Mirror, NoDelete: o.NoDelete, Exclude: o.Exclude, DryRun: true,
			})
			return r.Added + r.Changed + r.Unchanged, r.Bytes, err
		})
		defer stop()
		return filetree.Import(ctx, page, path, o)
	}
	if path == "-" {
		return filetree.ImportJSONLines(ctx, page, a.process.Stdin, o)
	}
	f, err := openFile(ctx, path, os.O_RDONLY)
	if err != nil {
		return filetree.Result{}, fmt.Errorf("import: %w", err)
	}
	defer f.Close() // opened for reading: an error loses nothing
	if info, err := f.Stat(); err == nil {
		p.update(func(c *counters) { c.totalBytes = info.Size() })
	}
	result, err := filetree.ImportJSONLines(ctx, page, interruptible(ctx, f), o)
	if err != nil {
		return result, fmt.Errorf("import %s: %w", quoted(path), err)
	}
	return result, nil
}

func importedObject(r filetree.Result) object {
	return object{
		"added", r.Added, "updated", r.Changed, "removed", r.Removed, "unchanged", r.Unchanged, "bytes", size(r.Bytes), "warnings", r.Warnings,
	}
}
