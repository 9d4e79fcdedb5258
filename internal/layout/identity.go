package layout

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
)

// Identity is the content of the file `repository`, all integers big-endian:
//
//	offset  bytes  content
//	0       8      "ledgrepo"
//	8       4      format version
//	12      16     random id of the repository
//	28      32     secret from which the table for cutting values is made
//	60      4      CRC-32C of all before
type Identity struct {
	ID     [16]byte
	Secret [32]byte
}

const (
	identityMagic = "ledgrepo"
	identitySize  = 64
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// NewIdentity makes the random identity of a new repository.
func NewIdentity() *Identity {
	i := new(Identity)
	// crypto/rand never fails: it ends the process when the system has no randomness.
	_, _ = rand.Read(i.ID[:])
	_, _ = rand.Read(i.Secret[:])
	return i
}

// String returns the id as 32 hexadecimal digits.
func (i *Identity) String() string { return hex.EncodeToString(i.ID[:]) }

// Encode returns the content of the file.
func (i *Identity) Encode() []byte {
	b := make([]byte, 0, identitySize)
	b = append(b, identityMagic...)
	b = binary.BigEndian.AppendUint32(b, FormatVersion)
	b = append(b, i.ID[:]...)
	b = append(b, i.Secret[:]...)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// ParseIdentity reads the file `repository`. It is strict: only what Encode writes is accepted.
// Errors: *base.CorruptError, *base.FormatError.
func ParseIdentity(b []byte) (*Identity, error) {
	damaged := func(got string) error { return &base.CorruptError{Where: "file " + IdentityName, Got: got} }
	if !bytes.HasPrefix(b, []byte(identityMagic)) {
		return nil, damaged("no repository file")
	}
	if len(b) < identitySize || !intact(b[:identitySize]) {
		return nil, damaged("bytes that do not match their checksum")
	}
	if version := binary.BigEndian.Uint32(b[8:]); version > FormatVersion {
		return nil, &base.FormatError{What: "repository", Found: uint64(version), Supported: FormatVersion}
	}
	if len(b) != identitySize {
		return nil, damaged(fmt.Sprintf("%d bytes, want %d", len(b), identitySize))
	}
	i := &Identity{ID: [16]byte(b[12:28]), Secret: [32]byte(b[28:60])}
	if !bytes.Equal(i.Encode(), b) {
		return nil, damaged("another version")
	}
	return i, nil
}

// intact reports whether b, with a version behind 8 bytes, ends with its checksum. It is asked
// before the version is: a damaged version is damage, and not a newer one.
func intact(b []byte) bool {
	n := len(b) - 4
	return n >= 12 && crc32.Checksum(b[:n], castagnoli) == binary.BigEndian.Uint32(b[n:])
}

// ReadIdentity reads the file `repository`, nil when there is no repository. Pages without that
// file are damage: a new secret would cut values differently. Errors: base.ErrNoRepository (an
// incomplete backup), *base.CorruptError, *base.FormatError, those of the file system.
func (d Dir) ReadIdentity() (*Identity, error) {
	if err := d.checkVersions(); err != nil {
		return nil, err
	}
	b, err := vfs.ReadFile(d.FS, d.File(IdentityName), 1<<16)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, d.identityLost()
	case errors.Is(err, base.ErrTooLarge):
		return nil, &base.CorruptError{Where: "file " + IdentityName, Err: err}
	case err != nil:
		return nil, err
	}
	return ParseIdentity(b)
}

// CreateIdentity makes the version directory and the file `repository`, which appears completely or
// not at all. Errors: those of the file system.
func (d Dir) CreateIdentity() (*Identity, error) {
	if err := d.FS.MkdirAll(d.ledgers()); err != nil {
		return nil, err
	}
	i := NewIdentity()
	if err := d.WriteIdentity(i); err != nil {
		return nil, err
	}
	return i, nil
}

// identityLost returns the error for a directory without the file `repository`, nil when it has no
// pages either.
func (d Dir) identityLost() error {
	if _, err := d.FS.Stat(d.File(IncompleteName)); err == nil {
		return fmt.Errorf("a backup that did not come to its end: %w", base.ErrNoRepository)
	}
	if infos, err := d.FS.ReadDir(d.ledgers()); err == nil && len(infos) > 0 {
		return &base.CorruptError{Where: "file " + IdentityName, Got: "it is missing, but there are pages"}
	}
	return nil
}

// WriteIdentity replaces the file `repository`, durably.
func (d Dir) WriteIdentity(i *Identity) error {
	if err := d.Replace(d.File(IdentityName), i.Encode()); err != nil {
		return err
	}
	return d.syncNames()
}

// syncNames makes the names of the repository, its version and its identity durable.
func (d Dir) syncNames() error {
	for _, dir := range []string{d.version(), d.Path, filepath.Dir(d.Path)} {
		if err := d.FS.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// SettleIdentity makes the identity durable if there are no ledgers yet: the process that made the
// repository may have died before it synced the file.
func (d Dir) SettleIdentity() error {
	infos, err := d.FS.ReadDir(d.ledgers())
	if err != nil && !errors.Is(err, fs.ErrNotExist) || len(infos) > 0 {
		return err
	}
	return d.syncNames()
}
