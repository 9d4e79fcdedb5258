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
	// defaultParallel is the default number of packs in flight at once.
	defaultParallel = 2
	// queuedBlocks is how many full blocks may wait to be compressed.
	queuedBlocks = 8
)

// Uploader packs the pieces added to it and uploads the packs, several at a time. Pieces of EAGER
// values go to packs of their own.
//
// It holds 2·Parallel+2 packs and two MiB of blocks, and the digests of at least the last 65 536
// pieces of each sort. It belongs to one goroutine; Close ends it. The first error ends all, and
// every later call returns it.
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

	// The next three belong to the gathering goroutine until it ends.
	compressor seal.Compressor
	shorter    []byte // memory of a compressed block
	begun      int    // packs

	filling  [fillings]block // the caller's, as all that follow
	recent   [sorts]recent
	finished bool
}

// UploadOptions configure an Uploader.
type UploadOptions struct {
	Bucket bucket.Bucket
	Sealer *seal.Sealer
	// Names are those of the page. Epoch is the one in whose directory the packs go.
	Names wire.Names
	Epoch epoch.ID
	// Parallel is the number of packs in flight at once; 0: 2.
	Parallel int
	// Uploaded is called after each pack is in the bucket, with the places of its pieces, one call
	// at a time and on a goroutine of the Uploader. If it returns nil, the places are durable here.
	// An error ends the Uploader. It may be nil. ctx ends with the Uploader, perhaps before the
	// call. Uploaded owns pieces.
	Uploaded func(ctx context.Context, ref wire.Pack, pieces []storage.PlacedPiece) error
}

// The sorts of packs.
const (
	lazy = iota
	eager
	sorts
)

// fillings are the blocks that are filled at once: one of each sort, and one of index pieces of
// LAZY values. Blocks of index pieces precede all others of a pack, next to its table. So the
// request for the table brings what a reader needs before it can ask for a range. In packs of their
// own, their length would show how many pieces there are.
const (
	lists    = sorts
	fillings = sorts + 1
)

// block is the plaintext of a block before compression.
type block struct {
	sort     int
	list     bool   // has index pieces of LAZY values
	room     []byte // seal.BlockOverhead bytes of room, and the plaintext
	memory   *room  // that contains room
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

// Alone calls fn while Uploaded does not run. Packs still go to the bucket meanwhile, and wait
// there to be reported. The error is that of fn.
func (u *Uploader) Alone(fn func() error) error {
	u.telling.Lock()
	defer u.telling.Unlock()
	return fn()
}

// room is the memory of a block. A block has no more pieces than fit.
type room [seal.BlockOverhead + wire.BlockBytes]byte

var rooms = sync.Pool{New: func() any { return new(room) }}

// Cut ends the blocks being filled: earlier pieces are not compressed together with later ones.
// Errors: as Add.
func (u *Uploader) Cut() error {
	for i := range u.filling {
		if err := u.endBlock(i); err != nil {
			return err
		}
	}
	return nil
}

// Add puts a piece into the pack being filled. content is copied, and must match d. isEager is the
// sort of its pack. compress says whether it may be compressed, together with others that may be.
// Add waits while Parallel packs are in flight and another one is ready.
//
// Add skips a piece that was among the last 65 536 pieces of a sort; an older one is stored once
// more, which does no harm. Errors: base.ErrInvalid for a piece that is empty, or of a tree node,
// base.ErrTooLarge, base.ErrClosed, those of the bucket, of Uploaded and of the context.
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

// has reports whether a piece was added recently.
func (u *Uploader) has(d object.Digest) bool { return u.recent[lazy].has(d) || u.recent[eager].has(d) }

// endBlock sends a filled block to the gathering goroutine.
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

// Finish uploads the rest and waits for all packs. The refs are those of all packs, in the order in
// which they were begun. After it Add returns base.ErrClosed. Errors are those of Add. After an
// error the bucket may still have packs that were reported to Uploaded.
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

// Close abandons uploads in flight and waits for their end. After Finish, and a second time, it
// does nothing.
func (u *Uploader) Close() {
	u.cancel(fmt.Errorf("upload packs: %w", base.ErrClosed))
	u.end()
}

// end makes the goroutines end when there is nothing left to do, and waits for them.
func (u *Uploader) end() {
	if !u.finished {
		u.finished = true
		close(u.blocks)
	}
	u.wg.Wait()
	u.filling = [fillings]block{}
}

// recent is a set of digests that drops old ones: it has at least the last recentPieces added.
type recent struct{ newer, older map[object.Digest]struct{} }

// recentPieces is also the greatest number of pieces of a pack, so that no piece is in it twice
// (I4).
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
