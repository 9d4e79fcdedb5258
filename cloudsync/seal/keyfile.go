package seal

import (
	"bytes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/secret"
)

const (
	keyFileVersion = 1
	keyFileHeader  = "ledger master key "
	keyFileSealed  = " under a passphrase"
	keyFileSum     = 4 // bytes of the checksum
	// MaxKeyFileBytes bounds how much of a key file is read.
	MaxKeyFileBytes = 512
)

// ErrKeyFilePassphrase reports a key file under a passphrase when none, or another one, is given.
// It matches ErrWrongKey.
var ErrKeyFilePassphrase = fmt.Errorf("the key file is under a passphrase, and none is given: %w", ErrWrongKey)

// FormatKeyFile returns the text of the key file that holds m. ParseKeyFile accepts no other text
// for m. Errors: base.ErrInvalid for the zero key, a key derived from a passphrase, and one written
// as words.
func FormatKeyFile(m MasterKey) (secret.Bytes, error) {
	if m.IsZero() || m.Kind() != SlotKeyFile {
		return secret.Bytes{}, fmt.Errorf("format key file: there is no key, or it is another kind: %w", base.ErrInvalid)
	}
	text := fmt.Appendf(nil, "%s%d\n%x\n%x\n", keyFileHeader, keyFileVersion, m.key.Expose(), keyFileChecksum(m.key.Expose()))
	defer clear(text)
	return secret.New(text), nil
}

func keyFileChecksum(key []byte) []byte {
	sum := sha256.Sum256(append([]byte(labelFile), key...))
	return sum[:keyFileSum]
}

// SealKeyFile returns the text of a key file that holds m under a passphrase, with a new salt from
// random; nil means the system's source. Errors: base.ErrInvalid as FormatKeyFile, and for an empty
// passphrase.
func SealKeyFile(m MasterKey, passphrase secret.Bytes, random io.Reader) (secret.Bytes, error) {
	if _, err := FormatKeyFile(m); err != nil {
		return secret.Bytes{}, err
	}
	kdf := NewKDF(random)
	aead, err := keyFileAEAD(kdf, passphrase)
	if err != nil {
		return secret.Bytes{}, err
	}
	b := kdf.appendBytes(nil)
	b = aead.Seal(b, nonce(kindKeyFile, 0), m.key.Expose(), bytes.Clone(b))
	return secret.New(fmt.Appendf(nil, "%s%d%s\n%x\n%x\n", keyFileHeader, keyFileVersion, keyFileSealed, b, keyFileChecksum(b))), nil
}

// keyFileAEAD returns the cipher of a key file under a passphrase.
func keyFileAEAD(kdf KDF, passphrase secret.Bytes) (cipher.AEAD, error) {
	m, err := kdf.Derive(passphrase)
	if err != nil {
		return nil, err
	}
	return deriveAEAD(m.key.Expose(), nil, []byte(labelFile)), nil
}

