package filetree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/ledgerd/ledger"
)

// maxKeyBytes is the greatest length of a key of a page.
const maxKeyBytes = 4096

// ImportOptions configure an import. The zero value and a nil pointer are useful.
type ImportOptions struct {
	// Message is recorded in the commit.
	Message string
	// Checksum reads files even if type, size, mode and modification time match the page.
	Checksum bool
	// Lazy gives long values the priority ledger.Lazy.
	Lazy bool
	// Mirror allows an import that would otherwise fail with a *RemovalError.
	Mirror bool
	// NoDelete adds and changes files, and removes none.
	NoDelete bool
	// DryRun reads no file and changes nothing: the Result says what an import would do, and has
	// the head. A file that differs only in its modification time counts as changed.
	DryRun bool
	// Exclude is a directory to leave out of the tree, such as the repository itself; nil for none.
	Exclude fs.FileInfo
	// Warn is called for each path that is left out. Nil ignores them; Result counts them.
	Warn func(Warning)
	// Progress is called often, on the goroutine of the caller, with the numbers of files or lines.
	// It may be nil.
	Progress func(ledger.Progress)
}

// Result is the result of an import.
type Result struct {
	// Commit is the new commit, or the head when nothing has changed.
	Commit ledger.CommitID
	// Committed reports whether there is a new commit.
	Committed bool
	// Added, Changed, Removed and Unchanged count paths, or keys of JSON lines.
	Added, Changed, Removed, Unchanged int64
	// Bytes is the length of all values that were read.
	Bytes int64
	// Warnings counts the paths that were left out.
	Warnings int64
}

// importer applies actions in a transaction.
type importer struct {
	options ImportOptions
	base    *ledger.Snapshot
	tx      *ledger.Tx
	tally   tally
	result  Result
	reporter
}

// Import makes the paths with attributes in page equal to the tree at dir, in one transaction (F1,
// F2). It does not read files whose type, size, mode and modification time match the page. dir may
// also be a single file, which becomes one key, its base name; then nothing is removed. A file that
// cannot be read, or changes while it is read, keeps its state in the page and causes a Warning
// (F5).
//
// Import fails with a *RemovalError when it is probably a mistake (F7): when the page was imported
// from another directory and some of it would be removed or overwritten, when there is nothing to
// import, or when more than half of the paths would be removed. Mirror allows it, and so does
// NoDelete, which removes nothing.
//
// A change of a just imported file that keeps its size, within the resolution of the file system's
// clock, goes unnoticed; Checksum reads everything. When Import returns nil the commit survives a
// crash; after an error the page is unchanged. Errors: *RemovalError, those of the file system
// about dir itself, and of ledger.Tx; ledger.ErrConflict when the page got another commit
// meanwhile; ledger.ErrInvalid for Mirror with NoDelete.
func Import(ctx context.Context, page *ledger.Page, dir string, o *ImportOptions) (Result, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return Result{}, fmt.Errorf("import: %w", err)
	}
	return transact(ctx, page, o, func(im *importer) error {
		if im.options.Mirror && im.options.NoDelete {
			return fmt.Errorf("import: Mirror and NoDelete exclude each other: %w", ledger.ErrInvalid)
		}
		if info.IsDir() {
			return im.tree(ctx, dir)
		}
		return im.single(ctx, dir, info)
	})
}

// transact runs fn in a transaction on the newest head and commits it. With DryRun there is none.
func transact(ctx context.Context, page *ledger.Page, o *ImportOptions, fn func(*importer) error) (Result, error) {
	im := &importer{}
	if o != nil {
		im.options = *o
	}
	im.onWarning, im.onProgress = im.options.Warn, im.options.Progress
	var head ledger.CommitID
	if !im.options.DryRun {
		tx, err := page.Begin(ctx, &ledger.TxOptions{FailOnConflict: true})
		if err != nil {
			return Result{}, err
		}
		defer tx.Rollback() // does nothing after Commit
		im.tx, head = tx, tx.Base().ID
	}
	var err error
	if im.base, err = page.At(ctx, head); err != nil {
		return Result{}, err
	}
	defer im.base.Close()
	im.result.Commit = im.base.Commit().ID
	if err := fn(im); err != nil {
		return Result{}, err
	}
	im.result.Bytes, im.result.Warnings = im.now.Bytes, im.warnings
	if im.options.DryRun {
		return im.result, nil
	}
	if err := im.tx.SetMessage(im.options.Message); err != nil {
		return Result{}, err
	}
	if im.result.Commit, err = im.tx.Commit(ctx); err != nil {
		return Result{}, err
	}
	im.result.Committed = im.result.Commit != head
	return im.result, nil
}

// tree imports a directory.
func (im *importer) tree(ctx context.Context, dir string) error {
	path, err := filepath.Abs(dir) // recorded as the source
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	defer root.Close() // read-only: its error does not matter
	from, err := im.guard(ctx, root, path)
	if err != nil {
		return fmt.Errorf("import %s: %w", dir, err)
	}
	if err := im.walk(ctx, root); err != nil {
		return err
	}
	if err := im.finish(ctx, from, path); err != nil {
		return fmt.Errorf("import %s: %w", dir, err)
	}
	return nil
}

// walk imports a directory: another goroutine walks and reads in advance, this one writes.
func (im *importer) walk(ctx context.Context, root *os.Root) error {
	ctx, cancel := context.WithCancelCause(ctx)
	actions := make(chan action, aheadFiles)
	w := &walker{base: im.base, exclude: im.options.Exclude, checksum: im.options.Checksum, dry: im.options.DryRun}
	w.send = func(a action) error {
		select {
		case actions <- a:
			return nil
		case <-ctx.Done():
			a.release()
			return context.Cause(ctx)
		}
	}
	var walking sync.WaitGroup
	var walkErr error
	walking.Go(func() {
		defer close(actions)
		walkErr = w.run(ctx, root)
	})
	defer func() {
		cancel(nil)
		for a := range actions {
			a.release()
		}
		walking.Wait()
	}()
	for a := range actions {
		err := im.apply(ctx, &a)
		a.release()
		if err != nil {
			return err
		}
	}
	if walkErr != nil {
		return fmt.Errorf("walk %s: %w", root.Name(), walkErr)
	}
	return ctx.Err()
}

