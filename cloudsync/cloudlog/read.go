package cloudlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/protocol"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// maxFloorBytes bounds the object of a floor, which has a few numbers.
const maxFloorBytes = 4 << 10

// rangeStart is how much of a range is read with its table when the log goes on somewhere within
// it.
const rangeStart = 64 << 10

// rangeInHand is a range that was read, from entry first on. from is 0 when there is none.
type rangeInHand struct {
	from, span uint64
	first      uint64
	entries    []format.RangeEntry
	now        time.Time
}

// fetched is an object that was read, or was not there.
type fetched struct {
	stored  []byte
	size    int64 // of the object
	created time.Time
	now     time.Time
	missing bool
	err     error
}

// fetch reads an object of at most limit bytes. A longer one is corrupt.
func (l *Log) fetch(ctx context.Context, name string, limit int64) (f fetched) {
	return l.fetchPart(ctx, name, 0, -1, limit)
}

// fetchPart reads n bytes of an object from off on, fewer where it ends before, and all up to its
// end for -1.
func (l *Log) fetchPart(ctx context.Context, name string, off, n, limit int64) (f fetched) {
	o, err := l.o.Bucket.Get(ctx, name, off, n)
	switch {
	case errors.Is(err, base.ErrNotFound):
		return fetched{missing: true}
	case err != nil:
		return fetched{err: err}
	}
	defer o.Body.Close()
	f = fetched{created: o.Created, now: o.ServerTime, size: o.Size}
	if o.Size < off || o.Size > limit {
		f.err = corrupt(name, fmt.Sprintf("%d to %d bytes", off, limit), fmt.Sprintf("%d bytes", o.Size))
		return f
	}
	if n < 0 || n > o.Size-off {
		n = o.Size - off
	}
	f.stored = make([]byte, n)
	if _, err := io.ReadFull(o.Body, f.stored); err != nil {
		return fetched{err: fmt.Errorf("read object %s: %w", name, err)}
	}
	return f
}

func (l *Log) getEntry(ctx context.Context, e protocol.GetEntry) (protocol.Event, error) {
	if e.Span != protocol.Single {
		return l.fromRange(ctx, e)
	}
	l.span = rangeInHand{}
	if e.Number <= l.Position().Number {
		return l.head(ctx, e)
	}
	f, beyond := l.single(ctx, e)
	if f.missing {
		return protocol.EntryRead{Beyond: beyond}, nil
	}
	if f.err != nil {
		return l.bad(f.err)
	}
	return l.open(e, f, beyond)
}

// head reads of an entry that was applied what tells whether it is the same one: its head, not the
// body.
func (l *Log) head(ctx context.Context, e protocol.GetEntry) (protocol.Event, error) {
	name := l.o.Names.Entry(e.Number)
	f := l.fetchPart(ctx, name, 0, format.HeaderBytes, format.MaxEntryBytes)
	if f.missing {
		return protocol.EntryRead{}, nil
	}
	if f.err != nil {
		return l.bad(f.err)
	}
	h, hash, err := format.OpenHeader(l.o.Sealer, l.o.Names, e.Number, f.stored)
	if err != nil {
		return l.bad(err)
	}
	return protocol.EntryRead{Found: true, Now: protocol.TimeOf(f.now), Entry: protocol.Entry{
		ID: protocol.ID(h.ID), Previous: protocol.Hash(h.Previous), Hash: protocol.Hash(hash), Created: protocol.TimeOf(f.created),
	}}, nil
}

// single returns the object of an entry, read now or ahead, and whether one with a greater number
// was seen.
func (l *Log) single(ctx context.Context, e protocol.GetEntry) (fetched, bool) {
	f, ok := l.ahead[e.Number]
	switch {
	case ok:
		delete(l.ahead, e.Number)
	case e.Ahead > 0 && !l.large():
		f = l.fetchAhead(ctx, e)
	default:
		f = l.fetch(ctx, l.o.Names.Entry(e.Number), format.MaxEntryBytes)
	}
	beyond := false
	for n, a := range l.ahead {
		if a.err != nil {
			delete(l.ahead, n) // it may go better when it is asked for
		}
		beyond = beyond || n > e.Number && a.err == nil && !a.missing
	}
	return f, beyond
}

// large reports whether entries are so large that a few of them make a batch.
func (l *Log) large() bool { return l.last != nil && int64(l.last.Stored) > l.o.MaxBatchBytes/8 }

