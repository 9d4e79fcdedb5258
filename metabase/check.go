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

// damaged records what is wrong with the file and returns the first thing that was: from then on
// nothing is read or written, because nobody can say what is right.
func (f *File) damaged(cause error) error {
	d := &base.CorruptError{Err: cause}
	if c := new(base.CorruptError); errors.As(cause, &c) {
		*d = *c
	}
	d.Where = filepath.Base(f.path)
	f.damage.CompareAndSwap(nil, d)
	return f.damage.Load()
}

// guard is deferred where bbolt runs: a panic becomes damage of the file.
func (f *File) guard(err *error) {
	if r := recover(); r != nil {
		*err = f.damaged(fmt.Errorf("read pages: %v", r))
	}
}

// caught is deferred around functions of the caller, who reads in the mapping of the file: a page
// fault is damage, and any other panic is the caller's own and goes on.
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

// checkFile verifies the structure of the file, which is not empty, while it keeps others from
// writing: M5.
func (f *File) checkFile() (err error) {
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
		// The address is outside of Go's heap; this form of conversion is how one says so.
		addr := db.Info().Data
		data := unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&addr))), info.Size())
		if verifyErr := boltpage.Verify(data); verifyErr != nil {
			err = f.damaged(verifyErr)
		}
	}
	return errors.Join(err, db.Close())
}
