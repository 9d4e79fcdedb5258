package cli

import (
	"fmt"
	"os"
	"runtime"
)

// cautionModes warns, once in a run, when others than its owner may read or write a file or
// directory that is meant to be private. What cannot be looked at is told by the error of its use.
func (a *app) cautionModes(what, path string) {
	if runtime.GOOS == "windows" || a.cautioned[path] {
		return
	}
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() && !info.Mode().IsRegular() || info.Mode().Perm()&0o077 == 0 {
		return
	}
	if a.cautioned == nil {
		a.cautioned = map[string]bool{}
	}
	a.cautioned[path] = true
	rights, private := "read", "600"
	if info.IsDir() {
		private = "700"
	}
	if info.Mode().Perm()&0o022 != 0 {
		rights = "read or write"
	}
	a.printWarning(fmt.Sprintf("%s %s is not private: others may %s it (mode %04o)", what, quoted(path), rights, info.Mode().Perm()),
		"chmod "+private+" "+shellQuote(path))
}
