package cloudlink

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/vfs"
)

// keySource says where the master key of a cloud comes from.
type keySource uint8

const (
	keyNone       keySource = iota // the cloud is plaintext
	keyInFile                      // in a key file
	keyPassphrase                  // derived from a passphrase that the app gives each time
)

// file is the content of the file `cloud`, which remembers the bucket, all integers
// big-endian. Neither a master key nor a passphrase is in it, but the device's own key is; the
// rings of the keyring are as they are in the bucket, so that a device that is offline can open
// what it has, and nobody can take back the newest one that it has seen.
//
//	offset  bytes  content
//	0       8      "ledgclud"
//	8       4      version of this file
//	12      1      where the master key comes from: 0 there is none, 1 a file, 2 a passphrase
//	13      1      flags: 1 background sync is paused, 2 the key file may be readable by others, 4
//	               there are rules for uploads
//	14      32     key with which the device signs, the seed of Ed25519
//	46      32     what ties the key to the directory; see layout.Tie
//	78      2+n    URL of the bucket, its length before it
//	        2+n    absolute path of the key file, likewise; empty unless the key is in one
//	        2+n    absolute path of the file with credentials, likewise; may be empty
//	        4      number of rings of the keyring, and of each:
//	        4+n    the ring, likewise (docs/format/sealed.md)
//	        4      number of rules for uploads, only with flag 4, and of each:
//	        16     id of the page
//	        1      1 compression is off, 2 deduplication is off
//	        2+n    name of its ledger, likewise
//	        2+n    what its keys begin with, likewise
//	        4      CRC-32C of all before
type file struct {
	source      keySource
	paused      bool
	shared      bool
	key         seal.DeviceKey
	tie         [32]byte
	url         string
	keyFile     string
	credentials string
	keys        [][]byte
	rules       []Rule
	pin         string // the bucket id that is asked for; not remembered
	founded     bool   // this process has made the keys of the bucket; not remembered
}

// FileName is the name of the file that remembers the cloud.
const FileName = "cloud"

const (
	cloudMagic    = "ledgclud"
	cloudVersion  = 3
	cloudFixed    = 78
	flagPaused    = 1
	flagSharedKey = 2
	flagRules     = 4

	ruleCompressionOff = 1
	ruleDedupOff       = 2

	maxCloudText   = 4096
	maxCloudFile   = 64 << 20
	cloudStateName = "cloud-state"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hexOf returns an id as hexadecimal digits.
func hexOf[ID ~[16]byte](id ID) string { return hex.EncodeToString(id[:]) }

func (f *file) encode() []byte {
	b := binary.BigEndian.AppendUint32([]byte(cloudMagic), cloudVersion)
	var flags byte
	if f.paused {
		flags |= flagPaused
	}
	if f.shared {
		flags |= flagSharedKey
	}
	if len(f.rules) > 0 {
		flags |= flagRules
	}
	b = append(b, byte(f.source), flags)
	b = append(b, f.key.Bytes().Expose()...)
	b = append(b, f.tie[:]...)
	for _, text := range []string{f.url, f.keyFile, f.credentials} {
		b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
		b = append(b, text...)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(f.keys)))
	for _, ring := range f.keys {
		b = binary.BigEndian.AppendUint32(b, uint32(len(ring)))
		b = append(b, ring...)
	}
	if len(f.rules) > 0 {
		b = binary.BigEndian.AppendUint32(b, uint32(len(f.rules)))
	}
	for _, u := range f.rules {
		var off byte
		if u.CompressionOff {
			off |= ruleCompressionOff
		}
		if u.DedupOff {
			off |= ruleDedupOff
		}
		b = append(append(b, u.Page.ID[:]...), off)
		for _, text := range [][]byte{[]byte(u.Page.Ledger), u.Prefix} {
			b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
			b = append(b, text...)
		}
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli))
}

