package filetree

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/ledgerd/ledger"
)

// MeasureTree calls add for every path that Import would consider, with the length of its content,
// so that a caller can estimate the remaining work. It skips unreadable paths. o may be nil.
// Errors: those of ctx and of dir itself.
func MeasureTree(ctx context.Context, dir string, o *ImportOptions, add func(files, bytes int64)) error {
	info, err := os.Stat(dir)
	if err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	if !info.IsDir() {
		add(1, info.Size())
		return nil
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("measure: %w", err)
	}
	defer root.Close() // read-only: its error does not matter
	return fs.WalkDir(root.FS(), ".", func(path string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return nil // Import warns about it
		}
		info, err := root.Lstat(filepath.FromSlash(path))
		if err != nil {
			return nil
		}
		if o != nil && path != "." && slices.ContainsFunc(o.Exclude, func(x fs.FileInfo) bool { return os.SameFile(x, info) }) {
			if e.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if t := info.Mode().Type(); t == 0 || t == fs.ModeSymlink {
			add(1, info.Size())
		}
		return nil
	})
}

// MeasurePage calls add for every entry that Export would consider, with the length of its value. o
// may be nil. Errors: those of ledger.Snapshot.
func MeasurePage(ctx context.Context, snap *ledger.Snapshot, o *ExportOptions, add func(files, bytes int64)) error {
	var prefix []byte
	if o != nil {
		prefix = o.Prefix
	}
	for item, err := range List(ctx, snap, ListOptions{Prefix: prefix, KeysOnly: true}) {
		if err != nil {
			return err
		}
		add(1, item.Entry.Size)
	}
	return nil
}
