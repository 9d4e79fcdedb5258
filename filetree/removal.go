package filetree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger"
)

// sourceKey holds the absolute path of the last imported directory; the value is empty when the
// files of the page are from several places. It cannot be an attributes key, since no path begins
// with 0x00.
const sourceKey = attributesPrefix + "\x00source"

// maxSourceBytes is the greatest length of a source that is read.
const maxSourceBytes = 64 << 10

// RemovalError reports an import that would probably remove or overwrite files by mistake. Nothing
// was changed. It matches ledger.ErrConflict.
type RemovalError struct {
	// Reason says what is suspicious.
	Reason string
	// Removed and Changed count the paths that would be removed and overwritten, of the Known paths
	// that the page has from imports.
	Removed, Changed, Known int64
	// Paths are the first paths that would be removed.
	Paths []string
}

// maxRemovalPaths is how many paths a RemovalError names.
const maxRemovalPaths = 5

// Error implements error.
func (e *RemovalError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: it would remove %d of %d files", e.Reason, e.Removed, e.Known)
	for i, path := range e.Paths {
		b.WriteString([]string{" (", ", "}[min(i, 1)] + strconv.Quote(path))
	}
	switch rest := e.Removed - int64(len(e.Paths)); {
	case rest > 0:
		fmt.Fprintf(&b, " and %d more)", rest)
	case len(e.Paths) > 0:
		b.WriteByte(')')
	}
	if e.Changed > 0 {
		fmt.Fprintf(&b, " and change %d", e.Changed)
	}
	return b.String()
}

// Is makes the error match ledger.ErrConflict.
func (e *RemovalError) Is(target error) bool { return target == ledger.ErrConflict }

// tally counts the effects of an import on the paths of earlier imports.
type tally struct {
	known, removed, changed int64
	found                   int64 // paths of the tree
	paths                   []string
}

func (t *tally) add(a *action) {
	if a.known {
		t.known++
	}
	switch {
	case a.kept, a.warning != nil:
	case a.remove && a.known:
		if t.removed++; len(t.paths) < maxRemovalPaths {
			t.paths = append(t.paths, a.path)
		}
	case a.remove, a.parent:
	default:
		t.found++
		if a.known && !a.unchanged {
			t.changed++
		}
	}
}

// refuse returns a *RemovalError when the import counted by t is probably a mistake. other
// describes the other source of the page, "" when the source does not matter.
func (t *tally) refuse(other string) error {
	reason := ""
	switch {
	case other != "" && t.removed+t.changed > 0:
		reason = "the page was imported from " + other
	case t.removed > 0 && t.found == 0:
		reason = "there is nothing to import in it"
	case 2*t.removed > t.known:
		reason = "more than half of what was imported is missing in it"
	default:
		return nil
	}
	return &RemovalError{reason, t.removed, t.changed, t.known, t.paths}
}

// source is the directory from which a page was imported.
type source struct {
	path string // absolute; "" when the files are from several places
	set  bool
}

// sourceOf reads the source of a page.
func sourceOf(ctx context.Context, r ledger.Reader) (source, error) {
	entry, err := r.Stat(ctx, []byte(sourceKey))
	if errors.Is(err, ledger.ErrNotFound) || err == nil && entry.Size > maxSourceBytes {
		return source{}, nil
	}
	if err != nil {
		return source{}, err
	}
	value, err := entry.Value(ctx)
	return source{string(value), true}, err
}

// other describes s for the import of another path; "" when it is the same or unknown.
func (s source) other(path string) string {
	switch {
	case !s.set || s.path == path:
		return ""
	case s.path == "":
		return "several places"
	}
	return strconv.Quote(s.path)
}

// guard refuses the import of another directory than before, unless it only adds files, without
// reading a file. It returns the source of the page. Other mistakes are detected at the end, when
// little has been read for them.
func (im *importer) guard(ctx context.Context, root *os.Root, path string) (source, error) {
	from, err := sourceOf(ctx, im.base.Reader)
	if err != nil || im.options.Mirror || im.options.NoDelete || from.other(path) == "" {
		return from, err
	}
	var t tally
	w := &walker{base: im.base, exclude: im.options.Exclude, dry: true}
	w.send = func(a action) error {
		t.add(&a)
		return nil
	}
	if err := w.run(ctx, root); err != nil {
		return from, err
	}
	return from, t.refuse(from.other(path))
}

// refuse returns an error when the import is probably a mistake, and no option allows it.
func (im *importer) refuse() error {
	if im.options.Mirror || im.options.NoDelete {
		return nil
	}
	return im.tally.refuse("")
}

// finish refuses an import that removes too much, and records the source of the page.
func (im *importer) finish(ctx context.Context, from source, path string) error {
	if err := im.refuse(); err != nil {
		return err
	}
	now := path
	if im.options.NoDelete && (from.set || im.tally.known > 0) && from.path != path {
		now = ""
	}
	if im.result.Added+im.result.Changed+im.result.Removed == 0 {
		return nil
	}
	return im.setSource(ctx, from, now)
}

// setSource records the source of the page, "" for several places.
func (im *importer) setSource(ctx context.Context, from source, now string) error {
	if from.set && from.path == now || im.options.DryRun {
		return nil
	}
	return im.tx.Put(ctx, []byte(sourceKey), []byte(now))
}

// addedFile records that a single file was added, so that the page no longer has one source
// directory.
func (im *importer) addedFile(ctx context.Context) error {
	from, err := sourceOf(ctx, im.base.Reader)
	if err != nil || im.result.Added == 0 {
		return err
	}
	return im.setSource(ctx, from, "")
}
