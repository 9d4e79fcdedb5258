package filetree

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"time"

	"github.com/ledgerd/ledger/internal/base"
)

// Type is the type of an entry of a tree. The numbers are part of the format.
type Type uint8

// The types.
const (
	File      Type = 1 // the entry's value is the content
	Link      Type = 2 // the entry's value is the target of a symbolic link
	Directory Type = 3 // the value is empty, as was the directory; a directory with files has attributes and no value
)

// String returns "file", "link" or "directory".
func (t Type) String() string {
	switch t {
	case File:
		return "file"
	case Link:
		return "link"
	case Directory:
		return "directory"
	}
	return fmt.Sprintf("type %d", uint8(t))
}

// Attributes are the metadata of a file that a page stores beside its content.
type Attributes struct {
	// Type is the type of the file.
	Type Type
	// Mode has the permission bits and fs.ModeSetuid, fs.ModeSetgid, fs.ModeSticky; other bits are
	// dropped. It is 0 for links, whose mode has no meaning.
	Mode fs.FileMode
	// ModTime is the modification time in nanoseconds, in UTC. It is the zero Time for directories.
	ModTime time.Time
}

const (
	attributesVersion = 1
	attributesSize    = 16

	unixSetuid = 0o4000
	unixSetgid = 0o2000
	unixSticky = 0o1000
	unixMode   = 0o7777

	keptMode = fs.ModePerm | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky
)

// attributesPrefix begins the key of every attributes entry, and attributesEnd is the first key
// after all of them.
const (
	attributesPrefix = "\x00attr\x00"
	attributesEnd    = "\x00attr\x01"
)

// AttributesKey returns the key of the attributes of path.
func AttributesKey(path []byte) []byte {
	return append([]byte(attributesPrefix), path...)
}

// AttributesPath returns the path of an attributes key, and whether key is one. The path shares
// key's bytes.
func AttributesPath(key []byte) (path []byte, ok bool) {
	if len(key) < len(attributesPrefix) || string(key[:len(attributesPrefix)]) != attributesPrefix {
		return nil, false
	}
	return key[len(attributesPrefix):], true
}

// Encode returns the canonical bytes of a:
//
//	offset  bytes  what
//	0       1      format version, 1
//	1       1      type: 1 file, 2 link, 3 directory
//	2       2      mode, big-endian: the nine permission bits, 01000 sticky, 02000 setgid, 04000
//	               setuid
//	4       8      seconds of the modification time since 1970, big-endian two's complement
//	12      4      nanoseconds, big-endian, below 1 000 000 000
//
// The mode of a link and the time of a directory are written as 0. Other bits of Mode are ignored.
func (a Attributes) Encode() []byte {
	b := make([]byte, attributesSize)
	b[0] = attributesVersion
	b[1] = byte(a.Type)
	if a.Type != Link {
		binary.BigEndian.PutUint16(b[2:], toUnixMode(a.Mode))
	}
	if a.Type != Directory {
		binary.BigEndian.PutUint64(b[4:], uint64(a.ModTime.Unix()))
		binary.BigEndian.PutUint32(b[12:], uint32(a.ModTime.Nanosecond()))
	}
	return b
}

