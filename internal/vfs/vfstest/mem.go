package vfstest

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/ledgerd/ledger/internal/vfs"
)

// Mem is a file system in memory that tracks the result of a power cut (see CrashClone). The
// working directory is its root. The zero Mem is not usable; see NewMem.
type Mem struct {
	mu   sync.Mutex
	root *dirNode // guarded by mu, with everything below it
}

// NewMem returns an empty file system.
func NewMem() *Mem { return &Mem{root: newDirNode()} }

// A node is a file or a directory.
type node interface{ isNode() }

// dirNode is a directory: its names, the durable names, and the changes of names since.
type dirNode struct {
	names   map[string]node
	durable map[string]node
	ops     []nameOp
}

// nameOp is one change of a directory's names: del is removed, then add names n. Either may be
// empty.
type nameOp struct {
	del string
	add string
	n   node
}

func (*dirNode) isNode()  {}
func (*fileNode) isNode() {}

func newDirNode() *dirNode {
	return &dirNode{names: map[string]node{}, durable: map[string]node{}}
}

func (d *dirNode) apply(op nameOp) {
	nameOpOn(d.names, op)
	d.ops = append(d.ops, op)
}

func nameOpOn(names map[string]node, op nameOp) {
	if op.del != "" {
		delete(names, op.del)
	}
	if op.add != "" {
		names[op.add] = op.n
	}
}

// splitPath splits a name into its elements below the root.
func splitPath(name string) []string {
	p := path.Clean("/" + filepath.ToSlash(name[len(filepath.VolumeName(name)):]))
	if p == "/" {
		return nil
	}
	return strings.Split(p[1:], "/")
}

// findLocked returns the node of name.
func (m *Mem) findLocked(op, name string) (node, error) {
	var n node = m.root
	for _, e := range splitPath(name) {
		d, ok := n.(*dirNode)
		if !ok {
			return nil, &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
		}
		if n, ok = d.names[e]; !ok {
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
	}
	return n, nil
}

// parentLocked returns the directory of name, and its last element, which is empty for the root.
func (m *Mem) parentLocked(op, name string) (*dirNode, string, error) {
	elems := splitPath(name)
	if len(elems) == 0 {
		return m.root, "", nil
	}
	last := len(elems) - 1
	n, err := m.findLocked(op, strings.Join(elems[:last], "/"))
	if err != nil {
		return nil, "", err
	}
	d, ok := n.(*dirNode)
	if !ok {
		return nil, "", &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
	}
	return d, elems[last], nil
}

// Create implements vfs.FS.
func (m *Mem) Create(name string) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, last, err := m.parentLocked("create", name)
	if err != nil {
		return nil, err
	}
	if _, ok := d.names[last]; ok || last == "" {
		return nil, &fs.PathError{Op: "create", Path: name, Err: fs.ErrExist}
	}
	n := newFileNode()
	d.apply(nameOp{add: last, n: n})
	return &memFile{m: m, n: n, name: name, writable: true}, nil
}

// Open implements vfs.FS.
func (m *Mem) Open(name string) (vfs.File, error) { return m.open(name, true) }

// OpenRead implements vfs.FS.
func (m *Mem) OpenRead(name string) (vfs.File, error) { return m.open(name, false) }

func (m *Mem) open(name string, writable bool) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked("open", name)
	if err != nil {
		return nil, err
	}
	f, ok := n.(*fileNode)
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	}
	return &memFile{m: m, n: f, name: name, writable: writable}, nil
}

// Remove implements vfs.FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, last, err := m.parentLocked("remove", name)
	if err != nil {
		return err
	}
	n, ok := d.names[last]
	if !ok {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	if sub, ok := n.(*dirNode); ok && len(sub.names) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	d.apply(nameOp{del: last})
	return nil
}

// RemoveAll implements vfs.FS. A power cut may leave any part of the removed tree.
func (m *Mem) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d, last, err := m.parentLocked("removeall", name)
	if err != nil {
		return nil // below a missing directory there is nothing to remove
	}
	n, ok := d.names[last]
	if last == "" {
		n, ok = m.root, true
	}
	if !ok {
		return nil
	}
	removeBelow(n)
	if last != "" {
		d.apply(nameOp{del: last})
	}
	return nil
}

