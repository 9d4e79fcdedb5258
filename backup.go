package ledger

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/pageusage"
)

// Backup writes a consistent copy of the repository into the directory dir, while it is in use. dir
// must be absent or empty. The copy is a repository that Open opens; it has the same id, and no
// cloud until one is set. Each page is copied as of one moment. When Backup returns nil the copy is
// on disk; after an error dir holds no repository that opens. Errors: ErrInvalid, ErrNoSpace,
// ErrCorrupt, ErrClosed, those of ctx and of the file system.
func (r *Repository) Backup(ctx context.Context, dir string) error {
	if dir == "" {
		return fmt.Errorf("back up: the directory has no name: %w", ErrInvalid)
	}
	infos, err := vfs.OS.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("back up: %w", err)
	}
	if len(infos) > 0 {
		return fmt.Errorf("back up: directory %s is not empty: %w", dir, ErrInvalid)
	}
	t := &dirTarget{dir: dir, dirs: map[string]bool{}}
	if err = writeTo(t, t.mark(), nil); err == nil {
		err = r.backup(ctx, t)
	}
	if err != nil {
		return fmt.Errorf("back up to %s: %w", dir, err)
	}
	return nil
}

// BackupTo writes the same copy as Backup to w as a tar stream. Unpacked into an empty directory it
// is a repository that Open opens. Errors: as Backup, and those of w.
func (r *Repository) BackupTo(ctx context.Context, w io.Writer) error {
	t := &tarTarget{w: tar.NewWriter(w), at: r.clock.Now()}
	if err := r.backup(ctx, t); err != nil {
		return fmt.Errorf("back up: %w", err)
	}
	return nil
}

// backupTarget takes the files of a backup. Names are slash-separated and relative to the
// repository's directory.
type backupTarget interface {
	// create begins a file of size bytes, which ends with Close; one at a time.
	create(name string, size int64) (io.WriteCloser, error)
	// sync makes what was created durable.
	sync() error
	// finish makes the end of the backup durable.
	finish() error
}

func (r *Repository) backup(ctx context.Context, t backupTarget) error {
	infos, err := r.herePages(ctx)
	if err != nil {
		return err
	}
	top := strconv.Itoa(layout.FormatVersion)
	ledger := ""
	for _, info := range infos {
		dir := path.Join(top, layout.LedgersName, layout.LedgerDirName(info.Ledger))
		if info.Ledger != ledger && !layout.SpelledOut(info.Ledger) {
			if err := writeTo(t, path.Join(dir, layout.LedgerName), []byte(info.Ledger)); err != nil {
				return err
			}
		}
		ledger = info.Ledger
		if err := r.backupPage(ctx, t, info, path.Join(dir, layout.PageDirName(info.ID))); err != nil {
			if r.hasLeft(info.key(), err) {
				continue
			}
			return fmt.Errorf("copy page %s: %w", base.PageName(info.Ledger, info.Name, info.ID), err)
		}
	}
	if err := r.backupAway(ctx, t, infos); err != nil {
		return err
	}
	if err := r.backupUsage(t, infos, path.Join(top, layout.UsageName)); err != nil {
		return err
	}
	// The file that makes a repository of the directory comes last.
	if err := t.sync(); err != nil {
		return err
	}
	if err := writeTo(t, path.Join(top, layout.IdentityName), r.identity.Load().Encode()); err != nil {
		return err
	}
	return t.finish()
}

// backupAway writes what is known of the pages that are in the cloud only: with the same cloud the
// copy can fetch them.
func (r *Repository) backupAway(ctx context.Context, t backupTarget, infos []PageInfo) error {
	away, err := r.pages.Gone(ctx)
	if err != nil {
		return err
	}
	named := map[string]bool{}
	for _, info := range infos {
		named[info.Ledger] = true
	}
	for _, p := range away {
		dir := path.Join(strconv.Itoa(layout.FormatVersion), layout.LedgersName, layout.LedgerDirName(p.Page.Ledger))
		if !layout.SpelledOut(p.Page.Ledger) && !named[p.Page.Ledger] {
			named[p.Page.Ledger] = true
			if err := writeTo(t, path.Join(dir, layout.LedgerName), []byte(p.Page.Ledger)); err != nil {
				return err
			}
		}
		if err := writeTo(t, path.Join(dir, layout.AwayName(p.Page.ID)), p.Encode()); err != nil {
			return err
		}
	}
	return nil
}

func (r *Repository) backupPage(ctx context.Context, t backupTarget, info PageInfo, dir string) error {
	return r.visit(ctx, info.key(), func(ctx context.Context, p *Page) error {
		err := p.store.CopyTo(ctx, func(name string, size int64) (io.WriteCloser, error) {
			return t.create(path.Join(dir, name), size)
		})
		p.note(err)
		return err
	})
}

