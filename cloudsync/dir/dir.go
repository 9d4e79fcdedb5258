package dir

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/clock"
)

const (
	partial       = "partial"      // the directory of files being written; no object's path begins so
	leftoverAfter = 24 * time.Hour // the age from which leftovers of a kill are removed
	maxAttempts   = 100            // at a directory that others remove repeatedly
	copyBytes     = 256 << 10
)

// Options are the options of Open. The zero value is useful.
type Options struct {
	// Clock gives ServerTime and the age of leftovers; nil: clock.System.
	Clock clock.Clock
	// MustExist makes Open fail with base.ErrNotFound if the directory does not exist, instead of
	// creating it.
	MustExist bool
}

// Bucket is a bucket.Bucket in a directory.
type Bucket struct {
	path   string
	clock  clock.Clock
	open   func(path string) (tree, error)
	closed atomic.Bool
	held   *held
	made   []string // directories that Open has created, parents first
}

// tree is an opened directory, out of which no path leads. It has all operations of a Bucket on a
// disk.
type tree interface {
	Lstat(path string) (fs.FileInfo, error)
	Open(path string) (file, error)
	OpenFile(path string, flag int, perm fs.FileMode) (file, error)
	Mkdir(path string, perm fs.FileMode) error
	MkdirAll(path string, perm fs.FileMode) error
	Link(from, to string) error
	Rename(from, to string) error
	Remove(path string) error
	Close() error
}

// file is an opened file of a tree, or a directory: an *os.File.
type file interface {
	io.WriteCloser
	io.ReaderAt
	Name() string
	Stat() (fs.FileInfo, error)
	ReadDir(n int) ([]fs.DirEntry, error)
	Sync() error
	SyscallConn() (syscall.RawConn, error)
}

// root is the tree of a directory of the system.
type root struct{ *os.Root }

func openTree(path string) (tree, error) {
	r, err := os.OpenRoot(path)
	return root{r}, err
}

func (r root) Open(path string) (file, error) { return r.Root.Open(path) }

func (r root) OpenFile(path string, flag int, perm fs.FileMode) (file, error) {
	return r.Root.OpenFile(path, flag, perm)
}

// session is one call. It opens the directory again, as that may have been unmounted, moved or
// replaced since the last call.
type session struct {
	*Bucket
	root tree
}

// begin opens the directory for one call; the caller closes root afterwards. A missing directory is
// an unplugged disk or an unmounted share. So it is a retryable error and not an empty bucket.
func (b *Bucket) begin(op bucket.Op, name string) (*session, error) {
	if b.closed.Load() {
		return nil, &bucket.Error{Op: op, Name: name, Class: bucket.ClassOther, Err: base.ErrClosed}
	}
	root, err := b.open(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &bucket.Error{Op: op, Name: name, Class: bucket.ClassRetryable, Err: fmt.Errorf("directory of bucket is not there: %w", err)}
	}
	if err != nil {
		return nil, bucket.NewError(context.Background(), op, name, false, fmt.Errorf("open directory of bucket: %w", err))
	}
	return &session{b, root}, nil
}

var _ bucket.Bucket = (*Bucket)(nil)

// Open returns a bucket in the directory path, which it creates if necessary. It removes leftovers
// of puts that were killed a day ago or earlier. Errors: base.ErrNotFound, base.ErrInvalid,
// fs.ErrPermission, base.ErrNoSpace, the cause of ctx.
func Open(ctx context.Context, path string, o Options) (*Bucket, error) {
	if o.Clock == nil {
		o.Clock = clock.System
	}
	b, err := await(ctx, new(held), func() (*Bucket, error) { return open(path, o) }, nil)
	if err != nil && ctx.Err() != nil {
		return nil, fmt.Errorf("open directory as bucket: %w", err)
	}
	return b, err
}

