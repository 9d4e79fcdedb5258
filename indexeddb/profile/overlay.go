package profile

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/syndtr/goleveldb/leveldb/storage"
)

// overlay is a read-only view of a LevelDB directory as a storage. Writes go to a temporary
// directory, whose files hide those below.
type overlay struct {
	below, above string

	mu      sync.Mutex
	hidden  map[storage.FileDesc]bool // guarded by mu: removed files below
	written map[storage.FileDesc]bool // guarded by mu: files above
	checked map[storage.FileDesc]bool // guarded by mu: tables that passed the check
	current storage.FileDesc          // guarded by mu: the manifest set by SetMeta, or zero
}

var _ storage.Storage = (*overlay)(nil)

func newOverlay(below, above string) *overlay {
	return &overlay{
		below: below, above: above,
		hidden: map[storage.FileDesc]bool{}, written: map[storage.FileDesc]bool{}, checked: map[storage.FileDesc]bool{},
	}
}

type unlocker struct{}

func (unlocker) Unlock() {}

// Lock implements storage.Storage. The Profile holds the lock of the directory.
func (o *overlay) Lock() (storage.Locker, error) { return unlocker{}, nil }

// Log implements storage.Storage.
func (o *overlay) Log(string) {}

// Close implements storage.Storage.
func (o *overlay) Close() error { return nil }

// SetMeta implements storage.Storage.
func (o *overlay) SetMeta(fd storage.FileDesc) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.current = fd
	return nil
}

// GetMeta implements storage.Storage.
func (o *overlay) GetMeta() (storage.FileDesc, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.current.Zero() {
		return o.current, nil
	}
	return currentManifest(o.below)
}

// currentManifest reads the file CURRENT.
func currentManifest(dir string) (storage.FileDesc, error) {
	b, err := readSmall(filepath.Join(dir, "CURRENT"), 64)
	if err != nil {
		return storage.FileDesc{}, err
	}
	name, ok := strings.CutSuffix(string(b), "\n")
	fd, isFile := parseName(name)
	if !ok || !isFile || fd.Type != storage.TypeManifest {
		return storage.FileDesc{}, damaged("CURRENT", "it names no manifest")
	}
	return fd, nil
}

// readSmall reads a file that has at most limit bytes.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() // only read
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = damaged(filepath.Base(path), "it is longer than %d bytes", limit)
	}
	return b, err
}

// parseName returns the type and number of a file in a LevelDB directory.
func parseName(name string) (fd storage.FileDesc, ok bool) {
	number := name
	if rest, ok := strings.CutPrefix(name, "MANIFEST-"); ok {
		fd.Type, number = storage.TypeManifest, rest
	} else {
		types := map[string]storage.FileType{".log": storage.TypeJournal, ".ldb": storage.TypeTable, ".sst": storage.TypeTable}
		ext := filepath.Ext(name)
		fd.Type, number = types[ext], strings.TrimSuffix(name, ext)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	fd.Num = n
	return fd, err == nil && n >= 0 && fd.Type != 0
}

// List implements storage.Storage.
func (o *overlay) List(types storage.FileType) (fds []storage.FileDesc, err error) {
	entries, err := os.ReadDir(o.below)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	seen := map[storage.FileDesc]bool{}
	for fd := range o.written {
		seen[fd] = true
	}
	for _, e := range entries {
		if fd, ok := parseName(e.Name()); ok && !o.hidden[fd] {
			seen[fd] = true
		}
	}
	for fd := range seen {
		if fd.Type&types != 0 {
			fds = append(fds, fd)
		}
	}
	return fds, nil
}

// Open implements storage.Storage.
func (o *overlay) Open(fd storage.FileDesc) (storage.Reader, error) {
	o.mu.Lock()
	written, hidden, checked := o.written[fd], o.hidden[fd], o.checked[fd]
	o.mu.Unlock()
	if written {
		return os.Open(filepath.Join(o.above, fd.String()))
	}
	if hidden {
		return nil, os.ErrNotExist
	}
	f, err := openBelow(o.below, fd)
	if err != nil {
		return nil, err
	}
	r, err := guard(f, fd, checked)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.checked[fd] = true
	return r, nil
}

// openBelow opens a file of a directory. A table can have either of two names.
func openBelow(dir string, fd storage.FileDesc) (*os.File, error) {
	f, err := os.Open(filepath.Join(dir, fd.String()))
	if errors.Is(err, os.ErrNotExist) && fd.Type == storage.TypeTable {
		return os.Open(filepath.Join(dir, fmt.Sprintf("%06d.sst", fd.Num)))
	}
	return f, err
}

// Create implements storage.Storage.
func (o *overlay) Create(fd storage.FileDesc) (storage.Writer, error) {
	f, err := os.OpenFile(filepath.Join(o.above, fd.String()), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.written[fd] = true
	return unsynced{f}, nil
}

// unsynced is a file that need not be durable.
type unsynced struct{ *os.File }

func (unsynced) Sync() error { return nil }

// Remove implements storage.Storage.
func (o *overlay) Remove(fd storage.FileDesc) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hidden[fd] = true
	if !o.written[fd] {
		return nil
	}
	delete(o.written, fd)
	return os.Remove(filepath.Join(o.above, fd.String()))
}

// Rename implements storage.Storage. LevelDB renames only when it repairs.
func (o *overlay) Rename(storage.FileDesc, storage.FileDesc) error { return errors.ErrUnsupported }