// fetchAhead reads an entry and some behind it at once.
func (l *Log) fetchAhead(ctx context.Context, e protocol.GetEntry) fetched {
	got := make([]fetched, e.Ahead+1)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() { got[i] = l.fetch(ctx, l.o.Names.Entry(e.Number+uint64(i)), format.MaxEntryBytes) })
	}
	wg.Wait()
	l.ahead = make(map[uint64]fetched, e.Ahead)
	for i, f := range got[1:] {
		l.ahead[e.Number+1+uint64(i)] = f
	}
	return got[0]
}

// bad tells the machine of an object that cannot be opened; any other error ends the call.
func (l *Log) bad(err error) (protocol.Event, error) {
	if !damaged(err) {
		return nil, err
	}
	l.badErr = err
	return protocol.EntryRead{Bad: true}, nil
}

// damaged reports whether err may come from damaged bytes. An unknown version or key may: nothing
// has vouched for the bytes that name them.
func damaged(err error) bool {
	return errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrUnsupported) || errors.Is(err, seal.ErrUnknownKey)
}

// open opens an entry and says what the machine has to know of it.
func (l *Log) open(e protocol.GetEntry, f fetched, beyond bool) (protocol.Event, error) {
	now := protocol.TimeOf(f.now)
	entry, err := format.OpenEntry(l.o.Sealer, l.o.Names, e.Number, f.stored)
	if err != nil {
		return l.bad(err)
	}
	entry.Created = f.created
	l.last = entry
	return protocol.EntryRead{Found: true, Now: now, Beyond: beyond, Entry: summary(entry)}, nil
}

func summary(e *format.Entry) protocol.Entry {
	s := protocol.Entry{ID: protocol.ID(e.ID), Previous: protocol.Hash(e.Previous), Hash: protocol.Hash(e.Hash), Created: protocol.TimeOf(e.Created),
		Device: protocol.ID(e.Body.Device), Weight: weight(e), Packs: packs(e.Body), Renewed: e.Body.Renewed}
	s.Condemned, s.Below = condemned(e.Body)
	s.Entries = reliesOn(e.Body)
	return s
}

// packs returns the packs that a body announces or relies on.
func packs(b *format.Body) []protocol.ID {
	ids := make([]protocol.ID, 0, len(b.Packs)+len(b.Relies))
	for i := range b.Packs {
		ids = append(ids, protocol.ID(b.Packs[i].ID))
	}
	for _, id := range b.Relies {
		ids = append(ids, protocol.ID(id))
	}
	return ids
}

// reliesOn returns the entries that a body relies on: for pieces, and for the trees of bases.
func reliesOn(b *format.Body) []uint64 {
	if b.Since == 0 {
		return b.ReliesEntries
	}
	return append(slices.Clone(b.ReliesEntries), b.Since)
}

// condemned returns the packs that a body condemns, and below which number entries.
func condemned(b *format.Body) (ids []protocol.ID, below uint64) {
	if b.Condemned == nil {
		return nil, 0
	}
	for _, id := range b.Condemned.Packs {
		ids = append(ids, protocol.ID(id))
	}
	return ids, b.Condemned.Below
}

// weight returns about how much memory an open entry takes, in bytes: the body's plaintext may be
// much longer than what is stored.
func weight(e *format.Entry) int64 {
	const record = 256
	b := e.Body
	w := record * int64(1+len(b.Commits)+len(b.Explanations)+len(b.Pieces)+len(b.Packs)+len(b.Tags))
	for i := range b.Commits {
		w += int64(len(b.Commits[i].Diff.Inline))
	}
	for i := range b.Explanations {
		w += int64(len(b.Explanations[i].Diff.Inline))
	}
	for i := range b.Pieces {
		w += int64(len(b.Pieces[i].Content))
	}
	w += 16 * int64(len(b.Relies)+len(b.ReliesEntries))
	if b.Condemned != nil {
		w += 16 * int64(len(b.Condemned.Packs)+len(b.Condemned.Checkpoints))
	}
	return max(w, int64(e.Stored))
}

