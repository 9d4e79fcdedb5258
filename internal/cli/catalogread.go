package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/metabase"
	"github.com/spf13/cobra"
)

type catalogFindFlags struct {
	catalogRead
	containerFlag
	Filters    []string  `arg:"..."`
	Attributes commaList `flag:"attributes" usage:"attributes to print, beginning with that of the first filter"`
	Limit      int       `flag:"limit,n" usage:"print no more than this many, up to 1000 (default: all)"`
	Cursor     string    `flag:"cursor" usage:"go on behind the page that gave this cursor"`
}

func (a *app) catalogFind() *cobra.Command {
	return verb(a, "catalog find", catalogFindFlags{}, func(ctx context.Context, f catalogFindFlags) error {
		q := metabase.Query{Attributes: f.Attributes, Cursor: f.Cursor, Count: f.Limit}
		if f.Limit == 0 {
			q.Count = metabase.MaxCount
		}
		for _, text := range f.Filters {
			filter, err := parseFilter(text)
			if err != nil {
				return err
			}
			q.Filters = append(q.Filters, filter)
		}
		return a.readCatalog(ctx, f.catalogRead, func(v *metabase.View) error {
			var err error
			if q.Container, err = f.containerOf(ctx, v); err != nil {
				return err
			}
			err = a.find(ctx, v, q, f.Limit == 0)
			if _, ok := errors.AsType[*metabase.QueryError](err); ok || errors.Is(err, metabase.ErrInvalidCursor) {
				return wrong(err) // of what was asked for, not of what is stored
			}
			return err
		})
	})
}

// filterForms are how filters are written, in the order in which they are looked for at one place.
var filterForms = []struct {
	text string
	op   metabase.Op
}{
	{"!=", metabase.NotEqual}, {"^=", metabase.Prefix}, {">=", metabase.GreaterOrEqual}, {"<=", metabase.LessOrEqual},
	{"=", metabase.Equal}, {">", metabase.Greater}, {"<", metabase.Less},
}

func parseFilter(text string) (metabase.Filter, error) {
	if key, ok := strings.CutPrefix(text, "!"); ok && key != "" {
		return metabase.Filter{Key: key, Op: metabase.Absent}, nil
	}
	for i := 1; i < len(text); i++ {
		for _, form := range filterForms {
			if value, ok := strings.CutPrefix(text[i:], form.text); ok {
				return metabase.Filter{Key: text[:i], Op: form.op, Value: value}, nil
			}
		}
	}
	if strings.HasPrefix(text, "$Object:") {
		return metabase.Filter{Key: text, Op: metabase.Flag}, nil
	}
	return metabase.Filter{}, usagef("%s is no filter, such as KEY=VALUE", quoted(text))
}

func (a *app) find(ctx context.Context, v *metabase.View, q metabase.Query, all bool) error {
	for {
		found, cursor, err := v.Search(ctx, q)
		if err != nil {
			return err
		}
		for _, o := range found {
			line, attributes := o.ID.String(), map[string]string{}
			for i, attr := range q.Attributes {
				if o.Attributes[i] == "" {
					continue
				}
				attributes[attr] = o.Attributes[i]
				line += " " + quoted(attr+"="+o.Attributes[i])
			}
			a.print(object{"id", o.ID, "attributes?", attributes}, "%s\n", line)
		}
		switch {
		case cursor == "":
			return nil
		case all:
			q.Cursor = cursor
		case a.json:
			a.emit(object{"cursor", cursor})
			return nil
		default:
			a.tell("there is more: --cursor %s", cursor)
			return nil
		}
	}
}

type catalogLsFlags struct {
	catalogRead
	Containers bool `flag:"containers" usage:"list containers"`
	Graves     bool `flag:"graves" usage:"list graves"`
	Garbage    bool `flag:"garbage" usage:"list what can be deleted"`
}

func (a *app) catalogLs() *cobra.Command {
	return verb(a, "catalog ls", catalogLsFlags{}, func(ctx context.Context, f catalogLsFlags) error {
		return a.readCatalog(ctx, f.catalogRead, func(v *metabase.View) error {
			switch {
			case f.Containers:
				return a.lsContainers(ctx, v)
			case f.Graves:
				return a.lsGraves(ctx, v)
			case f.Garbage:
				return a.lsGarbage(ctx, v)
			}
			return a.lsObjects(ctx, v, f.Page.text)
		})
	}, excluding("containers", "graves", "garbage"))
}

func (a *app) lsObjects(ctx context.Context, v *metabase.View, page string) error {
	for cursor := ""; ; {
		listed, next, err := v.ListWithCursor(ctx, metabase.MaxCount, cursor)
		if errors.Is(err, metabase.ErrEndOfListing) {
			if cursor == "" {
				a.tell("page %s has no catalogue, or nothing in it; %s lists its keys", page, a.command("ls", page))
			}
			return nil
		}
		if err != nil {
			return err
		}
		for _, l := range listed {
			if err := a.lsObject(ctx, v, l); err != nil {
				return err
			}
		}
		cursor = next
	}
}

func (a *app) lsObject(ctx context.Context, v *metabase.View, l metabase.Listed) error {
	b, err := v.Stored(ctx, l.Address)
	if err != nil {
		return err
	}
	o, err := metabase.DecodeObject(b)
	if err != nil {
		return &metabase.ObjectError{Op: "list", Address: l.Address, Err: err}
	}
	locked, err := v.IsLocked(ctx, l.Address)
	if err != nil {
		return err
	}
	attributes := map[string]string{}
	line := fmt.Sprintf("%s %s %s", l.Address, o.Type, sizeText(int64(o.PayloadBytes)))
	if locked {
		line += " locked"
	}
	for _, at := range o.Attributes {
		attributes[at.Key] = at.Value
		line += " " + quoted(at.Key+"="+at.Value)
	}
	a.print(object{
		"id", o.ID, "container", o.Container, "type", o.Type, "size", o.PayloadBytes, "attributes?", attributes, "locked?", locked,
	}, "%s\n", line)
	return nil
}