func open(path string, o Options) (*Bucket, error) {
	if path == "" {
		return nil, fmt.Errorf("open directory as bucket: %w: empty path", base.ErrInvalid)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open directory as bucket: %w", err)
	}
	var made []string
	if !o.MustExist {
		if made, err = makeDurable(abs); err != nil {
			return nil, fmt.Errorf("make directory of bucket: %w", err)
		}
	}
	root, err := openTree(abs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("directory %w", base.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open directory as bucket: %w", err)
	}
	defer root.Close()
	b := &Bucket{path: abs, clock: o.Clock, open: openTree, held: new(held), made: made}
	if err := (&session{b, root}).clean(); err != nil {
		return nil, fmt.Errorf("remove leftovers of bucket: %w", err)
	}
	return b, nil
}

// makeDurable creates dir and its missing parents, and syncs the names. It returns what it has
// created.
func makeDurable(dir string) (made []string, err error) {
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		return nil, fmt.Errorf("%w: %s is no directory", base.ErrInvalid, dir)
	}
	if err == nil || !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	parent := filepath.Dir(dir)
	if made, err = makeDurable(parent); err != nil {
		return nil, err
	}
	switch err := os.Mkdir(dir, 0o700); {
	case err == nil:
		made = append(made, dir)
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	}
	f, err := os.Open(parent)
	if err != nil {
		return nil, err
	}
	return made, errors.Join(syncOpenDir(f), f.Close())
}

// Close makes later calls fail with base.ErrClosed. Calls in flight, open bodies, and abandoned
// calls on a disk that does not answer go on. Directories that Open has created are removed if they
// hold nothing.
func (b *Bucket) Close() error {
	if b.closed.Swap(true) || len(b.made) == 0 {
		return nil
	}
	for _, dir := range slices.Backward(append(b.made, filepath.Join(b.path, partial))) {
		_ = os.Remove(dir) // fails if there is something in it
	}
	return nil
}

// clean removes files of puts that began over a day ago. A put that takes that long fails.
func (b *session) clean() error {
	f, err := b.root.Open(partial)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, e := range entries {
		if err := b.removeLeftover(partial + "/" + e.Name()); err != nil {
			return err
		}
	}
	return nil
}

// removeLeftover removes a file if it is older than a day.
func (b *session) removeLeftover(path string) error {
	info, err := b.root.Lstat(path)
	if err == nil && info.Mode().IsRegular() && b.clock.Now().Sub(info.ModTime()) > leftoverAfter {
		err = b.root.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// PutIfAbsent implements bucket.Bucket.
func (d *Bucket) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	if err := bucket.CheckPut(ctx, name, size); err != nil {
		return err
	}
	l := &lent{r: content}
	defer l.takeBack()
	created, err := await(ctx, d.held, func() (time.Time, error) { return d.putWhole(ctx, name, size, l) }, nil)
	if err != nil {
		return failed(ctx, bucket.OpPut, name, true, err)
	}
	bucket.ReportCreated(ctx, created)
	return nil
}

// putWhole is PutIfAbsent without the bound on waiting.
func (d *Bucket) putWhole(ctx context.Context, name string, size int64, content io.Reader) (time.Time, error) {
	b, err := d.begin(bucket.OpPut, name)
	if err != nil {
		return time.Time{}, err
	}
	defer b.root.Close()
	created, landed, err := b.put(ctx, pathOf(name), size, content)
	if errors.Is(err, errClaimed) {
		return created, &bucket.Error{Op: bucket.OpPut, Name: name, Class: bucket.ClassBusy, Ambiguous: true, Err: err}
	}
	return created, bucket.NewError(ctx, bucket.OpPut, name, landed, err)
}

// put also returns whether the object may exist despite an error.
func (b *session) put(ctx context.Context, path string, size int64, content io.Reader) (created time.Time, landed bool, err error) {
	switch _, err := b.root.Lstat(path); {
	case err == nil:
		return created, false, b.exists(path) // without reading the content
	case !errors.Is(err, fs.ErrNotExist):
		return created, false, fmt.Errorf("look at object: %w", err)
	}
	temp, created, err := b.write(ctx, size, content)
	if err != nil {
		return created, false, err
	}
	landed, err = b.publish(temp, path)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrExist) && !landed:
		err = b.exists(path)
	default:
		err = fmt.Errorf("give object its name: %w", err)
	}
	// A remaining file is removed a day later, so this is not an error.
	_ = b.root.Remove(temp)
	return created, landed, err
}

