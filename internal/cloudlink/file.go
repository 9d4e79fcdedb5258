package cloudlink

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
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

// keySource is the source of a cloud's master key.
type keySource uint8

const (
	keyNone       keySource = iota // the cloud is plaintext
	keyInFile                      // in a key file
	keyPassphrase                  // derived from a passphrase that the app gives each time
)

// file is the content of the file `cloud`, which stores the settings of the bucket. It has no
// master key and no passphrase, but the device's own key. The rings of the keyring are stored as in
// the bucket: an offline device can open its data, and the bucket cannot roll back a ring that this
// device has seen.
//
//	offset  bytes  content, integers big-endian
//	0       8      "ledgclud"
//	8       4      version of this file
//	12      4      CRC-32C of what follows
//	16             fields, as JSON
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
	pin         string // the requested bucket id; not stored
	founded     bool   // this process has made the bucket's keys; not stored
}

// fields are the stored fields of a file. Texts are bytes, since file names need not be UTF-8.
type fields struct {
	Source      keySource `json:"source"` // of the master key: 0 none, 1 a file, 2 a passphrase
	Paused      bool      `json:"paused"` // background sync
	Shared      bool      `json:"shared"` // the key file may be readable by others
	Key         []byte    `json:"key"`    // the device's signing key, the seed of Ed25519
	Tie         []byte    `json:"tie"`    // of the key to the directory; see layout.Tie
	URL         []byte    `json:"url"`
	KeyFile     []byte    `json:"keyFile"`     // absolute path, empty without a key file
	Credentials []byte    `json:"credentials"` // absolute path of the file with credentials
	Rings       [][]byte  `json:"rings"`       // docs/format/sealed.md
	Rules       []rule    `json:"rules"`
}

// rule is a Rule.
type rule struct {
	Ledger         []byte `json:"ledger"`
	Page           []byte `json:"page"`
	Prefix         []byte `json:"prefix"`
	CompressionOff bool   `json:"compressionOff"`
	DedupOff       bool   `json:"dedupOff"`
}

// FileName is the name of the file with the settings of the cloud.
const FileName = "cloud"

const (
	cloudMagic   = "ledgclud"
	cloudVersion = 4
	cloudHead    = 16

	maxCloudText   = 4096
	maxCloudFile   = 256 << 20 // of the greatest keyring and many rules
	cloudStateName = "cloud-state"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hexOf returns an id as hexadecimal digits.
func hexOf[ID ~[16]byte](id ID) string { return hex.EncodeToString(id[:]) }

func (f *file) encode() ([]byte, error) {
	r := fields{f.source, f.paused, f.shared, f.key.Bytes().Expose(), f.tie[:], []byte(f.url), []byte(f.keyFile), []byte(f.credentials), f.keys, nil}
	for _, u := range f.rules {
		r.Rules = append(r.Rules, rule{[]byte(u.Page.Ledger), u.Page.ID[:], u.Prefix, u.CompressionOff, u.DedupOff})
	}
	content, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("encode file %s: %w", FileName, err)
	}
	b := binary.BigEndian.AppendUint32([]byte(cloudMagic), cloudVersion)
	return append(binary.BigEndian.AppendUint32(b, crc32.Checksum(content, castagnoli)), content...), nil
}

// parseFile reads the file `cloud`. It is strict: only what encode writes is accepted.
func parseFile(b []byte) (*file, error) {
	damaged := &base.CorruptError{Where: "file " + FileName, Got: "bytes that do not match their checksum"}
	if len(b) < cloudHead || string(b[:len(cloudMagic)]) != cloudMagic {
		return nil, &base.CorruptError{Where: "file " + FileName, Got: "another file"}
	}
	switch version := binary.BigEndian.Uint32(b[len(cloudMagic):]); {
	case version > cloudVersion:
		return nil, &base.FormatError{What: "file " + FileName, Found: uint64(version), Supported: cloudVersion}
	case version < cloudVersion:
		return nil, fmt.Errorf("file %s was written by an older version: set the cloud anew: %w", FileName, base.ErrUnsupported)
	}
	var r fields
	if binary.BigEndian.Uint32(b[cloudHead-4:]) != crc32.Checksum(b[cloudHead:], castagnoli) || json.Unmarshal(b[cloudHead:], &r) != nil || r.Source > keyPassphrase {
		return nil, damaged
	}
	f := &file{source: r.Source, paused: r.Paused, shared: r.Shared, url: string(r.URL), keyFile: string(r.KeyFile), credentials: string(r.Credentials), keys: r.Rings}
	copy(f.tie[:], r.Tie)
	for _, u := range r.Rules {
		k := Rule{Page: base.Page{Ledger: string(u.Ledger)}, Prefix: u.Prefix, CompressionOff: u.CompressionOff, DedupOff: u.DedupOff}
		copy(k.Page.ID[:], u.Page)
		f.rules = append(f.rules, k)
	}
	var err error
	if f.key, err = seal.ParseDeviceKey(r.Key); err != nil {
		return nil, damaged
	}
	if again, err := f.encode(); err != nil || !bytes.Equal(again, b) {
		return nil, damaged
	}
	return f, nil
}

// chain returns the unopened keyring: opening it proves its id.
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

// checkPin refuses a bucket other than the requested one.
func (f *file) checkPin(id seal.ID) error {
	if f.pin != "" && f.pin != id.String() {
		return fmt.Errorf("the bucket at %s is %s, and %s is asked for: %w", f.url, id, f.pin, cloudsync.ErrBucketReplaced)
	}
	return nil
}

// check refuses fields too large for the file.
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
	b, err := f.encode()
	if err == nil {
		err = l.o.Disk.Replace(path, b)
	}
	if err != nil {
		return fmt.Errorf("write file %s: %w", FileName, err)
	}
	return nil
}

// settleDevice gives a copied directory a key of its own. With the same key no page would be
// harmed, but both would appear as one device.
func (l *Link) settleDevice(f *file) error {
	tie := layout.Tie(l.o.Dir)
	if f.tie == tie {
		return nil
	}
	f.key, f.tie = seal.NewDeviceKey(nil), tie
	return l.writeFile(f)
}
