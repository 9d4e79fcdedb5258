package backup

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
	"strconv"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/internal/vfs"
	"github.com/ledgerd/ledger/pageusage"
)

// Source is the repository to copy.
type Source struct {
	// Identity is the content of the file `repository`, and Now the time.
	Identity []byte
	Now      time.Time
	// Pages returns the pages on this device, sorted. Away returns the others, and is called after
	// the former were copied.
	Pages func(context.Context) ([]Page, error)
	Away  func(context.Context) ([]presence.Gone, error)
	// Copy copies the files of a page as of one moment. It returns false for a page that has left
	// since the listing.
	Copy func(ctx context.Context, page base.Page, create Create) (here bool, err error)
	// Progress is called with the length of each file of a page before it is written.
	Progress func(bytes int64)
}

// Page is a page of a Source.
type Page struct {
	base.Page
	Name       string    // human, "" when there is none
	LastClosed time.Time // zero when unknown
}

// Create begins a file of size bytes, which ends with Close; one file at a time.
type Create func(name string, size int64) (io.WriteCloser, error)

// ToDir writes a copy into the directory dir, which is absent or empty. When it returns nil the
// copy is durable; after an error dir holds no repository that can be opened. Errors:
// base.ErrInvalid, those of the Source, of ctx and of the file system.
func ToDir(ctx context.Context, dir string, s Source) error {
	infos, err := vfs.OS.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(infos) > 0 {
		return fmt.Errorf("the directory is not empty: %w", base.ErrInvalid)
	}
	t := dirTarget(filepath.Clean(dir))
	if err := writeTo(t, t.mark(), nil); err != nil {
		return err
	}
	return s.copyTo(ctx, t)
}

// ToTar writes a copy to w as a tar stream. Errors: those of the Source, of ctx and of w.
func ToTar(ctx context.Context, w io.Writer, s Source) error {
	return s.copyTo(ctx, &tarTarget{w: tar.NewWriter(w), at: s.Now})
}

// target receives the files of a backup. Names are slash-separated and relative to the repository's
// directory.
type target interface {
	// create begins a file of size bytes, which ends with Close; one file at a time.
	create(name string, size int64) (io.WriteCloser, error)
	// sync makes the created files durable.
	sync() error
	// finish makes the completion of the backup durable.
	finish() error
}

// top is the directory of the format.
var top = strconv.Itoa(layout.FormatVersion)

func (s *Source) copyTo(ctx context.Context, t target) error {
	pages, err := s.Pages(ctx)
	if err != nil {
		return err
	}
	for _, p := range pages {
		dir := inLedger(p.Ledger, layout.PageDirName(p.ID))
		here, err := s.Copy(ctx, p.Page, func(name string, size int64) (io.WriteCloser, error) {
			s.Progress(size)
			return t.create(path.Join(dir, name), size)
		})
		if err != nil && here {
			return fmt.Errorf("copy page %s: %w", p.Text(p.Name), err)
		}
	}
	// The records of the pages that are only in the cloud: with the same cloud the copy can fetch
	// them.
	away, err := s.Away(ctx)
	if err != nil {
		return err
	}
	for _, p := range away {
		if err := writeTo(t, inLedger(p.Page.Ledger, layout.AwayName(p.Page.ID)), p.Encode()); err != nil {
			return err
		}
	}
	if err := s.copyUsage(t, pages); err != nil {
		return err
	}
	// The file that makes the directory a repository is written last.
	if err := t.sync(); err != nil {
		return err
	}
	if err := writeTo(t, path.Join(top, layout.IdentityName), s.Identity); err != nil {
		return err
	}
	return t.finish()
}

// inLedger returns the path of an entry in the directory of a ledger.
func inLedger(ledger, name string) string {
	return path.Join(top, layout.LedgersName, layout.LedgerDirName(ledger), name)
}

// copyUsage writes a page_usage_db with all pages closed.
func (s *Source) copyUsage(t target, pages []Page) (err error) {
	tmp, err := os.MkdirTemp("", "ledger-backup-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	u, _, err := pageusage.Open(tmp, pageusage.Options{Now: s.Now})
	if err != nil {
		return err
	}
	f, err := os.Open(filepath.Join(tmp, pageusage.FileName))
	if err != nil {
		return errors.Join(err, u.Close())
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	_ = os.RemoveAll(tmp) // where the system can remove open files: nothing is left when the process is killed
	for _, p := range pages {
		at := p.LastClosed
		if at.IsZero() {
			at = s.Now
		}
		if err = u.MarkClosed(p.Page, at); err == nil && p.Name != "" {
			err = u.SetPageName(p.Page, p.Name)
		}
		if err != nil {
			return errors.Join(err, u.Close())
		}
	}
	if err := u.Close(); err != nil {
		return err
	}
	b, err := io.ReadAll(f)
	if err != nil {
		return err
	}
	return writeTo(t, path.Join(top, layout.UsageName, pageusage.FileName), b)
}

func writeTo(t target, name string, content []byte) error {
	w, err := t.create(name, int64(len(content)))
	if err != nil {
		return err
	}
	_, err = w.Write(content)
	return errors.Join(err, w.Close())
}

// dirTarget is a backup in the directory of that name.
type dirTarget string

func (t dirTarget) create(name string, size int64) (io.WriteCloser, error) {
	path := t.path(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	f, err := vfs.OS.Create(path)
	if err != nil {
		return nil, err
	}
	if err := f.Preallocate(size); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &diskFile{io.NewOffsetWriter(f, 0), f}, nil
}

// diskFile writes a file sequentially and syncs it at its end.
type diskFile struct {
	*io.OffsetWriter
	f vfs.File
}

// Close implements io.Closer.
func (b *diskFile) Close() error { return errors.Join(b.f.Sync(), b.f.Close()) }

func (t dirTarget) path(name string) string {
	return filepath.Join(string(t), filepath.FromSlash(name))
}

func (t dirTarget) sync() error {
	return filepath.WalkDir(string(t), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		return vfs.OS.SyncDir(path)
	})
}

// mark is the file that distinguishes an incomplete backup from a repository that has lost its own
// file.
func (t dirTarget) mark() string { return path.Join(top, layout.IncompleteName) }

func (t dirTarget) finish() error {
	if err := t.sync(); err != nil {
		return err
	}
	if err := os.Remove(t.path(t.mark())); err != nil {
		return err
	}
	return vfs.OS.SyncDir(filepath.Dir(string(t)))
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
	return &tarFile{w: t.w}, nil
}

// tarFile is the present file of a tar stream.
type tarFile struct {
	w      *tar.Writer
	failed bool
}

// Write implements io.Writer.
func (f *tarFile) Write(b []byte) (int, error) {
	n, err := f.w.Write(b)
	f.failed = f.failed || err != nil
	return n, err
}

// Close implements io.Closer. It fails when less was written than declared, unless a Write has
// failed.
func (f *tarFile) Close() error {
	if f.failed {
		return nil
	}
	return f.w.Flush()
}

func (t *tarTarget) sync() error   { return nil }
func (t *tarTarget) finish() error { return t.w.Close() }
