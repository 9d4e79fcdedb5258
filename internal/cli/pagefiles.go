package cli

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// pageFiles tells whether a page was written, by the files in its directory: every commit makes a
// segment longer.
type pageFiles struct {
	dir  string
	seen string // what note has found
}

// note remembers how the files are now.
func (f *pageFiles) note() { f.seen = f.describe() }

// forget makes the next look find a change.
func (f *pageFiles) forget() { f.seen = "forgotten" }

// changed reports whether the files differ from what note has found.
func (f *pageFiles) changed() bool { return f.describe() != f.seen }

// describe lists the segments with their lengths and times; "" when there is nothing that can be
// read.
func (f *pageFiles) describe() string {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return ""
	}
	var b strings.Builder
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".seg" {
			continue
		}
		if info, err := e.Info(); err == nil { // else it is gone
			fmt.Fprintf(&b, "%s %d %d\n", e.Name(), info.Size(), info.ModTime().UnixNano())
		}
	}
	return b.String()
}

// lowerHex32 is the encoding of names of directories.
var lowerHex32 = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// pageDir is the directory of a page, which need not exist. docs/format/repository.md has the
// layout.
func pageDir(repository string, name pageName) string {
	const version, maxPlainName = "1", 150
	l := lowerHex32.EncodeToString([]byte(name.ledger))
	if len(name.ledger) > maxPlainName {
		sum := sha256.Sum256([]byte(name.ledger))
		l = "x" + lowerHex32.EncodeToString(sum[:])
	}
	id := name.pageID()
	return filepath.Join(repository, version, "ledgers", l, lowerHex32.EncodeToString(id[:]))
}
