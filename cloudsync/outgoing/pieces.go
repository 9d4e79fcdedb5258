package outgoing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/cloudsync/progress"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

const (
	// maxPending is how many packs may wait for their announcement: the row that lists them is
	// written again with each of them.
	maxPending = 1024
	// maxRelies bounds what a body says that it relies on. What is left out is no danger: when it
	// is condemned its pieces become local, and are sent again by a later body.
	maxRelies = 1 << 16
	// maxDepth is the greatest number of index pieces above a chunk.
	maxDepth = 16
	// queuedPieces is how many pieces are looked up and read together.
	queuedPieces = 2048
)

// errAnnounce says that so many packs wait to be announced that this has to be done first.
var errAnnounce = errors.New("packs are to be announced")

// gatherer takes the local pieces of values, children before the index pieces that list them: into
// the body as long as they are few, else to packs. Eager pieces come before lazy ones, with a call
// of flush between them.
type gatherer struct {
	p   *Page
	ctx context.Context // of the call that it serves
	// forced sends all to packs. limit is how many packs may wait for their announcement.
	forced bool
	limit  int
	// progress is told of values and pieces that are done; nil: nobody is.
	progress *progress.Tracker
	// single says that no two pieces are compressed together, since nobody knows of which commits
	// they are.
	single bool

	plain bool // the pieces that are taken are not compressed
	apart bool // the next one is not compressed together with those before

	queue  []object.Digest // pieces on their way to be taken, in order
	queued map[object.Digest]struct{}

	inline      []inlinePiece
	inlineBytes int
	inlined     map[object.Digest]struct{}
	spilled     bool // what is taken goes to packs
	up          *pack.Uploader

	lacks         bool                       // there are pieces that are not held, and that nobody has sent
	relied        map[object.Digest]struct{} // index pieces of values that were synced before
	reliesPacks   map[format.ID]struct{}
	reliesEntries map[uint64]struct{}

	mu      sync.Mutex
	next    uint64                         // guarded by mu
	flight  map[object.Digest]uint64       // guarded by mu; given to up and not in the bucket, in the order in which they were given
	waiting map[object.Digest]waitingPiece // guarded by mu; index pieces in the bucket that may list pieces in flight (I2)
	sent    map[format.ID]format.PackRef   // guarded by mu; packs uploaded
}

type inlinePiece struct {
	digest  object.Digest
	content []byte
	eager   bool
	plain   bool
	apart   bool
}

type waitingPiece struct {
	order uint64
	place storage.CloudPlace
}

func (p *Page) newGatherer(ctx context.Context) *gatherer {
	return &gatherer{
		p: p, ctx: ctx, limit: maxPending, queued: map[object.Digest]struct{}{}, inlined: map[object.Digest]struct{}{},
		relied: map[object.Digest]struct{}{}, reliesPacks: map[format.ID]struct{}{}, reliesEntries: map[uint64]struct{}{},
		flight: map[object.Digest]uint64{}, waiting: map[object.Digest]waitingPiece{}, sent: map[format.ID]format.PackRef{},
	}
}

// pieces takes the local pieces below ds, and these. It does not look below pieces that are synced
// (I2).
func (g *gatherer) pieces(ds []object.Digest, eager bool) error {
	err := g.walk(ds, eager, 0)
	if err == nil {
		err = g.takeQueued(eager)
	}
	g.queue = g.queue[:0]
	clear(g.queued)
	return err
}

// walk queues the pieces below ds, and these. depth is how many index pieces are above them.
func (g *gatherer) walk(ds []object.Digest, eager bool, depth int) error {
	for _, d := range ds {
		var err error
		if d.Kind().IsIndex() {
			err = g.index(d, eager, depth)
		} else {
			err = g.enqueue(d, eager)
		}
		if err != nil {
			return err
		}
		if depth == 0 {
			g.progress.Advance(1, 0)
		}
	}
	return nil
}

// enqueue queues a piece, which is looked up and read together with others: those of one index
// piece are too few for a disk and several processors.
func (g *gatherer) enqueue(d object.Digest, eager bool) error {
	if g.taken(d) {
		return nil
	}
	g.queue = append(g.queue, d)
	g.queued[d] = struct{}{}
	if len(g.queue) < queuedPieces {
		return nil
	}
	return g.takeQueued(eager)
}

// takeQueued takes those of the queued pieces that are local.
func (g *gatherer) takeQueued(eager bool) error {
	ds := g.queue
	err := g.p.o.Store.Pieces(g.ctx, ds, func(i int, st *storage.PieceState) bool {
		if st.Synced {
			g.rely(&st.Place)
			g.progress.Advance(0, contentBytes(ds[i], st.Place.Bytes))
			return false
		}
		g.lacks = g.lacks || !st.Held // I4
		return st.Held
	}, func(i int, content []byte) error { return g.take(ds[i], content, eager) })
	g.queue = g.queue[:0]
	clear(g.queued)
	return err
}

