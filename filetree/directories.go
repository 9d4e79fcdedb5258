package filetree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ownerAll are the rights that the owner of a directory needs to write in it.
const ownerAll fs.FileMode = 0o700

// level is a directory held open during an export, so that each file in it costs one lookup.
type level struct {
	name string // in the level above
	path string // below the target
	root *os.Root
	mode *fs.FileMode // from the page; nil when the page has none or the mode is to stay
}

// openTarget opens the target directory, and makes it where it is absent.
func (e *exporter) openTarget(ctx context.Context, target string) error {
	mode, problem, err := e.directoryMode(ctx, "")
	if err != nil {
		return fmt.Errorf("read mode of the tree: %w", err)
	}
	if problem != nil {
		e.warn(".", problem)
	}
	target = filepath.Clean(target) // with a trailing slash, splitting would give target itself as parent
	if err := os.MkdirAll(filepath.Dir(target), defaultDirectoryMode); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	switch err := os.Mkdir(target, createMode(mode)); {
	case errors.Is(err, fs.ErrExist):
		mode = nil
	case err != nil:
		return fmt.Errorf("make directory: %w", err)
	}
	root, err := os.OpenRoot(target)
	if err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	e.levels = []level{{root: root, mode: mode}}
	return nil
}

// directoryMode returns the mode of a directory in the page, nil when it has none, and why the
// stored mode is invalid.
func (e *exporter) directoryMode(ctx context.Context, path string) (mode *fs.FileMode, problem, err error) {
	if path != "" {
		path += "/"
	}
	a, problem, err := attributesUnder(ctx, e.snap.Reader, []byte(path))
	if err != nil || a == nil || a.Type != Directory {
		if problem != nil {
			problem = fmt.Errorf("made without its mode: %w", problem)
		}
		return nil, problem, err
	}
	return &a.Mode, nil, nil
}

// isWritable reports whether its owner may write in a directory.
func isWritable(info fs.FileInfo) bool { return info.Mode().Perm()&ownerAll == ownerAll }

// makeWritable gives the owner of a directory the right to write in it, until it is settled.
func makeWritable(parent *os.Root, name string, info fs.FileInfo) error {
	return parent.Chmod(name, info.Mode()&keptMode|ownerAll)
}

// createMode returns the mode for making a directory, before settle. The system applies the umask.
func createMode(mode *fs.FileMode) fs.FileMode {
	if mode == nil {
		return defaultDirectoryMode
	}
	return mode.Perm() | ownerAll
}

// splitPath splits a path into its directory, "" for the target, and its last name.
func splitPath(path string) (dir, name string) {
	i := strings.LastIndexByte(path, '/')
	return path[:max(i, 0)], path[i+1:]
}

// enter returns the directory at path, "" for the target, and makes it where it is absent.
func (e *exporter) enter(ctx context.Context, path string) (*os.Root, error) {
	var names []string
	if path != "" {
		names = strings.Split(path, "/")
	}
	depth := 1
	for depth < len(e.levels) && depth <= len(names) && e.levels[depth].name == names[depth-1] {
		depth++
	}
	e.leave(depth)
	for i := depth - 1; i < len(names); i++ {
		below := level{name: names[i], path: strings.Join(names[:i+1], "/")}
		mode, problem, err := e.directoryMode(ctx, below.path)
		if err != nil {
			return nil, pageError{err}
		}
		if problem != nil {
			e.warn(below.path, problem)
		}
		below.mode = mode
		if below.root, err = enterDirectory(e.levels[i].root, names[i], mode); err != nil {
			return nil, err
		}
		e.levels = append(e.levels, below)
	}
	return e.levels[len(e.levels)-1].root, nil
}

// enterDirectory opens a directory with a mode from the page, nil when there is none, and makes it
// where it is absent. A directory of the page that was entered before, as an empty one, becomes
// writable again. It does not follow links.
func enterDirectory(parent *os.Root, name string, mode *fs.FileMode) (*os.Root, error) {
	err := parent.Mkdir(name, createMode(mode))
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make directory: %w", cause(err))
	}
	info, err := parent.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("look at directory: %w", cause(err))
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%q is no directory: %w", name, errInTheWay)
	}
	if mode != nil && !isWritable(info) {
		if err := makeWritable(parent, name, info); err != nil {
			return nil, fmt.Errorf("open directory: %w", cause(err))
		}
	}
	sub, err := parent.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("open directory: %w", cause(err))
	}
	now, err := sub.Stat(".")
	if err != nil || !os.SameFile(info, now) {
		return nil, errors.Join(fmt.Errorf("open directory %q: %w", name, errChanged), err, sub.Close())
	}
	return sub, nil
}

// leave closes the directories after the first n, the deepest first: once a mode is set, the
// directory may be inaccessible.
func (e *exporter) leave(n int) {
	for i := len(e.levels) - 1; i >= n; i-- {
		l := e.levels[i]
		if l.mode != nil {
			if err := l.settle(e.options.Preserve); err != nil {
				e.warn(l.path, fmt.Errorf("set mode of directory: %w", cause(err)))
			}
		}
		l.root.Close() // it has no writes to lose
	}
	e.levels = e.levels[:n]
}

// settle sets the mode of a directory. If the umask counts, the system has applied it at creation:
// settle then only removes bits that the page's mode lacks.
func (l level) settle(preserve bool) error {
	info, err := l.root.Stat(".")
	if err != nil {
		return err
	}
	now, want := info.Mode()&keptMode, *l.mode
	if !preserve {
		want = now &^ (fs.ModePerm &^ l.mode.Perm())
	}
	if want == now {
		return nil
	}
	return l.root.Chmod(".", want)
}
