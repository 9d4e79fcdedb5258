package index

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/boltpage"
)

// lockWait is how long OpenFile waits for another process to release the file.
const lockWait = time.Second

// File is a DB in a bbolt file. It is safe for concurrent use. While it is open, no other process
// can open the file for writing; when it is open for writing, none can open it at all.
type File struct {
	path     string
	readOnly bool
	verified *boltpage.Set // pages of the file that were verified since it was opened

	// damage is the first damage found: every later call returns it (I1).
	damage atomic.Pointer[base.CorruptError]
	// failed is the failure after which writes are refused (I4).
	failed atomic.Pointer[error]

	mu     sync.RWMutex // held shared by every transaction, alone by Close
	closed bool         // guarded by mu
	bolt   *bbolt.DB
	file   *os.File // bbolt's own; closed by it
	write  sync.Mutex

	// stuck says that bbolt could not end a transaction and holds its locks forever.
	stuck atomic.Bool
}

// OpenFile opens the database at path and makes it when it does not exist or is empty, unless
// o.ReadOnly. It reads the branch pages, the bucket headers and the list of free pages, so its time
// grows only slowly with the size of the file. It waits at most one second for the file's lock.
//
// Errors: *base.CorruptError with the file's base name as Where; base.ErrLocked; those of the file
// system.
func OpenFile(path string, o Options) (*File, error) {
	f := &File{path: path, readOnly: o.ReadOnly}
	free, err := f.precheck()
	if err != nil {
		return nil, err
	}
	if err := f.open(o); err != nil {
		return nil, err
	}
	if err := f.walk(free); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// open makes bbolt open the file.
func (f *File) open(o Options) (err error) {
	returned := false
	defer func() {
		if !returned && f.file != nil {
			err = errors.Join(err, f.file.Close()) // bbolt has panicked and has not closed it
		}
	}()
	defer f.guard(&err)()
	f.bolt, err = bbolt.Open(f.path, 0o600, &bbolt.Options{
		Timeout:      lockWait,
		FreelistType: bbolt.FreelistMapType,
		ReadOnly:     o.ReadOnly,
		NoSync:       o.NoSync,
		NoGrowSync:   o.NoSync,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			file, err := os.OpenFile(name, flag, mode)
			f.file = file
			return file, err
		},
	})
	returned = true
	switch {
	case err == nil:
		return nil
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("open index: %w", &base.LockedError{Path: f.path, Waited: lockWait})
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrVersionMismatch), errors.Is(err, berrors.ErrChecksum):
		return fmt.Errorf("open index: %w", f.damaged(err))
	}
	return fmt.Errorf("open index %s: %w", f.path, spaceError(err))
}

// View runs fn on the last committed state; see DB.
func (f *File) View(fn func(Tx) error) error { return f.run(fn, false) }

// Update runs fn and commits when it returns nil; see DB.
func (f *File) Update(fn func(Tx) error) error { return f.run(fn, true) }

func (f *File) run(fn func(Tx) error, writable bool) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	f.mu.RLock()
	defer f.mu.RUnlock()
	if writable {
		f.write.Lock()
		defer f.write.Unlock()
	}
	tx, err := f.begin(writable)
	if err != nil {
		return err
	}
	defer f.end(&err, tx.bolt)
	defer f.caught(&err, &tx.im)
	defer func() { tx.done = true }()
	if err := tx.outcome(fn(tx)); err != nil || !writable {
		return err
	}
	return f.commit(tx)
}

func (f *File) begin(writable bool) (_ *fileTx, err error) {
	if err := f.usable(writable); err != nil {
		return nil, err
	}
	defer f.guard(&err)()
	b, err := f.bolt.Begin(writable)
	if err != nil {
		return nil, fmt.Errorf("begin transaction of index: %w", err)
	}
	tx := &fileTx{f: f, bolt: b, im: f.image(b), writable: writable}
	tx.root = tree{im: &tx.im, root: uint64(b.Cursor().Bucket().Root()), buckets: true}
	return tx, nil
}

