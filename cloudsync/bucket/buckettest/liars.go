package buckettest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
)

// Liar is a bucket that breaks one promise: it handles some call differently from the honest bucket
// b that it wraps.
type Liar struct {
	// Name names the broken promise.
	Name string

	put  func(ctx context.Context, b bucket.Bucket, name string, content []byte) error
	get  func(ctx context.Context, b bucket.Bucket, name string, off, n int64) (bucket.Object, error)
	list func(ctx context.Context, b bucket.Bucket, after, prefix string, limit int) ([]bucket.Info, error)
	del  func(ctx context.Context, b bucket.Bucket, name string) error
}

// Wrap returns the liar in front of an honest bucket.
func (l Liar) Wrap(b bucket.Bucket) bucket.Bucket { return &lying{b, l} }

// Liars returns one liar for each promise that stores are known, or easily imagined, to break.
// bucket.Probe must fail each of them at one point or more. Each wraps one bucket.
func Liars() []Liar {
	return slices.Concat(putLiars(), getLiars(), listLiars(), deleteLiars())
}

type lying struct {
	bucket.Bucket
	l Liar
}

// PutIfAbsent implements bucket.Bucket.
func (l *lying) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	if l.l.put == nil {
		return l.Bucket.PutIfAbsent(ctx, name, size, content)
	}
	all, err := io.ReadAll(content)
	if err != nil {
		return err
	}
	return l.l.put(ctx, l.Bucket, name, all)
}

// Get implements bucket.Bucket.
func (l *lying) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	if l.l.get == nil {
		return l.Bucket.Get(ctx, name, off, n)
	}
	return l.l.get(ctx, l.Bucket, name, off, n)
}

// List implements bucket.Bucket.
func (l *lying) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	if l.l.list == nil {
		return l.Bucket.List(ctx, after, prefix, limit)
	}
	return l.l.list(ctx, l.Bucket, after, prefix, limit)
}

// Delete implements bucket.Bucket.
func (l *lying) Delete(ctx context.Context, name string) error {
	if l.l.del == nil {
		return l.Bucket.Delete(ctx, name)
	}
	return l.l.del(ctx, l.Bucket, name)
}

// store puts content as an honest bucket does.
func store(ctx context.Context, b bucket.Bucket, name string, content []byte) error {
	return b.PutIfAbsent(ctx, name, int64(len(content)), bytes.NewReader(content))
}

// overwrite stores content even if the name is taken.
func overwrite(ctx context.Context, b bucket.Bucket, name string, content []byte) error {
	for {
		if err := b.Delete(ctx, name); err != nil {
			return err
		}
		if err := store(ctx, b, name, content); bucket.ClassOf(err) != bucket.ClassExists {
			return err
		}
	}
}

func putLiars() []Liar {
	return []Liar{
		{Name: "accepts the condition and ignores it", put: overwrite},
		{Name: "keeps the first and says yes to all", put: func(ctx context.Context, b bucket.Bucket, name string, content []byte) error {
			if err := store(ctx, b, name, content); !errors.Is(err, bucket.ErrExists) {
				return err
			}
			return nil
		}},
		{Name: "refuses and stores all the same", put: func(ctx context.Context, b bucket.Bucket, name string, content []byte) error {
			err := store(ctx, b, name, content)
			if errors.Is(err, bucket.ErrExists) {
				return errors.Join(overwrite(ctx, b, name, content), err)
			}
			return err
		}},
		{Name: "says yes when the same content is there", put: func(ctx context.Context, b bucket.Bucket, name string, content []byte) error {
			err := store(ctx, b, name, content)
			if o, getErr := b.Get(ctx, name, 0, -1); errors.Is(err, bucket.ErrExists) && getErr == nil {
				if there, _ := io.ReadAll(o.Body); bytes.Equal(there, content) {
					return nil
				}
			}
			return err
		}},
		{Name: "looks first and writes then", put: lookThenWrite},
		{Name: "cuts off what is beyond 100 KiB", put: func(ctx context.Context, b bucket.Bucket, name string, content []byte) error {
			return store(ctx, b, name, content[:min(len(content), 100<<10)])
		}},
	}
}