// exists returns ErrExists once the existing object is durable.
func (b *session) exists(path string) error {
	if err := b.syncParents(path); err != nil {
		return fmt.Errorf("sync the object that exists: %w", err)
	}
	return bucket.ErrExists
}

// write stores content in a new file in partial, and syncs it.
func (b *session) write(ctx context.Context, size int64, content io.Reader) (temp string, modified time.Time, err error) {
	var id [16]byte
	rand.Read(id[:])
	temp = partial + "/" + hex.EncodeToString(id[:])
	if err := b.root.Mkdir(partial, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", modified, fmt.Errorf("make directory for new objects: %w", err)
	}
	f, err := b.root.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", modified, fmt.Errorf("create file of object: %w", err)
	}
	modified, err = b.fill(ctx, f, size, content)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = b.root.Remove(temp) // if this fails, the file is removed a day later
		return "", modified, fmt.Errorf("write object: %w", err)
	}
	return temp, modified, nil
}

func (b *session) fill(ctx context.Context, f file, size int64, content io.Reader) (modified time.Time, err error) {
	exact := bucket.NewUpload(ctx, content, size)
	if size >= partBytes {
		part := parts.Get().(*[]byte)
		defer parts.Put(part)
		err = writeLarge(f, exact, *part)
	} else {
		onlyWriter := struct{ io.Writer }{f} // so that the context is checked between parts
		_, err = io.CopyBuffer(onlyWriter, exact, make([]byte, min(copyBytes, size+1)))
	}
	if err != nil {
		return modified, err
	}
	if err := f.Sync(); err != nil {
		return modified, err
	}
	info, err := f.Stat()
	if err != nil {
		return modified, err
	}
	return info.ModTime(), nil
}

// publish gives the file temp the path of the object, durably. If the path is taken, it returns
// fs.ErrExist, with landed false.
func (b *session) publish(temp, path string) (landed bool, err error) {
	for range maxAttempts {
		if err = b.makeParents(path); err == nil {
			err = b.place(temp, path)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break // else a delete has removed a directory because it was empty
		}
	}
	if err != nil {
		return false, err
	}
	return true, b.syncParents(path)
}

func (b *session) place(temp, path string) error {
	err := b.root.Link(temp, path)
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EPERM) {
		return b.placeByClaim(temp, path)
	}
	return err
}

var errClaimed = errors.New("another put is about to take the name")

// placeByClaim renames temp to path while it holds the claim.
func (b *session) placeByClaim(temp, path string) error {
	claim := path[:len(path)-len(fileMark)] + claimMark
	f, err := b.root.OpenFile(claim, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		if _, err := b.root.Lstat(path); err == nil {
			return fs.ErrExist
		}
		if err := b.removeLeftover(claim); err != nil {
			return fmt.Errorf("remove old claim: %w", err)
		}
		return errClaimed
	}
	if err != nil {
		return err
	}
	if err = f.Close(); err == nil {
		if _, err = b.root.Lstat(path); err == nil {
			err = fs.ErrExist
		} else if errors.Is(err, fs.ErrNotExist) {
			err = b.root.Rename(temp, path)
		}
	}
	_ = b.root.Remove(claim) // a remaining claim is removed a day later; until then a put that meets it first sees the object
	return err
}

func (b *session) makeParents(path string) error {
	dirs := parents(path)
	if len(dirs) == 0 {
		return nil
	}
	return b.root.MkdirAll(dirs[0], 0o700)
}

