package seal

import (
	"bytes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/ledgerd/ledger/internal/base"
)

// Layout of a wrapped keyring; the table is in doc.go.
const (
	ringHeaderBytes = 4 + IDBytes + kdfBytes + checkBytes + IDBytes + 4
	checkBytes      = 16
	ringCheckAt     = 4 + IDBytes + kdfBytes
	ringWrapAt      = ringCheckAt + checkBytes
	ringFixedBytes  = 4 + 2*keyBytes // content without data keys
	sumBytes        = sha256.Size
	// MaxKeyringBytes is the greatest length of a wrapped keyring.
	MaxKeyringBytes = ringHeaderBytes + ringFixedBytes + MaxDataKeys*keyBytes + tagBytes + sumBytes
)

// The ways in which a master key comes to be.
const (
	kdfNone     = 0
	kdfArgon2id = 1
)

// ringLabel names a keyring in errors.
var ringLabel = Label{Role: "keyring"}

// Wrapped is a wrapped keyring: what of it everybody can see, and the rest. It is immutable.
type Wrapped struct {
	// Algorithm says how the bucket's objects are protected.
	Algorithm Algorithm
	// BucketID is the bucket's id. It is proved when the keyring is opened.
	BucketID ID
	// KDF says how to derive the master key from a passphrase; nil when the key is in a file, or there is none. It is
	// within bounds, but anybody can have written it.
	KDF *KDF

	raw []byte
}

// Wrap returns the keyring, wrapped with master and with how master was derived, as OpenKeyring takes it. Wrapping the same
// keyring again, also with another master, gives other bytes. A plaintext keyring is wrapped with the zero master, every other
// with one that is not: else base.ErrInvalid. random is the source; nil means the system's.
func (k *Keyring) Wrap(master MasterKey, random io.Reader) ([]byte, error) {
	if (k.algorithm == Plain) != master.IsZero() {
		return nil, fmt.Errorf("wrap keyring of %s, master key given: %t: %w", k.algorithm, !master.IsZero(), base.ErrInvalid)
	}
	var wrap, check []byte
	var err error
	if k.algorithm == Plain {
		wrap, check = make([]byte, IDBytes), make([]byte, checkBytes)
	} else {
		if wrap, err = draw(random, IDBytes); err != nil {
			return nil, fmt.Errorf("draw id of wrapped keyring: %w", err)
		}
		if check, err = keyCheck(master, k.bucket); err != nil {
			return nil, err
		}
	}
	kdf := byte(kdfNone)
	if master.kdf != nil {
		kdf = kdfArgon2id
	}
	content := k.content()
	defer clear(content)
	b := append([]byte{formatVersion, byte(k.algorithm), kdf, 0}, k.bucket[:]...)
	b = master.kdf.appendBytes(b)
	b = append(b, check...)
	b = append(b, wrap...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(content)))
	aead, err := ringAEAD(k.algorithm, master, b)
	if err != nil {
		return nil, err
	}
	b = aead.Seal(b, nonce(kindRing, 0), content, b[:ringHeaderBytes])
	sum := sha256.Sum256(b)
	return append(b, sum[:]...), nil
}

// content returns the number of data keys and all keys: names, chunking, data.
func (k *Keyring) content() []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(k.data)))
	b = append(b, k.names.Expose()...)
	b = append(b, k.chunking.Expose()...)
	for _, d := range k.data {
		b = append(b, d.Expose()...)
	}
	return b
}

// ParseKeyring reads what of a wrapped keyring is readable without the master key. b is not retained. Errors:
// *base.CorruptError, also for a KDF out of bounds; *base.FormatError.
func ParseKeyring(b []byte) (*Wrapped, error) {
	const least = ringHeaderBytes + ringFixedBytes + tagBytes + sumBytes
	if len(b) < least || len(b) > MaxKeyringBytes {
		return nil, ringLabel.corrupt(fmt.Sprintf("%d to %d bytes", least, MaxKeyringBytes), fmt.Sprint(len(b)), nil)
	}
	if b[0] > formatVersion {
		return nil, fmt.Errorf("open keyring: %w", &base.FormatError{What: "keyring", Found: uint64(b[0]), Supported: formatVersion})
	}
	if sum := sha256.Sum256(b[:len(b)-sumBytes]); !bytes.Equal(sum[:], b[len(b)-sumBytes:]) {
		return nil, ringLabel.corrupt("", "checksum differs", nil)
	}
	if b[0] != formatVersion || b[1] > byte(AES256GCM) || b[2] > kdfArgon2id || b[3] != 0 {
		return nil, ringLabel.corrupt("known numbers", fmt.Sprintf("%d %d %d %d", b[0], b[1], b[2], b[3]), nil)
	}
	w := &Wrapped{Algorithm: Algorithm(b[1]), BucketID: ID(b[4 : 4+IDBytes]), raw: bytes.Clone(b)}
	if problem := w.parseKDF(b[2]); problem != "" {
		return nil, ringLabel.corrupt("", problem, nil)
	}
	if problem := w.checkContent(); problem != "" {
		return nil, ringLabel.corrupt("", problem, nil)
	}
	return w, nil
}

