package filetree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/ledgerd/ledger"
)

const (
	// smallBytes is the length up to which the walker reads a file into memory for the writer;
	// longer files are passed open.
	smallBytes = 64 << 10
	// aheadFiles bounds how many files the walker is ahead of the writer.
	aheadFiles = 64
	// maxPathBytes is the greatest length of a path, so that its attributes key is a valid key.
	maxPathBytes = maxKeyBytes - len(attributesPrefix)
)

// errChanged reports a file that changed while it was read.
var errChanged = errors.New("changed while it was read")

// action is the walker's request to the writer for one path.
type action struct {
	path       string
	attributes Attributes
	size       int64
	known      bool     // the page already has content of the path
	content    *[]byte  // of a small file, a link or a directory; from the buffer pool
	file       *os.File // of a long file; the writer closes it
	info       fs.FileInfo
	remove     bool  // the path is no longer in the tree
	parent     bool  // a directory that is not empty: it has attributes alone
	changed    bool  // of a parent: its attributes in the page differ
	unchanged  bool  // nothing to do
	kept       bool  // nothing done: the path or a directory above it could not be read
	warning    error // why nothing was done
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, smallBytes+1); return &b }}

func (a *action) release() {
	if a.content != nil {
		*a.content = (*a.content)[:0]
		buffers.Put(a.content)
		a.content = nil
	}
	if a.file != nil {
		a.file.Close() // read-only: its error does not matter
		a.file = nil
	}
}

// walker walks a tree in bytewise order of its paths, in step with the page's attributes in the
// same order, and sends the differences.
type walker struct {
	base     *ledger.Snapshot
	exclude  fs.FileInfo // nil for none
	checksum bool
	dry      bool // only counts what would be done, without reading files
	send     func(action) error

	next    func() (ledger.Entry, error, bool) // the page's attributes, in order
	pending *known
	done    bool
	kept    map[string]bool // unreadable paths: they and everything below stay unchanged
}

// known is a path with attributes in the page.
type known struct {
	path       string
	attributes Attributes
	valid      bool
}

// run walks the tree under root and sends every action. It returns the first error that does not
// concern a single file.
func (w *walker) run(ctx context.Context, root *os.Root) error {
	next, stop := iter.Pull2(w.base.Scan(ctx, ledger.ScanOptions{Prefix: []byte(attributesPrefix)}))
	defer stop()
	w.next, w.kept = next, map[string]bool{}
	if err := w.root(ctx, root); err != nil {
		return err
	}
	if _, err := w.directory(ctx, root, ""); err != nil {
		return err
	}
	_, err := w.advance(ctx, "", true)
	return err
}

// root handles the imported directory itself.
func (w *walker) root(ctx context.Context, root *os.Root) error {
	old, err := w.advance(ctx, "", false)
	if err != nil {
		return err
	}
	info, err := root.Stat(".")
	if err != nil {
		return fmt.Errorf("look at directory: %w", cause(err))
	}
	attributes, _ := attributesOf(info) // it is a directory
	return w.parent(ctx, "", attributes, old)
}

// content returns the length of the page's entry of a path, and whether there is one: a directory
// that was not empty has none.
func (w *walker) content(ctx context.Context, old *known) (size int64, has bool, err error) {
	if old == nil || old.path == "" {
		return 0, false, nil
	}
	entry, err := w.base.Stat(ctx, []byte(old.path))
	if errors.Is(err, ledger.ErrNotFound) {
		return 0, false, nil
	}
	return entry.Size, err == nil, err
}

// remove sends a removal unless the path could not be read.
func (w *walker) remove(ctx context.Context, old *known) error {
	_, has, err := w.content(ctx, old)
	if err != nil {
		return err
	}
	kept := w.isKept(old.path)
	return w.send(action{path: old.path, known: has, kept: kept, remove: !kept})
}