// syncParents makes the names from the root to path durable. It syncs all directories, also
// existing ones: their creator may not have synced them yet. Syncing clean ones costs little.
func (b *session) syncParents(path string) error {
	for _, dir := range append(parents(path), ".") {
		f, err := b.root.Open(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the object was deleted, and the empty directory with it
		}
		if err != nil {
			return err
		}
		if err := errors.Join(syncOpenDir(f), f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// syncOpenDir syncs a directory, where the system can.
func syncOpenDir(f file) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	if err := f.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}

// Get implements bucket.Bucket.
func (d *Bucket) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	if err := bucket.CheckGet(ctx, name, off); err != nil {
		return bucket.Object{}, err
	}
	o, err := await(ctx, d.held, func() (bucket.Object, error) {
		b, err := d.begin(bucket.OpGet, name)
		if err != nil {
			return bucket.Object{}, err
		}
		defer b.root.Close()
		return b.get(ctx, name, off, n)
	}, func(o bucket.Object) { _ = o.Body.Close() }) // the caller has left
	if err != nil {
		return bucket.Object{}, failed(ctx, bucket.OpGet, name, false, err)
	}
	return o, nil
}

func (b *session) get(ctx context.Context, name string, off, n int64) (o bucket.Object, err error) {
	path := pathOf(name)
	info, err := b.root.Lstat(path) // before the open: opening a pipe would block
	if err != nil {
		return o, err
	}
	if !info.Mode().IsRegular() {
		return o, &base.CorruptError{Where: b.String(), Key: name, Want: "a file", Got: info.Mode().Type().String()}
	}
	f, err := b.root.Open(path)
	if err != nil {
		return o, err
	}
	if info, err = f.Stat(); err == nil {
		n, err = bucket.CheckRange(name, off, n, info.Size())
	}
	if err != nil {
		return o, errors.Join(err, f.Close())
	}
	return bucket.Object{Body: &body{ctx: ctx, held: b.held, name: name, f: f, off: off, left: n}, Size: info.Size(), Created: info.ModTime(), ServerTime: b.clock.Now()}, nil
}

// Delete implements bucket.Bucket. It removes directories that become empty.
func (d *Bucket) Delete(ctx context.Context, name string) error {
	if err := bucket.CheckDelete(ctx, name); err != nil {
		return err
	}
	_, err := await(ctx, d.held, func() (struct{}, error) { return struct{}{}, d.remove(ctx, name) }, nil)
	return failed(ctx, bucket.OpDelete, name, true, err)
}

// remove is Delete without the bound on waiting.
func (d *Bucket) remove(ctx context.Context, name string) error {
	b, err := d.begin(bucket.OpDelete, name)
	if err != nil {
		return err
	}
	defer b.root.Close()
	path := pathOf(name)
	err = b.root.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return bucket.NewError(ctx, bucket.OpDelete, name, false, err)
	}
	for _, dir := range parents(path) {
		if b.root.Remove(dir) != nil {
			break // not empty
		}
	}
	return bucket.NewError(ctx, bucket.OpDelete, name, true, b.syncParents(path))
}

// String returns "dir:" and the absolute path.
func (b *Bucket) String() string { return "dir:" + b.path }

// body is a range of a file. It fails if the file became shorter.
type body struct {
	ctx  context.Context // that of Get, which bounds the body
	held *held
	name string
	f    file
	off  int64
	left int64
	part []byte // the part of the file read last
}

// Read implements io.Reader.
func (y *body) Read(p []byte) (int, error) {
	if err := context.Cause(y.ctx); err != nil {
		return 0, bucket.NewError(y.ctx, bucket.OpGet, y.name, false, err)
	}
	if y.left == 0 {
		return 0, io.EOF
	}
	n, err := y.read(p[:min(int64(len(p)), y.left)])
	y.off, y.left = y.off+int64(n), y.left-int64(n)
	switch {
	case n > 0 || err == nil:
		return n, nil
	case err == io.EOF:
		err = &base.CorruptError{Where: "bucket", Key: y.name, Want: fmt.Sprintf("%d bytes more", y.left), Got: "end of file"}
	}
	return 0, bucket.NewError(y.ctx, bucket.OpGet, y.name, false, err)
}

// read reads a part of the file. It does not read into p directly: p is caller-owned after the
// caller has left.
func (y *body) read(p []byte) (int, error) {
	if n := min(len(p), copyBytes); len(y.part) < n {
		y.part = make([]byte, n)
	}
	part, off := y.part[:min(len(p), len(y.part))], y.off
	n, err := await(y.ctx, y.held, func() (int, error) {
		n, err := y.f.ReadAt(part, off)
		if n > 0 {
			err = nil // the next read returns the error again
		}
		return n, err
	}, nil)
	return copy(p, part[:n]), err
}

// Close implements io.Closer. It may be called again.
func (y *body) Close() error {
	if err := y.f.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		return bucket.NewError(y.ctx, bucket.OpGet, y.name, false, err)
	}
	return nil
}
