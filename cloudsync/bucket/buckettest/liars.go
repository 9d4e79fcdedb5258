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

// Liar is a bucket that breaks a promise.
type Liar struct {
	// Name says which.
	Name string
	// Wrap returns the liar in front of an honest bucket.
	Wrap func(b bucket.Bucket) bucket.Bucket
}

// Liars returns one liar for each promise that stores are known, or easily imagined, to break.
// bucket.Probe must fail each of them at one point or more.
func Liars() []Liar {
	return slices.Concat(putLiars(), getLiars(), listLiars(), deleteLiars())
}

// liar overrides some calls of a bucket.
type liar struct {
	bucket.Bucket
	put  func(ctx context.Context, name string, size int64, content io.Reader) error
	get  func(ctx context.Context, name string, off, n int64) (bucket.Object, error)
	list func(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error)
	del  func(ctx context.Context, name string) error
}

// PutIfAbsent implements bucket.Bucket.
func (l *liar) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	if l.put != nil {
		return l.put(ctx, name, size, content)
	}
	return l.Bucket.PutIfAbsent(ctx, name, size, content)
}

// Get implements bucket.Bucket.
func (l *liar) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	if l.get != nil {
		return l.get(ctx, name, off, n)
	}
	return l.Bucket.Get(ctx, name, off, n)
}

// List implements bucket.Bucket.
func (l *liar) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	if l.list != nil {
		return l.list(ctx, after, prefix, limit)
	}
	return l.Bucket.List(ctx, after, prefix, limit)
}

// Delete implements bucket.Bucket.
func (l *liar) Delete(ctx context.Context, name string) error {
	if l.del != nil {
		return l.del(ctx, name)
	}
	return l.Bucket.Delete(ctx, name)
}

// overwrite stores content whatever there is.
func overwrite(ctx context.Context, b bucket.Bucket, name string, size int64, content io.Reader) error {
	for {
		if err := b.Delete(ctx, name); err != nil {
			return err
		}
		if err := b.PutIfAbsent(ctx, name, size, content); bucket.ClassOf(err) != bucket.ClassExists {
			return err
		}
	}
}

func putLiars() []Liar {
	return []Liar{
		{"accepts the condition and ignores it", func(b bucket.Bucket) bucket.Bucket {
			return &liar{Bucket: b, put: func(ctx context.Context, name string, size int64, content io.Reader) error {
				all, err := io.ReadAll(content)
				if err != nil {
					return err
				}
				return overwrite(ctx, b, name, size, bytes.NewReader(all))
			}}
		}},
		{"keeps the first and says yes to all", func(b bucket.Bucket) bucket.Bucket {
			return &liar{Bucket: b, put: func(ctx context.Context, name string, size int64, content io.Reader) error {
				if err := b.PutIfAbsent(ctx, name, size, content); !errors.Is(err, bucket.ErrExists) {
					return err
				}
				return nil
			}}
		}},
		{"refuses and stores all the same", func(b bucket.Bucket) bucket.Bucket {
			return &liar{Bucket: b, put: func(ctx context.Context, name string, size int64, content io.Reader) error {
				all, err := io.ReadAll(content)
				if err != nil {
					return err
				}
				if err = b.PutIfAbsent(ctx, name, size, bytes.NewReader(all)); errors.Is(err, bucket.ErrExists) {
					return errors.Join(overwrite(ctx, b, name, size, bytes.NewReader(all)), err)
				}
				return err
			}}
		}},
		{"says yes when the same content is there", func(b bucket.Bucket) bucket.Bucket {
			return &liar{Bucket: b, put: func(ctx context.Context, name string, size int64, content io.Reader) error {
				all, err := io.ReadAll(content)
				if err != nil {
					return err
				}
				err = b.PutIfAbsent(ctx, name, size, bytes.NewReader(all))
				if o, getErr := b.Get(ctx, name, 0, -1); errors.Is(err, bucket.ErrExists) && getErr == nil {
					if there, _ := io.ReadAll(o.Body); bytes.Equal(there, all) {
						return nil
					}
				}
				return err
			}}
		}},
		{"looks first and writes then", lookThenWrite},
		{"cuts off what is beyond 100 KiB", func(b bucket.Bucket) bucket.Bucket {
			return &liar{Bucket: b, put: func(ctx context.Context, name string, size int64, content io.Reader) error {
				all, err := io.ReadAll(content)
				if err != nil {
					return err
				}
				all = all[:min(len(all), 100<<10)]
				return b.PutIfAbsent(ctx, name, int64(len(all)), bytes.NewReader(all))
			}}
		}},
	}
}

