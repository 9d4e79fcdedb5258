package metabase

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"syscall"
	"unsafe"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/boltpage"
)

// damaged records damage of the file and returns the first damage recorded. From then on all reads
// and writes fail, because no row can be trusted.
func (f *File) damaged(cause error) error {
	d := &base.CorruptError{Err: cause}
	if c := new(base.CorruptError); errors.As(cause, &c) {
		*d = *c
	}
	d.Where = filepath.Base(f.path)
	f.damage.CompareAndSwap(nil, d)
	return f.damage.Load()
}

// guard is deferred around calls of bbolt. It turns a panic into damage of the file.
func (f *File) guard(err *error) {
	if r := recover(); r != nil {
		*err = f.damaged(fmt.Errorf("read pages: %v", r))
	}
}

// caught is deferred around functions of the caller, which read the mapping of the file. It turns a
// page fault into damage and passes any other panic on.
func (f *File) caught(err *error) {
	r := recover()
	if r == nil {
		return
	}
	if _, ok := r.(interface {
		runtime.Error
		Addr() uintptr
	}); !ok {
		panic(r)
	}
	*err = f.damaged(fmt.Errorf("read pages: %v", r))
}

// checkFile verifies the structure of a file of the given size, under a lock that keeps writers
// out: M5.
func (f *File) checkFile(size int64) (err error) {
	if size == 0 { // bbolt would initialize it
		return f.damaged(errors.New("it is empty"))
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer f.guard(&err)
	db, err := bbolt.Open(f.path, 0o600, &bbolt.Options{Timeout: lockWait, ReadOnly: true})
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return &base.LockedError{Path: f.path, Waited: lockWait}
	case errors.As(err, new(*fs.PathError)) || errors.As(err, new(syscall.Errno)):
		return err
	case err != nil:
		return f.damaged(err)
	}
	info, err := os.Stat(f.path)
	if err == nil {
		// The address is outside of Go's heap. This form of conversion satisfies vet.
		addr := db.Info().Data
		data := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), info.Size())
		if verifyErr := boltpage.Verify(data); verifyErr != nil {
			err = f.damaged(verifyErr)
		}
	}
	return errors.Join(err, db.Close())
}
