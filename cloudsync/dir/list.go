package dir

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/ledgerd/ledger/cloudsync/bucket"
)

// item is a file, or a directory whose names all begin with name.
type item struct {
	name  string
	path  string
	isDir bool
}

// items is a heap with the smallest name first. Every name in a directory is greater than that of
// its item. So items are popped in order of their names, though directories overlap: a/b lies
// between a- and a0.
type items []item

func (h items) Len() int           { return len(h) }
func (h items) Less(i, j int) bool { return h[i].name < h[j].name }
func (h items) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *items) Push(x any) { *h = append(*h, x.(item)) }

// Pop implements heap.Interface.
func (h *items) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// List implements bucket.Bucket. It reads each directory that can have a matching name, up to the
// limit.
func (d *Bucket) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	if err := bucket.CheckList(ctx, after, prefix, limit); err != nil {
		return nil, err
	}
	infos, err := await(ctx, d.held, func() ([]bucket.Info, error) {
		b, err := d.begin(bucket.OpList, prefix)
		if err != nil {
			return nil, err
		}
		defer b.root.Close()
		return b.list(ctx, after, prefix, limit)
	}, nil)
	return infos, failed(ctx, bucket.OpList, prefix, false, err)
}

func (b *session) list(ctx context.Context, after, prefix string, limit int) (infos []bucket.Info, err error) {
	todo := &items{{path: ".", isDir: true}}
	for todo.Len() > 0 && len(infos) < limit {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		it := heap.Pop(todo).(item)
		if it.isDir {
			if err := b.expand(todo, it, after, prefix); err != nil {
				return nil, err
			}
			continue
		}
		switch info, err := b.root.Lstat(it.path); {
		case errors.Is(err, fs.ErrNotExist): // deleted in the meantime
		case err != nil:
			return nil, fmt.Errorf("look at object: %w", err)
		case info.Mode().IsRegular():
			infos = append(infos, bucket.Info{Name: it.name, Size: info.Size(), Created: info.ModTime()})
		}
	}
	return infos, nil
}

// expand adds the items of a directory that the list may need.
func (b *session) expand(todo *items, dir item, after, prefix string) error {
	f, err := b.root.Open(dir.path)
	if errors.Is(err, fs.ErrNotExist) && dir.path != "." {
		return nil
	}
	if err != nil {
		return fmt.Errorf("list directory: %w", err)
	}
	entries, err := f.ReadDir(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("list directory: %w", err)
	}
	for _, e := range entries {
		part, isDir, ok := partOf(e.Name())
		if !ok || isDir != e.IsDir() {
			continue
		}
		it := item{name: dir.name + part, path: e.Name(), isDir: isDir}
		if dir.path != "." {
			it.path = dir.path + "/" + it.path
		}
		if it.mayMatch(after, prefix) {
			heap.Push(todo, it)
		}
	}
	return nil
}

func (it item) mayMatch(after, prefix string) bool {
	if !it.isDir {
		name, ok := nameOf(it.path)
		return ok && name > after && strings.HasPrefix(name, prefix)
	}
	return (strings.HasPrefix(it.name, prefix) || strings.HasPrefix(prefix, it.name)) && (it.name > after || strings.HasPrefix(after, it.name))
}
