package pack

import (
	"context"
	"fmt"
	"sync"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

const (
	// defaultParallel is the number of packs under way at once when nobody says.
	defaultParallel = 2
	// queuedBlocks is how many full blocks may wait to be compressed.
	queuedBlocks = 8
)

// Uploader makes packs of the pieces that it is given and uploads them, several at a time: pieces
// of EAGER values in some packs, all others in others.
//
// It holds 2·Parallel+2 packs and two MiB of blocks, and the digests of at least the last 65 536
// pieces of each sort. It belongs to one goroutine; Close ends it. The first error ends all, and
// every call after it returns that.
type Uploader struct {
	o      UploadOptions
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup
	blocks chan block
	packs  chan *gathering

	telling sync.Mutex // held while Uploaded runs, and by Alone

	mu   sync.Mutex
	refs map[int]wire.Pack // by order; guarded by mu

	// The goroutine's that gathers, until it has ended.
	compressor seal.Compressor
	shorter    []byte // memory of a block that was compressed
	begun      int    // packs

	filling  [fillings]block // the caller's, as all below
	recent   [sorts]recent
	finished bool
}

// UploadOptions say where packs go.
type UploadOptions struct {
	Bucket bucket.Bucket
	Sealer *seal.Sealer
	// Names are those of the page, and Epoch is the one in whose directory the packs go.
	Names wire.Names
	Epoch epoch.ID
	// Parallel is the number of packs under way at once; 0: 2.
	Parallel int
	// Uploaded is called, one call at a time and on a goroutine of the Uploader, after each pack is
	// in the bucket, with the places of its pieces; when it returns nil they are durable here. An
	// error ends the Uploader. It may be nil. ctx ends when the Uploader does, which it may have
	// done when Uploaded is called. pieces are Uploaded's.
	Uploaded func(ctx context.Context, ref wire.Pack, pieces []storage.PlacedPiece) error
}

// The sorts of packs.
const (
	lazy = iota
	eager
	sorts
)

// fillings are the blocks that are filled at once: one of each sort, and one of what lists the
// pieces of LAZY values. These blocks stand behind all others of a pack, next to its table, so that
// the request for that brings what a reader needs before he can ask for a range. In a pack of their
// own their length would show how many pieces there are.
const (
	lists    = sorts
	fillings = sorts + 1
)

// block is the plaintext of a block on its way to be compressed.
type block struct {
	sort     int
	list     bool   // has what lists pieces of LAZY values
	room     []byte // seal.BlockOverhead bytes of room, and the plaintext
	memory   *room  // in which that lies; nil where it does not belong to the block
	pieces   []wire.PackPiece
	compress bool
}

func (b *block) plain() []byte { return b.room[seal.BlockOverhead:] }

// NewUploader returns an Uploader that ends with ctx, with goroutines that Close waits for.
func NewUploader(ctx context.Context, o UploadOptions) *Uploader {
	if o.Parallel <= 0 {
		o.Parallel = defaultParallel
	}
	u := &Uploader{
		o: o, blocks: make(chan block, queuedBlocks), packs: make(chan *gathering), refs: make(map[int]wire.Pack),
	}
	u.ctx, u.cancel = context.WithCancelCause(ctx)
	u.wg.Go(u.runGathering)
	for range o.Parallel {
		u.wg.Go(u.runCarrier)
	}
	return u
}

// Alone calls fn while Uploaded does not run. Packs go on to the bucket meanwhile, where they wait
// to be told of. The error is that of fn.
func (u *Uploader) Alone(fn func() error) error {
	u.telling.Lock()
	defer u.telling.Unlock()
	return fn()
}

// room is the memory of a block: more pieces than fit are not put into one.
type room [seal.BlockOverhead + wire.BlockBytes]byte

var rooms = sync.Pool{New: func() any { return new(room) }}

// Cut ends the blocks that are being filled: what was added before is not compressed together with
// what comes after. Errors: as Add.
func (u *Uploader) Cut() error {
	for i := range u.filling {
		if err := u.endBlock(i); err != nil {
			return err
		}
	}
	return nil
}

// Add puts a piece into the pack that is being filled; content is copied, and is what d names.
// isEager says to which sort of packs it belongs, compress whether it may be compressed, with
// others that may be. It waits when Parallel packs are under way and another one is ready.
//
// A piece that was among the last 65 536 pieces of a sort is passed over; an older one is stored
// once more, which does no harm. Errors: base.ErrInvalid for a piece that is empty, or of a tree
// node, base.ErrTooLarge, base.ErrClosed, those of the bucket, of Uploaded and of the context.
func (u *Uploader) Add(d object.Digest, content []byte, isEager, compress bool) error {
	if err := u.check(d, content); err != nil {
		return err
	}
	if u.has(d) {
		return nil
	}
	sort := lazy
	if isEager {
		sort = eager
	}
	at := sort
	if sort == lazy && d.Kind().IsIndex() {
		at = lists
	}
	b := &u.filling[at]
	if len(b.room)+len(content) > seal.BlockOverhead+wire.BlockBytes || b.compress != compress {
		if err := u.endBlock(at); err != nil {
			return err
		}
	}
	if b.room == nil {
		memory := rooms.Get().(*room)
		*b = block{sort: sort, list: at == lists, room: memory[:seal.BlockOverhead], memory: memory, compress: compress}
	}
	b.pieces = append(b.pieces, wire.PackPiece{Digest: d, At: uint32(len(b.plain())), Bytes: uint32(len(content))})
	b.room = append(b.room, content...)
	u.recent[sort].add(d)
	return nil
}

func (u *Uploader) check(d object.Digest, content []byte) error {
	switch {
	case u.ctx.Err() != nil:
		return context.Cause(u.ctx)
	case u.finished:
		return fmt.Errorf("add piece %s to a pack: %w", d.Short(), base.ErrClosed)
	case len(content) == 0 || !d.Valid() || d.Kind().IsNode():
		return fmt.Errorf("add piece %s of %d bytes to a pack: %w", d, len(content), base.ErrInvalid)
	case len(content) > limits.MaxPieceBytes:
		return fmt.Errorf("add piece %s of %d bytes to a pack: %w", d, len(content), base.ErrTooLarge)
	}
	return nil
}

// has reports whether a piece was added already.
func (u *Uploader) has(d object.Digest) bool { return u.recent[lazy].has(d) || u.recent[eager].has(d) }

// endBlock gives a block that is being filled to who compresses it.
func (u *Uploader) endBlock(i int) error {
	b := u.filling[i]
	u.filling[i] = block{}
	if b.room == nil {
		return nil
	}
	select {
	case u.blocks <- b:
		return nil
	case <-u.ctx.Done():
		return context.Cause(u.ctx)
	}
}

// Finish uploads what is left and waits for everything. The refs are those of all packs, in the
// order in which they were begun. After it Add returns base.ErrClosed. Errors are those of Add;
// then there may be packs in the bucket all the same, of which Uploaded was told.
func (u *Uploader) Finish() ([]wire.Pack, error) {
	if u.finished {
		return nil, fmt.Errorf("finish packs: %w", base.ErrClosed)
	}
	var err error
	for i := range u.filling {
		if err == nil {
			err = u.endBlock(i)
		}
	}
	u.end()
	if err == nil && u.ctx.Err() != nil {
		err = context.Cause(u.ctx)
	}
	u.cancel(fmt.Errorf("upload packs: %w", base.ErrClosed))
	if err != nil {
		return nil, err
	}
	refs := make([]wire.Pack, 0, u.begun)
	for i := range u.begun {
		refs = append(refs, u.refs[i])
	}
	return refs, nil
}

// Close gives up what is under way and waits for it. After Finish, and a second time, it does
// nothing.
func (u *Uploader) Close() {
	u.cancel(fmt.Errorf("upload packs: %w", base.ErrClosed))
	u.end()
}

// end lets the goroutines end when there is nothing left to do, and waits for them.
func (u *Uploader) end() {
	if !u.finished {
		u.finished = true
		close(u.blocks)
	}
	u.wg.Wait()
	u.filling = [fillings]block{}
}

// recent is a set of digests that forgets old ones: it has at least the last recentPieces of those
// added.
type recent struct{ newer, older map[object.Digest]struct{} }

// recentPieces is also the greatest number of pieces of a pack, so that none is there twice (I4).
const recentPieces = 1 << 16

func (r *recent) has(d object.Digest) bool {
	if _, ok := r.newer[d]; ok {
		return true
	}
	_, ok := r.older[d]
	return ok
}

func (r *recent) add(d object.Digest) {
	if r.newer == nil || len(r.newer) >= recentPieces {
		r.older, r.newer = r.newer, make(map[object.Digest]struct{})
	}
	r.newer[d] = struct{}{}
}