// backupUsage writes a page_usage_db in which all pages are closed.
func (r *Repository) backupUsage(t backupTarget, infos []PageInfo, dir string) (err error) {
	tmp, err := os.MkdirTemp("", "ledger-backup-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	now := r.clock.Now()
	u, _, err := pageusage.Open(tmp, pageusage.Options{Now: now})
	if err != nil {
		return err
	}
	files, err := openAll(tmp)
	if err != nil {
		return errors.Join(err, u.Close())
	}
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	_ = os.RemoveAll(tmp) // where the system allows that of open files: then nothing stays when the process is killed
	for _, info := range infos {
		at := info.LastClosed
		if at.IsZero() {
			at = now
		}
		k := info.key()
		if err = u.MarkClosed(k, at); err == nil && info.Name != "" {
			err = u.SetPageName(k, info.Name)
		}
		if err != nil {
			return errors.Join(err, u.Close())
		}
	}
	if err := u.Close(); err != nil {
		return err
	}
	for _, f := range files {
		b, err := io.ReadAll(f)
		if err != nil {
			return err
		}
		if err := writeTo(t, path.Join(dir, filepath.Base(f.Name())), b); err != nil {
			return err
		}
	}
	return nil
}

// openAll opens the files of a directory for reading.
func openAll(dir string) (files []*os.File, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		f, err := os.Open(filepath.Join(dir, e.Name()))
		if err != nil {
			for _, f := range files {
				err = errors.Join(err, f.Close())
			}
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

func writeTo(t backupTarget, name string, content []byte) error {
	w, err := t.create(name, int64(len(content)))
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return errors.Join(err, w.Close())
}

// dirTarget is a backup in a directory.
type dirTarget struct {
	dir  string
	dirs map[string]bool // made or written to
}

func (t *dirTarget) create(name string, size int64) (io.WriteCloser, error) {
	path := filepath.Join(t.dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	for d := filepath.Dir(path); ; d = filepath.Dir(d) {
		t.dirs[d] = true
		if d == filepath.Clean(t.dir) || d == filepath.Dir(d) {
			break
		}
	}
	f, err := vfs.OS.Create(path)
	if err != nil {
		return nil, err
	}
	if err := f.Preallocate(size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &backupFile{f: f}, nil
}

// backupFile writes a file from its beginning and syncs it at its end.
type backupFile struct {
	f   vfs.File
	off int64
	err error
}

// Write implements io.Writer.
func (b *backupFile) Write(p []byte) (int, error) {
	n, err := b.f.WriteAt(p, b.off)
	b.off += int64(n)
	b.err = errors.Join(b.err, err)
	return n, err
}

// Close implements io.Closer.
func (b *backupFile) Close() error {
	if b.err != nil {
		return b.f.Close()
	}
	return errors.Join(b.f.Sync(), b.f.Close())
}

func (t *dirTarget) sync() error {
	dirs := make([]string, 0, len(t.dirs))
	for d := range t.dirs {
		dirs = append(dirs, d)
	}
	slices.SortFunc(dirs, func(a, b string) int { return len(b) - len(a) })
	for _, d := range dirs {
		if err := vfs.OS.SyncDir(d); err != nil {
			return err
		}
	}
	return nil
}

// mark is the file that tells a backup that did not come to its end from a repository that has lost
// its own file.
func (t *dirTarget) mark() string {
	return path.Join(strconv.Itoa(layout.FormatVersion), layout.IncompleteName)
}

func (t *dirTarget) finish() error {
	if err := t.sync(); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(t.dir, filepath.FromSlash(t.mark()))); err != nil {
		return err
	}
	return vfs.OS.SyncDir(filepath.Dir(filepath.Clean(t.dir)))
}

// tarTarget is a backup in a tar stream.
type tarTarget struct {
	w  *tar.Writer
	at time.Time
}

func (t *tarTarget) create(name string, size int64) (io.WriteCloser, error) {
	h := &tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: t.at, Format: tar.FormatPAX}
	if err := t.w.WriteHeader(h); err != nil {
		return nil, fmt.Errorf("write tar: %w", err)
	}
	return tarFile{t.w}, nil
}

// tarFile is the present file of a tar stream.
type tarFile struct{ w *tar.Writer }

// Write implements io.Writer.
func (f tarFile) Write(b []byte) (int, error) { return f.w.Write(b) }

// Close implements io.Closer. It fails when less was written than declared.
func (f tarFile) Close() error { return f.w.Flush() }

func (t *tarTarget) sync() error   { return nil }
func (t *tarTarget) finish() error { return t.w.Close() }