func (a *app) lsContainers(ctx context.Context, v *metabase.View) error {
	all, err := v.Containers(ctx)
	for _, c := range all {
		a.print(object{"id", c.ID, "size", c.Size}, "%s %s\n", c.ID, sizeText(int64(c.Size)))
	}
	return err
}

func (a *app) lsGraves(ctx context.Context, v *metabase.View) error {
	for g, err := range v.Graveyard(ctx, nil) {
		if err != nil {
			return err
		}
		a.print(object{"object", g.Object, "tombstone", g.Tombstone, "expiration", g.Expiration}, "%s by %s until epoch %d\n", g.Object, g.Tombstone, g.Expiration)
	}
	return nil
}

func (a *app) lsGarbage(ctx context.Context, v *metabase.View) error {
	for garbage, err := range v.Garbage(ctx, nil) {
		if err != nil {
			return err
		}
		a.print(object{"id", garbage.Object, "container", garbage.Container}, "%s\n", garbage)
	}
	return nil
}

type catalogCheckFlags struct {
	catalogRead
	mergeFlags
	Repair bool `flag:"repair" usage:"make the rows that follow from objects what they should be"`
}

func (a *app) catalogCheck() *cobra.Command {
	return verb(a, "catalog check", catalogCheckFlags{}, func(ctx context.Context, f catalogCheckFlags) error {
		if f.Repair && f.At != "" {
			return usagef("--repair is about what is there now, not --at a commit")
		}
		if f.Repair {
			write := catalogWrite{f.pageArg, f.epochFlag, f.mergeFlags}
			err := a.changeCatalog(ctx, write, changes, func(t *metabase.Tx) (string, error) {
				n, err := t.Repair(ctx)
				return "repaired " + countText(n, "row"), err
			})
			if err != nil {
				return err
			}
		}
		return a.readCatalog(ctx, f.catalogRead, func(v *metabase.View) error { return a.checkCatalog(ctx, v) })
	})
}

func (a *app) checkCatalog(ctx context.Context, v *metabase.View) error {
	n := 0
	for issue, err := range v.Verify(ctx) {
		if err != nil {
			return err
		}
		n++
		a.print(object{"bucket", issue.Bucket, "key", issue.Key, "problem", issue.Problem, "derived?", issue.Derived}, "%s\n", printable(issue.String()))
	}
	if n > 0 {
		return fmt.Errorf("the catalogue has %s: %w", countText(n, "wrong row"), ledger.ErrCorrupt)
	}
	counters, err := v.Counters(ctx)
	if err == nil {
		a.summary("all rows of %s fit together\n", countText(counters.Physical, "object"))
	}
	return err
}

type catalogImportFlags struct {
	catalogWrite
	File string `arg:""`
}

func (a *app) catalogImport() *cobra.Command {
	return verb(a, "catalog import", catalogImportFlags{}, func(ctx context.Context, f catalogImportFlags) error {
		file, err := metabase.OpenFile(ctx, a.path(f.File), metabase.FileOptions{Mode: metabase.ReadOnly, Epoch: func() uint64 { return f.Epoch }})
		if err != nil {
			return err
		}
		err = file.View(ctx, func(v *metabase.View) error {
			counters, err := v.Counters(ctx)
			if err == nil {
				_, err = a.createForImport(ctx)
			}
			if err != nil {
				return err
			}
			return a.changeCatalog(ctx, f.catalogWrite, creates, func(t *metabase.Tx) (string, error) {
				return fmt.Sprintf("imported %s of version %d", countText(counters.Physical, "object"), v.Version()), t.Import(ctx, v)
			})
		})
		return errors.Join(err, file.Close())
	})
}

type catalogExportFlags struct {
	catalogRead
	File string `arg:""`
}

func (a *app) catalogExport() *cobra.Command {
	return verb(a, "catalog export", catalogExportFlags{}, func(ctx context.Context, f catalogExportFlags) error {
		path := a.path(f.File)
		if _, err := os.Lstat(path); err == nil {
			return withHint(classedf(ledger.ErrInvalid, "export to %s: a file is there and is not overwritten", quoted(f.File)), "name another file")
		}
		return a.readCatalog(ctx, f.catalogRead, func(v *metabase.View) error { return exportCatalog(ctx, v, path) })
	})
}

// exportCatalog writes a file beside path, which takes its name when it is whole.
func exportCatalog(ctx context.Context, v *metabase.View, path string) error {
	dir, err := os.MkdirTemp(filepath.Dir(path), filepath.Base(path)+".part-*") // what is not whole has not the name
	if err != nil {
		return fmt.Errorf("export: %w", err)
	}
	part := filepath.Join(dir, filepath.Base(path))
	file, err := metabase.OpenFile(ctx, part, metabase.FileOptions{Epoch: v.Epoch})
	if err == nil {
		err = errors.Join(file.Import(ctx, v), file.Close())
	}
	if err == nil {
		err = os.Rename(part, path)
	}
	if err = errors.Join(err, os.RemoveAll(dir)); err != nil {
		return fmt.Errorf("export: %w", err)
	}
	return nil
}