// single imports one file under its base name.
func (im *importer) single(ctx context.Context, name string, info fs.FileInfo) error {
	attributes, ok := attributesOf(info)
	if !ok {
		return fmt.Errorf("import %s: is a %s: %w", name, kindName(info.Mode()), ledger.ErrInvalid)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|openNonblocking, 0)
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	defer f.Close() // read-only: its error does not matter
	base, err := filepath.Abs(name)
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	a := action{path: filepath.Base(base), attributes: attributes, size: info.Size(), file: f, info: info}
	if err := sameFile(f, info); err != nil {
		return fmt.Errorf("import %s: %w", name, err)
	}
	switch _, err = im.base.Stat(ctx, []byte(a.path)); {
	case err == nil:
		a.known = true
	case !errors.Is(err, ledger.ErrNotFound):
		return err
	}
	im.options.Checksum = true // so that an equal file counts as unchanged
	if err := im.apply(ctx, &a); err != nil {
		return err
	}
	return im.addedFile(ctx)
}

// apply applies one action; with DryRun it only counts.
func (im *importer) apply(ctx context.Context, a *action) error {
	im.tally.add(a)
	im.now.Now = a.path
	switch {
	case a.kept:
		return nil
	case a.warning != nil:
		im.warn(a.path, a.warning)
		return nil
	case a.remove:
		return im.remove(ctx, a)
	case a.parent:
		return im.parent(ctx, a)
	case a.unchanged:
		im.result.Unchanged++
	default:
		done, err := im.put(ctx, a)
		if err != nil {
			return fmt.Errorf("import %q: %w", a.path, err)
		}
		if !done {
			return nil
		}
	}
	im.done(a.path)
	return nil
}

// remove deletes a path that is no longer in the tree, but not a value that was put where only
// attributes were.
func (im *importer) remove(ctx context.Context, a *action) error {
	if im.options.NoDelete {
		return nil
	}
	if a.known {
		im.result.Removed++
	}
	switch {
	case im.options.DryRun:
		return nil
	case a.known:
		return removeFile(ctx, im.tx, []byte(a.path))
	}
	return im.tx.Delete(ctx, AttributesKey([]byte(a.path)))
}

// parent stores the attributes of a directory that is not empty. It counts as removed when it was
// empty, and as changed when its mode has changed.
func (im *importer) parent(ctx context.Context, a *action) error {
	switch {
	case a.known:
		im.result.Removed++
	case a.changed:
		im.result.Changed++
	}
	if im.options.DryRun {
		return nil
	}
	if a.known {
		if err := im.tx.Delete(ctx, []byte(a.path)); err != nil {
			return err
		}
	}
	return im.tx.Put(ctx, AttributesKey([]byte(a.path)), a.attributes.Encode())
}

// put stores content and attributes. It returns false when the file could not be read.
func (im *importer) put(ctx context.Context, a *action) (bool, error) {
	key, priority := []byte(a.path), ledger.Eager
	if im.options.Lazy {
		priority = ledger.Lazy
	}
	switch {
	case im.options.DryRun:
		im.passed(a.size)
		return true, im.count(ctx, a.known)
	case a.file != nil:
		r := &fileReader{file: a.file, info: a.info, read: im.passed}
		if err := im.tx.PutReader(ctx, key, r, -1, priority); err != nil {
			if r.err == nil || ctx.Err() != nil {
				return false, err
			}
			im.warn(a.path, r.err)
			return false, nil
		}
	default:
		if err := im.tx.PutPriority(ctx, key, *a.content, priority); err != nil {
			return false, err
		}
		im.passed(int64(len(*a.content)))
	}
	if err := im.tx.Put(ctx, AttributesKey(key), a.attributes.Encode()); err != nil {
		return false, err
	}
	return true, im.count(ctx, a.known, key, AttributesKey(key))
}

// count counts changes under some keys; known means that the page had the path before.
func (im *importer) count(ctx context.Context, known bool, keys ...[]byte) error {
	if !known {
		im.result.Added++
		return nil
	}
	equal := im.options.Checksum && len(keys) > 0
	for i := 0; equal && i < len(keys); i++ {
		var err error
		if equal, err = sameEntry(ctx, im.base.Reader, im.tx.Reader, keys[i]); err != nil {
			return err
		}
	}
	if equal {
		im.result.Unchanged++
	} else {
		im.result.Changed++
	}
	return nil
}

// fileReader reads a long file, and fails at the end if the file changed meanwhile, so that nothing
// of it is put.
type fileReader struct {
	file *os.File
	info fs.FileInfo
	n    int64
	read func(int64)
	err  error
}

// Read reads the file. It keeps its error in err.
func (r *fileReader) Read(p []byte) (int, error) {
	n, err := r.file.Read(p)
	r.n += int64(n)
	r.read(int64(n))
	switch {
	case r.n > r.info.Size():
		r.err = errChanged
	case errors.Is(err, io.EOF):
		if r.n != r.info.Size() {
			r.err = errChanged
		} else {
			r.err = sameFile(r.file, r.info)
		}
		if r.err == nil {
			return n, io.EOF
		}
	case err != nil:
		r.err = fmt.Errorf("read file: %w", cause(err))
	}
	return n, r.err
}