// parseKDF reads how the master key is derived. It returns what is wrong with it.
func (w *Wrapped) parseKDF(kind byte) (problem string) {
	kdf := parseKDF(w.raw[4+IDBytes:])
	if kind == kdfNone {
		if kdf != (KDF{}) {
			return "parameters of a KDF that is not used"
		}
		return ""
	}
	if w.Algorithm == Plain {
		return "passphrase of a plaintext bucket"
	}
	w.KDF = &kdf
	return kdf.check()
}

// checkContent compares the length of the content with what there is. It returns what is wrong.
func (w *Wrapped) checkContent() (problem string) {
	if w.Algorithm == Plain && !allZero(w.raw[ringCheckAt:ringHeaderBytes-4]) {
		return "key check of a plaintext bucket"
	}
	have := len(w.raw) - ringHeaderBytes - tagBytes - sumBytes
	if n := binary.BigEndian.Uint32(w.raw[ringHeaderBytes-4:]); uint64(n) != uint64(have) {
		return fmt.Sprintf("content of %d bytes where there are %d", n, have)
	}
	if (have-ringFixedBytes)%keyBytes != 0 || (have == ringFixedBytes) != (w.Algorithm == Plain) {
		return fmt.Sprintf("content of %d bytes in a bucket of %s", have, w.Algorithm)
	}
	return ""
}

// Open returns the keyring that master wraps; the zero master opens a plaintext one.
//
// Errors: ErrWrongKey when master is another key than that with which the keyring was wrapped, or is zero where one is
// needed; ErrPlaintext when a master is given and the keyring is plaintext; *base.CorruptError when master is right
// and the keyring was changed. Who changes a keyring on purpose can also make the right key look wrong.
func (w *Wrapped) Open(master MasterKey) (*Keyring, error) {
	switch {
	case w.Algorithm == Plain && !master.IsZero():
		return nil, fmt.Errorf("open keyring of bucket %s: a key was given: %w", w.BucketID, ErrPlaintext)
	case w.Algorithm != Plain && master.IsZero():
		return nil, fmt.Errorf("open keyring of bucket %s: it is sealed and no key was given: %w", w.BucketID, ErrWrongKey)
	case w.Algorithm != Plain:
		check, err := keyCheck(master, w.BucketID)
		if err != nil {
			return nil, err
		}
		if !hmac.Equal(check, w.raw[ringCheckAt:ringWrapAt]) {
			return nil, fmt.Errorf("open keyring of bucket %s: %w", w.BucketID, ErrWrongKey)
		}
	}
	aead, err := ringAEAD(w.Algorithm, master, w.raw)
	if err != nil {
		return nil, err
	}
	content, err := aead.Open(nil, nonce(kindRing, 0), w.raw[ringHeaderBytes:len(w.raw)-sumBytes], w.raw[:ringHeaderBytes])
	if err != nil {
		return nil, ringLabel.corrupt("", "content differs from what was wrapped", nil)
	}
	defer clear(content)
	if n := uint64(binary.BigEndian.Uint32(content)); n != uint64(len(content)-ringFixedBytes)/keyBytes {
		return nil, ringLabel.corrupt(fmt.Sprintf("%d data keys", (len(content)-ringFixedBytes)/keyBytes), fmt.Sprint(n), nil)
	}
	k := &Keyring{algorithm: w.Algorithm, bucket: w.BucketID}
	k.setKeys(content[4:])
	return k, nil
}

// OpenKeyring is ParseKeyring and Open.
func OpenKeyring(b []byte, master MasterKey) (*Keyring, error) {
	w, err := ParseKeyring(b)
	if err != nil {
		return nil, err
	}
	return w.Open(master)
}

// keyCheck returns what tells a wrong master key from a damaged keyring, and says nothing else about the key.
func keyCheck(master MasterKey, bucket ID) ([]byte, error) {
	check, err := derive(master.key.Expose(), bucket[:], []byte(labelCheck), checkBytes)
	if err != nil {
		return nil, fmt.Errorf("derive key check: %w", err)
	}
	return check, nil
}

// ringAEAD derives the key that wraps a keyring, from the master key and the header: salt is the bucket's id and the id
// of this wrapping.
func ringAEAD(a Algorithm, master MasterKey, head []byte) (cipher.AEAD, error) {
	if a == Plain {
		return plainAEAD{}, nil
	}
	salt := append(bytes.Clone(head[4:4+IDBytes]), head[ringWrapAt:ringWrapAt+IDBytes]...)
	aead, err := deriveAEAD(master.key.Expose(), salt, []byte(labelWrap))
	if err != nil {
		return nil, fmt.Errorf("derive key of keyring: %w", err)
	}
	return aead, nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