// image is the part of the mapping that b sees. It is valid while b is open, because bbolt remaps
// the file only without readers, and in an Update only at the commit.
func (f *File) image(b *bbolt.Tx) boltpage.Image {
	info := f.bolt.Info()
	size := b.Size()
	// The address is outside of Go's heap; this form of conversion expresses that.
	addr := info.Data
	data := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), size)
	return boltpage.Image{Data: data, Size: info.PageSize, Pages: uint64(size) / uint64(info.PageSize), Verified: f.verified}
}

func (f *File) usable(writable bool) error {
	damage, cause := f.damage.Load(), f.failed.Load()
	switch {
	case f.closed:
		return fmt.Errorf("use index: %w", base.ErrClosed)
	case damage != nil:
		return damage
	case writable && f.readOnly:
		return fmt.Errorf("update index: %w", base.ErrReadOnly)
	case writable && cause != nil:
		return fmt.Errorf("update index: %w after: %w", base.ErrReadOnly, *cause)
	}
	return nil
}

func (f *File) commit(tx *fileTx) (err error) {
	tx.done = true
	defer f.guard(&err)()
	if err := tx.bolt.Commit(); err != nil {
		err = fmt.Errorf("commit index: %w", spaceError(err))
		if !errors.Is(err, base.ErrNoSpace) {
			f.failed.CompareAndSwap(nil, &err)
		}
		return err
	}
	return nil
}

// end rolls b back unless it is over. bbolt may panic on a damaged file here too, and then keeps
// its locks.
func (f *File) end(err *error, b *bbolt.Tx) {
	var end error
	func() {
		defer f.guard(&end)()
		end = b.Rollback()
	}()
	if end == nil || errors.Is(end, berrors.ErrTxClosed) {
		return
	}
	f.stuck.Store(true)
	*err = errors.Join(*err, fmt.Errorf("end transaction: %w", end))
}

// Close waits for running transactions and closes the file.
func (f *File) Close() (err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	if f.stuck.Load() {
		// bbolt holds its own locks and its Close would never return. The descriptor is closed,
		// which releases the lock on the file; the mapping stays until the process ends.
		return f.file.Close()
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer f.guard(&err)()
	if err := f.bolt.Close(); err != nil {
		return fmt.Errorf("close index %s: %w", f.path, err)
	}
	return nil
}

func (f *File) base() string { return filepath.Base(f.path) }

// damaged records err as damage of the file and returns the first one recorded.
func (f *File) damaged(err error) error {
	d := &base.CorruptError{Where: f.base()}
	var c *base.CorruptError
	if errors.As(err, &c) {
		*d = *c
		d.Where = f.base()
	} else {
		d.Err = err
	}
	f.damage.CompareAndSwap(nil, d)
	return f.damage.Load()
}

// guard is for code that calls bbolt: `defer f.guard(&err)()` turns a panic or fault into damage.
func (f *File) guard(err *error) func() {
	restore := debug.SetPanicOnFault(true)
	return func() {
		if r := recover(); r != nil {
			*err = f.damaged(fmt.Errorf("read pages: %v", r))
		}
		debug.SetPanicOnFault(restore)
	}
}

// caught is deferred around the caller's function: a page fault in the mapping (the file was cut or
// cannot be read) is damage; every other panic is the caller's and continues (I3).
func (f *File) caught(err *error, im *boltpage.Image) {
	r := recover()
	if r == nil {
		return
	}
	fault, ok := r.(interface {
		runtime.Error
		Addr() uintptr
	})
	start := uintptr(unsafe.Pointer(unsafe.SliceData(im.Data)))
	if !ok || fault.Addr()-start >= uintptr(len(im.Data)) {
		panic(r)
	}
	*err = f.damaged(fmt.Errorf("read pages: %v", r))
}

func spaceError(err error) error {
	if (errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)) && !errors.Is(err, base.ErrNoSpace) {
		return base.WithClass(err, base.ErrNoSpace)
	}
	return err
}
