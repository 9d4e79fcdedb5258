package ledger

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/internal/vfs"
)

// A page that the repository knows and does not hold has a file {page}.away in its ledger's
// directory instead of a directory. These rules make a page be there wholly or not at all, whenever
// a process dies or the power fails:
//
//	A1  Where the page's directory is, the page is here and whole; a file {page}.away beside it
//	    says nothing and goes at the next opening.
//	A2  To leave, the file is written first, durably; then the directory is renamed to
//	    {page}.gone-{n}, durably; only then is anything in it removed. Pages that leave together
//	    take each of these steps for all of them.
//	A3  To come back, a page is made and filled as {page}.coming, and renamed once it is whole.
//	A4  Directories of those two names are nobody's: they are removed when the repository is
//	    opened.
const (
	awaySuffix   = ".away"
	goneMark     = ".gone-"
	comingSuffix = ".coming"
)

// absenceKind says why a page is not here.
type absenceKind uint8

const (
	absentEvicted absenceKind = iota + 1 // opening it brings it back
	absentDeleted                        // it was deleted here, and is not taken from the bucket again unless somebody asks for it
)

// absence is the content of the file {page}.away, all integers big-endian:
//
//	offset  bytes  content
//	0       8      "ledgaway"
//	8       4      version of this file: 1
//	12      1      kind: 1 evicted, 2 deleted on this device
//	13      16     id of the bucket that has the page
//	29      8      number of the last entry of the page's log in that bucket that was here; 0,
//	               with a bucket of zeros, of a page that was deleted and was never synced
//	37      8      time of leaving, ns since 1970
//	45      8      what it took on disk, in bytes
//	53      2+n    human name of the page, its length before it; may be empty
//	        4      CRC-32C of all before
type absence struct {
	kind      absenceKind
	bucket    format.ID
	number    uint64
	since     int64
	sizeBytes int64
	name      string
}

const (
	absenceMagic   = "ledgaway"
	absenceVersion = 1
	absenceFixed   = 55
	maxAbsence     = absenceFixed + limits.MaxLedgerNameBytes + 4
)

