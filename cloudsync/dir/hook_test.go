package dir

import (
	"context"
	"errors"
	"io/fs"
	"strings"
)

// hooked is a tree with a function that is called before each step of a call, and that may fail,
// wait, or end the goroutine.
type hooked struct {
	tree
	step    func(what string) error
	noLinks bool // as on a file system without links
}

// hook has step called before each step of the calls of b, in place of what was called before.
func (b *Bucket) hook(noLinks bool, step func(what string) error) {
	b.open = func(path string) (tree, error) {
		t, err := openTree(path)
		return &hooked{t, step, noLinks}, err
	}
}

// OpenWithoutLinks opens a bucket as on a file system without links.
func OpenWithoutLinks(ctx context.Context, path string, o Options) (*Bucket, error) {
	b, err := Open(ctx, path, o)
	if err == nil {
		b.hook(true, func(string) error { return nil })
	}
	return b, err
}

func (h *hooked) Mkdir(path string, perm fs.FileMode) error {
	if err := h.step("create"); err != nil {
		return err
	}
	return h.tree.Mkdir(path, perm)
}

func (h *hooked) MkdirAll(path string, perm fs.FileMode) error {
	if err := h.step("mkdir"); err != nil {
		return err
	}
	return h.tree.MkdirAll(path, perm)
}

func (h *hooked) Link(from, to string) error {
	if err := h.step("link"); err != nil {
		return err
	}
	if h.noLinks {
		return errors.ErrUnsupported
	}
	return h.tree.Link(from, to)
}

func (h *hooked) Remove(path string) error {
	if strings.HasSuffix(path, fileMark) {
		if err := h.step("remove"); err != nil {
			return err
		}
	}
	return h.tree.Remove(path)
}

func (h *hooked) Open(path string) (file, error) {
	if strings.HasSuffix(path, fileMark) {
		if err := h.step("get"); err != nil {
			return nil, err
		}
	}
	f, err := h.tree.Open(path)
	return &hookedFile{file: f, step: h.step, sync: "syncdir"}, err
}

func (h *hooked) OpenFile(path string, flag int, perm fs.FileMode) (file, error) {
	f, err := h.tree.OpenFile(path, flag, perm)
	c := &hookedFile{file: f, step: h.step, sync: "sync"}
	if strings.HasSuffix(path, claimMark) {
		c.closed = "claimed"
	}
	return c, err
}

type hookedFile struct {
	file
	step         func(what string) error
	sync, closed string // the steps before Sync and behind Close; empty: none
}

func (f *hookedFile) Sync() error {
	if err := f.step(f.sync); err != nil {
		return err
	}
	return f.file.Sync()
}

func (f *hookedFile) ReadAt(p []byte, off int64) (int, error) {
	if err := f.step("read"); err != nil {
		return 0, err
	}
	return f.file.ReadAt(p, off)
}

func (f *hookedFile) ReadDir(n int) ([]fs.DirEntry, error) {
	if err := f.step("list"); err != nil {
		return nil, err
	}
	return f.file.ReadDir(n)
}

func (f *hookedFile) Close() error {
	err := f.file.Close()
	if err == nil && f.closed != "" {
		err = f.step(f.closed)
	}
	return err
}
