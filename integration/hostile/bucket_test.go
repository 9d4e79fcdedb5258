package hostile_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"strings"
	"sync"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
)

// owner is a bucket in the hands of somebody who changes what devices see. It counts what they ask
// for.
type owner struct {
	mu    sync.Mutex
	b     *mem.Bucket       // guarded by mu
	lies  lies              // guarded by mu
	gets  map[string][]part // guarded by mu: what was asked for by name since the last reset
	lists int               // guarded by mu
	log   bytes.Buffer      // guarded by mu: of the devices
}

// Write implements io.Writer for the log of a device.
func (o *owner) Write(line []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.log.Write(line)
}

// mended returns what devices have told since the last show of damage from which they have made the
// bucket whole, "" for none.
func (o *owner) mended() (told string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for line := range strings.Lines(o.log.String()) {
		if strings.Contains(line, "is repaired from what is here") || strings.Contains(line, "are replaced by a checkpoint") {
			told += line
		}
	}
	return told
}

// lies replace answers; nil ones are honest.
type lies struct {
	get  func(ctx context.Context, b bucket.Bucket, name string, off, n int64) (bucket.Object, error)
	list func(ctx context.Context, b bucket.Bucket, after, prefix string, limit int) ([]bucket.Info, error)
	put  func(ctx context.Context, b bucket.Bucket, name string, size int64, content io.Reader) error
}

// newOwner returns an owner of a bucket that holds what s says.
func newOwner(s mem.State) *owner {
	o := &owner{}
	o.show(s, lies{})
	return o
}

// show puts other content into the bucket, and changes the lies.
func (o *owner) show(s mem.State, l lies) {
	b := mem.New(mem.Options{})
	b.Rollback(s)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b, o.lies, o.gets, o.lists = b, l, map[string][]part{}, 0
	o.log.Reset()
}

// part is a part of an object that is asked for: n bytes, or all when n is negative.
type part struct{ off, n int64 }

// of returns the part of an object's content.
func (p part) of(content []byte) []byte {
	content = content[min(p.off, int64(len(content))):]
	if p.n >= 0 {
		content = content[:min(p.n, int64(len(content)))]
	}
	return content
}

// all returns what was asked for, by name.
func (o *owner) all() map[string][]part {
	o.mu.Lock()
	defer o.mu.Unlock()
	return maps.Clone(o.gets)
}

// asked returns how often an object was asked for.
func (o *owner) asked(name string) int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.gets[name])
}

func (o *owner) now() (bucket.Bucket, lies) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b, o.lies
}

// PutIfAbsent implements bucket.Bucket.
func (o *owner) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	b, l := o.now()
	if l.put != nil {
		return l.put(ctx, b, name, size, content)
	}
	return b.PutIfAbsent(ctx, name, size, content)
}

// Get implements bucket.Bucket.
func (o *owner) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	o.mu.Lock()
	o.gets[name] = append(o.gets[name], part{off, n})
	o.mu.Unlock()
	b, l := o.now()
	if l.get != nil {
		return l.get(ctx, b, name, off, n)
	}
	return b.Get(ctx, name, off, n)
}

// List implements bucket.Bucket.
func (o *owner) List(ctx context.Context, after, prefix string, limit int) ([]bucket.Info, error) {
	o.mu.Lock()
	o.lists++
	o.mu.Unlock()
	b, l := o.now()
	if l.list != nil {
		return l.list(ctx, b, after, prefix, limit)
	}
	return b.List(ctx, after, prefix, limit)
}

// Delete implements bucket.Bucket.
func (o *owner) Delete(ctx context.Context, name string) error {
	b, _ := o.now()
	return b.Delete(ctx, name)
}

// String implements bucket.Bucket.
func (o *owner) String() string { return "mem:hostile" }
