package vfs

import (
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
)

// maxMemFile bounds the length of a file in memory, so that sums of offsets and lengths do not
// overflow.
const maxMemFile = 1 << 40

// Mem is a file system in memory, for repositories that end with their process. The working
// directory is its root. The zero Mem is not usable; see NewMem.
type Mem struct {
	mu   sync.RWMutex
	root memDir // guarded by mu, with everything below it
}

// memDir maps the names in a directory to a memDir or a *memContent.
type memDir map[string]any

type memContent struct{ b []byte }

// NewMem returns an empty file system.
func NewMem() *Mem { return &Mem{root: memDir{}} }

// memPath splits a name into its elements below the root.
func memPath(name string) []string {
	p := path.Clean("/" + filepath.ToSlash(name[len(filepath.VolumeName(name)):]))
	return strings.FieldsFunc(p, func(r rune) bool { return r == '/' })
}

func pathError(op, name string, err error) error { return &fs.PathError{Op: op, Path: name, Err: err} }

// parentLocked returns the directory of name, and its last element, which is empty for the root.
func (m *Mem) parentLocked(op, name string) (memDir, string, error) {
	elems := memPath(name)
	if len(elems) == 0 {
		return m.root, "", nil
	}
	d, last := m.root, len(elems)-1
	for _, e := range elems[:last] {
		n, ok := d[e]
		if !ok {
			return nil, "", pathError(op, name, fs.ErrNotExist)
		}
		if d, ok = n.(memDir); !ok {
			return nil, "", pathError(op, name, syscall.ENOTDIR)
		}
	}
	return d, elems[last], nil
}

// findLocked returns the memDir or *memContent of a name, with its directory and last element.
func (m *Mem) findLocked(op, name string) (n any, d memDir, last string, err error) {
	d, last, err = m.parentLocked(op, name)
	if err != nil {
		return nil, nil, "", err
	}
	if last == "" {
		return m.root, d, "", nil
	}
	n, ok := d[last]
	if !ok {
		return nil, nil, "", pathError(op, name, fs.ErrNotExist)
	}
	return n, d, last, nil
}

// Create implements FS.
func (m *Mem) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, last, err := m.parentLocked("create", name)
	if err != nil {
		return nil, err
	}
	if _, ok := d[last]; ok || last == "" {
		return nil, pathError("create", name, fs.ErrExist)
	}
	c := &memContent{}
	d[last] = c
	return &memFile{m: m, c: c, name: name, writable: true}, nil
}

// Open implements FS.
func (m *Mem) Open(name string) (File, error) { return m.open(name, true) }

// OpenRead implements FS.
func (m *Mem) OpenRead(name string) (File, error) { return m.open(name, false) }

func (m *Mem) open(name string, writable bool) (File, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, _, _, err := m.findLocked("open", name)
	if err != nil {
		return nil, err
	}
	c, ok := n.(*memContent)
	if !ok {
		return nil, pathError("open", name, syscall.EISDIR)
	}
	return &memFile{m: m, c: c, name: name, writable: writable}, nil
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, d, last, err := m.findLocked("remove", name)
	if err != nil {
		return err
	}
	if sub, ok := n.(memDir); ok && len(sub) > 0 {
		return pathError("remove", name, syscall.ENOTEMPTY)
	}
	delete(d, last)
	return nil
}

// RemoveAll implements FS.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if d, last, err := m.parentLocked("removeall", name); err == nil && last != "" {
		delete(d, last)
	} else if err == nil {
		clear(m.root)
	}
	return nil // below a missing directory there is nothing to remove
}

// Rename implements FS.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, from, oldLast, err := m.findLocked("rename", oldName)
	if err != nil {
		return err
	}
	to, newLast, err := m.parentLocked("rename", newName)
	if err != nil {
		return err
	}
	oldPath, newPath := memPath(oldName), memPath(newName)
	if slices.Equal(oldPath, newPath) {
		return nil
	}
	_, isDir := n.(memDir)
	if oldLast == "" || newLast == "" || isDir && len(newPath) > len(oldPath) && slices.Equal(newPath[:len(oldPath)], oldPath) {
		return pathError("rename", newName, syscall.EINVAL)
	}
	if sub, ok := to[newLast].(memDir); ok && (!isDir || len(sub) > 0) {
		return pathError("rename", newName, fs.ErrExist)
	}
	delete(from, oldLast)
	to[newLast] = n
	return nil
}

