package cloudsync

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
)

const (
	// recordedEntries is how many of the latest entries are kept for the ranges that end with them.
	recordedEntries = 2 * rangeEvery
	// recordedBytes is how long an entry may be to be kept.
	recordedBytes = 32 << 10
)

// recorder is a Bucket that keeps the latest small entries of a log which went through it, so that
// who writes a range of them need not read them again. It gives nothing out as a Bucket: every get
// is a request.
type recorder struct {
	bucket.Bucket
	sealer *seal.Sealer
	names  format.PageNames

	mu      sync.Mutex
	entries map[uint64]format.RangeEntry // guarded by mu
	hashes  map[uint64]format.Hash       // of entries that count; guarded by mu
}

func newRecorder(b bucket.Bucket, sealer *seal.Sealer, names format.PageNames) *recorder {
	return &recorder{Bucket: b, sealer: sealer, names: names, entries: map[uint64]format.RangeEntry{}, hashes: map[uint64]format.Hash{}}
}

// cached returns an entry that has gone through unchanged, and counts.
func (r *recorder) cached(number uint64) (format.RangeEntry, bool) {
	r.mu.Lock()
	e, ok := r.entries[number]
	hash := r.hashes[number]
	r.mu.Unlock()
	if !ok {
		return e, false
	}
	opened, err := format.OpenEntry(r.sealer, r.names, number, e.Stored)
	return e, err == nil && opened.Hash == hash
}

// confirm says that an entry counts.
func (r *recorder) confirm(number uint64, hash format.Hash) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hashes[number] = hash
	for n := range r.hashes {
		if n+recordedEntries <= number {
			delete(r.hashes, n)
		}
	}
}

func (r *recorder) keep(number uint64, stored []byte, created time.Time) {
	if created.IsZero() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries[number] = format.RangeEntry{Stored: stored, Created: created}
	for n := range r.entries {
		if n+recordedEntries <= number {
			delete(r.entries, n)
		}
	}
}

// entry returns the number of a log entry, given its name.
func (r *recorder) entry(name string) (uint64, bool) {
	kind, number, _, _, ok := r.names.ParseName(name)
	return number, ok && kind == format.KindEntry
}

// PutIfAbsent implements bucket.Bucket.
func (r *recorder) PutIfAbsent(ctx context.Context, name string, size int64, content io.Reader) error {
	number, ok := r.entry(name)
	if !ok || size > recordedBytes {
		return r.Bucket.PutIfAbsent(ctx, name, size, content)
	}
	stored, err := io.ReadAll(io.LimitReader(content, size+1))
	if err != nil {
		return bucket.NewError(ctx, bucket.OpPut, name, false, err)
	}
	var created time.Time
	err = r.Bucket.PutIfAbsent(bucket.WithCreated(ctx, &created), name, size, bytes.NewReader(stored))
	if err == nil {
		bucket.ReportCreated(ctx, created)
		r.keep(number, stored, created)
	}
	return err
}

// Get implements bucket.Bucket.
func (r *recorder) Get(ctx context.Context, name string, off, n int64) (bucket.Object, error) {
	o, err := r.Bucket.Get(ctx, name, off, n)
	if err != nil {
		return o, err
	}
	if number, ok := r.entry(name); ok && off == 0 && (n < 0 || n >= o.Size) && o.Size <= recordedBytes {
		o.Body = &recordedBody{ReadCloser: o.Body, r: r, number: number, size: o.Size, created: o.Created}
	}
	return o, nil
}

// recordedBody keeps what is read of a body, for the recorder once it is all.
type recordedBody struct {
	io.ReadCloser
	r       *recorder
	number  uint64
	size    int64
	created time.Time
	content []byte
}

func (b *recordedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		if b.content = append(b.content, p[:n]...); int64(len(b.content)) == b.size {
			b.r.keep(b.number, b.content, b.created)
		}
	}
	return n, err
}
