package dir

import (
	"strings"

	"github.com/ledgerd/ledger/cloudsync/bucket"
)

const (
	// chunkBytes is the length beyond which a segment is cut: file names have at most 255 bytes,
	// and less where they are encrypted.
	chunkBytes = 128

	fileMark  = "=" // ends the name of an object's file
	dirMark   = "+" // ends a directory that is a whole segment, or the rest of one
	chunkMark = "~" // ends a directory that is the start of a segment
	claimMark = "!" // in place of fileMark: a put is about to rename a file to that
)

// pathOf returns the path of the file for a legal name, with slashes.
func pathOf(name string) string {
	var s strings.Builder
	segments := strings.Split(strings.ReplaceAll(name, ".", ","), "/")
	for i, seg := range segments {
		for len(seg) > chunkBytes {
			s.WriteString(seg[:chunkBytes] + chunkMark + "/")
			seg = seg[chunkBytes:]
		}
		if s.WriteString(seg); i == len(segments)-1 {
			s.WriteString(fileMark)
		} else {
			s.WriteString(dirMark + "/")
		}
	}
	return s.String()
}

// nameOf returns the name whose file is at path, and whether there is one. It is the inverse of
// pathOf.
func nameOf(path string) (string, bool) {
	name := strings.Builder{}
	for elem := range strings.SplitSeq(path, "/") {
		part, _, ok := partOf(elem)
		if !ok {
			return "", false
		}
		name.WriteString(part)
	}
	return name.String(), bucket.CheckName(name.String()) == nil && pathOf(name.String()) == path
}

// partOf returns the part of the name in an element of a path, and whether the element is a
// directory.
func partOf(elem string) (part string, isDir, ok bool) {
	if len(elem) < 2 || strings.Contains(elem, ".") {
		return "", false, false
	}
	part = strings.ReplaceAll(elem[:len(elem)-1], ",", ".")
	switch elem[len(elem)-1:] {
	case fileMark:
		return part, false, true
	case dirMark:
		return part + "/", true, true
	case chunkMark:
		return part, true, len(part) == chunkBytes
	}
	return "", false, false
}

// parents returns the directories above path, the nearest first, without the root.
func parents(path string) (dirs []string) {
	for i := strings.LastIndexByte(path, '/'); i > 0; i = strings.LastIndexByte(path[:i], '/') {
		dirs = append(dirs, path[:i])
	}
	return dirs
}
