package layout

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/internal/vfs"
)

// Suffixes of a page directory's name: for the file with the reason of its absence, for a page that
// has left, before a number, and for a page that is being made.
const (
	awaySuffix   = ".away"
	goneMark     = ".gone-"
	comingSuffix = ".coming"
)

// AbsenceKind is the reason why a page is not here.
type AbsenceKind uint8

// The kinds of absence.
const (
	Evicted AbsenceKind = iota + 1 // opening the page downloads it
	Deleted                        // deleted here; downloaded again only on request
)

// Absence is the content of the file {page}.away, all integers big-endian:
//
//	offset  bytes  content
//	0       8      "ledgaway"
//	8       4      version of this file: 1
//	12      1      kind: 1 evicted, 2 deleted on this device
//	13      16     id of the bucket that has the page
//	29      8      number of the last log entry of the page in that bucket that was here; 0,
//	               with a bucket of zeros, of a page that was deleted and was never synced
//	37      8      time of leaving, ns since 1970
//	45      8      its size on disk, in bytes
//	53      2+n    human name of the page, its length before it; may be empty
//	        4      CRC-32C of all before
type Absence struct {
	Kind      AbsenceKind
	Bucket    [16]byte
	Number    uint64
	Since     int64
	SizeBytes int64
	Name      string
}

const (
	absenceMagic   = "ledgaway"
	absenceVersion = 1
	absenceFixed   = 55
	maxAbsence     = absenceFixed + limits.MaxPageNameBytes + 4
)

// Encode returns the content of the file.
func (a *Absence) Encode() []byte {
	b := binary.BigEndian.AppendUint32([]byte(absenceMagic), absenceVersion)
	b = append(b, byte(a.Kind))
	b = append(b, a.Bucket[:]...)
	b = binary.BigEndian.AppendUint64(b, a.Number)
	b = binary.BigEndian.AppendUint64(b, uint64(a.Since))
	b = binary.BigEndian.AppendUint64(b, uint64(a.SizeBytes))
	b = binary.BigEndian.AppendUint16(b, uint16(len(a.Name)))
	b = append(b, a.Name...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// ParseAbsence reads a file {page}.away. It is strict: only what Encode writes is accepted. Errors:
// *base.CorruptError, *base.FormatError.
func ParseAbsence(b []byte) (*Absence, error) {
	damaged := func(got string) error { return &base.CorruptError{Where: "file *" + awaySuffix, Got: got} }
	if !bytes.HasPrefix(b, []byte(absenceMagic)) {
		return nil, damaged("another file")
	}
	if !intact(b) {
		return nil, damaged("bytes that do not match their checksum")
	}
	if version := binary.BigEndian.Uint32(b[8:]); version > absenceVersion {
		return nil, &base.FormatError{What: "file *" + awaySuffix, Found: uint64(version), Supported: absenceVersion}
	}
	if len(b) < absenceFixed+4 || len(b) > maxAbsence {
		return nil, damaged(fmt.Sprintf("%d bytes", len(b)))
	}
	a := &Absence{
		Kind: AbsenceKind(b[12]), Bucket: [16]byte(b[13:29]), Number: binary.BigEndian.Uint64(b[29:]),
		Since: int64(binary.BigEndian.Uint64(b[37:])), SizeBytes: int64(binary.BigEndian.Uint64(b[45:])),
		Name: string(b[absenceFixed : len(b)-4]),
	}
	known := a.Kind == Evicted || a.Kind == Deleted
	if !known || a.Since < 0 || a.SizeBytes < 0 || !bytes.Equal(a.Encode(), b) {
		return nil, damaged("fields that do not fit")
	}
	return a, nil
}

// AwayFile returns the path of the file with the reason of a page's absence.
func (d Dir) AwayFile(p Page) string { return d.PageDir(p) + awaySuffix }

// AwayName returns the name of that file within the ledger's directory.
func AwayName(id [16]byte) string { return PageDirName(id) + awaySuffix }

// ComingDir returns the directory of a page while it is made from the bucket's content.
func (d Dir) ComingDir(p Page) string { return d.PageDir(p) + comingSuffix }

// GoneDir returns the directory of a page that has left and is about to be removed; n makes it
// unique for the page.
func (d Dir) GoneDir(p Page, n uint64) string { return fmt.Sprint(d.PageDir(p), goneMark, n) }

// ReadAbsence reads the file {page}.away, nil when there is none. Errors: *base.CorruptError,
// *base.FormatError, those of the file system.
func (d Dir) ReadAbsence(p Page) (*Absence, error) {
	b, err := vfs.ReadFile(d.FS, d.AwayFile(p), maxAbsence)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, base.ErrTooLarge) {
		err = &base.CorruptError{Where: "file *" + awaySuffix, Err: err}
	}
	var a *Absence
	if err == nil {
		a, err = ParseAbsence(b)
	}
	if err != nil {
		return nil, fmt.Errorf("read why page %s is not here: %w", p.Text(""), err)
	}
	return a, nil
}

// WriteAbsence replaces the file {page}.away, durably.
func (d Dir) WriteAbsence(p Page, a *Absence) error {
	if err := d.Replace(d.AwayFile(p), a.Encode()); err != nil {
		return fmt.Errorf("write why page %s is not here: %w", p.Text(""), err)
	}
	return nil
}

// RemoveAbsence removes the file {page}.away, not durably.
func (d Dir) RemoveAbsence(p Page) error {
	if err := d.FS.RemoveAll(d.AwayFile(p)); err != nil {
		return fmt.Errorf("remove why page %s is not here: %w", p.Text(""), err)
	}
	return nil
}

// RemoveLeftovers removes the leftovers of a process that died while pages left or came:
// directories of pages that have left or are incomplete, and files {page}.away beside the directory
// of the page. No page may be open.
func (d Dir) RemoveLeftovers() error {
	err := d.eachLedger(func(dir, _ string) error { return d.clearLedger(dir) })
	if err != nil {
		return fmt.Errorf("clear leftovers: %w", err)
	}
	return nil
}

func (d Dir) clearLedger(dir string) error {
	infos, err := d.FS.ReadDir(dir)
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
		if !settled { // the renaming may not be durable: a power cut must not leave an incomplete page
			if err := d.FS.SyncDir(dir); err != nil {
				return err
			}
			settled = true
		}
		if err := d.FS.RemoveAll(filepath.Join(dir, i.Name)); err != nil {
			return err
		}
	}
	return nil
}

// isLeftover reports whether a name in a ledger's directory is a leftover. here has all names in
// the directory.
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
	return suffix == awaySuffix+newSuffix
}