// lookThenWrite refuses existing names, except in concurrent puts: then each that looked before the
// first write wins.
func lookThenWrite(ctx context.Context, b bucket.Bucket, name string, content []byte) error {
	if _, err := b.Get(ctx, name, 0, 0); err == nil {
		return &bucket.Error{Op: bucket.OpPut, Name: name, Class: bucket.ClassExists}
	}
	for range 2000 { // let others look
		runtime.Gosched()
	}
	return overwrite(ctx, b, name, content)
}

func getLiars() []Liar {
	var seen sync.Map
	var days atomic.Int64
	return []Liar{
		{Name: "ignores the range", get: func(ctx context.Context, b bucket.Bucket, name string, _, _ int64) (bucket.Object, error) {
			return b.Get(ctx, name, 0, -1)
		}},
		{Name: "gives one byte more than the range", get: func(ctx context.Context, b bucket.Bucket, name string, off, n int64) (bucket.Object, error) {
			if n > 0 {
				n++
			}
			return b.Get(ctx, name, off, n)
		}},
		{Name: "ignores where the range ends", get: func(ctx context.Context, b bucket.Bucket, name string, off, _ int64) (bucket.Object, error) {
			return b.Get(ctx, name, off, -1)
		}},
		{Name: "ignores where the range starts", get: func(ctx context.Context, b bucket.Bucket, name string, _, n int64) (bucket.Object, error) {
			return b.Get(ctx, name, 0, n)
		}},
		{Name: "gives the whole for a range beyond the end", get: func(ctx context.Context, b bucket.Bucket, name string, off, n int64) (bucket.Object, error) {
			o, err := b.Get(ctx, name, off, n)
			if errors.Is(err, bucket.ErrRange) {
				return b.Get(ctx, name, 0, -1)
			}
			return o, err
		}},
		{Name: "calls the length of the range the size", get: func(ctx context.Context, b bucket.Bucket, name string, off, n int64) (bucket.Object, error) {
			o, err := b.Get(ctx, name, off, n)
			if off > 0 {
				o.Size -= off
			}
			return o, err
		}},
		{Name: "changes a byte", get: func(ctx context.Context, b bucket.Bucket, name string, off, n int64) (bucket.Object, error) {
			o, err := b.Get(ctx, name, off, n)
			if err == nil {
				o.Body = &flipper{ReadCloser: o.Body}
			}
			return o, err
		}},
		{Name: "has an empty object for every name", get: func(ctx context.Context, b bucket.Bucket, name string, off, n int64) (bucket.Object, error) {
			o, err := b.Get(ctx, name, off, n)
			if errors.Is(err, base.ErrNotFound) {
				return bucket.Object{Body: io.NopCloser(bytes.NewReader(nil))}, nil
			}
			return o, err
		}},
		{Name: "does not find at once what was put", get: func(ctx context.Context, b bucket.Bucket, name string, off, n int64) (bucket.Object, error) {
			o, err := b.Get(ctx, name, off, n)
			if err != nil {
				return o, err
			}
			if _, ok := seen.LoadOrStore(name, true); ok {
				return o, nil
			}
			o.Body.Close()
			return bucket.Object{}, &bucket.Error{Op: bucket.OpGet, Name: name, Class: bucket.ClassNotFound}
		}},
		{Name: "gives a new creation time each time", get: func(ctx context.Context, b bucket.Bucket, name string, off, n int64) (bucket.Object, error) {
			o, err := b.Get(ctx, name, off, n)
			o.Created = o.Created.AddDate(0, 0, int(days.Add(1)))
			return o, err
		}},
	}
}

// flipper changes the third byte.
type flipper struct {
	io.ReadCloser
	pos int
}

