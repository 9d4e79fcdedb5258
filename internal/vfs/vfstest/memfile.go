package vfstest

import (
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
	"syscall"
)

const (
	pageBytes   = 4096
	sectorBytes = 512
	maxMemFile  = 1 << 40
)

// page is a part of a file's content. Only the file that owns it writes it in place; other files
// that share it copy it first.
type page struct {
	owner *epoch
	b     [pageBytes]byte
}

// epoch is the time between two moments at which a file's pages become shared. It has a size, so
// that every epoch has its own address.
type epoch struct{ _ byte }

// fileNode is the content of a file: the visible and the durable state. A nil page is all zeros.
type fileNode struct {
	size        int64
	pages       []*page
	durableSize int64
	durable     []*page
	dirty       map[int]struct{} // pages changed since the last sync
	epoch       *epoch
}

func newFileNode() *fileNode {
	return &fileNode{dirty: map[int]struct{}{}, epoch: new(epoch)}
}

func (n *fileNode) readAt(p []byte, off int64) int {
	if off >= n.size {
		return 0
	}
	p = p[:min(int64(len(p)), n.size-off)]
	for done := 0; done < len(p); {
		i, o := int((off+int64(done))/pageBytes), int((off+int64(done))%pageBytes)
		step := min(len(p)-done, pageBytes-o)
		if pg := pageOf(n.pages, i); pg != nil {
			copy(p[done:done+step], pg.b[o:])
		} else {
			clear(p[done : done+step])
		}
		done += step
	}
	return len(p)
}

func pageOf(pages []*page, i int) *page {
	if i < len(pages) {
		return pages[i]
	}
	return nil
}

// writable returns page i ready for writing in place, and marks it dirty.
func (n *fileNode) writable(i int) *page {
	for len(n.pages) <= i {
		n.pages = append(n.pages, nil)
	}
	pg := n.pages[i]
	if pg == nil {
		pg = &page{owner: n.epoch}
	} else if pg.owner != n.epoch {
		pg = &page{owner: n.epoch, b: pg.b}
	}
	n.pages[i] = pg
	n.dirty[i] = struct{}{}
	return pg
}

func (n *fileNode) writeAt(p []byte, off int64) {
	for done := 0; done < len(p); {
		i, o := int((off+int64(done))/pageBytes), int((off+int64(done))%pageBytes)
		done += copy(n.writable(i).b[o:], p[done:])
	}
	n.size = max(n.size, off+int64(len(p)))
}

func (n *fileNode) truncate(size int64) {
	if size < n.size {
		keep := int((size + pageBytes - 1) / pageBytes)
		for i := keep; i < len(n.pages); i++ {
			n.dirty[i] = struct{}{}
		}
		n.pages = n.pages[:min(keep, len(n.pages))]
		if o := int(size % pageBytes); o > 0 && keep <= len(n.pages) && n.pages[keep-1] != nil {
			clear(n.writable(keep - 1).b[o:])
		}
	}
	n.size = size
}

func (n *fileNode) sync() {
	for i := range n.dirty {
		for len(n.durable) <= i {
			n.durable = append(n.durable, nil)
		}
		n.durable[i] = pageOf(n.pages, i)
	}
	n.durableSize = n.size
	keep := int((n.size + pageBytes - 1) / pageBytes)
	n.durable = n.durable[:min(keep, len(n.durable))]
	clear(n.dirty)
	n.epoch = new(epoch)
}

// syncFailed simulates a failed sync on Linux: the pages count as clean although they are not on
// the disk, so that a later sync returns nil and does not write them.
func (n *fileNode) syncFailed() {
	clear(n.dirty)
	n.epoch = new(epoch)
}

// memFile is an open file of a Mem.
type memFile struct {
	m        *Mem
	n        *fileNode
	name     string
	writable bool
	closed   atomic.Bool
}

func (f *memFile) check(op string, change bool) error {
	if f.closed.Load() {
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	}
	if change && !f.writable {
		return &fs.PathError{Op: op, Path: f.name, Err: syscall.EBADF}
	}
	return nil
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.check("read", false); err != nil {
		return 0, err
	}
	if off < 0 {
		return 0, &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrInvalid}
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	n := f.n.readAt(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.check("write", true); err != nil {
		return 0, err
	}
	if off < 0 || off > maxMemFile-int64(len(p)) {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: fs.ErrInvalid}
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.writeAt(p, off)
	return len(p), nil
}

func (f *memFile) Sync() error {
	if err := f.check("sync", false); err != nil {
		return err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.sync()
	return nil
}

// syncFailed marks the data written since the last sync as clean, without making it durable.
func (f *memFile) syncFailed() {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.syncFailed()
}

func (f *memFile) Truncate(size int64) error {
	if err := f.check("truncate", true); err != nil {
		return err
	}
	if size < 0 || size > maxMemFile {
		return &fs.PathError{Op: "truncate", Path: f.name, Err: fs.ErrInvalid}
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.n.truncate(size)
	return nil
}

func (f *memFile) Size() (int64, error) {
	if err := f.check("stat", false); err != nil {
		return 0, err
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	return f.n.size, nil
}

func (f *memFile) Preallocate(size int64) error {
	if err := f.check("preallocate", true); err != nil {
		return err
	}
	if size < 0 {
		return fmt.Errorf("preallocate %s: %w", f.name, fs.ErrInvalid)
	}
	return nil
}

func (f *memFile) Close() error {
	if f.closed.Swap(true) {
		return &fs.PathError{Op: "close", Path: f.name, Err: fs.ErrClosed}
	}
	return nil
}
