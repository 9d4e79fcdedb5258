package filetree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ledgerd/ledger"
)

// The modes of files and directories without attributes, before the umask.
const (
	defaultMode          fs.FileMode = 0o644
	defaultDirectoryMode fs.FileMode = 0o777
)

// maxLinkBytes is the greatest length of a link target that is written.
const maxLinkBytes = 4096

// ErrNotEmpty reports an export to a directory that is not empty.
var ErrNotEmpty = errors.New("directory is not empty")

// errInTheWay reports a path that cannot be written because another entry of the page occupies it:
// a file where a directory must be, or, where file names ignore case, another file.
var errInTheWay = errors.New("another entry of the page is in the way")

// ExportOptions configure an export. The zero value and a nil pointer are useful.
type ExportOptions struct {
	// Prefix selects the keys that begin with it. Files keep their whole path.
	Prefix []byte
	// Overwrite exports into a directory that is not empty. It replaces files and links at the path
	// of an entry, or where that needs a directory; everything else in the directory stays.
	Overwrite bool
	// Preserve gives files and directories exactly the mode in the page. Without it, setuid, setgid
	// and sticky bits are dropped and the umask applies, so that a page from someone else cannot
	// plant a program that runs with the user's rights.
	Preserve bool
	// DryRun writes nothing, and makes no directory: the ExportResult says what an export would do.
	// It does not check whether each file can be written.
	DryRun bool
	// Warn is called for each path that is left out. Nil ignores them; ExportResult counts them.
	Warn func(Warning)
	// Progress is called often, on the goroutine of the caller, with the numbers of files or lines.
	// It may be nil.
	Progress func(ledger.Progress)
}

// ExportResult is the result of an export.
type ExportResult struct {
	// Files counts the files, links and empty directories written, or the lines.
	Files int64
	// Bytes is the length of the contents.
	Bytes int64
	// Replaced counts the files and links that an entry replaced.
	Replaced int64
	// Warnings counts the paths that were left out.
	Warnings int64
}

// exporter writes a tree.
type exporter struct {
	options  ExportOptions
	snap     *ledger.Snapshot
	levels   []level // the open directories on the present path: the target, then each below the one before
	replaced int64
	buffer   []byte
	reporter
}

func newExporter(snap *ledger.Snapshot, o *ExportOptions) *exporter {
	e := &exporter{snap: snap, buffer: make([]byte, 128<<10)}
	if o != nil {
		e.options = *o
	}
	e.onWarning, e.onProgress = e.options.Warn, e.options.Progress
	return e
}

func (e *exporter) result() ExportResult {
	return ExportResult{Files: e.now.Done, Bytes: e.now.Bytes, Replaced: e.replaced, Warnings: e.warnings}
}

// Export writes the entries of a snapshot as a tree of files below target (F3). It creates target,
// which must be empty unless Overwrite is set. Entries without attributes become files of mode
// 0644, less the umask. Modification times of directories are not kept. Without Preserve, an
// existing directory gets no additional rights; the mode of an existing target stays.
//
// Export changes nothing outside target. It leaves out, with a Warning, a key that is no relative
// path, or whose place another entry occupies (F4, F5), and a value that is lost (ledger.ErrGone).
// When ctx ends, written files stay, but none is left incomplete. Errors: ErrNotEmpty, those of the
// file system about target itself, and of ledger.Snapshot, such as ledger.ErrCorrupt for a damaged
// value.
func Export(ctx context.Context, snap *ledger.Snapshot, target string, o *ExportOptions) (ExportResult, error) {
	e := newExporter(snap, o)
	if e.options.DryRun {
		err := e.foresee(ctx, target)
		return e.result(), err
	}
	if err := e.openTarget(ctx, target); err != nil {
		return e.result(), err
	}
	err := e.prepare(ctx, e.levels[0].root)
	if err == nil {
		err = e.each(ctx, e.item)
	}
	e.leave(0) // which may warn
	return e.result(), err
}

