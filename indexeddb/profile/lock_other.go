//go:build !unix

package profile

import (
	"errors"
	"io/fs"
	"os"
)

// lock opens the lock file of a LevelDB directory. This fails while a browser has the file open.
func lock(path string) (unlock func() error, err error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return func() error { return nil }, nil
	}
	if err != nil {
		return nil, err
	}
	return f.Close, nil
}

// lockSQLite opens a file. This fails while a browser has exclusive access.
func lockSQLite(path string) (unlock func() error, err error) { return lock(path) }
