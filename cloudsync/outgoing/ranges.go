package outgoing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/base"
)

// WriteRanges writes the ranges that end with entry number, if any: 32 entries, 1024, 32768. It
// returns how many it has written. Ranges that would be longer than format.MaxRangeBytes are not
// written.
//
// A range of 32 costs one get for each entry that Options.Cached does not know, a larger one a get
// for each but the last of the 32 ranges that it is made of, and each a put. A range of which a
// larger one is made, and which is missing, is made first. Ranges only spare requests: when one
// cannot be read, written, or is not what it should be, it is left out, and the error is not
// reported (I6). The only errors are those of ctx.
func (p *Page) WriteRanges(ctx context.Context, number uint64) (int, error) {
	written := 0
	var last []format.RangeEntry // of the range before, which is the end of the next one
	for _, size := range format.RangeSizes() {
		if number == 0 || number%size != 0 {
			break
		}
		entries, err := p.entries(ctx, number-size+1, size, last, new(lengths))
		if err == nil {
			var put bool
			if put, err = p.putRange(ctx, number-size+1, entries); put {
				written++
			}
		}
		if ctx.Err() != nil {
			return written, fmt.Errorf("write ranges of the log: %w", context.Cause(ctx))
		}
		if err != nil {
			break
		}
		last = entries
	}
	return written, nil
}

// lengths adds up what is read for a range.
type lengths struct{ bytes atomic.Int64 }

func (l *lengths) add(n int64) error {
	if l.bytes.Add(n) > format.MaxRangeBytes {
		return fmt.Errorf("range of the log: %w", base.ErrTooLarge)
	}
	return nil
}

// entries returns the entries of a range. last are those at its end that are known already.
func (p *Page) entries(ctx context.Context, from, size uint64, last []format.RangeEntry, total *lengths) ([]format.RangeEntry, error) {
	entries := make([]format.RangeEntry, size)
	known := copy(entries[size-uint64(len(last)):], last)
	for i := range last {
		if err := total.add(int64(len(last[i].Stored))); err != nil {
			return nil, err
		}
	}
	step := uint64(1) // how many entries an object has that is read
	for _, smaller := range format.RangeSizes() {
		if smaller < size {
			step = smaller
		}
	}
	err := each(ctx, int((size-uint64(known))/step), func(ctx context.Context, i int) error {
		at := uint64(i) * step
		if step == 1 {
			var err error
			entries[at], err = p.entry(ctx, from+at, total)
			return err
		}
		part, err := p.smallerRange(ctx, from+at, step, total)
		copy(entries[at:], part)
		return err
	})
	if err != nil {
		return nil, err
	}
	return entries, p.checkChain(from, entries)
}

// entry returns one entry.
func (p *Page) entry(ctx context.Context, number uint64, total *lengths) (format.RangeEntry, error) {
	if p.o.Cached != nil {
		if e, ok := p.o.Cached(number); ok {
			return e, total.add(int64(len(e.Stored)))
		}
	}
	o, stored, err := p.get(ctx, p.o.Names.Entry(number), total)
	return format.RangeEntry{Stored: stored, Created: o.Created}, err
}

// smallerRange reads a range, and makes it when it is missing.
func (p *Page) smallerRange(ctx context.Context, from, size uint64, total *lengths) ([]format.RangeEntry, error) {
	to := from + size - 1
	_, stored, err := p.get(ctx, p.o.Names.Range(from, to), total)
	if err == nil {
		return format.ParseRange(from, to, stored)
	}
	if !errors.Is(err, base.ErrNotFound) {
		return nil, err
	}
	entries, err := p.entries(ctx, from, size, nil, total)
	if err != nil {
		return nil, err
	}
	_, err = p.putRange(ctx, from, entries)
	return entries, err
}

// get reads an object, unless it makes the range too long.
func (p *Page) get(ctx context.Context, name string, total *lengths) (o bucket.Object, b []byte, err error) {
	if o, err = p.o.Bucket.Get(ctx, name, 0, -1); err != nil {
		return o, nil, err
	}
	defer func() { err = errors.Join(err, o.Body.Close()) }()
	if o.Size < 0 || o.Size > format.MaxRangeBytes {
		return o, nil, fmt.Errorf("read %s of %d bytes: %w", name, o.Size, base.ErrTooLarge)
	}
	if err := total.add(o.Size); err != nil {
		return o, nil, err
	}
	b = make([]byte, o.Size)
	if _, err := io.ReadFull(o.Body, b); err != nil {
		return o, nil, fmt.Errorf("read %s: %w", name, err)
	}
	return o, b, nil
}

// checkChain proves that each entry is whole, and is the one that the next one follows (I6): what
// is written here stays for ever. The hash of an entry is that of its head, so each is opened.
func (p *Page) checkChain(from uint64, entries []format.RangeEntry) error {
	var before format.Hash
	for i := range entries {
		number := from + uint64(i)
		e, err := format.OpenEntry(p.o.Sealer, p.o.Names, number, entries[i].Stored)
		if err != nil {
			return err
		}
		if i > 0 && e.Previous != before {
			return &base.CorruptError{Where: "log entry", Key: p.o.Names.Entry(number), Got: "another entry before it"}
		}
		before = e.Hash
	}
	return nil
}

// putRange stores a range. put is false for one that is there already.
func (p *Page) putRange(ctx context.Context, from uint64, entries []format.RangeEntry) (put bool, err error) {
	b, err := format.EncodeRange(from, entries)
	if err != nil {
		return false, err
	}
	err = p.o.Bucket.PutIfAbsent(ctx, p.o.Names.Range(from, from+uint64(len(entries))-1), int64(len(b)), bytes.NewReader(b))
	if errors.Is(err, bucket.ErrExists) {
		return bucket.Ambiguous(err), nil // an earlier try of this call has stored it, or somebody else the same
	}
	return err == nil, err
}