// foresee counts what Export would do.
func (e *exporter) foresee(ctx context.Context, target string) error {
	root, err := os.OpenRoot(target)
	switch {
	case err == nil:
		err = e.prepare(ctx, root)
		root.Close() // read-only: its error does not matter
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	default:
		err = fmt.Errorf("open directory: %w", err)
	}
	if err != nil {
		return err
	}
	return e.each(ctx, func(_ context.Context, item Item, path string) error {
		if err := checkPath(item); err != nil {
			e.warn(path, err)
			return nil
		}
		e.passed(item.Entry.Size)
		e.done(path)
		return nil
	})
}

// prepare checks that target is empty, or removes files and links in the way. With DryRun it only
// counts them.
func (e *exporter) prepare(ctx context.Context, root *os.Root) error {
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return fmt.Errorf("read directory: %w", err)
	}
	if len(entries) == 0 {
		return nil
	}
	if !e.options.Overwrite {
		return fmt.Errorf("export to %s: %w", root.Name(), ErrNotEmpty)
	}
	last := ""
	return e.each(ctx, func(ctx context.Context, item Item, path string) error {
		if checkPath(item) != nil {
			return nil // reported later
		}
		name, err := e.standing(ctx, root, strings.TrimSuffix(path, "/"))
		if err == nil && name != "" && name != last { // one file may block several entries
			e.replaced, last = e.replaced+1, name
			if !e.options.DryRun {
				err = root.Remove(name)
			}
		}
		if err != nil {
			return fmt.Errorf("replace %q: %w", path, cause(err))
		}
		return nil
	})
}

// standing returns the file or link at path or where path needs a directory, "" when there is none.
// It makes read-only directories of the page on the way, such as those of an earlier export,
// writable until they are settled.
func (e *exporter) standing(ctx context.Context, root *os.Root, path string) (string, error) {
	for i := 0; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		name := filepath.FromSlash(path[:i])
		info, err := root.Lstat(name)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENAMETOOLONG):
			return "", nil
		case err != nil:
			return "", err
		case !info.IsDir():
			return name, nil
		case e.options.DryRun || isWritable(info):
			continue
		}
		mode, _, err := e.directoryMode(ctx, path[:i])
		if err == nil && mode != nil {
			err = makeWritable(root, name, info)
		}
		if err != nil {
			return "", err
		}
	}
	return "", nil
}

// each calls fn for every item with a path, and the directory that holds it.
func (e *exporter) each(ctx context.Context, fn func(context.Context, Item, string) error) error {
	for item, err := range List(ctx, e.snap, ListOptions{Prefix: e.options.Prefix}) {
		if err != nil {
			return err
		}
		if err := fn(ctx, item, string(item.Entry.Key)); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// typeOf is the type of an item; without attributes it is a file.
func typeOf(item Item) Type {
	if item.Attributes == nil {
		return File
	}
	return item.Attributes.Type
}

// item makes a file, a link or an empty directory, and the directories that hold it. No path leads
// through a link: enter does not follow it.
func (e *exporter) item(ctx context.Context, item Item, path string) error {
	if err := checkPath(item); err != nil {
		e.warn(path, err)
		return nil
	}
	if item.Problem != nil {
		e.warn(path, fmt.Errorf("written without attributes: %w", item.Problem))
	}
	kind := typeOf(item)
	parent, name := splitPath(path)
	dir, err := e.enter(ctx, parent)
	switch {
	case err != nil:
		return e.failed(path, err)
	case kind == File:
		return e.write(ctx, dir, item, path, name)
	case kind == Link:
		return e.link(ctx, dir, item, path, name)
	}
	e.done(path)
	return nil
}

// pageError is an error of the page, not of the file system. It ends the export.
type pageError struct{ error }

// Unwrap returns the error of the page.
func (e pageError) Unwrap() error { return e.error }

// failed reports that a path is left out. It returns the error when it is the page's, the disk is
// full, or ctx has ended. A value that no device has any more is left out.
func (e *exporter) failed(path string, err error) error {
	_, fatal := errors.AsType[pageError](err)
	if fatal && !errors.Is(err, ledger.ErrGone) || errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("export %q: %w", path, err)
	}
	e.warn(path, err)
	return nil
}

// write makes one file.
func (e *exporter) write(ctx context.Context, dir *os.Root, item Item, path, name string) error {
	mode := defaultMode
	switch {
	case item.Attributes != nil && e.options.Preserve:
		mode = 0o600 // until it is complete
	case item.Attributes != nil:
		mode = item.Attributes.Mode.Perm()
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return e.failed(path, inTheWay(fmt.Errorf("make file: %w", cause(err))))
	}
	if err = e.copy(ctx, f, item); err == nil {
		err = e.finish(dir, f, name, item.Attributes)
	} else {
		f.Close() // the incomplete file is removed below
	}
	if err != nil {
		return e.failed(path, errors.Join(err, dir.Remove(name)))
	}
	e.done(path)
	return nil
}

// copy writes the content of item to f.
func (e *exporter) copy(ctx context.Context, f *os.File, item Item) error {
	value, err := item.Entry.Open(ctx)
	if err != nil {
		return pageError{err}
	}
	defer value.Close() // read-only: its error does not matter
	for {
		if err := ctx.Err(); err != nil {
			return pageError{err}
		}
		n, err := value.Read(e.buffer)
		if _, err := f.Write(e.buffer[:n]); err != nil {
			return fmt.Errorf("write file: %w", cause(err))
		}
		e.passed(int64(n))
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return pageError{err}
		}
	}
}

