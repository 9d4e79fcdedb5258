package filetree

import (
	"encoding/binary"
	"fmt"
	"io/fs"
	"time"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/internal/base"
)

// Type says what an entry of a tree is. The numbers are part of the format.
type Type uint8

// The types.
const (
	File      Type = 1 // the entry's value is the content
	Link      Type = 2 // the entry's value is the target of a symbolic link
	Directory Type = 3 // the entry's value is empty, and so was the directory; of one that was not, there are attributes and no entry
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

// Attributes are what a page keeps of a file beside its content.
type Attributes struct {
	// Type says what it is.
	Type Type
	// Mode has the permission bits and fs.ModeSetuid, fs.ModeSetgid, fs.ModeSticky; other bits are
	// not kept. It is 0 for links, whose mode means nothing.
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
// behind them.
const (
	attributesPrefix = "\x00attr\x00"
	attributesEnd    = "\x00attr\x01"
)

// AttributesKey returns the key under which the attributes of path are kept.
func AttributesKey(path []byte) []byte {
	return append([]byte(attributesPrefix), path...)
}

// AttributesPath returns the path whose attributes are kept under key, and whether key is such a
// key. The path shares key's bytes.
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
// The mode of a link and the time of a directory are written as 0. Bits of Mode that are not kept
// are ignored.
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

// DecodeAttributes reads what Encode writes and nothing else. It does not retain b. Errors:
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

// foreign reports whether an entry is none that an import has made with these attributes: somebody
// has put a value at the path of a directory.
func (a Attributes) foreign(entry ledger.Entry) bool { return a.Type == Directory && entry.Size > 0 }

// attributesOf returns the attributes of the file that info describes, and whether it is of a type
// that is kept.
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

// modeBits are the modes beside the permissions: their bit in the encoding, and where which letter
// stands in the text for it when the x there is set; when it is not, the letter is a capital.
var modeBits = [...]struct {
	mode   fs.FileMode
	unix   uint16
	place  int
	letter byte
}{{fs.ModeSetuid, unixSetuid, 3, 's'}, {fs.ModeSetgid, unixSetgid, 6, 's'}, {fs.ModeSticky, unixSticky, 9, 't'}}
