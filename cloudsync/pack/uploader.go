package pack

import (
	"context"
	"fmt"
	"sync"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

const (
	// defaultParallel is the number of packs under way at once when nobody says.
	defaultParallel = 2
	// queuedFrames is how many full frames may wait to be sealed.
	queuedFrames = 8
)

// Uploader makes packs of the pieces that it is given and uploads them, several at a time: pieces of EAGER values in some
// packs, all others in others.
//
// It holds Parallel+2 packs and two MiB of frames, and the digests of at least the last 65 536 pieces. It belongs to one
// goroutine; Close ends it. The first error ends all, and every call after it returns that.
type Uploader struct {
	o        UploadOptions
	ctx      context.Context
	cancel   context.CancelCauseFunc
	wg       sync.WaitGroup
	frames   chan frame
	free     chan []byte // content of frames, to be used again
	uploader *carrier

	filling  [2]*filling // by sort; the caller's
	recent   recent
	begun    int
	finished bool
}

// UploadOptions say where packs go.
type UploadOptions struct {
	Bucket bucket.Bucket
	Sealer *seal.Sealer
	Names  format.PageNames
	// Parallel is the number of packs under way at once; 0: 2.
	Parallel int
	// Uploaded is called, one call at a time and on a goroutine of the Uploader, after each pack is in the bucket, with the
	// places of its pieces; when it returns nil they are durable here. An error ends the Uploader. It may be nil. ctx ends
	// when the Uploader does. pieces are Uploaded's.
	Uploaded func(ctx context.Context, ref format.PackRef, pieces []storage.PlacedPiece) error
}

// The sorts of packs.
const (
	lazy = iota
	eager
)

// filling is a pack that is being filled.
type filling struct {
	order  int                // among all packs
	bytes  int                // of plaintext, that of the present frame included
	plain  []byte             // of the present frame, behind a byte of room
	pieces []format.PackPiece // of the present frame; Frame is set when it is sealed
	held   map[object.Digest]struct{}
}

// frame is the plaintext of a frame, behind a byte of room, on its way to be sealed.
type frame struct {
	sort   int
	order  int // of its pack
	plain  []byte
	pieces []format.PackPiece
	last   bool // of its pack
}

// NewUploader returns an Uploader that ends with ctx, with goroutines that Close waits for.
func NewUploader(ctx context.Context, o UploadOptions) *Uploader {
	if o.Parallel <= 0 {
		o.Parallel = defaultParallel
	}
	u := &Uploader{o: o, frames: make(chan frame, queuedFrames), free: make(chan []byte, queuedFrames+3)}
	u.ctx, u.cancel = context.WithCancelCause(ctx)
	u.uploader = newCarrier(u.ctx, u.cancel, o)
	u.wg.Go(u.runSealing)
	for range o.Parallel {
		u.wg.Go(u.uploader.runUploads)
	}
	return u
}

// Add puts a piece into the pack that is being filled; content is copied, and is what d names. isEager says to which sort of packs
// it belongs. It waits when Parallel packs are under way and another one is ready.
//
// A piece that was added already to a pack that is not finished, or among the last 65 536 pieces, is passed over; an older one
// is stored once more, which does no harm. Errors: base.ErrInvalid for a piece that is empty, or of a tree node, base.ErrTooLarge,
// base.ErrClosed, those of the bucket, of Uploaded and of the context.
func (u *Uploader) Add(d object.Digest, content []byte, isEager bool) error {
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
	f := u.filling[sort]
	if f != nil && (f.bytes+len(content) > format.PackBytes || len(f.held) == format.MaxPackPieces) {
		if err := u.send(sort, true); err != nil {
			return err
		}
		f = nil
	}
	if f == nil {
		f = &filling{order: u.begun, held: make(map[object.Digest]struct{})}
		u.begun++
		u.filling[sort] = f
	}
	if len(f.plain)-1+len(content) > format.FrameBytes {
		if err := u.send(sort, false); err != nil {
			return err
		}
	}
	if f.plain == nil {
		f.plain = u.newPlain()
	}
	f.pieces = append(f.pieces, format.PackPiece{Digest: d, At: uint32(len(f.plain) - 1), Bytes: uint32(len(content))})
	f.plain = append(f.plain, content...)
	f.bytes += len(content)
	f.held[d] = struct{}{}
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
func (u *Uploader) has(d object.Digest) bool {
	for _, f := range u.filling {
		if f != nil {
			if _, ok := f.held[d]; ok {
				return true
			}
		}
	}
	return u.recent.has(d)
}

// newPlain returns a byte of room, with space for a frame behind it.
func (u *Uploader) newPlain() []byte {
	select {
	case b := <-u.free:
		return b[:1]
	default:
		return make([]byte, 1, format.FrameBytes+seal.FrameOverhead)
	}
}

// send gives the present frame of a pack to who seals it.
func (u *Uploader) send(sort int, last bool) error {
	f := u.filling[sort]
	select {
	case u.frames <- frame{sort: sort, order: f.order, plain: f.plain, pieces: f.pieces, last: last}:
	case <-u.ctx.Done():
		return context.Cause(u.ctx)
	}
	f.plain, f.pieces = nil, nil
	if last {
		u.recent.add(f.held)
		u.filling[sort] = nil
	}
	return nil
}

// Finish uploads what is left and waits for everything. The refs are those of all packs, in the order in which they were begun. After it
// Add returns base.ErrClosed. Errors are those of Add; then there may be packs in the bucket all the same, of which Uploaded
// was told.
func (u *Uploader) Finish() ([]format.PackRef, error) {
	if u.finished {
		return nil, fmt.Errorf("finish packs: %w", base.ErrClosed)
	}
	var err error
	for sort, f := range u.filling {
		if f != nil && err == nil {
			err = u.send(sort, true)
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
	return u.uploader.sorted(u.begun), nil
}

// Close gives up what is under way and waits for it. After Finish, and a second time, it does nothing.
func (u *Uploader) Close() {
	u.cancel(fmt.Errorf("upload packs: %w", base.ErrClosed))
	u.end()
}

// end lets the goroutines end when there is nothing left to do, and waits for them.
func (u *Uploader) end() {
	if !u.finished {
		u.finished = true
		close(u.frames)
	}
	u.wg.Wait()
	u.filling = [2]*filling{}
}

// recent is a set of digests that forgets old ones: it has at least the last recentPieces of those added.
type recent struct{ newer, older map[object.Digest]struct{} }

const recentPieces = 1 << 16

func (r *recent) has(d object.Digest) bool {
	if _, ok := r.newer[d]; ok {
		return true
	}
	_, ok := r.older[d]
	return ok
}

// add adds the pieces of a finished pack. It may keep the map.
func (r *recent) add(ds map[object.Digest]struct{}) {
	if len(r.newer) >= recentPieces {
		r.older, r.newer = r.newer, nil
	}
	if r.newer == nil {
		r.newer = ds
		return
	}
	for d := range ds {
		r.newer[d] = struct{}{}
	}
}
