package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"sync"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
)

// maxHandles bounds the segment files kept open for reading.
const maxHandles = 64

// handles keeps segment files open for reading. A file may be closed while it is read: the reader
// then gets it again.
type handles struct {
	fs   vfs.FS
	dir  string
	page [16]byte
	// anyHeader accepts files with any header.
	anyHeader bool

	mu   sync.Mutex
	byID map[uint32]vfs.File // guarded by mu; nil when closed
}

func newHandles(fsys vfs.FS, dir string, page [16]byte) *handles {
	return &handles{fs: fsys, dir: dir, page: page, byID: map[uint32]vfs.File{}}
}

// readSegment appends n bytes of a segment to dst. A file that is too short is damage.
func readSegment(files *handles, dst []byte, segment uint32, off uint64, n int) ([]byte, error) {
	length := len(dst)
	dst = slices.Grow(dst, n)[:length+n]
	for {
		f, err := files.get(segment)
		if err != nil {
			return dst[:length], err
		}
		got, err := f.ReadAt(dst[length:], int64(off))
		switch {
		case got == n:
			return dst, nil
		case errors.Is(err, fs.ErrClosed): // for another file, or for good
		case err == nil || errors.Is(err, io.EOF):
			return dst, corrupt(segment, off+uint64(got), "the end of the file")
		default:
			return dst, fmt.Errorf("read segment %s at offset %d: %w", FileName(segment), off, err)
		}
	}
}

// get returns the open file of a segment, whose header has been checked.
func (c *handles) get(id uint32) (vfs.File, error) {
	f, err := c.lookUp(id)
	if f != nil || err != nil {
		return f, err
	}
	if f, err = c.open(id); err != nil {
		return nil, err
	}
	f, unused, err := c.insert(id, f)
	if unused != nil {
		err = errors.Join(err, unused.Close())
	}
	return f, err
}

func (c *handles) lookUp(id uint32) (vfs.File, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		return nil, fmt.Errorf("open segment %s: %w", FileName(id), base.ErrClosed)
	}
	return c.byID[id], nil
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
	whole, err := readHeader(f, c.page, id)
	if err == nil && !whole {
		err = corrupt(id, 0, "no header of a segment")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open segment %s: %w", FileName(id), err), f.Close())
	}
	return f, nil
}

// insert adds f, unless a concurrent call has added one, and returns a file to close.
func (c *handles) insert(id uint32, f vfs.File) (kept, unused vfs.File, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byID == nil {
		return nil, f, fmt.Errorf("open segment %s: %w", FileName(id), base.ErrClosed)
	}
	if other := c.byID[id]; other != nil {
		return other, f, nil
	}
	if len(c.byID) == maxHandles {
		for any, other := range c.byID {
			unused = other
			delete(c.byID, any)
			break
		}
	}
	c.byID[id] = f
	return f, unused, nil
}

// drop closes the file of a segment, which is about to be removed.
func (c *handles) drop(id uint32) error {
	c.mu.Lock()
	f := c.byID[id]
	delete(c.byID, id)
	c.mu.Unlock()
	if f == nil {
		return nil
	}
	return f.Close()
}

// close closes all files.
func (c *handles) close() (err error) {
	c.mu.Lock()
	files := c.byID
	c.byID = nil
	c.mu.Unlock()
	for _, f := range files {
		err = errors.Join(err, f.Close())
	}
	return err
}