// MkdirAll implements FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.root
	for _, e := range memPath(dir) {
		n, ok := d[e]
		if !ok {
			n = memDir{}
			d[e] = n
		}
		if d, ok = n.(memDir); !ok {
			return pathError("mkdir", dir, syscall.ENOTDIR)
		}
	}
	return nil
}

// ReadDir implements FS.
func (m *Mem) ReadDir(dir string) ([]Info, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, _, _, err := m.findLocked("readdir", dir)
	if err != nil {
		return nil, err
	}
	d, ok := n.(memDir)
	if !ok {
		return nil, pathError("readdir", dir, syscall.ENOTDIR)
	}
	infos := make([]Info, 0, len(d))
	for _, name := range slices.Sorted(maps.Keys(d)) {
		infos = append(infos, memInfo(name, d[name]))
	}
	return infos, nil
}

// Stat implements FS.
func (m *Mem) Stat(name string) (Info, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, _, _, err := m.findLocked("stat", name)
	if err != nil {
		return Info{}, err
	}
	return memInfo(filepath.Base(name), n), nil
}

func memInfo(name string, n any) Info {
	if c, ok := n.(*memContent); ok {
		return Info{Name: name, Size: int64(len(c.b))}
	}
	return Info{Name: name, Dir: true}
}

// SyncDir implements FS. It only checks that dir is a directory.
func (m *Mem) SyncDir(dir string) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n, _, _, err := m.findLocked("syncdir", dir)
	if _, ok := n.(memDir); err == nil && !ok {
		return pathError("syncdir", dir, syscall.ENOTDIR)
	}
	return err
}

// memFile is an open file of a Mem.
type memFile struct {
	m        *Mem
	c        *memContent // guarded by m.mu
	name     string
	writable bool
	closed   atomic.Bool
}

// check refuses an operation on a closed file, a change through a read-only file, and an offset
// beyond the greatest file size.
func (f *memFile) check(op string, change bool, off, n int64) error {
	switch {
	case f.closed.Load():
		return pathError(op, f.name, fs.ErrClosed)
	case change && !f.writable:
		return pathError(op, f.name, syscall.EBADF)
	case off < 0 || change && off > maxMemFile-n:
		return pathError(op, f.name, fs.ErrInvalid)
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check("read", false, off, 0); err != nil {
		return 0, err
	}
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	n := copy(p, f.c.b[min(off, int64(len(f.c.b))):])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.check("write", true, off, int64(len(p))); err != nil {
		return 0, err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if end := off + int64(len(p)); end > int64(len(f.c.b)) {
		f.c.resize(end)
	}
	return copy(f.c.b[off:], p), nil
}

// resize truncates the content, or extends it with zeros.
func (c *memContent) resize(size int64) {
	if have := int64(len(c.b)); size > have {
		c.b = slices.Grow(c.b, int(size-have))[:size]
		clear(c.b[have:])
		return
	}
	c.b = c.b[:size]
}

func (f *memFile) Truncate(size int64) error {
	if err := f.check("truncate", true, size, 0); err != nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.c.resize(size)
	return nil
}

func (f *memFile) Size() (int64, error) {
	if err := f.check("stat", false, 0, 0); err != nil {
		return 0, err
	}
	f.m.mu.RLock()
	defer f.m.mu.RUnlock()
	return int64(len(f.c.b)), nil
}

func (f *memFile) Sync() error { return f.check("sync", false, 0, 0) }

func (f *memFile) Preallocate(size int64) error { return f.check("preallocate", true, size, 0) }

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return pathError("close", f.name, fs.ErrClosed)
	}
	return nil
}
