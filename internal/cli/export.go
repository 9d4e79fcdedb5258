package cli

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/filetree"
)

type exportFlags struct {
	pageArg
	Path   string `arg:""`
	Prefix prefix `arg:""`
	dryRun
	At        string `flag:"at" usage:"revision to export (default HEAD)"`
	Format    string `flag:"format" usage:"tree or jsonl (default: by PATH)"`
	Preserve  bool   `flag:"preserve" usage:"restore exact modes, with setuid, setgid and sticky, without the umask"`
	Overwrite bool   `flag:"overwrite" usage:"replace files in a directory that is not empty, or the JSON lines file"`
}

func (a *app) exportPage(ctx context.Context, f exportFlags) error {
	path := a.path(f.Path)
	format, err := formatFor(f.Format, path)
	if err != nil {
		return err
	}
	o := &filetree.ExportOptions{
		Prefix: f.Prefix.bytes, Overwrite: f.Overwrite, Preserve: f.Preserve, DryRun: f.Dry,
		Warn: func(w filetree.Warning) { a.warn(w) },
	}
	if path != "-" {
		if in, err := inside(path, a.dir); err != nil || in {
			return cmp.Or(err, withHint(usagef("export to %s: it belongs to the repository %s itself", quoted(path),
				quoted(a.dir)), "name a directory outside it"))
		}
	}
	if format == formatLines && path != "-" && !f.Overwrite {
		if _, err := os.Lstat(path); err == nil {
			return withHint(fmt.Errorf("export to %s: %w", quoted(path), fs.ErrExist), "--overwrite replaces it")
		}
	}
	if info, err := os.Stat(path); format == formatTree && err == nil && !info.IsDir() {
		return withHint(classedf(ledger.ErrInvalid, "export to %s: it is no directory", quoted(path)),
			"name a directory that is absent or empty; with --format jsonl --overwrite the file is replaced by JSON lines")
	}
	return a.pageAt(ctx, f.Page, fetches, f.At, func(page *ledger.Page, snap *ledger.Snapshot) error {
		if err := a.hasPrefix(ctx, page, snap, o.Prefix); err != nil {
			return err
		}
		if _, ok := page.Repository().Cloud(); ok && !f.Dry && !a.unwritable {
			if _, err := a.fetchValues(ctx, snap, o.Prefix); err != nil {
				return err
			}
		}
		p := a.startProgress(ctx, "exporting", "files")
		o.Progress = p.follow
		stop := p.measure(ctx, func(ctx context.Context) (files, bytes int64, err error) {
			list := filetree.List(ctx, snap, filetree.ListOptions{Prefix: o.Prefix, KeysOnly: true})
			err = each(list, func(i filetree.Item) { files, bytes = files+1, bytes+i.Entry.Size })
			return files, bytes, err
		})
		result, err := a.runExport(ctx, snap, path, format, o)
		stop()
		p.finish()
		if err != nil {
			return hintFor(err, filetree.ErrNotEmpty,
				"choose a directory that is absent or empty, or replace files in it with --overwrite")
		}
		a.exported(page, path, result, f.Dry)
		return nil
	})
}

// hasPrefix returns an error if no key begins with a given prefix. Such a prefix is a mistake, and
// the verb writes nothing then.
func (a *app) hasPrefix(ctx context.Context, page *ledger.Page, snap *ledger.Snapshot, prefix []byte) error {
	if len(prefix) == 0 {
		return nil
	}
	none := classedf(ledger.ErrNotFound, "page %s has no key that begins with %s", pageText(page), a.shortKey(prefix))
	return needKey(ctx, snap, prefix, withHint(none, "%s", a.command("ls", pageText(page))))
}

func (a *app) runExport(ctx context.Context, snap *ledger.Snapshot, path, format string, o *filetree.ExportOptions) (filetree.ExportResult, error) {
	if format == formatTree {
		return filetree.Export(ctx, snap, path, o)
	}
	if o.DryRun {
		result, err := filetree.ExportJSONLines(ctx, snap, nil, o)
		if _, statErr := os.Lstat(path); path != "-" && statErr == nil {
			result.Replaced = 1
		}
		return result, err
	}
	if path == "-" {
		return filetree.ExportJSONLines(ctx, snap, a.out, o)
	}
	var result filetree.ExportResult
	err := writeFile(ctx, path, func(w *os.File) error {
		var err error
		result, err = filetree.ExportJSONLines(ctx, snap, w, o)
		return err
	})
	return result, err
}

func (a *app) exported(page *ledger.Page, path string, r filetree.ExportResult, dry bool) {
	if path != "-" || dry { // otherwise the output is the page itself
		a.outcome(dry, "exported", object{
			"page", pageText(page), "path", path, "files", r.Files, "bytes", size(r.Bytes), "warnings", r.Warnings,
			"replaced", r.Replaced,
		})
	}
}