// parent handles a directory that is not empty; old is its state in the page, or nil.
func (w *walker) parent(ctx context.Context, path string, attributes Attributes, old *known) error {
	_, has, err := w.content(ctx, old)
	if err != nil || !has && old != nil && old.valid && old.attributes.Equal(attributes) {
		return err
	}
	return w.send(action{path: path, attributes: attributes, known: has, parent: true, changed: old != nil && !has})
}

// directory walks one directory and returns how many of its entries belong to the tree.
func (w *walker) directory(ctx context.Context, dir *os.Root, prefix string) (int, error) {
	entries, err := fs.ReadDir(dir.FS(), ".")
	if err != nil {
		err = fmt.Errorf("read directory: %w", cause(err))
		if prefix == "" {
			return 0, err
		}
		return 1, w.keep(prefix, err)
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(pathOf(a), pathOf(b)) })
	count := 0
	for _, e := range entries {
		if err := ctx.Err(); err != nil {
			return count, err
		}
		belongs, err := w.entry(ctx, dir, prefix+pathOf(e), e)
		if err != nil {
			return count, err
		}
		if belongs {
			count++
		}
	}
	return count, nil
}

// pathOf returns the path of a directory's entry in that directory.
func pathOf(e fs.DirEntry) string {
	if e.IsDir() {
		return e.Name() + "/"
	}
	return e.Name()
}

// entry handles one name of a directory. It reports whether the name belongs to the tree, so that
// the directory is not empty.
func (w *walker) entry(ctx context.Context, dir *os.Root, path string, e fs.DirEntry) (bool, error) {
	info, err := dir.Lstat(e.Name())
	if err != nil {
		return true, w.keep(path, fmt.Errorf("look at file: %w", cause(err)))
	}
	if w.exclude != nil && os.SameFile(w.exclude, info) {
		return false, nil
	}
	attributes, ok := attributesOf(info)
	switch {
	case !ok:
		return false, w.warn(path, fmt.Errorf("skip %s: only files, links and directories are imported", kindName(info.Mode())))
	case info.IsDir() != e.IsDir():
		return true, w.keep(path, errChanged)
	case len(path) > maxPathBytes:
		return true, w.warn(path, fmt.Errorf("skip name of %d bytes, at most %d are allowed: %w", len(path), maxPathBytes, ledger.ErrTooLarge))
	case info.IsDir():
		return true, w.subdirectory(ctx, dir, path, e.Name(), attributes, info)
	}
	old, err := w.advance(ctx, path, false)
	if err != nil {
		return true, err
	}
	return true, w.file(ctx, dir, e.Name(), action{path: path, attributes: attributes, size: info.Size(), info: info}, old)
}

func (w *walker) subdirectory(ctx context.Context, dir *os.Root, path, name string, attributes Attributes, info fs.FileInfo) error {
	old, err := w.advance(ctx, path, false)
	if err != nil {
		return err
	}
	sub, err := dir.OpenRoot(name)
	if err != nil {
		return w.keep(path, fmt.Errorf("open directory: %w", cause(err)))
	}
	defer sub.Close() // read-only: its error does not matter
	if now, err := sub.Stat("."); err != nil || !os.SameFile(info, now) {
		return w.keep(path, errChanged)
	}
	n, err := w.directory(ctx, sub, path)
	switch {
	case err != nil:
		return err
	case n == 0:
		return w.file(ctx, dir, name, action{path: path, attributes: attributes, info: info}, old)
	}
	return w.parent(ctx, path, attributes, old)
}

// file handles a file, a link or an empty directory; old is its state in the page, or nil.
func (w *walker) file(ctx context.Context, dir *os.Root, name string, a action, old *known) error {
	size, has, err := w.content(ctx, old)
	if err != nil {
		return err
	}
	a.known = has
	if has && size == a.size && old.valid && !w.checksum && old.attributes.Equal(a.attributes) {
		a.unchanged = true
		return w.send(a)
	}
	if w.dry {
		return w.send(a)
	}
	if err := a.read(dir, name); err != nil {
		a.release()
		return w.send(action{path: a.path, known: a.known, warning: err})
	}
	return w.send(a)
}

