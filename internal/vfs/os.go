package vfs

import (
	"os"
)

// OS is the file system of the machine. Files are made with mode 0600 and directories with 0700,
// before umask.
var OS FS = osFS{}

type osFS struct{}

const (
	fileMode = 0o600
	dirMode  = 0o700
)

func (osFS) Create(name string) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error) { return openOS(name, os.O_RDWR) }

func (osFS) OpenRead(name string) (File, error) { return openOS(name, os.O_RDONLY) }

func openOS(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, fileMode)
	if err != nil {
		return nil, noSpace(err)
	}
	return osFile{f}, nil
}

func (osFS) Remove(name string) error     { return os.Remove(name) }
func (osFS) RemoveAll(name string) error  { return os.RemoveAll(name) }
func (osFS) Rename(old, new string) error { return noSpace(os.Rename(old, new)) }
func (osFS) MkdirAll(dir string) error    { return noSpace(os.MkdirAll(dir, dirMode)) }

func (osFS) ReadDir(dir string) ([]Info, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	infos := make([]Info, 0, len(entries))
	for _, e := range entries {
		fi, err := e.Info()
		if os.IsNotExist(err) {
			continue // removed since it was listed
		}
		if err != nil {
			return nil, err
		}
		infos = append(infos, infoOf(fi))
	}
	return infos, nil
}

func (osFS) Stat(name string) (Info, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return Info{}, err
	}
	return infoOf(fi), nil
}

func infoOf(fi os.FileInfo) Info {
	i := Info{Name: fi.Name(), Size: fi.Size(), Dir: fi.IsDir(), Modified: fi.ModTime()}
	if i.Dir {
		i.Size = 0
	}
	return i
}

func (osFS) SyncDir(dir string) error { return noSpace(syncDir(dir)) }

type osFile struct{ f *os.File }

func (o osFile) ReadAt(p []byte, off int64) (int, error) { return o.f.ReadAt(p, off) }

func (o osFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := o.f.WriteAt(p, off)
	return n, noSpace(err)
}

func (o osFile) Sync() error { return noSpace(fdatasync(o.f)) }

func (o osFile) Truncate(size int64) error { return noSpace(o.f.Truncate(size)) }

func (o osFile) Preallocate(size int64) error { return noSpace(preallocate(o.f, size)) }

func (o osFile) Close() error { return o.f.Close() }

func (o osFile) Size() (int64, error) {
	fi, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}