func removeBelow(n node) {
	d, ok := n.(*dirNode)
	if !ok {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		removeBelow(d.names[name])
		d.apply(nameOp{del: name})
	}
}

// Rename implements vfs.FS. Within one directory a power cut leaves the old or the new name;
// between two it may leave both or none.
func (m *Mem) Rename(oldName, newName string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, oldLast, err := m.parentLocked("rename", oldName)
	if err != nil {
		return err
	}
	to, newLast, err := m.parentLocked("rename", newName)
	if err != nil {
		return err
	}
	n, ok := from.names[oldLast]
	if !ok || newLast == "" {
		return &fs.PathError{Op: "rename", Path: oldName, Err: fs.ErrNotExist}
	}
	present := to.names[newLast]
	if present == n {
		return nil
	}
	if _, isDir := n.(*dirNode); isDir && within(splitPath(newName), splitPath(oldName)) {
		return &fs.PathError{Op: "rename", Path: newName, Err: syscall.EINVAL}
	}
	if sub, ok := present.(*dirNode); ok {
		if _, isDir := n.(*dirNode); !isDir || len(sub.names) > 0 {
			return &fs.PathError{Op: "rename", Path: newName, Err: fs.ErrExist}
		}
	}
	if from == to {
		from.apply(nameOp{del: oldLast, add: newLast, n: n})
		return nil
	}
	to.apply(nameOp{add: newLast, n: n})
	from.apply(nameOp{del: oldLast})
	return nil
}

// within reports whether the path a is at or below b.
func within(a, b []string) bool {
	return len(a) >= len(b) && slices.Equal(a[:len(b)], b)
}

// MkdirAll implements vfs.FS.
func (m *Mem) MkdirAll(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := m.root
	for _, e := range splitPath(dir) {
		n, ok := d.names[e]
		if !ok {
			n = newDirNode()
			d.apply(nameOp{add: e, n: n})
		}
		if d, ok = n.(*dirNode); !ok {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		}
	}
	return nil
}

// ReadDir implements vfs.FS.
func (m *Mem) ReadDir(dir string) ([]vfs.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked("readdir", dir)
	if err != nil {
		return nil, err
	}
	d, ok := n.(*dirNode)
	if !ok {
		return nil, &fs.PathError{Op: "readdir", Path: dir, Err: syscall.ENOTDIR}
	}
	infos := make([]vfs.Info, 0, len(d.names))
	for _, name := range slices.Sorted(maps.Keys(d.names)) {
		infos = append(infos, infoOfNode(name, d.names[name]))
	}
	return infos, nil
}

// Stat implements vfs.FS.
func (m *Mem) Stat(name string) (vfs.Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked("stat", name)
	if err != nil {
		return vfs.Info{}, err
	}
	return infoOfNode(filepath.Base(name), n), nil
}

func infoOfNode(name string, n node) vfs.Info {
	if f, ok := n.(*fileNode); ok {
		return vfs.Info{Name: name, Size: f.size}
	}
	return vfs.Info{Name: name, Dir: true}
}

// SyncDir implements vfs.FS.
func (m *Mem) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.findLocked("syncdir", dir)
	if err != nil {
		return err
	}
	d, ok := n.(*dirNode)
	if !ok {
		return &fs.PathError{Op: "syncdir", Path: dir, Err: syscall.ENOTDIR}
	}
	for _, op := range d.ops {
		nameOpOn(d.durable, op)
	}
	d.ops = nil
	return nil
}

// String lists all files with their sizes, for test failures.
func (m *Mem) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	listNode(&b, "", m.root)
	return b.String()
}

func listNode(b *strings.Builder, name string, n node) {
	switch n := n.(type) {
	case *fileNode:
		fmt.Fprintf(b, "%s %d\n", name, n.size)
	case *dirNode:
		for _, e := range slices.Sorted(maps.Keys(n.names)) {
			listNode(b, name+"/"+e, n.names[e])
		}
	}
}