// read fills in the content, or the open file when it is long.
func (a *action) read(dir *os.Root, name string) error {
	a.content = buffers.Get().(*[]byte)
	switch a.attributes.Type {
	case Directory:
		return nil
	case Link:
		target, err := dir.Readlink(name)
		if err != nil {
			return fmt.Errorf("read link: %w", cause(err))
		}
		*a.content = append(*a.content, target...)
		a.size = int64(len(target))
		return nil
	}
	f, err := dir.OpenFile(name, os.O_RDONLY|openNonblocking, 0)
	if err != nil {
		return fmt.Errorf("open file: %w", cause(err))
	}
	a.file = f
	if err := sameFile(f, a.info); err != nil || a.size > smallBytes {
		return err
	}
	b := (*a.content)[:a.size+1] // one spare byte in the pool's buffers detects the end at once
	n, err := io.ReadFull(f, b)
	switch {
	case err == nil || int64(n) != a.size:
		return errChanged
	case !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("read file: %w", cause(err))
	}
	*a.content = b[:n]
	err = sameFile(f, a.info)
	a.file = nil
	return errors.Join(err, f.Close())
}

// sameFile reports errChanged unless f is still the unchanged file of info.
func sameFile(f *os.File, info fs.FileInfo) error {
	now, err := f.Stat()
	if err != nil {
		return fmt.Errorf("look at open file: %w", cause(err))
	}
	if !os.SameFile(info, now) || now.Size() != info.Size() || !now.ModTime().Equal(info.ModTime()) || now.Mode() != info.Mode() {
		return errChanged
	}
	return nil
}

// advance sends a removal for every path of the page before path (with end, for all remaining
// paths), and returns the page's state of path, or nil.
func (w *walker) advance(ctx context.Context, path string, end bool) (*known, error) {
	for {
		k, err := w.peek(ctx)
		if err != nil || k == nil || !end && k.path > path {
			return nil, err
		}
		w.pending = nil
		if !end && k.path == path {
			return k, nil
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := w.remove(ctx, k); err != nil {
			return nil, err
		}
	}
}

// peek returns the page's next path with attributes without consuming it, or nil at the end.
func (w *walker) peek(ctx context.Context) (*known, error) {
	if w.pending != nil || w.done {
		return w.pending, nil
	}
	entry, err, ok := w.next()
	if !ok {
		w.done = true
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read attributes: %w", err)
	}
	if string(entry.Key) == sourceKey {
		return w.peek(ctx)
	}
	path, _ := AttributesPath(entry.Key)
	k := &known{path: string(path)}
	a, problem, err := attributesOfEntry(ctx, entry)
	if err != nil {
		return nil, fmt.Errorf("read attributes of %q: %w", k.path, err)
	}
	if a != nil && problem == nil {
		k.attributes, k.valid = *a, true
	}
	w.pending = k
	return k, nil
}

// warn reports a path that is not imported.
func (w *walker) warn(path string, err error) error {
	return w.send(action{path: path, warning: err})
}

// keep reports a path that could not be read. The page's entries of it and below it stay.
func (w *walker) keep(path string, err error) error {
	path = strings.TrimSuffix(path, "/")
	w.kept[path] = true
	return w.warn(path, err)
}

// isKept reports whether path, or a directory above it, could not be read.
func (w *walker) isKept(path string) bool {
	if len(w.kept) == 0 {
		return false
	}
	for i := 1; i < len(path); i++ {
		if path[i] == '/' && w.kept[path[:i]] {
			return true
		}
	}
	return w.kept[path]
}

// cause returns an error without the operation and path that package os adds, since the warning
// names the path.
func cause(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	if e, ok := errors.AsType[*os.LinkError](err); ok {
		return e.Err
	}
	return err
}

func kindName(m fs.FileMode) string {
	switch {
	case m&fs.ModeSocket != 0:
		return "socket"
	case m&fs.ModeNamedPipe != 0:
		return "named pipe"
	case m&fs.ModeDevice != 0:
		return "device"
	}
	return "special file"
}