// index queues the pieces below an index piece, and that.
func (g *gatherer) index(d object.Digest, eager bool, depth int) error {
	if g.taken(d) {
		return nil
	}
	st, err := g.p.o.Store.PieceState(d)
	if err != nil {
		return fmt.Errorf("look at piece %s: %w", d.Short(), err)
	}
	if st.Synced {
		g.rely(&st.Place)
		if st.Held {
			return g.relyBelow(d, eager, depth)
		}
		return nil
	}
	if !st.Held {
		g.lacks = true
		return nil // I4
	}
	content, err := g.p.o.Store.Piece(g.ctx, d)
	if err != nil {
		return fmt.Errorf("read piece %s: %w", d.Short(), err)
	}
	children, err := childrenOf(d, content, depth)
	if err != nil {
		return err
	}
	if err := g.walk(children, eager, depth+1); err != nil {
		return err
	}
	return g.enqueue(d, eager)
}

// relyBelow notes that the body relies on the pieces of a value that was synced before, as far as
// its index pieces are held: who began with a checkpoint that did not need the value knows the
// place of none of them. Those that are local again, since their place was condemned and not that
// of the index piece, are taken: who reads the body looks for them.
func (g *gatherer) relyBelow(d object.Digest, eager bool, depth int) error {
	if _, ok := g.relied[d]; ok {
		return nil
	}
	g.relied[d] = struct{}{}
	content, err := g.p.o.Store.Piece(g.ctx, d)
	if err != nil {
		return fmt.Errorf("read piece %s: %w", d.Short(), err)
	}
	children, err := childrenOf(d, content, depth)
	if err != nil {
		return err
	}
	for _, c := range children {
		st, err := g.p.o.Store.PieceState(c)
		if err != nil {
			return fmt.Errorf("look at piece %s: %w", c.Short(), err)
		}
		if st.Synced {
			g.rely(&st.Place)
		}
		g.lacks = g.lacks || !st.Synced && !st.Held
		switch {
		case !st.Held:
		case !st.Synced:
			err = g.walk([]object.Digest{c}, eager, depth+1)
		case c.Kind().IsIndex():
			err = g.relyBelow(c, eager, depth+1)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// childrenOf returns what an index piece lists, nothing for a chunk.
func childrenOf(d object.Digest, content []byte, depth int) ([]object.Digest, error) {
	if !d.Kind().IsIndex() {
		return nil, nil
	}
	if depth >= maxDepth {
		return nil, &base.CorruptError{Where: "object", Key: d.String(), Got: "too many index pieces above one another"}
	}
	children, err := split.Children(d, content)
	if err != nil {
		return nil, fmt.Errorf("read index piece %s: %w", d.Short(), err)
	}
	return children, nil
}

// taken reports whether a piece that is not synced yet is on its way.
func (g *gatherer) taken(d object.Digest) bool {
	if _, ok := g.queued[d]; ok {
		return true
	}
	if _, ok := g.inlined[d]; ok {
		return true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	_, flies := g.flight[d]
	_, waits := g.waiting[d]
	return flies || waits
}

// notTaken returns the pieces that are not on their way, each once.
func (g *gatherer) notTaken(ds []object.Digest) []object.Digest {
	rest := make([]object.Digest, 0, len(ds))
	seen := make(map[object.Digest]struct{}, len(ds))
	for _, d := range ds {
		if _, again := seen[d]; !again && !g.taken(d) {
			rest = append(rest, d)
		}
		seen[d] = struct{}{}
	}
	return rest
}

// rely notes that the body relies on a place.
func (g *gatherer) rely(c *storage.CloudPlace) {
	switch {
	case len(g.reliesPacks)+len(g.reliesEntries) >= maxRelies:
	case c.Entry != 0:
		g.reliesEntries[c.Entry] = struct{}{}
	default:
		g.reliesPacks[c.Pack] = struct{}{}
	}
}

// take takes a piece. content is lent.
func (g *gatherer) take(d object.Digest, content []byte, eager bool) error {
	q := inlinePiece{d, content, eager, g.plain, g.apart || g.single}
	g.apart = false
	if g.spilled || g.forced {
		return g.upload(q)
	}
	q.content = bytes.Clone(content)
	g.inline = append(g.inline, q)
	g.inlined[d] = struct{}{}
	if g.inlineBytes += len(content); g.inlineBytes <= format.InlineBytes {
		return nil
	}
	return g.spill()
}

// spill gives to packs what stood in the body until now.
func (g *gatherer) spill() error {
	g.spilled = true
	pieces := g.inline
	g.inline, g.inlined, g.inlineBytes = nil, nil, 0
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
	g.p.mu.Lock()
	full := g.limit > 0 && len(g.p.pending.packs) >= g.limit
	g.p.mu.Unlock()
	if full {
		return errAnnounce
	}
	if g.up == nil {
		g.up = pack.NewUploader(g.ctx, pack.UploadOptions{
			Bucket: g.p.o.Bucket, Sealer: g.p.o.Sealer, Names: g.p.o.Names, Parallel: g.p.o.Parallel, Uploaded: g.uploaded,
		})
	}
	g.mu.Lock()
	g.flight[q.digest] = g.next
	g.next++
	g.mu.Unlock()
	if q.apart {
		if err := g.up.Cut(); err != nil {
			return err
		}
	}
	return g.up.Add(q.digest, q.content, q.eager, !q.plain)
}

// flush waits until all that was given to packs is in the bucket, and known to be.
func (g *gatherer) flush() error {
	if g.up == nil {
		return nil
	}
	_, err := g.up.Finish()
	g.up.Close()
	g.up = nil
	return err
}

// close gives up what is under way.
func (g *gatherer) close() {
	if g.up != nil {
		g.up.Close()
		g.up = nil
	}
}

// uploaded makes the places of a pack durable, but for those of index pieces that may list pieces
// in flight: these wait for a later pack (I2).
func (g *gatherer) uploaded(ctx context.Context, ref format.PackRef, pieces []storage.PlacedPiece) error {
	places, sample := g.arrived(pieces)
	announced := ref
	// A checkpoint's pack has what is in entries before: who reads of it after them, or after the
	// checkpoint, holds that, and needs only its table.
	announced.Eager = ref.Eager && !g.forced
	err := g.p.record(ctx, places, func(q *pending) {
		q.packs = append(q.packs, pendingPack{announced, sample})
	})
	if err != nil {
		return err
	}
	g.p.uploadedNow(ref.ID)
	for i := range pieces {
		g.progress.Advance(0, contentBytes(pieces[i].Digest, pieces[i].Place.Bytes))
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sent[ref.ID] = ref
	for i := range pieces {
		delete(g.flight, pieces[i].Digest)
	}
	for i := range places {
		delete(g.waiting, places[i].Digest)
	}
	return nil
}

// contentBytes is how much of a value a piece of a length holds itself.
func contentBytes(d object.Digest, bytes uint32) int64 {
	if d.Kind().IsIndex() {
		return 0
	}
	return int64(bytes)
}

// arrived returns the places that can count from now on, and a piece of the pack, one that counts
// if there is one.
func (g *gatherer) arrived(pieces []storage.PlacedPiece) (places []storage.PlacedPiece, sample object.Digest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	here := make(map[object.Digest]struct{}, len(pieces))
	for i := range pieces {
		q := &pieces[i]
		here[q.Digest] = struct{}{}
		if q.Digest.Kind().IsIndex() {
			g.waiting[q.Digest] = waitingPiece{g.flight[q.Digest], q.Place}
			continue
		}
		places = append(places, *q)
	}
	oldest := uint64(math.MaxUint64)
	for d, order := range g.flight {
		if _, ok := here[d]; !ok {
			oldest = min(oldest, order)
		}
	}
	for d, w := range g.waiting {
		if w.order < oldest {
			places = append(places, storage.PlacedPiece{Digest: d, Place: w.place})
		}
	}
	slices.SortFunc(places, func(a, b storage.PlacedPiece) int { return a.Digest.Compare(b.Digest) })
	sample = pieces[0].Digest
	for i := range pieces {
		if _, waits := g.waiting[pieces[i].Digest]; !waits {
			sample = pieces[i].Digest
			break
		}
	}
	return places, sample
}

// valuesTogether is how many values are looked at at once.
const valuesTogether = 256

// values gives what the values that a diff puts with one of the priorities are made of, some roots
// at a time.
func (g *gatherer) values(d *delta, priority object.Priority, values func(roots []object.Digest, eager bool) error) error {
	if priority == object.Eager && !d.tally.eager || priority == object.Lazy && !d.tally.lazy {
		return nil
	}
	roots := make([]object.Digest, 0, valuesTogether)
	for e, err := range btree.Diff(g.ctx, d.from, d.to, nil) {
		if err != nil {
			return fmt.Errorf("compare trees: %w", err)
		}
		if !e.HasRight || e.Right.Inline || e.Right.Priority != priority {
			continue
		}
		if roots = append(roots, e.Right.Digest); len(roots) == valuesTogether {
			if err := values(roots, priority == object.Eager); err != nil {
				return err
			}
			roots = roots[:0]
		}
	}
	return values(roots, priority == object.Eager)
}

// deltas gives the roots of all values that the diffs put: first of EAGER ones, so that a piece of
// both goes with them.
func (g *gatherer) deltas(ds []*delta, values func(roots []object.Digest, eager bool) error) error {
	for _, priority := range []object.Priority{object.Eager, object.Lazy} {
		for _, d := range ds {
			g.apart, g.plain = true, d.tally.plain
			if err := g.values(d, priority, values); err != nil {
				return err
			}
		}
		if err := g.flush(); err != nil {
			return err
		}
	}
	return nil
}