// ParseKeyFile returns the key in the text of a key file. passphrase is used only for a file under
// a passphrase. Errors, which never show the text: *base.CorruptError, *base.FormatError,
// ErrKeyFilePassphrase.
func ParseKeyFile(text []byte, passphrase secret.Bytes) (MasterKey, error) {
	corrupt := func(got string) (MasterKey, error) {
		return MasterKey{}, &base.CorruptError{Where: "key file", Got: got}
	}
	if len(text) > MaxKeyFileBytes {
		return corrupt(fmt.Sprintf("more than %d bytes", MaxKeyFileBytes))
	}
	lines := strings.Split(string(text), "\n")
	version, ok := strings.CutPrefix(lines[0], keyFileHeader)
	if !ok {
		return corrupt(fmt.Sprintf("its first line does not begin with %q", keyFileHeader))
	}
	version, sealed := strings.CutSuffix(version, keyFileSealed)
	if v, err := strconv.ParseUint(version, 10, 32); err == nil && v > keyFileVersion {
		return MasterKey{}, fmt.Errorf("open key file: %w", &base.FormatError{What: "key file", Found: v, Supported: keyFileVersion})
	}
	if version != strconv.Itoa(keyFileVersion) {
		return corrupt("the number in its first line is not one, or something stands behind it")
	}
	if len(lines) != 4 || lines[3] != "" {
		return corrupt(fmt.Sprintf("not three whole lines but %d", len(lines)-1))
	}
	length := keyBytes
	if sealed {
		length = kdfBytes + keyBytes + tagBytes
	}
	key, err := lowerHex(lines[1], length)
	if err != nil {
		return corrupt("its second line is not a key: " + err.Error())
	}
	defer clear(key)
	if sum, err := lowerHex(lines[2], keyFileSum); err != nil || string(sum) != string(keyFileChecksum(key)) {
		return corrupt("the key does not have the checksum of its third line: is there a digit wrong?")
	}
	if !sealed {
		return MasterKey{key: secret.New(key)}, nil
	}
	kdf := parseKDF(key)
	if problem := kdf.check(); problem != "" {
		return corrupt(problem)
	}
	if passphrase.IsZero() {
		return MasterKey{}, ErrKeyFilePassphrase
	}
	aead, err := keyFileAEAD(kdf, passphrase)
	if err != nil {
		return MasterKey{}, err
	}
	plain, err := aead.Open(nil, nonce(kindKeyFile, 0), key[kdfBytes:], key[:kdfBytes])
	if err != nil {
		return MasterKey{}, base.WithClass(errors.New("its passphrase is another one: wrong key"), ErrKeyFilePassphrase)
	}
	defer clear(plain)
	return MasterKey{key: secret.New(plain)}, nil
}

// lowerHex decodes n bytes of lower-case hexadecimal digits. Its errors do not show them.
func lowerHex(s string, n int) ([]byte, error) {
	if len(s) != 2*n {
		return nil, fmt.Errorf("%d characters, not %d", len(s), 2*n)
	}
	b, err := hex.DecodeString(s)
	if err != nil || s != strings.ToLower(s) {
		return nil, errors.New("other characters than 0-9 and a-f")
	}
	return b, nil
}

// CreateKeyFile writes m to a new file that only its owner can read, under a passphrase unless that
// is empty. It returns when the file is durable. It never overwrites a file: the error then matches
// fs.ErrExist. After a failed write no file is left.
func CreateKeyFile(path string, m MasterKey, passphrase secret.Bytes) (err error) {
	text, err := FormatKeyFile(m)
	if err == nil && !passphrase.IsZero() {
		text, err = SealKeyFile(m, passphrase, nil)
	}
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("create key file: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("write key file %s: %w", path, err), os.Remove(path))
		}
	}()
	_, err = f.Write(text.Expose())
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes the names in dir durable, where the platform can.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ReadKeyFile returns the key in the file at path. On unix, unless shared is set, it refuses a
// regular file that others than its owner can read or write, with an error that matches
// fs.ErrPermission. A pipe is accepted too. passphrase: see ParseKeyFile. Errors: those of
// ParseKeyFile and of the file system.
func ReadKeyFile(path string, shared bool, passphrase secret.Bytes) (MasterKey, error) {
	f, err := os.Open(path)
	if err != nil {
		return MasterKey{}, fmt.Errorf("open key file: %w", err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return MasterKey{}, fmt.Errorf("read key file: %w", err)
	}
	if mode := info.Mode(); mode.IsRegular() && mode.Perm()&0o077 != 0 && runtime.GOOS != "windows" && !shared {
		return MasterKey{}, fmt.Errorf("read key file %s: others can read or write it (mode %04o); its owner must chmod 600 it: %w", path, mode.Perm(), fs.ErrPermission)
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxKeyFileBytes+1))
	defer clear(text)
	if err != nil {
		return MasterKey{}, fmt.Errorf("read key file: %w", err)
	}
	m, err := ParseKeyFile(text, passphrase)
	if err != nil {
		return MasterKey{}, fmt.Errorf("read key file %s: %w", path, err)
	}
	return m, nil
}
