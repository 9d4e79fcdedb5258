package cli

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// looseMode returns the mode of a file or directory on which users other than the owner have
// rights; 0 if they have none.
func looseMode(path string) fs.FileMode {
	info, err := os.Stat(path)
	if runtime.GOOS == "windows" || err != nil || !info.IsDir() && !info.Mode().IsRegular() || info.Mode().Perm()&0o077 == 0 {
		return 0
	}
	return info.Mode().Perm()
}

// cautionModes warns, once for each path in a run, when other users may read or write a file or
// directory that is meant to be private. had is the mode of a directory before it was opened;
// opening removes the rights of others. If path cannot be examined, its use reports the error.
func (a *app) cautionModes(what, path string, had fs.FileMode) {
	mode := looseMode(path)
	if mode == 0 && had == 0 || a.cautioned[path] {
		return
	}
	if a.cautioned == nil {
		a.cautioned = map[string]bool{}
	}
	a.cautioned[path] = true
	rights := choose((mode|had)&0o022 != 0, "read or write", "read")
	text := fmt.Sprintf("%s %s is not private: others may %s it (mode %04o)", what, quoted(path), rights, mode)
	hint := "as its owner: chmod " + choose(had != 0, "700 ", "600 ") + shellQuote(path)
	if mode == 0 {
		text = fmt.Sprintf("%s %s was not private: others could %s it (mode %04o); it is private now", what, quoted(path),
			rights, had)
		hint = ""
	}
	a.printWarning(text, hint)
}
