package vfs

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/ledgerd/ledger/internal/base"
)

// FS is a file system. Names are paths of the machine; relative ones are relative to the working
// directory. All methods block on the disk and cannot be cancelled.
type FS interface {
	// Create makes an empty file and opens it for reading and writing. It fails with fs.ErrExist
	// when the name is taken. The name is durable after SyncDir of its directory.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenRead opens an existing file for reading; changing methods of the File fail.
	OpenRead(name string) (File, error)
	// Remove removes a file or an empty directory.
	Remove(name string) error
	// RemoveAll removes name and all below it. It returns nil when name does not exist.
	RemoveAll(name string) error
	// Rename gives old the name new and replaces a file of that name. It is atomic within one
	// directory.
	Rename(old, new string) error
	// MkdirAll makes a directory and its parents. It returns nil when dir exists.
	MkdirAll(dir string) error
	// ReadDir lists a directory, sorted by name.
	ReadDir(dir string) ([]Info, error)
	// Stat describes a file or directory.
	Stat(name string) (Info, error)
	// SyncDir makes the names in dir durable: when it returns nil, files created, renamed and
	// removed there before stay so after a power cut. It does nothing on systems that cannot sync a
	// directory.
	SyncDir(dir string) error
}

// File is an open file. ReadAt and WriteAt are as in package io; a WriteAt beyond the end fills the
// gap with zeros.
type File interface {
	io.ReaderAt
	io.WriterAt
	// Sync makes the content and size durable when it returns nil. After an error, the state of
	// everything written since the last Sync is unknown, even if a later Sync returns nil.
	Sync() error
	// Truncate cuts or grows the file to size bytes.
	Truncate(size int64) error
	// Size returns the length in bytes.
	Size() (int64, error)
	// Preallocate reserves disk space for the first size bytes without changing the length. It is
	// advisory: it returns nil where that is impossible, except that a full disk gives
	// base.ErrNoSpace.
	Preallocate(size int64) error
	// Close releases the file. It syncs nothing.
	Close() error
}

// Info describes a file or directory.
type Info struct {
	// Name is the last element of the path.
	Name string
	// Size is the length in bytes, 0 for a directory.
	Size int64
	// Dir distinguishes a directory from a file.
	Dir bool
	// Modified is when the file was last written, zero when the file system does not report it.
	Modified time.Time
}

// WriteFile creates name with the given content and makes the content durable. The name becomes
// durable when the caller has renamed the file to its place and synced the directory. It fails with
// fs.ErrExist when the name is taken. After an error a part of the file may exist.
func WriteFile(fsys FS, name string, content []byte) (err error) {
	f, err := fsys.Create(name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if _, err := f.WriteAt(content, 0); err != nil {
		return err // the error names the file
	}
	return f.Sync()
}

// ReadFile returns the content of name, or an error that matches base.ErrTooLarge when it is longer
// than maxBytes.
func ReadFile(fsys FS, name string, maxBytes int64) (content []byte, err error) {
	f, err := fsys.OpenRead(name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	if size > maxBytes {
		return nil, fmt.Errorf("read %s of %d bytes, limit %d: %w", name, size, maxBytes, base.ErrTooLarge)
	}
	content = make([]byte, size)
	if n, err := f.ReadAt(content, 0); n < len(content) {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return content, nil
}

// noSpace makes errors for a full disk match base.ErrNoSpace.
func noSpace(err error) error {
	if err == nil || !isNoSpace(err) || errors.Is(err, base.ErrNoSpace) {
		return err
	}
	return base.WithClass(err, base.ErrNoSpace)
}
