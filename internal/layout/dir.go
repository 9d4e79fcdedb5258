package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
)

// FormatVersion is the version of the format that this library writes, and the name of the
// directory that holds it.
const FormatVersion = 1

// Names in the version directory.
const (
	IdentityName   = "repository"
	LedgersName    = "ledgers"
	UsageName      = "page_usage_db"
	ReserveName    = "reserve"
	IncompleteName = "incomplete" // in an incomplete backup
)

// Dir is the directory of a repository. Copies are the same Dir.
type Dir struct {
	FS   vfs.FS
	Path string
}

func (d Dir) version() string { return filepath.Join(d.Path, strconv.Itoa(FormatVersion)) }
func (d Dir) ledgers() string { return d.File(LedgersName) }

// File returns the path of a file in the directory of the format version.
func (d Dir) File(name string) string { return filepath.Join(d.version(), name) }

// LedgerDir returns the directory of a ledger.
func (d Dir) LedgerDir(ledger string) string {
	return filepath.Join(d.ledgers(), LedgerDirName(ledger))
}

// PageDir returns the directory of a page.
func (d Dir) PageDir(p Page) string { return filepath.Join(d.LedgerDir(p.Ledger), PageDirName(p.ID)) }

// checkVersions refuses a directory with a newer format than this library supports. Errors:
// *base.FormatError, those of the file system.
func (d Dir) checkVersions() error {
	infos, err := d.FS.ReadDir(d.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for a repository: %w", err)
	}
	for _, info := range infos {
		n, err := strconv.ParseUint(info.Name, 10, 64)
		if info.Dir && err == nil && n > FormatVersion && strconv.FormatUint(n, 10) == info.Name {
			return &base.FormatError{What: "repository", Found: n, Supported: FormatVersion}
		}
	}
	return nil
}

// MakeLedger makes the directory of a ledger. It is durable when MakeLedger returns nil.
func (d Dir) MakeLedger(ledger string) error {
	if err := d.FS.MkdirAll(d.LedgerDir(ledger)); err != nil {
		return err
	}
	return d.FS.SyncDir(d.ledgers()) // also for a process that died before it synced the name
}

// HasPage reports whether the directory of a page exists.
func (d Dir) HasPage(p Page) (bool, error) {
	_, err := d.FS.Stat(d.PageDir(p))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look for page %s: %w", p.Text(""), err)
	}
	return err == nil, nil
}

// Pages returns the pages that have a directory, sorted. Errors: *base.CorruptError, those of the
// file system.
func (d Dir) Pages() ([]Page, error) {
	return d.pages(func(i vfs.Info) ([16]byte, bool) {
		id, ok := parsePageDirName(i.Name)
		return id, ok && i.Dir
	})
}

// AwayPages returns the pages with a file {page}.away, sorted. For a page that also has its
// directory, the file has no meaning. Errors: as Pages.
func (d Dir) AwayPages() ([]Page, error) {
	return d.pages(func(i vfs.Info) ([16]byte, bool) {
		name, ok := strings.CutSuffix(i.Name, awaySuffix)
		if !ok || i.Dir {
			return [16]byte{}, false
		}
		return parsePageDirName(name)
	})
}

// pages returns the pages whose ids parse finds in the directories of ledgers, sorted.
func (d Dir) pages(parse func(vfs.Info) ([16]byte, bool)) (pages []Page, err error) {
	err = d.eachLedger(func(dir, ledger string) error {
		infos, err := d.FS.ReadDir(dir)
		for _, i := range infos {
			if id, ok := parse(i); ok {
				pages = append(pages, Page{Ledger: ledger, ID: id})
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list pages: %w", err)
	}
	slices.SortFunc(pages, Page.Compare)
	return pages, nil
}

// eachLedger calls fn with the directories of ledgers, and their names.
func (d Dir) eachLedger(fn func(dir, ledger string) error) error {
	ledgers, err := d.FS.ReadDir(d.ledgers())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, l := range ledgers {
		ledger, ok := parseLedgerDirName(l.Name)
		if !ok || !l.Dir {
			continue
		}
		if err := fn(filepath.Join(d.ledgers(), l.Name), ledger); err != nil {
			return err
		}
	}
	return nil
}

// PageSize returns the total size of a page's files, 0 when the page is not here. It skips files
// that are removed meanwhile.
func (d Dir) PageSize(p Page) (int64, error) { return d.sizeBelow(d.PageDir(p)) }

func (d Dir) sizeBelow(dir string) (int64, error) {
	infos, err := d.FS.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		return 0, err
	}
	var sum int64
	for _, i := range infos {
		if !i.Dir {
			sum += i.Size
			continue
		}
		n, err := d.sizeBelow(filepath.Join(dir, i.Name))
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// Replace replaces the content of the file at path atomically, durable when it returns nil.
func (d Dir) Replace(path string, content []byte) error {
	if err := d.FS.RemoveAll(path + newSuffix); err != nil {
		return err
	}
	if err := vfs.WriteFile(d.FS, path+newSuffix, content); err != nil {
		return err
	}
	if err := d.FS.Rename(path+newSuffix, path); err != nil {
		return err
	}
	return d.FS.SyncDir(filepath.Dir(path))
}

// newSuffix is appended to the name of a file that will replace another.
const newSuffix = ".new"