// fromRange reads an entry out of a range, which is read first if it is not in hand.
func (l *Log) fromRange(ctx context.Context, e protocol.GetEntry) (protocol.Event, error) {
	from, to := protocol.RangeOf(e.Number, e.Span)
	name := l.o.Names.Range(from, to)
	if l.span.from != from || l.span.span != e.Span || e.Number < l.span.first {
		l.span, l.ahead = rangeInHand{}, nil
		f, entries := l.readRange(ctx, name, from, to, e.Number)
		if f.missing {
			return protocol.EntryRead{}, nil
		}
		if f.err != nil {
			return l.bad(f.err)
		}
		l.span = rangeInHand{from: from, span: e.Span, first: e.Number, entries: entries, now: f.now}
	}
	r := l.span.entries[e.Number-l.span.first]
	if len(r.Stored) > format.MaxEntryBytes {
		return l.bad(corrupt(name, fmt.Sprintf("entries of at most %d bytes", format.MaxEntryBytes), fmt.Sprintf("one of %d bytes", len(r.Stored))))
	}
	return l.open(e, fetched{stored: r.Stored, created: r.Created, now: l.span.now}, false)
}

// readRange reads the entries of a range from number on. What stands before them may be long, and a
// device that begins with a checkpoint has no use for it: only its first rangeStart bytes are read.
func (l *Log) readRange(ctx context.Context, name string, from, to, number uint64) (f fetched, entries []format.RangeEntry) {
	start := int64(-1)
	if number > from {
		start = max(rangeStart, int64(format.RangeTableBytes(int(to-from+1))))
	}
	f = l.fetchPart(ctx, name, 0, start, format.MaxRangeBytes)
	if f.missing || f.err != nil {
		return f, nil
	}
	places, err := format.ParseRangeTable(from, to, f.stored)
	if err == nil {
		err = checkRangeEnd(name, places, f.size)
	}
	if err != nil {
		f.err = fmt.Errorf("read range %s: %w", name, err)
		return f, nil
	}
	places = places[number-from:]
	b, at := f.stored, int64(0)
	if int64(len(b)) < f.size {
		at = places[0].Offset
		b = b[min(at, int64(len(b))):]
		rest := l.fetchPart(ctx, name, at+int64(len(b)), -1, format.MaxRangeBytes)
		if rest.missing || rest.err != nil {
			return rest, nil
		}
		if rest.size != f.size {
			f.err = corrupt(name, fmt.Sprintf("%d bytes", f.size), fmt.Sprintf("%d bytes", rest.size))
			return f, nil
		}
		b = append(b[:len(b):len(b)], rest.stored...)
	}
	for _, p := range places {
		end := p.Offset - at + int64(p.Bytes)
		entries = append(entries, format.RangeEntry{Stored: b[p.Offset-at : end : end], Created: p.Created})
	}
	return f, entries
}

// checkRangeEnd looks whether a range ends with its last entry.
func checkRangeEnd(name string, places []format.RangePlace, size int64) error {
	last := places[len(places)-1]
	if end := last.Offset + int64(last.Bytes); end != size {
		return corrupt(name, fmt.Sprintf("%d bytes", end), fmt.Sprintf("%d bytes", size))
	}
	return nil
}

// getFloor reads a floor, a second time when its bytes are damaged: they may have been changed on
// the way.
func (l *Log) getFloor(ctx context.Context, k uint64) (protocol.Event, error) {
	ev, err := l.readFloor(ctx, k)
	if err != nil && damaged(err) {
		ev, err = l.readFloor(ctx, k)
	}
	return ev, err
}

func (l *Log) readFloor(ctx context.Context, k uint64) (protocol.Event, error) {
	f := l.fetch(ctx, l.o.Names.Floor(k), maxFloorBytes)
	if f.missing {
		return protocol.FloorRead{}, nil
	}
	if f.err != nil {
		return nil, f.err
	}
	floor, err := format.OpenFloor(l.o.Sealer, l.o.Names, k, f.stored)
	if err != nil {
		return nil, err
	}
	return protocol.FloorRead{Found: true, Floor: protocol.Floor{K: k, Low: floor.Low, Checkpoint: floor.Checkpoint, Deleted: floor.Deleted, Created: protocol.TimeOf(f.created)}}, nil
}

// bucketTime asks the bucket for its time, with an object that each has. It is zero when there is
// none.
func (l *Log) bucketTime(ctx context.Context) (time.Time, error) {
	o, err := l.o.Bucket.Get(ctx, format.FirstRing, 0, 0)
	if errors.Is(err, base.ErrNotFound) {
		return time.Time{}, nil
	}
	if err != nil {
		return time.Time{}, fmt.Errorf("ask for the bucket's time: %w", err)
	}
	return o.ServerTime, o.Body.Close()
}
