package replica

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/pagelog"
	"github.com/ledgerd/ledger/cloudsync/progress"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

const (
	// inlineBytes is how many bytes of pieces a body has inline before all go to packs.
	inlineBytes = 128 << 10
	// maxPending is how many packs wait for an entry before an entry announces only packs.
	maxPending = 16
	// maxOvertaken bounds how often an announcement is repeated because other devices were faster.
	maxOvertaken = 256
	// queuedPieces is how many pieces are looked up and read together.
	queuedPieces = 2048
	// maxIndexes is how many index pieces wait for the pieces that they list before the gatherer
	// waits for all.
	maxIndexes = 4096
	// placesTogether is how many places share a batch of storage with other changes.
	placesTogether = 1024
)

// gatherer collects the local pieces of values, children before the index pieces that list them.
// Few pieces go into the body, many to packs. Eager pieces precede lazy ones, with a call of flush
// in between. While packs are in flight the state of the page belongs to their goroutine, except
// for functions that Uploader.Alone calls.
type gatherer struct {
	p   *Page
	ctx context.Context // of the call that the gatherer serves
	// forced sends all to packs, and compresses no two pieces together, since it is unknown to
	// which commits they belong.
	forced   bool
	progress *progress.Tracker

	plain bool // the pieces taken are not compressed
	again bool // the queued pieces go up even if they have a place
	eager bool // the queued pieces are of EAGER values
	apart bool // the next piece is not compressed together with those before

	// append puts a body into the log. overtaken says that entries other than such bodies were
	// applied since the gatherer began.
	append    Append
	overtaken bool

	queue  []object.Digest        // pieces to be taken, in order
	queued map[object.Digest]bool // whether they go up again
	looked map[object.Digest]bool // index pieces whose children were all examined; whether they go up again
	// missing are pieces that are not held and have no place.
	missing map[object.Digest]struct{}

	inline  []inlinePiece
	bytes   int // of inline
	inlined map[object.Digest]struct{}
	spilled bool // pieces taken go to packs
	up      *pack.Uploader

	mu      sync.Mutex
	pending int                   // guarded by mu; packs that wait for an entry
	indexes []storage.PlacedPiece // guarded by mu; index pieces in the bucket, for which flush waits
}

type inlinePiece struct {
	digest  object.Digest
	content []byte
	eager   bool
	plain   bool
	apart   bool
}

func (p *Page) newGatherer(ctx context.Context, announce Append) *gatherer {
	return &gatherer{
		p: p, ctx: ctx, append: announce, pending: len(p.state.Pending.Packs), queued: map[object.Digest]bool{}, looked: map[object.Digest]bool{},
		missing: map[object.Digest]struct{}{}, inlined: map[object.Digest]struct{}{},
	}
}

// deltas collects the pieces of the values of differences: EAGER ones first, so that a piece of
// both kinds goes with them.
func (g *gatherer) deltas(ds []*delta) error {
	for _, priority := range []object.Priority{object.Eager, object.Lazy} {
		for _, d := range ds {
			if priority == object.Eager && !d.tally.eager || priority == object.Lazy && !d.tally.lazy {
				continue
			}
			g.apart, g.plain = true, d.tally.plain
			if err := g.values(d, priority); err != nil {
				return err
			}
		}
		if err := g.flush(); err != nil {
			return err
		}
	}
	return nil
}

// values collects the pieces of the values that a difference puts with a priority.
func (g *gatherer) values(d *delta, priority object.Priority) error {
	g.eager = priority == object.Eager
	for e, err := range btree.Diff(g.ctx, d.from, d.to, nil) {
		if err != nil {
			return fmt.Errorf("compare trees: %w", err)
		}
		if !e.HasRight || e.Right.Inline || e.Right.Priority != priority {
			continue
		}
		g.again = d.put && g.p.o.Again != nil && g.p.o.Again(e.Key)
		if err := g.p.walk(g.ctx, e.Right.Digest, 0, g.visit, g.enqueue); err != nil {
			return err
		}
		g.progress.Advance(1, 0)
	}
	g.again = false
	return g.takeQueued()
}