func (a *absence) encode() []byte {
	b := binary.BigEndian.AppendUint32([]byte(absenceMagic), absenceVersion)
	b = append(b, byte(a.kind))
	b = append(b, a.bucket[:]...)
	b = binary.BigEndian.AppendUint64(b, a.number)
	b = binary.BigEndian.AppendUint64(b, uint64(a.since))
	b = binary.BigEndian.AppendUint64(b, uint64(a.sizeBytes))
	b = binary.BigEndian.AppendUint16(b, uint16(len(a.name)))
	b = append(b, a.name...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseAbsence reads a file {page}.away. It is strict: only what encode writes is accepted.
func parseAbsence(b []byte) (*absence, error) {
	damaged := func(got string) error { return &base.CorruptError{Where: "file *" + awaySuffix, Got: got} }
	if len(b) < 12 || string(b[:8]) != absenceMagic {
		return nil, damaged("another file")
	}
	if version := binary.BigEndian.Uint32(b[8:]); version > absenceVersion {
		return nil, &base.FormatError{What: "file *" + awaySuffix, Found: uint64(version), Supported: absenceVersion}
	}
	if len(b) < absenceFixed+4 || len(b) > maxAbsence {
		return nil, damaged(fmt.Sprintf("%d bytes", len(b)))
	}
	a := &absence{
		kind: absenceKind(b[12]), bucket: format.ID(b[13:29]), number: binary.BigEndian.Uint64(b[29:]),
		since: int64(binary.BigEndian.Uint64(b[37:])), sizeBytes: int64(binary.BigEndian.Uint64(b[45:])),
		name: string(b[absenceFixed : len(b)-4]),
	}
	known := a.kind == absentEvicted || a.kind == absentDeleted
	if !known || a.since < 0 || a.sizeBytes < 0 || !bytes.Equal(a.encode(), b) {
		return nil, damaged("bytes that do not match their checksum")
	}
	return a, nil
}

func (r *Repository) awayPath(k pageKey) string { return r.pageDir(k) + awaySuffix }

// readAbsence returns why a page whose directory is not there is away; nil when the repository does
// not know it. What cannot be read counts as an eviction of which nothing else is known, since
// nobody must take such a page for a new one.
func (r *Repository) readAbsence(k pageKey) (*absence, error) {
	b, err := vfs.ReadFile(r.fs, r.awayPath(k), maxAbsence)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil && !errors.Is(err, ErrTooLarge) {
		return nil, fmt.Errorf("read why page %s is not here: %w", k.text(""), err)
	}
	a, err := parseAbsence(b)
	if errors.Is(err, ErrUnsupported) {
		return nil, fmt.Errorf("read why page %s is not here: %w", k.text(""), err)
	}
	if err != nil {
		r.o.Logger.Warn("what is known of an evicted page is damaged", "ledger", k.ledger, "page", k.id.String(), "error", err)
		return &absence{kind: absentEvicted}, nil
	}
	return a, nil
}

// writeAbsence makes the file {page}.away durable.
func (r *Repository) writeAbsence(k pageKey, a *absence) error {
	if err := replaceFile(r.fs, r.awayPath(k), a.encode()); err != nil {
		return fmt.Errorf("write why page %s is not here: %w", k.text(""), err)
	}
	return nil
}

// removeAbsence removes the file. When that is not durable, A1 holds.
func (r *Repository) removeAbsence(k pageKey) error {
	if err := r.fs.RemoveAll(r.awayPath(k)); err != nil {
		return fmt.Errorf("remove why page %s is not here: %w", k.text(""), err)
	}
	return nil
}

// awayPage is a page that is away, for whatever reason.
type awayPage struct {
	key pageKey
	*absence
}

// awayPages returns the pages that are away, sorted.
func (r *Repository) awayPages(ctx context.Context) ([]awayPage, error) {
	keys, err := r.pageNames(func(name string, dir bool) (PageID, bool) {
		base, ok := strings.CutSuffix(name, awaySuffix)
		if !ok || dir {
			return PageID{}, false
		}
		return parsePageDirName(base)
	})
	if err != nil {
		return nil, err
	}
	var out []awayPage
	for _, k := range keys {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		here, err := r.isHere(k)
		if err != nil {
			return nil, err
		}
		if here {
			continue // A1
		}
		a, err := r.readAbsence(k)
		if err != nil {
			return nil, err
		}
		if a != nil {
			out = append(out, awayPage{k, a})
		}
	}
	return out, nil
}

// isHere reports whether the page has a directory.
func (r *Repository) isHere(k pageKey) (bool, error) {
	_, err := r.fs.Stat(r.pageDir(k))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("look for page %s: %w", k.text(""), err)
	}
	return err == nil, nil
}

// hasLeft reports whether err, of a page that was here when the pages were listed, says that it has
// left since: by the quota, or because somebody has evicted or deleted it.
func (r *Repository) hasLeft(k pageKey, err error) bool {
	if !errors.Is(err, ErrNotFound) {
		return false
	}
	here, err := r.isHere(k)
	return err == nil && !here
}

// whereIs reports whether the page is here, or the repository knows it as evicted. While it leaves
// or comes back it is one of the two.
func (r *Repository) whereIs(k pageKey) (here, away bool, err error) {
	for range 3 { // between the two looks it may have come, or gone
		if here, err = r.isHere(k); err != nil || here {
			return here, false, err
		}
		a, err := r.readAbsence(k)
		if err != nil || a != nil {
			return false, a != nil && a.kind == absentEvicted, err
		}
	}
	return false, false, nil
}

// isAway reports whether the page is not here and the repository knows it as evicted.
func (r *Repository) isAway(k pageKey) (bool, error) {
	_, away, err := r.whereIs(k)
	return away, err
}

// clearLeftovers removes what a process has left that died while pages left or came back (A1, A4).
// Nothing else is open.
func (r *Repository) clearLeftovers() error {
	top := r.ledgersDir()
	ledgers, err := r.fs.ReadDir(top)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for leftovers: %w", err)
	}
	for _, l := range ledgers {
		if _, _, ok := parseLedgerDirName(l.Name); !ok || !l.Dir {
			continue
		}
		if err := r.clearLedger(filepath.Join(top, l.Name)); err != nil {
			return fmt.Errorf("clear leftovers: %w", err)
		}
	}
	return nil
}

func (r *Repository) clearLedger(dir string) error {
	infos, err := r.fs.ReadDir(dir)
	if err != nil {
		return err
	}
	here := map[string]bool{}
	for _, i := range infos {
		here[i.Name] = i.Dir
	}
	settled := false
	for _, i := range infos {
		if !isLeftover(i, here) {
			continue
		}
		if !settled { // the process may have died before the renaming was durable: what has its old name after a power cut must be whole
			if err := r.fs.SyncDir(dir); err != nil {
				return err
			}
			settled = true
		}
		if err := r.fs.RemoveAll(filepath.Join(dir, i.Name)); err != nil {
			return err
		}
	}
	return nil
}

// isLeftover reports whether a name in a ledger's directory is one that nobody needs. here has the
// names that are there.
func isLeftover(i vfs.Info, here map[string]bool) bool {
	name, suffix, _ := strings.Cut(i.Name, ".")
	if _, ok := parsePageDirName(name); !ok {
		return false
	}
	suffix = "." + suffix
	switch {
	case i.Dir:
		return suffix == comingSuffix || strings.HasPrefix(suffix, goneMark)
	case suffix == awaySuffix:
		return here[name]
	}
	return suffix == awaySuffix+".new"
}