// Read implements io.Reader.
func (f *flipper) Read(p []byte) (int, error) {
	n, err := f.ReadCloser.Read(p)
	if i := 2 - f.pos; i >= 0 && i < n {
		p[i] ^= 0x10
	}
	f.pos += n
	return n, err
}

func listLiars() []Liar {
	changed := func(name string, change func([]bucket.Info) []bucket.Info) Liar {
		return Liar{Name: name, list: func(ctx context.Context, b bucket.Bucket, after, prefix string, limit int) ([]bucket.Info, error) {
			infos, err := b.List(ctx, after, prefix, limit)
			if len(infos) > 1 {
				infos = change(infos)
			}
			return infos, err
		}}
	}
	return []Liar{
		changed("lists in another order", func(i []bucket.Info) []bucket.Info { slices.Reverse(i); return i }),
		changed("lists paths as trees do", func(i []bucket.Info) []bucket.Info {
			slices.SortStableFunc(i, func(x, y bucket.Info) int {
				return slices.CompareFunc(bytes.Split([]byte(x.Name), []byte("/")), bytes.Split([]byte(y.Name), []byte("/")), bytes.Compare)
			})
			return i
		}),
		changed("omits the last name", func(i []bucket.Info) []bucket.Info { return i[:len(i)-1] }),
		changed("repeats a name", func(i []bucket.Info) []bucket.Info { return slices.Insert(i, 1, i[0]) }),
		changed("lists wrong sizes", func(i []bucket.Info) []bucket.Info { i[0].Size++; return i }),
		{Name: "lists the name that it should start after", list: func(ctx context.Context, b bucket.Bucket, after, prefix string, limit int) ([]bucket.Info, error) {
			infos, err := b.List(ctx, after, prefix, limit)
			if all, allErr := b.List(ctx, "", after, 1); allErr == nil && after != "" && len(all) == 1 && all[0].Name == after {
				infos = slices.Insert(infos, 0, all[0])
			}
			return infos[:min(len(infos), limit)], err
		}},
		{Name: "ignores where it should start", list: func(ctx context.Context, b bucket.Bucket, _, prefix string, limit int) ([]bucket.Info, error) {
			return b.List(ctx, "", prefix, limit)
		}},
		{Name: "ignores the limit", list: func(ctx context.Context, b bucket.Bucket, after, prefix string, _ int) ([]bucket.Info, error) {
			return b.List(ctx, after, prefix, bucket.MaxList)
		}},
		{Name: "cuts the prefix at its last slash", list: func(ctx context.Context, b bucket.Bucket, after, prefix string, limit int) ([]bucket.Info, error) {
			return b.List(ctx, after, prefix[:bytes.LastIndexByte([]byte(prefix), '/')+1], limit)
		}},
	}
}

func deleteLiars() []Liar {
	var gone sync.Map
	return []Liar{
		{Name: "does not delete", del: func(context.Context, bucket.Bucket, string) error { return nil }},
		{Name: "refuses to delete what is not there", del: func(ctx context.Context, b bucket.Bucket, name string) error {
			if _, err := b.Get(ctx, name, 0, 0); err != nil {
				return err
			}
			return b.Delete(ctx, name)
		}},
		{Name: "deletes what lies below too", del: func(ctx context.Context, b bucket.Bucket, name string) error {
			infos, err := b.List(ctx, "", name+"/", bucket.MaxList)
			for _, i := range infos {
				err = errors.Join(err, b.Delete(ctx, i.Name))
			}
			return errors.Join(err, b.Delete(ctx, name))
		}},
		{Name: "never gives a deleted name again",
			del: func(ctx context.Context, b bucket.Bucket, name string) error {
				gone.Store(name, true)
				return b.Delete(ctx, name)
			},
			put: func(ctx context.Context, b bucket.Bucket, name string, content []byte) error {
				if _, ok := gone.Load(name); ok {
					return &bucket.Error{Op: bucket.OpPut, Name: name, Class: bucket.ClassExists}
				}
				return store(ctx, b, name, content)
			}},
	}
}
