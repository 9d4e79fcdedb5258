package segment

import (
	"container/list"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
)

// maxHandles bounds the segment files kept open without readers.
const maxHandles = 64

// handles keeps segment files open for reading; the least recently used are closed first.
type handles struct {
	fs   vfs.FS
	dir  string
	page [16]byte
	// anyHeader accepts files with any header.
	anyHeader bool

	mu     sync.Mutex
	byID   map[uint32]*handle // guarded by mu
	recent *list.List         // of *handle, most recent first; guarded by mu
	gone   map[uint32]bool    // retired: not kept open; guarded by mu
	closed bool               // guarded by mu
}

// handle is one open file. It is closed when it is dropped and has no user.
type handle struct {
	f       vfs.File
	id      uint32
	elem    *list.Element
	refs    int          // guarded by handles.mu
	dropped bool         // guarded by handles.mu
	retired func() error // guarded by handles.mu; called once when the last user is gone, nil: nothing
}

func newHandles(fsys vfs.FS, dir string, page [16]byte) *handles {
	return &handles{fs: fsys, dir: dir, page: page, byID: map[uint32]*handle{}, recent: list.New()}
}

// get returns the open file of a segment, whose header has been checked. The caller must call put.
func (c *handles) get(id uint32) (*handle, error) {
	if h, err := c.lookUp(id); h != nil || err != nil {
		return h, err
	}
	f, err := c.open(id)
	if err != nil {
		return nil, err
	}
	h, unused, err := c.insert(id, f)
	for _, u := range unused {
		err = errors.Join(err, u.Close())
	}
	return h, err
}

func (c *handles) lookUp(id uint32) (*handle, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, fmt.Errorf("open segment %s: %w", FileName(id), base.ErrClosed)
	}
	h := c.byID[id]
	if h != nil {
		h.refs++
		c.recent.MoveToFront(h.elem)
	}
	return h, nil
}

func (c *handles) open(id uint32) (vfs.File, error) {
	f, err := c.fs.OpenRead(filepath.Join(c.dir, FileName(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &base.CorruptError{Where: "segment " + FileName(id), Got: "no file", Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("open segment: %w", err)
	}
	if c.anyHeader {
		return f, nil
	}
	b := make([]byte, headerBytes)
	n, err := f.ReadAt(b, 0)
	if n == headerBytes {
		err = nil
	}
	whole := false
	if err == nil {
		whole, err = checkHeader(b, c.page, id)
	}
	if err == nil && !whole {
		err = corrupt(id, 0, "no header of a segment")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open segment %s: %w", FileName(id), err), f.Close())
	}
	return f, nil
}

// insert adds f, unless a concurrent call has added one, and returns the files to close.
func (c *handles) insert(id uint32, f vfs.File) (h *handle, unused []vfs.File, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, []vfs.File{f}, fmt.Errorf("open segment %s: %w", FileName(id), base.ErrClosed)
	}
	if h = c.byID[id]; h != nil {
		h.refs++
		return h, []vfs.File{f}, nil
	}
	h = &handle{f: f, id: id, refs: 1}
	if c.gone[id] {
		h.dropped = true
		return h, nil, nil
	}
	h.elem = c.recent.PushFront(h)
	c.byID[id] = h
	if c.recent.Len() > maxHandles {
		unused = c.dropLocked(c.recent.Back().Value.(*handle), unused)
	}
	return h, unused, nil
}

// dropLocked forgets h, and appends its file to unused when it has no user.
func (c *handles) dropLocked(h *handle, unused []vfs.File) []vfs.File {
	c.recent.Remove(h.elem)
	delete(c.byID, h.id)
	h.dropped = true
	if h.refs == 0 {
		unused = append(unused, h.f)
	}
	return unused
}

// put releases a handle of get.
func (c *handles) put(h *handle) error {
	c.mu.Lock()
	h.refs--
	last, retired := h.dropped && h.refs == 0, h.retired
	c.mu.Unlock()
	if !last {
		return nil
	}
	err := h.f.Close()
	if retired != nil {
		err = errors.Join(err, retired())
	}
	return err
}

// retire forgets a segment, and calls fn once it has no reader: at once, or by the last reader. A
// later get opens the file for its caller only.
func (c *handles) retire(id uint32, fn func() error) error {
	c.mu.Lock()
	if c.gone == nil {
		c.gone = map[uint32]bool{}
	}
	c.gone[id] = true
	var unused []vfs.File
	h := c.byID[id]
	if h != nil {
		unused = c.dropLocked(h, nil)
	}
	wait := h != nil && len(unused) == 0
	if wait {
		h.retired = fn
	}
	c.mu.Unlock()
	if wait {
		return nil
	}
	var err error
	for _, f := range unused {
		err = errors.Join(err, f.Close())
	}
	return errors.Join(err, fn())
}

// close closes all files, those in use when they are released.
func (c *handles) close() error {
	c.mu.Lock()
	c.closed = true
	var unused []vfs.File
	for c.recent.Len() > 0 {
		unused = c.dropLocked(c.recent.Front().Value.(*handle), unused)
	}
	c.mu.Unlock()
	var err error
	for _, f := range unused {
		err = errors.Join(err, f.Close())
	}
	return err
}