// lookThenWrite returns a bucket that refuses existing names, unless several put one at once: then
// each that looked before the first has written wins.
func lookThenWrite(b bucket.Bucket) bucket.Bucket {
	var putting atomic.Int64
	return &liar{Bucket: b, put: func(ctx context.Context, name string, size int64, content io.Reader) error {
		putting.Add(1)
		defer putting.Add(-1)
		if _, err := b.Get(ctx, name, 0, 0); err == nil {
			return &bucket.Error{Op: bucket.OpPut, Name: name, Class: bucket.ClassExists}
		}
		for range 2000 { // let others look
			runtime.Gosched()
		}
		all, err := io.ReadAll(content)
		if err != nil {
			return err
		}
		return overwrite(ctx, b, name, size, bytes.NewReader(all))
	}}
}

func getLiars() []Liar {
	type get = func(ctx context.Context, name string, off, n int64) (bucket.Object, error)
	simple := func(name string, lie func(b bucket.Bucket) get) Liar {
		return Liar{name, func(b bucket.Bucket) bucket.Bucket { return &liar{Bucket: b, get: lie(b)} }}
	}
	return []Liar{
		simple("ignores the range", func(b bucket.Bucket) get {
			return func(ctx context.Context, name string, _, _ int64) (bucket.Object, error) {
				return b.Get(ctx, name, 0, -1)
			}
		}),
		simple("gives one byte more than the range", func(b bucket.Bucket) get {
			return func(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
				if n > 0 {
					n++
				}
				return b.Get(ctx, name, off, n)
			}
		}),
		simple("ignores where the range ends", func(b bucket.Bucket) get {
			return func(ctx context.Context, name string, off, _ int64) (bucket.Object, error) {
				return b.Get(ctx, name, off, -1)
			}
		}),
		simple("ignores where the range starts", func(b bucket.Bucket) get {
			return func(ctx context.Context, name string, _, n int64) (bucket.Object, error) {
				return b.Get(ctx, name, 0, n)
			}
		}),
		simple("gives the whole for a range beyond the end", func(b bucket.Bucket) get {
			return func(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
				o, err := b.Get(ctx, name, off, n)
				if errors.Is(err, bucket.ErrRange) {
					return b.Get(ctx, name, 0, -1)
				}
				return o, err
			}
		}),
		simple("calls the length of the range the size", func(b bucket.Bucket) get {
			return func(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
				o, err := b.Get(ctx, name, off, n)
				if off > 0 {
					o.Size -= off
				}
				return o, err
			}
		}),
		simple("changes a byte", func(b bucket.Bucket) get {
			return func(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
				o, err := b.Get(ctx, name, off, n)
				if err == nil {
					o.Body = &flipper{ReadCloser: o.Body}
				}
				return o, err
			}
		}),
		simple("has an empty object for every name", func(b bucket.Bucket) get {
			return func(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
				o, err := b.Get(ctx, name, off, n)
				if errors.Is(err, base.ErrNotFound) {
					return bucket.Object{Body: io.NopCloser(bytes.NewReader(nil))}, nil
				}
				return o, err
			}
		}),
		simple("does not find at once what was put", func(b bucket.Bucket) get {
			var mu sync.Mutex
			seen := map[string]bool{}
			return func(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
				o, err := b.Get(ctx, name, off, n)
				mu.Lock()
				defer mu.Unlock()
				if err == nil && !seen[name] {
					seen[name] = true
					o.Body.Close()
					return bucket.Object{}, &bucket.Error{Op: bucket.OpGet, Name: name, Class: bucket.ClassNotFound}
				}
				return o, err
			}
		}),
		simple("gives a new creation time each time", func(b bucket.Bucket) get {
			var n64 atomic.Int64
			return func(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
				o, err := b.Get(ctx, name, off, n)
				o.Created = o.Created.AddDate(0, 0, int(n64.Add(1)))
				return o, err
			}
		}),
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
	type list = func(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error)
	simple := func(name string, lie func(b bucket.Bucket) list) Liar {
		return Liar{name, func(b bucket.Bucket) bucket.Bucket { return &liar{Bucket: b, list: lie(b)} }}
	}
	changed := func(name string, change func([]bucket.Info) []bucket.Info) Liar {
		return simple(name, func(b bucket.Bucket) list {
			return func(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
				infos, err := b.List(ctx, after, prefix, limit)
				if len(infos) > 1 {
					infos = change(infos)
				}
				return infos, err
			}
		})
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
		simple("lists the name that it should start after", func(b bucket.Bucket) list {
			return func(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
				infos, err := b.List(ctx, after, prefix, limit)
				if all, allErr := b.List(ctx, "", after, 1); allErr == nil && after != "" && len(all) == 1 && all[0].Name == after {
					infos = slices.Insert(infos, 0, all[0])
				}
				return infos[:min(len(infos), limit)], err
			}
		}),
		simple("ignores where it should start", func(b bucket.Bucket) list {
			return func(ctx context.Context, _, prefix string, limit int) ([]bucket.Info, error) {
				return b.List(ctx, "", prefix, limit)
			}
		}),
		simple("ignores the limit", func(b bucket.Bucket) list {
			return func(ctx context.Context, after, prefix string, _ int) ([]bucket.Info, error) {
				return b.List(ctx, after, prefix, bucket.MaxList)
			}
		}),
		simple("cuts the prefix at its last slash", func(b bucket.Bucket) list {
			return func(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
				return b.List(ctx, after, prefix[:bytes.LastIndexByte([]byte(prefix), '/')+1], limit)
			}
		}),
	}
}

func deleteLiars() []Liar {
	return []Liar{
		{"does not delete", func(b bucket.Bucket) bucket.Bucket {
			return &liar{Bucket: b, del: func(context.Context, string) error { return nil }}
		}},
		{"refuses to delete what is not there", func(b bucket.Bucket) bucket.Bucket {
			return &liar{Bucket: b, del: func(ctx context.Context, name string) error {
				if _, err := b.Get(ctx, name, 0, 0); err != nil {
					return err
				}
				return b.Delete(ctx, name)
			}}
		}},
		{"deletes what lies below too", func(b bucket.Bucket) bucket.Bucket {
			return &liar{Bucket: b, del: func(ctx context.Context, name string) error {
				infos, err := b.List(ctx, "", name+"/", bucket.MaxList)
				for _, i := range infos {
					err = errors.Join(err, b.Delete(ctx, i.Name))
				}
				return errors.Join(err, b.Delete(ctx, name))
			}}
		}},
		{"never gives a deleted name again", func(b bucket.Bucket) bucket.Bucket {
			var mu sync.Mutex
			gone := map[string]bool{}
			return &liar{Bucket: b,
				del: func(ctx context.Context, name string) error {
					mu.Lock()
					gone[name] = true
					mu.Unlock()
					return b.Delete(ctx, name)
				},
				put: func(ctx context.Context, name string, size int64, content io.Reader) error {
					mu.Lock()
					defer mu.Unlock()
					if gone[name] {
						return &bucket.Error{Op: bucket.OpPut, Name: name, Class: bucket.ClassExists}
					}
					return b.PutIfAbsent(ctx, name, size, content)
				}}
		}},
	}
}