// pieces collects those of the given pieces that are local.
func (g *gatherer) pieces(ds iter.Seq[object.Digest]) error {
	g.eager = false
	for d := range ds {
		if err := g.enqueue(d); err != nil {
			return err
		}
	}
	if err := g.takeQueued(); err != nil {
		return err
	}
	return g.flush()
}

// visit examines a piece before those that it lists. It reports whether these are to be queued, and
// then the piece itself. An index piece with a place may list pieces that have lost theirs.
func (g *gatherer) visit(_ context.Context, d object.Digest) (bool, error) {
	if !d.Kind().IsIndex() {
		return true, nil
	}
	if again, ok := g.looked[d]; ok && (again || !g.again) {
		return false, nil
	}
	if len(g.looked) >= maxKnown {
		clear(g.looked)
	}
	g.looked[d] = g.again
	st, err := g.p.o.Store.PieceState(d)
	if err != nil {
		return false, fmt.Errorf("look at piece %s: %w", d.Short(), err)
	}
	if !st.Held && !st.Synced {
		g.missing[d] = struct{}{}
	}
	return st.Held, nil
}

// enqueue queues a piece. Queued pieces are looked up and read together: one index piece lists too
// few for a disk and several processors.
func (g *gatherer) enqueue(d object.Digest) error {
	if _, ok := g.inlined[d]; ok {
		return nil
	}
	if again, ok := g.queued[d]; ok {
		g.queued[d] = again || g.again
		return nil
	}
	g.queue = append(g.queue, d)
	g.queued[d] = g.again
	if len(g.queue) < queuedPieces {
		return nil
	}
	return g.takeQueued()
}

// takeQueued takes the queued pieces that are local.
func (g *gatherer) takeQueued() error {
	ds := g.queue
	err := g.p.o.Store.Pieces(g.ctx, ds, func(i int, st *storage.PieceState) bool {
		switch {
		case st.Held && (!st.Synced || g.queued[ds[i]] && !g.p.isSent(&st.Place)):
			return true
		case st.Synced && !ds[i].Kind().IsIndex():
			g.progress.Advance(0, int64(st.Place.Bytes))
		case st.Synced:
		default:
			g.missing[ds[i]] = struct{}{}
		}
		return false
	}, func(i int, content []byte) error { return g.take(ds[i], content) })
	g.queue = g.queue[:0]
	clear(g.queued)
	return err
}

// take takes a piece. content is borrowed.
func (g *gatherer) take(d object.Digest, content []byte) error {
	q := inlinePiece{d, content, g.eager, g.plain, g.apart || g.forced}
	g.apart = false
	if g.spilled || g.forced {
		return g.upload(q)
	}
	q.content = bytes.Clone(content)
	g.inline = append(g.inline, q)
	g.inlined[d] = struct{}{}
	if g.bytes += len(content); g.bytes <= inlineBytes {
		return nil
	}
	return g.spill()
}

// spill moves the pieces inline so far to packs.
func (g *gatherer) spill() error {
	g.spilled = true
	pieces := g.inline
	g.inline, g.inlined, g.bytes = nil, map[object.Digest]struct{}{}, 0
	lazy := slices.IndexFunc(pieces, func(q inlinePiece) bool { return !q.eager })
	for i, q := range pieces {
		if i == lazy {
			if err := g.flush(); err != nil {
				return err
			}
		}
		if err := g.upload(q); err != nil {
			return err
		}
	}
	return nil
}

func (g *gatherer) upload(q inlinePiece) error {
	g.mu.Lock()
	full, many := g.pending >= maxPending, len(g.indexes) >= maxIndexes
	g.mu.Unlock()
	if many {
		if err := g.flush(); err != nil {
			return err
		}
	}
	if full {
		if err := g.announce(); err != nil {
			return err
		}
	}
	if g.up == nil {
		p := g.p
		g.up = pack.NewUploader(g.ctx, pack.UploadOptions{
			Bucket: p.o.Bucket, Sealer: p.o.Sealer, Parallel: p.o.Parallel, Uploaded: g.uploaded,
			Names: p.o.Names, Epoch: p.state.At.Epoch,
		})
	}
	if q.apart {
		if err := g.up.Cut(); err != nil {
			return err
		}
	}
	return g.up.Add(q.digest, q.content, q.eager, !q.plain)
}

