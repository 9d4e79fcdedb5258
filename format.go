package ledger

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"strconv"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/internal/vfs"
)

// formatVersion is the version of the format that this library writes, and the name of the
// directory that holds it.
const formatVersion = 1

// Names in a repository's directory and in its version directory.
const (
	repositoryName = "repository"
	ledgersName    = "ledgers"
	usageName      = "page_usage_db"
	incompleteName = "incomplete" // in a backup that has not come to its end
)

// identity is the content of the file `repository`, all integers big-endian:
//
//	offset  bytes  content
//	0       8      "ledgrepo"
//	8       4      format version
//	12      16     random id of the repository
//	28      32     secret from which the table for cutting values is made
//	60      4      CRC-32C of all before
type identity struct {
	id     [16]byte
	secret [32]byte
}

const (
	identityMagic = "ledgrepo"
	identitySize  = 64
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func newIdentity() *identity {
	i := new(identity)
	// crypto/rand never fails: it ends the process when the system has no randomness.
	_, _ = rand.Read(i.id[:])
	_, _ = rand.Read(i.secret[:])
	return i
}

func (i *identity) String() string { return hex.EncodeToString(i.id[:]) }

func (i *identity) encode() []byte {
	b := make([]byte, 0, identitySize)
	b = append(b, identityMagic...)
	b = binary.BigEndian.AppendUint32(b, formatVersion)
	b = append(b, i.id[:]...)
	b = append(b, i.secret[:]...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseIdentity reads the file `repository`. It is strict: only what encode writes is accepted.
func parseIdentity(b []byte) (*identity, error) {
	damaged := func(got string) error { return &base.CorruptError{Where: "file " + repositoryName, Got: got} }
	if len(b) < len(identityMagic)+4 || string(b[:len(identityMagic)]) != identityMagic {
		return nil, damaged("no repository file")
	}
	version := binary.BigEndian.Uint32(b[8:])
	if version > formatVersion {
		return nil, &base.FormatError{What: "repository", Found: uint64(version), Supported: formatVersion}
	}
	if len(b) != identitySize {
		return nil, damaged(fmt.Sprintf("%d bytes, want %d", len(b), identitySize))
	}
	i := new(identity)
	copy(i.id[:], b[12:28])
	copy(i.secret[:], b[28:60])
	if !bytes.Equal(i.encode(), b) {
		return nil, damaged("bytes that do not match their checksum")
	}
	return i, nil
}

// versionDir returns the directory of the format version that this library writes.
func versionDir(dir string) string { return filepath.Join(dir, strconv.Itoa(formatVersion)) }

// checkVersions refuses a directory that holds a newer format than this library knows.
func checkVersions(fsys vfs.FS, dir string) error {
	infos, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for a repository: %w", err)
	}
	for _, info := range infos {
		n, err := strconv.ParseUint(info.Name, 10, 64)
		if info.Dir && err == nil && n > formatVersion && strconv.FormatUint(n, 10) == info.Name {
			return &base.FormatError{What: "repository", Found: n, Supported: formatVersion}
		}
	}
	return nil
}

// readIdentity reads the file `repository`. Errors: fs.ErrNotExist when there is none,
// *CorruptError, *FormatError.
func readIdentity(fsys vfs.FS, dir string) (*identity, error) {
	b, err := vfs.ReadFile(fsys, filepath.Join(versionDir(dir), repositoryName), 1<<16)
	if errors.Is(err, ErrTooLarge) {
		return nil, &base.CorruptError{Where: "file " + repositoryName, Err: err}
	}
	if err != nil {
		return nil, err
	}
	return parseIdentity(b)
}

// createIdentity makes the version directory and the file `repository`, which appears whole or not
// at all. Where pages are but no such file, nothing is made: with another secret values would be
// cut differently.
func createIdentity(fsys vfs.FS, dir string) (*identity, error) {
	version := versionDir(dir)
	if err := identityLost(fsys, dir); err != nil {
		return nil, err
	}
	if err := fsys.MkdirAll(filepath.Join(version, ledgersName)); err != nil {
		return nil, err
	}
	i := newIdentity()
	if err := writeIdentity(fsys, dir, i); err != nil {
		return nil, err
	}
	return i, nil
}

// identityLost returns a *CorruptError when there are pages, for who has found no file
// `repository`. What a backup has left that did not come to its end was never a repository.
func identityLost(fsys vfs.FS, dir string) error {
	if _, err := fsys.Stat(filepath.Join(versionDir(dir), incompleteName)); err == nil {
		return fmt.Errorf("a backup that did not come to its end: %w", ErrNoRepository)
	}
	if infos, err := fsys.ReadDir(filepath.Join(versionDir(dir), ledgersName)); err == nil && len(infos) > 0 {
		return &base.CorruptError{Where: "file " + repositoryName, Got: "it is missing, but there are pages"}
	}
	return nil
}

func writeIdentity(fsys vfs.FS, dir string, i *identity) error {
	if err := replaceFile(fsys, filepath.Join(versionDir(dir), repositoryName), i.encode()); err != nil {
		return err
	}
	return syncNames(fsys, dir)
}

// syncNames makes the names of the repository, its version and its identity durable.
func syncNames(fsys vfs.FS, dir string) error {
	for _, d := range []string{versionDir(dir), dir, filepath.Dir(dir)} {
		if err := fsys.SyncDir(d); err != nil {
			return err
		}
	}
	return nil
}

// settleIdentity makes an identity durable that a process may have left which died while it made
// the repository: then there are no ledgers yet.
func settleIdentity(fsys vfs.FS, dir string) error {
	infos, err := fsys.ReadDir(filepath.Join(versionDir(dir), ledgersName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(infos) > 0 {
		return err
	}
	return syncNames(fsys, dir)
}

// lowerHex32 is the base32hex alphabet in lower case: no two names differ in case alone, and order
// is kept.
var lowerHex32 = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

const (
	// maxPlainName is the greatest length of a ledger name whose directory spells it out: 240
	// characters, which every file system allows.
	maxPlainName = 150
	// hashedMark begins the directory name of a ledger with a longer name. It is no digit of the
	// encoding.
	hashedMark = "x"
)

// ledgerDirName returns the name of a ledger's directory.
func ledgerDirName(ledger string) string {
	if len(ledger) <= maxPlainName {
		return lowerHex32.EncodeToString([]byte(ledger))
	}
	sum := sha256.Sum256([]byte(ledger))
	return hashedMark + lowerHex32.EncodeToString(sum[:])
}

// parseLedgerDirName returns the ledger of a directory. plain is false for a hashed name, whose
// ledger must be looked up, and ok is false for a name that belongs to no ledger.
func parseLedgerDirName(name string) (ledger string, plain, ok bool) {
	if len(name) > 1 && name[:1] == hashedMark {
		b, err := lowerHex32.DecodeString(name[1:])
		return "", false, err == nil && len(b) == sha256.Size
	}
	b, err := lowerHex32.DecodeString(name)
	if err != nil || len(b) == 0 || ledgerDirName(string(b)) != name {
		return "", false, false
	}
	return string(b), true, true
}

// ledgerNameFile is the file in the directory of a ledger with a hashed name that holds the name
// itself. The hash proves it.
const ledgerNameFile = "name"

// makeLedgerDir makes the directory of a ledger, with the name in it where the directory's does not
// spell it out.
func makeLedgerDir(fsys vfs.FS, ledgers, ledger string) error {
	dir := filepath.Join(ledgers, ledgerDirName(ledger))
	infos, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fsys.MkdirAll(dir)
	}
	if err != nil {
		return err
	}
	// An empty one may be there because a process died before it had synced the name.
	if len(infos) == 0 {
		if err := fsys.SyncDir(ledgers); err != nil {
			return err
		}
	}
	if len(ledger) <= maxPlainName {
		return nil
	}
	path := filepath.Join(dir, ledgerNameFile)
	if b, err := vfs.ReadFile(fsys, path, limits.MaxLedgerNameBytes); err == nil && string(b) == ledger {
		return nil
	}
	if err := fsys.RemoveAll(path + ".new"); err != nil {
		return err
	}
	if err := vfs.WriteFile(fsys, path+".new", []byte(ledger)); err != nil {
		return err
	}
	if err := fsys.Rename(path+".new", path); err != nil {
		return err
	}
	return fsys.SyncDir(dir)
}

// readLedgerName reads the name of a ledger with a hashed directory.
func readLedgerName(fsys vfs.FS, dir string) (string, error) {
	b, err := vfs.ReadFile(fsys, filepath.Join(dir, ledgerNameFile), limits.MaxLedgerNameBytes)
	if err == nil && ledgerDirName(string(b)) == filepath.Base(dir) {
		return string(b), nil
	}
	return "", &base.CorruptError{Where: "file " + ledgerNameFile, Key: filepath.Base(dir), Got: "not the name of its ledger; open the ledger by name to mend it", Err: err}
}

func pageDirName(id PageID) string { return lowerHex32.EncodeToString(id[:]) }

func parsePageDirName(name string) (PageID, bool) {
	b, err := lowerHex32.DecodeString(name)
	if err != nil || len(b) != len(PageID{}) || pageDirName(PageID(b)) != name {
		return PageID{}, false
	}
	return PageID(b), true
}
