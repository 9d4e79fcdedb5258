package seal

import (
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
	keyFileHeader = "ledger master key "
	keyFileSum    = 4 // bytes of the checksum
	// MaxKeyFileBytes bounds what is read of a key file.
	MaxKeyFileBytes = 256
)

// FormatKeyFile returns the text of the key file that holds m: the only one that ParseKeyFile takes for it. Errors:
// base.ErrInvalid for the zero key, and for one that was derived from a passphrase, which stands in no file.
func FormatKeyFile(m MasterKey) (secret.Bytes, error) {
	if m.IsZero() || m.kdf != nil {
		return secret.Bytes{}, fmt.Errorf("format key file: there is no key, or it has a passphrase: %w", base.ErrInvalid)
	}
	text := fmt.Appendf(nil, "%s%d\n%x\n%x\n", keyFileHeader, formatVersion, m.key.Expose(), keyFileChecksum(m.key.Expose()))
	defer clear(text)
	return secret.New(text), nil
}

func keyFileChecksum(key []byte) []byte {
	sum := sha256.Sum256(append([]byte(labelFile), key...))
	return sum[:keyFileSum]
}

// ParseKeyFile returns the key in the text of a key file. Errors, which never show the text: *base.CorruptError,
// *base.FormatError.
func ParseKeyFile(text []byte) (MasterKey, error) {
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
	if v, err := strconv.ParseUint(version, 10, 32); err == nil && v > formatVersion {
		return MasterKey{}, fmt.Errorf("open key file: %w", &base.FormatError{What: "key file", Found: v, Supported: formatVersion})
	}
	if version != strconv.Itoa(formatVersion) {
		return corrupt("the number in its first line is not one, or something stands behind it")
	}
	if len(lines) != 4 || lines[3] != "" {
		return corrupt(fmt.Sprintf("not three whole lines but %d", len(lines)-1))
	}
	key, err := lowerHex(lines[1], keyBytes)
	if err != nil {
		return corrupt("its second line is not a key: " + err.Error())
	}
	defer clear(key)
	if sum, err := lowerHex(lines[2], keyFileSum); err != nil || string(sum) != string(keyFileChecksum(key)) {
		return corrupt("the key does not have the checksum of its third line: is there a digit wrong?")
	}
	return MasterKey{key: secret.New(key)}, nil
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

// CreateKeyFile writes m to a new file that only its owner can read, and returns when it will survive a power loss. A file
// that is there is never overwritten: an error that matches fs.ErrExist. When writing fails, no file is left.
func CreateKeyFile(path string, m MasterKey) (err error) {
	text, err := FormatKeyFile(m)
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

// syncDir makes the names in dir durable, where the platform has a way to.
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

// ReadKeyFile returns the key in the file at path. On unix a regular file that others than its owner can read or write
// is refused with an error that matches fs.ErrPermission, unless shared is set. A pipe will do too. Errors: those of
// ParseKeyFile and of the file system.
func ReadKeyFile(path string, shared bool) (MasterKey, error) {
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
		return MasterKey{}, fmt.Errorf("read key file %s: others can read or write it (mode %04o), chmod 600 it: %w", path, mode.Perm(), fs.ErrPermission)
	}
	text, err := io.ReadAll(io.LimitReader(f, MaxKeyFileBytes+1))
	defer clear(text)
	if err != nil {
		return MasterKey{}, fmt.Errorf("read key file: %w", err)
	}
	m, err := ParseKeyFile(text)
	if err != nil {
		return MasterKey{}, fmt.Errorf("read key file %s: %w", path, err)
	}
	return m, nil
}
