package layout

import (
	"crypto/sha256"
	"encoding/binary"
	"path/filepath"
)

// Tie returns a value that distinguishes a directory from its copies: a digest of its absolute path
// and, where the system has inode numbers, of that of its version directory. A copy has another
// path or number, even if it was moved to the place of the original. A moved directory counts as a
// copy, which only costs a new device key. Two running images of one machine are not distinguished,
// nor a copy at the same path on systems without such numbers. In memory it is zero.
func Tie(dir string) (tie [sha256.Size]byte) {
	if dir == "" {
		return tie
	}
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	b := binary.BigEndian.AppendUint64(nil, fileNumber(Dir{Path: dir}.version()))
	return sha256.Sum256(append(b, dir...))
}
