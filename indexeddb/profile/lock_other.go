//go:build !unix

package profile

import (
	"errors"
	"io/fs"
	"os"
)

// lock opens the lock of a LevelDB directory, which fails while a browser has it.
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

// lockSQLite opens a file, which fails while a browser has it for itself.
func lockSQLite(path string) (unlock func() error, err error) { return lock(path) }
