package mem

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/internal/clock"
)

// maxReadAhead bounds the memory allocated for an object before its content is read.
const maxReadAhead = 1 << 20

// Options are the options of New. The zero value gives an honest bucket.
type Options struct {
	// Name is the part of String after "mem:".
	Name string
	// Clock is the clock of the bucket; nil: clock.System. Slow bodies wait by it.
	Clock clock.Clock
	// Seed decides which calls have which faults; see the package.
	Seed uint64
	// Faults are the probabilities of faults.
	Faults Faults
}

// Bucket is a bucket.Bucket in memory.
type Bucket struct {
	name  string
	clock clock.Clock

	mu      sync.Mutex
	objects map[string]object    // guarded by mu
	written map[string]time.Time // guarded by mu: last change of a name
	calls   map[call]uint64      // guarded by mu: the number of each
	seed    uint64
	faults  Faults                                // guarded by mu
	before  func(op bucket.Op, name string) error // guarded by mu
}

// call identifies the requests of one kind for one name.
type call struct {
	op   bucket.Op
	name string
}

// object is immutable, so states may share it.
type object struct {
	content []byte
	created time.Time
}

// New returns an empty bucket.
func New(o Options) *Bucket {
	if o.Clock == nil {
		o.Clock = clock.System
	}
	return &Bucket{name: o.Name, clock: o.Clock, objects: map[string]object{}, written: map[string]time.Time{},
		calls: map[call]uint64{}, seed: o.Seed, faults: o.Faults}
}

var _ bucket.Bucket = (*Bucket)(nil)

// PutIfAbsent implements bucket.Bucket.
func (b *Bucket) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	if err := bucket.CheckPut(ctx, name, size); err != nil {
		return err
	}
	f, err := b.begin(bucket.OpPut, name)
	if err != nil {
		return err
	}
	buf := bytes.NewBuffer(make([]byte, 0, min(size, maxReadAhead)))
	if _, err := buf.ReadFrom(&ctxReader{ctx, bucket.ReadExact(content, size)}); err != nil {
		return bucket.NewError(ctx, bucket.OpPut, name, false, err)
	}
	created, err := b.store(name, buf.Bytes(), f)
	if err != nil {
		return err
	}
	if f.lost {
		return &bucket.Error{Op: bucket.OpPut, Name: name, Class: bucket.ClassRetryable, Ambiguous: true, Err: errLost}
	}
	bucket.ReportCreated(ctx, created)
	return nil
}

var errLost = errors.New("connection lost before the answer")

func (b *Bucket) store(name string, content []byte, f fate) (time.Time, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.objects[name]; ok {
		return time.Time{}, bucket.NewStatusError(bucket.OpPut, name, http.StatusPreconditionFailed, nil)
	}
	now := b.clock.Now()
	if err := b.tooSoonLocked(bucket.OpPut, name, now, f); err != nil {
		return time.Time{}, err
	}
	b.objects[name] = object{content, now}
	return now, nil
}

// tooSoonLocked refuses a second change of a name within the interval, and otherwise records this
// one.
func (b *Bucket) tooSoonLocked(op bucket.Op, name string, now time.Time, f fate) error {
	if f.interval <= 0 {
		return nil
	}
	if last, ok := b.written[name]; ok && now.Sub(last).Abs() < f.interval {
		return bucket.NewStatusError(op, name, http.StatusTooManyRequests, fmt.Errorf("one write each %s for a name", f.interval))
	}
	b.written[name] = now
	return nil
}

// Get implements bucket.Bucket.
func (b *Bucket) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	if err := bucket.CheckGet(ctx, name, off); err != nil {
		return bucket.Object{}, err
	}
	f, err := b.begin(bucket.OpGet, name)
	if err != nil {
		return bucket.Object{}, err
	}
	b.mu.Lock()
	o, ok := b.objects[name]
	now := b.clock.Now()
	b.mu.Unlock()
	if !ok {
		return bucket.Object{}, bucket.NewStatusError(bucket.OpGet, name, http.StatusNotFound, nil)
	}
	size := int64(len(o.content))
	if n, err = bucket.CheckRange(name, off, n, size); err != nil {
		return bucket.Object{}, err
	}
	return bucket.Object{Body: b.body(ctx, name, o.content[off:off+n], f), Size: size, Created: o.created, ServerTime: now}, nil
}

// List implements bucket.Bucket.
func (b *Bucket) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	if err := bucket.CheckList(ctx, after, prefix, limit); err != nil {
		return nil, err
	}
	if _, err := b.begin(bucket.OpList, prefix); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	var infos []bucket.Info
	for name, o := range b.objects {
		if name > after && strings.HasPrefix(name, prefix) {
			infos = append(infos, bucket.Info{Name: name, Size: int64(len(o.content)), Created: o.created})
		}
	}
	slices.SortFunc(infos, func(x, y bucket.Info) int { return strings.Compare(x.Name, y.Name) })
	return infos[:min(len(infos), limit)], nil
}

// Delete implements bucket.Bucket.
func (b *Bucket) Delete(ctx context.Context, name string) error {
	if err := bucket.CheckDelete(ctx, name); err != nil {
		return err
	}
	f, err := b.begin(bucket.OpDelete, name)
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.objects[name]; ok {
		if err := b.tooSoonLocked(bucket.OpDelete, name, b.clock.Now(), f); err != nil {
			return err
		}
		delete(b.objects, name)
	}
	if f.lost {
		return &bucket.Error{Op: bucket.OpDelete, Name: name, Class: bucket.ClassRetryable, Ambiguous: true, Err: errLost}
	}
	return nil
}

// String returns "mem:" and the name.
func (b *Bucket) String() string { return "mem:" + b.name }

// State is the content of a bucket at one time.
type State struct{ objects map[string]object }

// State returns the present content of the bucket, for Rollback.
func (b *Bucket) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return State{maps.Clone(b.objects)}
}

// Rollback resets the bucket to s, including creation times. s stays usable, for other buckets too.
// The zero State is that of an empty bucket.
func (b *Bucket) Rollback(s State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.objects = maps.Clone(s.objects); b.objects == nil {
		b.objects = map[string]object{}
	}
}

// Wipe removes everything.
func (b *Bucket) Wipe() { b.Rollback(State{}) }

// Names returns the names of all objects in byte order.
func (b *Bucket) Names() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.objects))
}

// Content returns a copy of an object. It is no request and has no faults.
func (b *Bucket) Content(name string) ([]byte, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[name]
	return bytes.Clone(o.content), ok
}

// Replace sets the object to a copy of content, as a hostile owner of the bucket can. An existing
// object keeps its creation time. name need not be legal.
func (b *Bucket) Replace(name string, content []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o, ok := b.objects[name]
	if !ok {
		o.created = b.clock.Now()
	}
	b.objects[name] = object{append([]byte{}, content...), o.created}
}

// ctxReader ends with ctx.
type ctxReader struct {
	ctx context.Context
	r   io.Reader
}

func (c *ctxReader) Read(p []byte) (int, error) {
	if err := context.Cause(c.ctx); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
