package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/profile"
	"github.com/ledgerd/ledger/ordered/pages"
)

// sourceArg is a directory of a browser, or a page with the content of one.
type sourceArg struct {
	Source string `arg:""`
}

// withProfile calls fn with the directory or page that text names. text is a directory if that
// exists or if text ends in .leveldb.
func (a *app) withProfile(ctx context.Context, text string, o *profile.Options, fn func(*profile.Profile) error) error {
	if info, err := os.Stat(a.path(text)); err == nil && info.IsDir() || strings.HasSuffix(text, ".leveldb") {
		defer a.limitHeap(readHeap)()
		return a.openProfile(ctx, a.path(text), o, fn)
	}
	name, err := parsePageName(text)
	if err != nil {
		return err
	}
	return a.pageAt(ctx, name, fetches, "", func(page *ledger.Page, snap *ledger.Snapshot) error {
		p, err := profile.OpenPage(ctx, pages.Reader(snap.Reader), o)
		if err != nil {
			return fmt.Errorf("page %s: %w", quoted(text), err)
		}
		return errors.Join(fn(p), p.Close())
	})
}

func (a *app) openProfile(ctx context.Context, path string, o *profile.Options, fn func(*profile.Profile) error) error {
	p, err := profile.Open(ctx, path, o)
	if err != nil {
		err = hintFor(a.damagedProfile(err, path), ledger.ErrNotFound,
			"name a directory that ends in .indexeddb.leveldb; browsers have them in PROFILE/IndexedDB")
		return hintFor(err, ledger.ErrLocked, "close the browser, or work on a copy of the directory")
	}
	return errors.Join(fn(p), p.Close())
}

// damagedProfile adds a hint to the error of a damaged directory.
func (a *app) damagedProfile(err error, path string) error {
	return hintFor(err, ledger.ErrCorrupt, "%s lists the damage; the browser may repair its data, or clear it",
		a.command("indexeddb", "check", path))
}

func (a *app) indexeddbLs(ctx context.Context, f sourceArg) error {
	return a.withProfile(ctx, f.Source, nil, a.listProfile)
}

// keyPathJSON is a key path in the form of the IndexedDB API: null, a string or an array.
func keyPathJSON(p indexeddb.KeyPath) any {
	switch p.Type {
	case indexeddb.StringKeyPath:
		return p.Paths[0]
	case indexeddb.ArrayKeyPath:
		return append([]string{}, p.Paths...)
	}
	return nil
}

func (a *app) listProfile(p *profile.Profile) error {
	for _, d := range p.Schema().Databases {
		if d.Version == 0 {
			continue // never opened successfully, so browsers do not show it
		}
		stores := objects(d.Stores, func(s *indexeddb.Store) object {
			return object{
				"name", s.Name, "keyPath", keyPathJSON(s.KeyPath), "autoIncrement", s.AutoIncrement, "records", p.Records(d.ID, s.ID),
				"indexes", objects(s.Indexes, func(x *indexeddb.Index) object {
					return object{"name", x.Name, "keyPath", keyPathJSON(x.KeyPath), "unique", x.Unique, "multiEntry", x.MultiEntry}
				}),
			}
		})
		a.show(object{"database", d.Name, "origin", d.Origin, "version", d.Version, "stores", stores})
	}
	return nil
}

// profileObject is the totals of a profile, as --json prints them.
func profileObject(r profile.Result) object {
	return object{
		"databases", r.Databases, "stores", r.Stores, "indexes", r.Indexes, "records", r.Records, "indexRows", r.IndexRows, "blobs", r.Blobs,
		"bytes", size(r.Bytes), "staleIndexRows", r.StaleIndexRows,
	}
}