// DecodeAttributes accepts only the output of Encode. It does not retain b. Errors:
// *ledger.FormatError for a newer format version, else *ledger.CorruptError.
func DecodeAttributes(b []byte) (Attributes, error) {
	if len(b) > 0 && b[0] > attributesVersion {
		return Attributes{}, &base.FormatError{What: "attributes of a file", Found: uint64(b[0]), Supported: attributesVersion}
	}
	if len(b) != attributesSize || b[0] != attributesVersion {
		return Attributes{}, corruptAttributes(fmt.Sprintf("%d bytes of version %d", attributesSize, attributesVersion), fmt.Sprintf("%d bytes", len(b)))
	}
	mode, seconds, nanos := binary.BigEndian.Uint16(b[2:]), int64(binary.BigEndian.Uint64(b[4:])), binary.BigEndian.Uint32(b[12:])
	a := Attributes{Type: Type(b[1])}
	switch {
	case a.Type < File || a.Type > Directory:
		return Attributes{}, corruptAttributes("a known type", a.Type.String())
	case mode&^unixMode != 0:
		return Attributes{}, corruptAttributes("a mode of 12 bits", fmt.Sprintf("%#o", mode))
	case nanos >= 1e9:
		return Attributes{}, corruptAttributes("less than a second of nanoseconds", fmt.Sprint(nanos))
	case a.Type == Link && mode != 0:
		return Attributes{}, corruptAttributes("no mode of a link", fmt.Sprintf("%#o", mode))
	case a.Type == Directory && (seconds != 0 || nanos != 0):
		return Attributes{}, corruptAttributes("no time of a directory", fmt.Sprintf("%d.%09d", seconds, nanos))
	}
	a.Mode = fromUnixMode(mode)
	if a.Type != Directory {
		a.ModTime = time.Unix(seconds, int64(nanos)).UTC()
	}
	return a, nil
}

// Equal reports whether a and b have the same encoding.
func (a Attributes) Equal(b Attributes) bool {
	if a.Type != b.Type {
		return false
	}
	return (a.Type == Link || a.Mode&keptMode == b.Mode&keptMode) && (a.Type == Directory || a.ModTime.Equal(b.ModTime))
}

// String returns type and mode as ls -l prints them, such as "-rw-r--r--" or "drwxr-sr-x".
func (a Attributes) String() string {
	mode, text := a.Mode, []byte("----------")
	switch a.Type {
	case Link:
		mode, text[0] = fs.ModePerm, 'l'
	case Directory:
		text[0] = 'd'
	}
	for i, letter := range []byte("rwxrwxrwx") {
		if mode&(1<<(8-i)) != 0 {
			text[1+i] = letter
		}
	}
	for _, bit := range modeBits {
		if mode&bit.mode == 0 {
			continue
		}
		if text[bit.place] == 'x' {
			text[bit.place] = bit.letter
		} else {
			text[bit.place] = bit.letter + 'A' - 'a'
		}
	}
	return string(text)
}

// attributesOf returns the attributes of the file that info describes, and whether its type is
// supported.
func attributesOf(info fs.FileInfo) (Attributes, bool) {
	a := Attributes{Mode: info.Mode() & keptMode, ModTime: info.ModTime().UTC()}
	switch info.Mode().Type() {
	case 0:
		a.Type = File
	case fs.ModeSymlink:
		a.Type, a.Mode = Link, 0
	case fs.ModeDir:
		a.Type, a.ModTime = Directory, time.Time{}
	default:
		return Attributes{}, false
	}
	return a, true
}

func corruptAttributes(want, got string) error {
	return &base.CorruptError{Where: "attributes of a file", Want: want, Got: got}
}

func toUnixMode(m fs.FileMode) uint16 {
	u := uint16(m.Perm())
	for _, bit := range modeBits {
		if m&bit.mode != 0 {
			u |= bit.unix
		}
	}
	return u
}

func fromUnixMode(u uint16) fs.FileMode {
	m := fs.FileMode(u) & fs.ModePerm
	for _, bit := range modeBits {
		if u&bit.unix != 0 {
			m |= bit.mode
		}
	}
	return m
}

// modeBits are the mode bits beyond the permissions: their encoding, and the position and letter in
// the text. The letter is a capital when the x at that position is not set.
var modeBits = [...]struct {
	mode   fs.FileMode
	unix   uint16
	place  int
	letter byte
}{{fs.ModeSetuid, unixSetuid, 3, 's'}, {fs.ModeSetgid, unixSetgid, 6, 's'}, {fs.ModeSticky, unixSticky, 9, 't'}}
