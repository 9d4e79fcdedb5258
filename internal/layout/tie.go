package layout

import (
	"crypto/sha256"
	"encoding/binary"
	"path/filepath"
)

// Tie returns what tells a directory from a copy of it: a digest of its absolute path and,
// where the system has such numbers, of the number under which the file system knows its version
// directory. A copy has another path or another number, also when it was moved to the place of the
// original. A directory that was moved counts as a copy, which costs nothing but a new key of the
// device. The image of a whole machine that is started twice is not told apart, nor a copy at the
// same path on systems without such numbers. It is zero in memory.
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