func (a *app) indexeddbCheck(ctx context.Context, f sourceArg) error {
	problems := 0
	p := a.startProgress(ctx, "checking", "records")
	o := &profile.Options{Progress: p.followRecords, Damage: func(err error) error {
		problems++
		a.show(object{"problem", err})
		return nil
	}}
	o.LeftOut = func(row indexeddb.Row, holder indexeddb.Key) {
		by := ""
		if !holder.IsZero() {
			by = holder.String()
		}
		a.show(object{
			"leftOut", row.Primary.String(), "database", row.Database, "store", row.Store, "index", row.Index, "key", row.Key.String(), "holder?", by,
		})
	}
	var result profile.Result
	err := a.withProfile(ctx, f.Source, o, func(source *profile.Profile) (err error) {
		result, err = source.Check(ctx)
		return err
	})
	p.finish()
	if err != nil {
		return err
	}
	a.outcome(false, choose(problems == 0, "verified", ""), append(append(object{"source", f.Source}, profileObject(result)...),
		"opaqueRecords", result.Opaque, "leftOutRows", result.LeftOut, "problems", problems))
	if problems > 0 {
		return withHint(found(problems, "problems"), "the browser may repair its data, or clear it; a backup may have it whole")
	}
	return nil
}

// followRecords takes over the progress of a profile.
func (p *progress) followRecords(now profile.Progress) {
	p.update(func(c *counters) { c.files, c.totalFiles, c.bytes = now.Records, now.Total, now.Bytes })
}

type profileFlags struct {
	pageArg
	Path string `arg:""`
	writeFlags
	Lazy    bool   `flag:"lazy" usage:"let other devices fetch long values on first use"`
	Message string `flag:"message,m" usage:"commit message (default: import and the name of PATH)"`
}

// An import does not read again the nodes that it writes, so a small cache suffices. With that, the
// heap in use is about 80 MB from about a million records on. readHeap and importHeap are memory
// limits in bytes; above them the process collects its garbage more often.
const importCache, readHeap, importHeap = 8 << 20, 48 << 20, 96 << 20

// limitHeap sets the memory limit of the Go runtime, in bytes, until restore is called. A serve
// keeps its own limit.
func (a *app) limitHeap(limit int64) (restore func()) {
	if a.process.served != nil {
		return func() {}
	}
	before := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(before, limit))
	return func() { debug.SetMemoryLimit(before) }
}

func (a *app) indexeddbImport(ctx context.Context, f profileFlags) error {
	defer a.limitHeap(importHeap)()
	path := a.path(f.Path)
	if f.Message == "" {
		f.Message = importMessage(path)
	}
	priority := choose(f.Lazy, ledger.Lazy, ledger.Eager)
	p := a.startProgress(ctx, "importing", "records")
	defer p.finish()
	return a.openProfile(ctx, path, &profile.Options{Progress: p.followRecords}, func(source *profile.Profile) error {
		created, err := a.createForImport(ctx)
		if err != nil {
			return err
		}
		put := func(page *ledger.Page) error {
			var result profile.Result
			before, after, err := a.write(ctx, page, f.Parent, f.Message, func(tx *ledger.Tx) (err error) {
				result, err = source.Import(ctx, pages.Writer(tx, priority))
				return a.damagedProfile(err, path)
			})
			p.finish()
			if err != nil {
				return err
			}
			return a.finish(ctx, page, f.mergeFlags, after, before != after, "", append(profileObject(result), "repositoryCreated", created)...)
		}
		return a.with(ctx, ledger.Options{MustExist: true, CacheBytes: importCache}, func(repo *ledger.Repository) error {
			return a.pageIn(ctx, repo, f.Page, creates, put)
		})
	})
}

type profileExportFlags struct {
	pageArg
	Dir string `arg:""`
	At  string `flag:"at" usage:"revision to export (default HEAD)"`
}

func (a *app) indexeddbExport(ctx context.Context, f profileExportFlags) error {
	return a.pageAt(ctx, f.Page, fetches, f.At, func(page *ledger.Page, snap *ledger.Snapshot) error {
		p := a.startProgress(ctx, "exporting", "records")
		done, err := profile.Export(ctx, pages.Reader(snap.Reader), a.path(f.Dir), &profile.Options{Progress: p.followRecords})
		p.finish()
		if err != nil {
			return hintFor(err, fs.ErrExist, "remove it, or name another directory")
		}
		a.outcome(false, "exported", append(object{"page", pageText(page), "path", done.Path}, profileObject(done.Result)...))
		return nil
	})
}