// finish sets the time of a written file, and its mode if the umask does not apply, and closes it.
func (e *exporter) finish(dir *os.Root, f *os.File, name string, a *Attributes) error {
	if a != nil && e.options.Preserve {
		if err := f.Chmod(a.Mode); err != nil && !errors.Is(err, errors.ErrUnsupported) {
			return errors.Join(fmt.Errorf("set mode: %w", cause(err)), f.Close())
		}
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close file: %w", cause(err))
	}
	if a == nil {
		return nil
	}
	if err := setTime(dir, name, a.ModTime); err != nil {
		return fmt.Errorf("set time: %w", cause(err))
	}
	return nil
}

func (e *exporter) link(ctx context.Context, dir *os.Root, item Item, path, name string) error {
	if item.Entry.Size > maxLinkBytes {
		return e.failed(path, fmt.Errorf("make link to %d bytes: %w", item.Entry.Size, ledger.ErrTooLarge))
	}
	target, err := item.Entry.Value(ctx)
	if err != nil {
		return e.failed(path, pageError{err})
	}
	if len(target) == 0 || bytes.IndexByte(target, 0) >= 0 {
		return e.failed(path, fmt.Errorf("make link to %q: %w", target, ledger.ErrInvalid))
	}
	if err := dir.Symlink(string(target), name); err != nil {
		return e.failed(path, inTheWay(fmt.Errorf("make link: %w", cause(err))))
	}
	if err := setTime(dir, name, item.Attributes.ModTime); err != nil {
		return e.failed(path, fmt.Errorf("set time of link: %w", cause(err)))
	}
	e.passed(int64(len(target)))
	e.done(path)
	return nil
}

// inTheWay explains an error about an existing file. The target was empty or cleared, so the page
// itself has written that file.
func inTheWay(err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %w", errInTheWay, err)
	}
	return err
}

// checkPath reports why the key of an item is not the path of a file, or of an empty directory.
func checkPath(item Item) error {
	problem := ""
	path := string(item.Entry.Key)
	if typeOf(item) == Directory && item.Entry.Size == 0 {
		path = strings.TrimSuffix(path, "/")
	}
	switch {
	case path == "":
		problem = "is empty"
	case path[0] == '/':
		problem = "is an absolute path"
	case strings.Contains(path, "\x00"):
		problem = "has a NUL"
	default:
		for name := range strings.SplitSeq(path, "/") {
			switch {
			case name == "":
				problem = "has an empty name between slashes"
			case name == "." || name == "..":
				problem = "has the name " + name
			}
		}
		if problem == "" && !filepath.IsLocal(filepath.FromSlash(path)) || filepath.Separator != '/' && strings.ContainsRune(path, filepath.Separator) {
			problem = "is no path on this system"
		}
	}
	if problem == "" {
		return nil
	}
	return fmt.Errorf("key %s and cannot be a file: %w", problem, ledger.ErrInvalid)
}
