package vfstest

import (
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
)

// OpKind is the kind of an operation.
type OpKind uint8

// The kinds of operations.
const (
	OpCreate OpKind = iota
	OpOpen          // Open and OpenRead
	OpRemove        // Remove and RemoveAll
	OpRename
	OpMkdir
	OpReadDir
	OpStat // Stat and File.Size
	OpSyncDir
	OpRead
	OpWrite
	OpSync
	OpTruncate
	OpPreallocate
	OpClose
)

var opNames = [...]string{
	"create", "open", "remove", "rename", "mkdir", "readdir", "stat", "syncdir",
	"read", "write", "sync", "truncate", "preallocate", "close",
}

// String returns the word for k.
func (k OpKind) String() string {
	if int(k) < len(opNames) {
		return opNames[k]
	}
	return fmt.Sprintf("op %d", uint8(k))
}

// Mutates reports whether such operations change the visible or the durable state.
func (k OpKind) Mutates() bool {
	switch k {
	case OpCreate, OpRemove, OpRename, OpMkdir, OpSyncDir, OpWrite, OpSync, OpTruncate:
		return true
	}
	return false
}

// Op is one operation of a file system made by NewFaulty or NewHooked.
type Op struct {
	// Kind is the kind of operation.
	Kind OpKind
	// Name is the file or directory, the old name for a rename.
	Name string
	// N counts all operations of the file system from 0.
	N int
}

// String names the operation for test failures.
func (o Op) String() string { return fmt.Sprintf("op %d: %s %s", o.N, o.Kind, o.Name) }

// NewFaulty returns fs with failures. It calls inject before every operation, those of files
// included; when inject returns an error, the operation fails with an error that wraps it. inject
// may be called concurrently.
//
// A failing operation has no effect, with two exceptions that depend on the operation's number N,
// as on real disks. A failing write has written nothing, its first half, or all, as N modulo 3 is
// 0, 1 or 2. A failing sync has made everything durable when N modulo 3 is 2. When it is 0, nothing
// is durable, and on a Mem the written data counts as clean, so that a later sync does not make it
// durable either; when it is 1, a later sync does.
func NewFaulty(fsys vfs.FS, inject func(op Op) error) vfs.FS {
	return &wrapped{fs: fsys, before: inject}
}

// NewHooked returns fs, and calls after following each successful operation that changes something,
// with no lock held. after may be called concurrently.
func NewHooked(fsys vfs.FS, after func(op Op)) vfs.FS {
	return &wrapped{fs: fsys, after: after}
}

// wrapped is a vfs.FS with hooks before or after its operations.
type wrapped struct {
	fs     vfs.FS
	before func(Op) error
	after  func(Op)
	n      atomic.Int64
}

func (w *wrapped) begin(kind OpKind, name string) (Op, error) {
	op := Op{Kind: kind, Name: name, N: int(w.n.Add(1) - 1)}
	if w.before == nil {
		return op, nil
	}
	if err := w.before(op); err != nil {
		if errors.Is(err, syscall.ENOSPC) {
			err = base.WithClass(err, base.ErrNoSpace) // as vfs.OS
		}
		return op, fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return op, nil
}

func (w *wrapped) end(op Op, err error) error {
	if err == nil && w.after != nil && op.Kind.Mutates() {
		w.after(op)
	}
	return err
}

func (w *wrapped) do(kind OpKind, name string, fn func() error) error {
	op, err := w.begin(kind, name)
	if err != nil {
		return err
	}
	return w.end(op, fn())
}

func (w *wrapped) open(kind OpKind, name string, open func(string) (vfs.File, error)) (vfs.File, error) {
	var f vfs.File
	err := w.do(kind, name, func() (err error) {
		f, err = open(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return &wrappedFile{w: w, f: f, name: name}, nil
}

func (w *wrapped) Create(name string) (vfs.File, error)   { return w.open(OpCreate, name, w.fs.Create) }
func (w *wrapped) Open(name string) (vfs.File, error)     { return w.open(OpOpen, name, w.fs.Open) }
func (w *wrapped) OpenRead(name string) (vfs.File, error) { return w.open(OpOpen, name, w.fs.OpenRead) }

func (w *wrapped) Remove(name string) error {
	return w.do(OpRemove, name, func() error { return w.fs.Remove(name) })
}

func (w *wrapped) RemoveAll(name string) error {
	return w.do(OpRemove, name, func() error { return w.fs.RemoveAll(name) })
}

func (w *wrapped) Rename(oldName, newName string) error {
	return w.do(OpRename, oldName, func() error { return w.fs.Rename(oldName, newName) })
}

func (w *wrapped) MkdirAll(dir string) error {
	return w.do(OpMkdir, dir, func() error { return w.fs.MkdirAll(dir) })
}

func (w *wrapped) SyncDir(dir string) error {
	return w.do(OpSyncDir, dir, func() error { return w.fs.SyncDir(dir) })
}

func (w *wrapped) ReadDir(dir string) (infos []vfs.Info, err error) {
	err = w.do(OpReadDir, dir, func() (err error) {
		infos, err = w.fs.ReadDir(dir)
		return err
	})
	return infos, err
}

func (w *wrapped) Stat(name string) (info vfs.Info, err error) {
	err = w.do(OpStat, name, func() (err error) {
		info, err = w.fs.Stat(name)
		return err
	})
	return info, err
}

// wrappedFile is an open file of a wrapped.
type wrappedFile struct {
	w    *wrapped
	f    vfs.File
	name string
}

func (f *wrappedFile) ReadAt(p []byte, off int64) (n int, err error) {
	if _, err := f.w.begin(OpRead, f.name); err != nil {
		return 0, err
	}
	return f.f.ReadAt(p, off)
}

func (f *wrappedFile) WriteAt(p []byte, off int64) (int, error) {
	op, err := f.w.begin(OpWrite, f.name)
	if err == nil {
		n, err := f.f.WriteAt(p, off)
		return n, f.w.end(op, err)
	}
	part := len(p) * (op.N % 3) / 2
	if part == 0 {
		return 0, err
	}
	n, _ := f.f.WriteAt(p[:part], off)
	return n, err
}

// syncFailer is a vfs.File that can simulate failed syncs.
type syncFailer interface{ syncFailed() }

func (f *wrappedFile) Sync() error {
	op, err := f.w.begin(OpSync, f.name)
	if err == nil {
		return f.w.end(op, f.f.Sync())
	}
	switch op.N % 3 {
	case 0:
		f.syncFailed()
	case 2:
		_ = f.f.Sync() // the injected failure is the one reported
	}
	return err
}

// syncFailed passes the call on through doubly wrapped files.
func (f *wrappedFile) syncFailed() {
	if s, ok := f.f.(syncFailer); ok {
		s.syncFailed()
	}
}

func (f *wrappedFile) Truncate(size int64) error {
	return f.w.do(OpTruncate, f.name, func() error { return f.f.Truncate(size) })
}

func (f *wrappedFile) Preallocate(size int64) error {
	return f.w.do(OpPreallocate, f.name, func() error { return f.f.Preallocate(size) })
}

func (f *wrappedFile) Size() (size int64, err error) {
	err = f.w.do(OpStat, f.name, func() (err error) {
		size, err = f.f.Size()
		return err
	})
	return size, err
}

// Close always closes the underlying file, so that a failure leaks nothing.
func (f *wrappedFile) Close() error {
	_, err := f.w.begin(OpClose, f.name)
	if cerr := f.f.Close(); err == nil {
		err = cerr
	}
	return err
}
