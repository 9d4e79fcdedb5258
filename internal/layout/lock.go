package layout

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gofrs/flock"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs"
)

// The lock of a repository is an operating system lock of the file `lock`, shared by readers. The
// writer's process id is in a second file, since some systems do not let other processes read a
// locked file. It is only a hint for users.
const (
	lockName    = "lock"
	lockPIDName = "lock.pid"
	lockPoll    = 20 * time.Millisecond
)

// Lock is the held lock of a repository. A nil Lock holds nothing.
type Lock struct {
	f   *flock.Flock // nil when the directory allows no lock file to a reader
	pid string       // the file with our process id, "" for a reader
}

// TakeLock takes the lock of the repository in dir, a directory of the machine. It waits until
// timeout or the end of ctx. Errors: *base.LockedError, those of ctx and of the file system.
func TakeLock(ctx context.Context, dir string, shared bool, timeout time.Duration) (*Lock, error) {
	f := flock.New(filepath.Join(dir, lockName))
	try, retry := f.TryLock, f.TryLockContext
	if shared {
		try, retry = f.TryRLock, f.TryRLockContext
	}
	ok, err := try()
	if !ok && err == nil && timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		ok, err = retry(limited, lockPoll)
	}
	switch {
	case ok:
		return newLock(f, dir, shared)
	case err != nil && shared && unwritable(err):
		// Without write access for anyone, no writer can hold the lock.
		return &Lock{}, nil
	case err != nil && ctx.Err() != nil:
		err = fmt.Errorf("wait for the lock of the repository: %w", ctx.Err())
	case err != nil && !errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("lock repository: %w", err)
	default:
		err = &base.LockedError{Path: f.Path(), PID: holder(dir), Waited: timeout}
	}
	return nil, errors.Join(err, f.Close())
}

func newLock(f *flock.Flock, dir string, shared bool) (*Lock, error) {
	l := &Lock{f: f}
	if shared {
		return l, nil
	}
	l.pid = filepath.Join(dir, lockPIDName)
	err := writePID(l.pid)
	if err != nil && !errors.Is(err, syscall.ENOSPC) && !errors.Is(err, syscall.EDQUOT) { // a full disk must not prevent freeing space
		return nil, errors.Join(fmt.Errorf("lock repository: %w", err), f.Close())
	}
	return l, nil
}

// writePID makes the file with our process id. It follows no link that is in its place: a
// repository that somebody else made must not lead to a file elsewhere.
func writePID(path string) error {
	_ = os.Remove(path) // creating the file reports what went wrong
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(f, os.Getpid())
	return errors.Join(err, f.Close())
}

func unwritable(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)
}

// holder returns the process id recorded by the lock's holder, 0 when unknown.
func holder(dir string) int {
	b, err := vfs.ReadFile(vfs.OS, filepath.Join(dir, lockPIDName), 32)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return 0
	}
	p, err := os.FindProcess(pid)
	if err != nil {
		return 0
	}
	defer func() { _ = p.Release() }() // its error does not matter
	if runtime.GOOS != "windows" && errors.Is(p.Signal(syscall.Signal(0)), os.ErrProcessDone) {
		return 0 // left over from a crash
	}
	return pid
}

// Release releases the lock. It is called once.
func (l *Lock) Release() error {
	if l == nil || l.f == nil {
		return nil
	}
	var err error
	if l.pid != "" {
		if err = os.Remove(l.pid); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	if err := errors.Join(err, l.f.Close()); err != nil {
		return fmt.Errorf("unlock repository: %w", err)
	}
	return nil
}
