package pack

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

func (f *Fetcher) entrySource(number uint64) *source {
	src := &source{b: f.o.Bucket, kind: kindEntry, short: fmt.Sprint(number)}
	if f.o.Entries == nil {
		src.name = f.o.Names.(format.PageNames).Entry(number)
	}
	return src
}

// readEntry reads and opens the log entry of a place. Its pieces are verified by their decoder,
// which computes their digests.
func (f *Fetcher) readEntry(ctx context.Context, p storage.CloudPlace) (blockContent, error) {
	if f.o.Entries != nil {
		return f.o.Entries(ctx, p.Entry)
	}
	stored, err := f.storedEntry(ctx, p.Entry)
	if err != nil {
		return nil, err
	}
	entry, err := format.OpenEntry(f.o.Sealer, f.o.Names.(format.PageNames), p.Entry, stored)
	if err != nil {
		return nil, err
	}
	got := make(blockContent, len(entry.Body.Pieces))
	for _, piece := range entry.Body.Pieces {
		got[piece.Digest] = piece.Content
	}
	return got, nil
}

// manyOfRange is how many entries of a range are wanted before it is read instead of them.
const manyOfRange = 3

// EachEntry gives the entries of the log with the given numbers, which ascend, to fn, opened, as
// far as they are there. It takes a request for each, or one for a range of which it wants several.
// Errors: base.ErrClosed, *base.CorruptError, those of the bucket, of ctx and of fn.
func (f *Fetcher) EachEntry(ctx context.Context, numbers []uint64, fn func(e *format.Entry) error) error {
	if err := f.enter(); err != nil {
		return err
	}
	defer f.wg.Done()
	for len(numbers) > 0 {
		from, to := format.RangeOf(numbers[0], format.RangeSizes()[0])
		n := 1
		for n < len(numbers) && numbers[n] <= to {
			n++
		}
		if err := f.eachOfRange(ctx, from, to, numbers[:n], fn); err != nil {
			return err
		}
		numbers = numbers[n:]
	}
	return nil
}

// eachOfRange gives entries that stand in one range, if there is one.
func (f *Fetcher) eachOfRange(ctx context.Context, from, to uint64, numbers []uint64, fn func(e *format.Entry) error) error {
	var all []format.RangeEntry
	if len(numbers) >= manyOfRange {
		src := &source{b: f.o.Bucket, kind: kindRange, short: fmt.Sprintf("%d-%d", from, to), name: f.o.Names.(format.PageNames).Range(from, to)}
		b, _, err := src.readSome(ctx, 0, -1, format.MaxRangeBytes, nil)
		if err == nil {
			all, err = format.ParseRange(from, to, b)
		}
		if err != nil && !errors.Is(err, base.ErrNotFound) {
			return src.wrap(err)
		}
	}
	for _, number := range numbers {
		src := f.entrySource(number)
		var stored []byte
		var err error
		if all != nil {
			stored = all[number-from].Stored
		} else if stored, err = f.storedEntry(ctx, number); errors.Is(err, base.ErrNotFound) {
			continue
		}
		if err != nil {
			return src.wrap(err)
		}
		entry, err := format.OpenEntry(f.o.Sealer, f.o.Names.(format.PageNames), number, stored)
		if err != nil {
			return src.wrap(err)
		}
		if err := fn(entry); err != nil {
			return err
		}
	}
	return nil
}

// storedEntry returns the bytes of an entry: remembered, its own object's, or from a range.
func (f *Fetcher) storedEntry(ctx context.Context, number uint64) ([]byte, error) {
	if stored := f.log.get(number); stored != nil {
		return stored, nil
	}
	stored, _, err := f.entrySource(number).readSome(ctx, 0, -1, format.MaxEntryBytes, nil)
	if !errors.Is(err, base.ErrNotFound) {
		return stored, err
	}
	for _, length := range format.RangeSizes() {
		from, to := format.RangeOf(number, length)
		inRange, rangeErr := f.entryOfRange(ctx, number, from, to)
		if !errors.Is(rangeErr, base.ErrNotFound) {
			return inRange, rangeErr
		}
	}
	return nil, err
}

// rangeBytes is how much of the entries of a range is read with its table, in the hope that what is
// wanted is in it.
const rangeBytes = 1 << 20

// entryOfRange returns an entry from the range of the entries from to to, and remembers those that
// came with it, as values that were written together are often read together.
func (f *Fetcher) entryOfRange(ctx context.Context, number, from, to uint64) ([]byte, error) {
	src := &source{b: f.o.Bucket, kind: kindRange, short: fmt.Sprintf("%d-%d", from, to), name: f.o.Names.(format.PageNames).Range(from, to)}
	b, size, err := src.readSome(ctx, 0, int64(format.RangeTableBytes(int(to-from+1)))+rangeBytes, format.MaxRangeBytes, nil)
	if err != nil {
		return nil, src.wrap(err)
	}
	places, err := format.ParseRangeTable(from, to, b)
	if err != nil {
		return nil, src.wrap(err)
	}
	var stored []byte
	for i, p := range places {
		end := p.Offset + int64(p.Bytes)
		if end > int64(len(b)) {
			break
		}
		entry := bytes.Clone(b[p.Offset:end])
		if f.log.add(from+uint64(i), entry); from+uint64(i) == number {
			stored = entry
		}
	}
	if stored != nil {
		return stored, nil
	}
	p := places[number-from]
	if err := src.checkEnd(p.Offset, int64(p.Bytes), size); err != nil {
		return nil, err
	}
	stored, _, err = src.read(ctx, p.Offset, int64(p.Bytes), format.MaxRangeBytes, nil)
	return stored, src.wrap(err)
}