// parseFile reads the file `cloud`. It is strict: only what encode writes is accepted.
func parseFile(b []byte) (*file, error) {
	damaged := func(got string) error { return &base.CorruptError{Where: "file " + FileName, Got: got} }
	if len(b) < len(cloudMagic)+4 || string(b[:len(cloudMagic)]) != cloudMagic {
		return nil, damaged("another file")
	}
	if version := binary.BigEndian.Uint32(b[8:]); version > cloudVersion {
		return nil, &base.FormatError{What: "file " + FileName, Found: uint64(version), Supported: cloudVersion}
	}
	if version := binary.BigEndian.Uint32(b[8:]); version < cloudVersion {
		return nil, fmt.Errorf("file %s was written by an older version: set the cloud anew, to an empty place: %w", FileName, base.ErrUnsupported)
	}
	if len(b) < cloudFixed {
		return nil, damaged(fmt.Sprintf("%d bytes", len(b)))
	}
	f := &file{source: keySource(b[12]), paused: b[13]&flagPaused != 0, shared: b[13]&flagSharedKey != 0}
	var err error
	if f.key, err = seal.ParseDeviceKey(b[14:46]); err != nil {
		return nil, err
	}
	copy(f.tie[:], b[46:])
	rest := b[cloudFixed:]
	take := func(n int) []byte {
		if n > len(rest) {
			n, rest = 0, nil
			return nil
		}
		head := rest[:n]
		rest = rest[n:]
		return head
	}
	for _, to := range []*string{&f.url, &f.keyFile, &f.credentials} {
		if head := take(2); head != nil {
			*to = string(take(int(binary.BigEndian.Uint16(head))))
		}
	}
	number := func() uint32 {
		if head := take(4); head != nil {
			return binary.BigEndian.Uint32(head)
		}
		return 0
	}
	for range min(number(), seal.MaxRings) {
		if ring := take(int(min(number(), seal.MaxKeyringBytes))); ring != nil {
			f.keys = append(f.keys, bytes.Clone(ring))
		}
	}
	text := func() []byte {
		if head := take(2); head != nil {
			return bytes.Clone(take(int(binary.BigEndian.Uint16(head))))
		}
		return nil
	}
	if b[13]&flagRules != 0 {
		for range min(number(), maxRules) {
			var u Rule
			copy(u.Page.ID[:], take(len(u.Page.ID)))
			if off := take(1); off != nil {
				u.CompressionOff, u.DedupOff = off[0]&ruleCompressionOff != 0, off[0]&ruleDedupOff != 0
			}
			u.Page.Ledger, u.Prefix = string(text()), text()
			f.rules = append(f.rules, u)
		}
	}
	if f.source > keyPassphrase || !bytes.Equal(f.encode(), b) {
		return nil, damaged("bytes that do not match their checksum")
	}
	return f, nil
}

// chain returns the keyring, which is not open: its id is proved only when it is opened.
func (f *file) chain() (*seal.Chain, error) {
	c, err := seal.ParseChain(f.keys)
	if err != nil {
		return nil, fmt.Errorf("read the keyring in file %s: %w", FileName, err)
	}
	return c, nil
}

// ring returns the newest ring, which has the bucket's id.
func (f *file) ring() (*seal.Ring, error) {
	c, err := f.chain()
	if err != nil {
		return nil, err
	}
	return c.Newest(), nil
}

// checkPin refuses another bucket than the one that is asked for.
func (f *file) checkPin(id seal.ID) error {
	if f.pin != "" && f.pin != id.String() {
		return fmt.Errorf("the bucket at %s is %s, and %s is asked for: %w", f.url, id, f.pin, cloudsync.ErrBucketReplaced)
	}
	return nil
}

// check refuses what does not fit into the file.
func (f *file) check() error {
	for _, text := range []string{f.url, f.keyFile, f.credentials} {
		if len(text) > maxCloudText {
			return fmt.Errorf("remember the cloud: a name of %d bytes, limit %d: %w", len(text), maxCloudText, base.ErrTooLarge)
		}
	}
	return nil
}

// readFile returns the file `cloud`, nil when there is none.
func (l *Link) readFile() (*file, error) {
	b, err := vfs.ReadFile(l.o.Disk.FS, l.o.Disk.File(FileName), maxCloudFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if errors.Is(err, base.ErrTooLarge) {
		return nil, &base.CorruptError{Where: "file " + FileName, Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("read file %s: %w", FileName, err)
	}
	return parseFile(b)
}

// writeFile replaces the file `cloud`; nil removes it. It is durable when it returns nil.
func (l *Link) writeFile(f *file) error {
	path := l.o.Disk.File(FileName)
	if f == nil {
		if err := l.o.Disk.FS.RemoveAll(path); err != nil {
			return fmt.Errorf("remove file %s: %w", FileName, err)
		}
		return l.o.Disk.FS.SyncDir(filepath.Dir(path))
	}
	if err := l.o.Disk.Replace(path, f.encode()); err != nil {
		return fmt.Errorf("write file %s: %w", FileName, err)
	}
	return nil
}

// settleDevice gives a copied directory a key of its own. A copy that kept the key would do no harm
// to any page: the two would only be taken for one device.
func (l *Link) settleDevice(f *file) error {
	tie := layout.Tie(l.o.Dir)
	if f.tie == tie {
		return nil
	}
	key, err := seal.NewDeviceKey(nil)
	if err != nil {
		return err
	}
	f.key, f.tie = key, tie
	return l.writeFile(f)
}