// flush waits until all pieces added to packs are in the bucket and recorded. Places of index
// pieces become durable last: a reader assumes that the pieces below an index piece with a place
// have places.
func (g *gatherer) flush() error {
	if g.up == nil {
		return nil
	}
	_, err := g.up.Finish()
	g.up.Close()
	g.up = nil
	if err != nil || len(g.indexes) == 0 {
		return err
	}
	if err := g.p.submitAlone(context.WithoutCancel(g.ctx), &storage.SyncBatch{Places: g.indexes}); err != nil {
		return fmt.Errorf("record what was uploaded: %w", err)
	}
	g.indexes = nil
	return nil
}

// announce appends an entry that announces the pending packs, before there are too many for one
// entry. The commits that use them follow later. Uploads in flight go on. If the page enters
// another epoch they are abandoned, since no entry of that epoch can name them; their pieces go up
// with the next body.
func (g *gatherer) announce() error {
	moved := false
	say := func() error {
		in := g.p.state.At.Epoch
		err := g.announcePending()
		moved = g.p.state.At.Epoch != in
		return err
	}
	if g.up == nil {
		return say()
	}
	err := g.up.Alone(say)
	if moved {
		g.close()
		g.indexes = nil
	}
	return err
}

// announcePending appends entries until no pack is pending.
func (g *gatherer) announcePending() error {
	p := g.p
	for range maxOvertaken {
		if len(p.state.Pending.Packs) == 0 { // they are announced, or the page is in another epoch
			g.mu.Lock()
			g.pending = 0
			g.mu.Unlock()
			return nil
		}
		body, err := p.body(g.ctx, 0, p.writePacks)
		if err != nil {
			return err
		}
		next := p.state.At
		next.Number++
		landed, err := g.append(g.ctx, body)
		if err != nil {
			return err
		}
		g.overtaken = g.overtaken || !landed || p.state.At.Epoch != next.Epoch || p.state.At.Number != next.Number
	}
	return fmt.Errorf("announce packs: %w: %w", pagelog.ErrContended, base.ErrNetwork)
}

// close abandons uploads in flight.
func (g *gatherer) close() {
	if g.up != nil {
		g.up.Close()
		g.up = nil
	}
}

// uploaded makes a pack durable, and the places in it except those of index pieces. It ignores a
// pack of another epoch than the page's, which no entry can name.
func (g *gatherer) uploaded(ctx context.Context, w wire.Pack, pieces []storage.PlacedPiece) error {
	if w.Epoch != g.p.state.At.Epoch {
		return nil
	}
	var places, indexes []storage.PlacedPiece
	for _, q := range pieces {
		if q.Digest.Kind().IsIndex() {
			indexes = append(indexes, q)
		} else {
			places = append(places, q)
		}
	}
	if err := g.p.recordPack(ctx, w, places); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending++
	g.indexes = append(g.indexes, indexes...)
	for i := range places {
		g.progress.Advance(0, int64(places[i].Place.Bytes))
	}
	return nil
}

// recordPack makes a pending pack durable, and places in it. The pack becomes durable first: a
// place in a pack that no entry will name would be false.
func (p *Page) recordPack(ctx context.Context, w wire.Pack, places []storage.PlacedPiece) error {
	// Uploaded data is worth recording even if the caller has canceled: the disk bounds the wait.
	ctx = context.WithoutCancel(ctx)
	n := p.state.Next()
	q := n.Pending
	q.Packs = append(slices.Clip(q.Packs), w)
	n.Pending = q
	some := places[:min(len(places), placesTogether)]
	err := p.write(ctx, nil, &storage.SyncBatch{Places: some}, n)
	if rest := places[len(some):]; err == nil && len(rest) > 0 {
		err = p.submitAlone(ctx, &storage.SyncBatch{Places: rest})
	}
	if err != nil {
		return fmt.Errorf("record what was uploaded: %w", err)
	}
	return nil
}
