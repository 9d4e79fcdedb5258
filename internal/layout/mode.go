package layout

import (
	"fmt"
	"io/fs"
	"os"
	"runtime"
)

// Tighten removes other users' rights to a directory. It returns the former mode of the directory,
// 0 when others had no rights, as on Windows. Errors: those of the file system.
func Tighten(dir string) (had fs.FileMode, err error) {
	info, err := os.Stat(dir)
	if err != nil {
		return 0, fmt.Errorf("look who may read the directory: %w", err)
	}
	if had = info.Mode().Perm(); runtime.GOOS == "windows" || had&0o077 == 0 {
		return 0, nil
	}
	if err := os.Chmod(dir, had&0o700); err != nil {
		return had, fmt.Errorf("take the rights of others away: %w", err)
	}
	return had, nil
}
