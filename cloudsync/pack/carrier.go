package pack

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// Label returns the label with which the packs of a page are sealed. It is the same for all of them: they differ by their ids.
func Label(n format.PageNames) seal.Label {
	return seal.Label{Role: format.RolePack, Name: strings.TrimSuffix(n.PacksPrefix(), "/")}
}

// packRoom is the length of the greatest pack whose buffer need not grow again: plaintext, overhead of frames, table of 1 024 pieces.
const packRoom = format.PackBytes + format.PackBytes/128

// smallPack is the length beyond which the buffer of a pack gets packRoom at once.
const smallPack = 1 << 20

// frameRoom is more than a sealed frame is longer than its plaintext.
const frameRoom = 1 << 10

// sealing is a pack that is being sealed into memory.
type sealing struct {
	ref   format.PackRef
	order int
	w     *seal.Writer
	table format.PackTable
	b     *buffer
}

// runSealing seals frames as they come, and gives finished packs to the carrier. It ends when there are no more frames, or with the context.
func (u *Uploader) runSealing() {
	defer close(u.uploader.packs)
	var open [2]*sealing
	for f := range u.frames {
		if u.ctx.Err() != nil {
			continue // Close has made the channel end, or will
		}
		if err := u.seal(&open[f.sort], f); err != nil {
			u.cancel(err)
		}
	}
}

// seal adds a frame to its pack, *open, which it begins and ends.
func (u *Uploader) seal(open **sealing, f frame) error {
	p := *open
	if p == nil {
		var err error
		if p, err = u.uploader.begin(f); err != nil {
			return err
		}
		*open = p
	}
	if err := p.addFrame(f); err != nil {
		return fmt.Errorf("seal pack %s: %w", p.ref.ID, err)
	}
	select {
	case u.free <- f.plain:
	default:
	}
	if !f.last {
		return nil
	}
	*open = nil
	if err := p.end(); err != nil {
		return fmt.Errorf("seal pack %s: %w", p.ref.ID, err)
	}
	select {
	case u.uploader.packs <- p:
	case <-u.ctx.Done():
	}
	return nil
}

func (p *sealing) addFrame(f frame) error {
	p.b.grow(len(f.plain) + frameRoom)
	number, err := p.w.WriteFrame(f.plain, f.last)
	if err != nil {
		return err
	}
	for _, piece := range f.pieces {
		piece.Frame = uint32(number)
		p.table.Pieces = append(p.table.Pieces, piece)
	}
	return nil
}

func (p *sealing) end() error {
	if err := p.w.SetTable(p.table.Encode()); err != nil {
		return err
	}
	if err := p.w.Close(); err != nil {
		return err
	}
	p.ref.Bytes, p.ref.Pieces = uint64(p.w.Size()), uint32(len(p.table.Pieces))
	return nil
}

// carrier uploads sealed packs.
type carrier struct {
	o      UploadOptions
	ctx    context.Context
	cancel context.CancelCauseFunc
	packs  chan *sealing
	free   chan *buffer
	told   chan struct{} // holds a token while Uploaded runs

	mu   sync.Mutex
	refs map[int]format.PackRef // by order; guarded by mu
}

func newCarrier(ctx context.Context, cancel context.CancelCauseFunc, o UploadOptions) *carrier {
	return &carrier{
		o: o, ctx: ctx, cancel: cancel, packs: make(chan *sealing), free: make(chan *buffer, o.Parallel+2),
		told: make(chan struct{}, 1), refs: make(map[int]format.PackRef),
	}
}

// begin begins the pack of a frame.
func (c *carrier) begin(f frame) (*sealing, error) {
	p := &sealing{order: f.order}
	select {
	case p.b = <-c.free:
	default:
		p.b = new(buffer)
	}
	p.b.b = p.b.b[:0]
	w, err := c.o.Sealer.NewWriter(p.b, Label(c.o.Names))
	if err != nil {
		return nil, fmt.Errorf("begin pack: %w", err)
	}
	p.w = w
	p.ref = format.PackRef{ID: format.ID(w.Ref().ID), Eager: f.sort == eager}
	return p, nil
}

// runUploads uploads packs until there are no more, or the context ends.
func (c *carrier) runUploads() {
	for p := range c.packs {
		if c.ctx.Err() != nil {
			continue
		}
		if err := c.upload(p); err != nil {
			c.cancel(err)
		}
	}
}

// upload stores a pack in the bucket and tells of it.
func (c *carrier) upload(p *sealing) error {
	name := c.o.Names.Pack(p.ref.ID)
	content := bucket.NewContent(p.b.b)
	err := c.o.Bucket.PutIfAbsent(c.ctx, name, int64(len(p.b.b)), content)
	if errors.Is(err, bucket.ErrExists) && bucket.Ambiguous(err) {
		err = c.verify(p.ref.ID, int64(len(p.b.b)))
	}
	if err != nil {
		return fmt.Errorf("upload pack %s: %w", name, err)
	}
	if !content.IsLent() { // else a try that did not end has it still
		c.free <- p.b // has room for all that there are
	}
	p.b = nil
	if err := c.tell(p); err != nil {
		return fmt.Errorf("record pack %s: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refs[p.order] = p.ref
	return nil
}

// verify looks whether the object that took the name of a pack can be the pack: nobody else knows its random name, so an earlier try has stored it,
// whole.
func (c *carrier) verify(id format.ID, sizeBytes int64) error {
	o, err := c.o.Bucket.Get(c.ctx, c.o.Names.Pack(id), 0, 0)
	if err != nil {
		return err
	}
	if err := o.Body.Close(); err != nil {
		return err
	}
	if o.Size != sizeBytes {
		return &base.CorruptError{Where: kindPack, Key: id.String(), Want: fmt.Sprintf("the %d bytes uploaded", sizeBytes), Got: fmt.Sprint(o.Size)}
	}
	return nil
}

// tell calls Uploaded, when no other call runs.
func (c *carrier) tell(p *sealing) error {
	if c.o.Uploaded == nil {
		return nil
	}
	pieces := place(&p.ref, p.w.Ref().KeyIndex, p.w.Frames(), p.table.Pieces)
	select {
	case c.told <- struct{}{}:
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	defer func() { <-c.told }()
	return c.o.Uploaded(c.ctx, p.ref, pieces)
}

// sorted returns the refs of n packs in order.
func (c *carrier) sorted(n int) []format.PackRef {
	c.mu.Lock()
	defer c.mu.Unlock()
	refs := make([]format.PackRef, 0, n)
	for i := range n {
		refs = append(refs, c.refs[i])
	}
	return refs
}

// place returns the places of pieces in a pack.
func place(ref *format.PackRef, keyIndex uint32, frames []seal.Frame, pieces []format.PackPiece) []storage.PlacedPiece {
	placed := make([]storage.PlacedPiece, len(pieces))
	for i, p := range pieces {
		f := frames[p.Frame]
		placed[i] = storage.PlacedPiece{Digest: p.Digest, Place: storage.CloudPlace{
			Pack: ref.ID, Frame: p.Frame, Offset: f.Offset, SealedBytes: uint32(f.SealedBytes), At: p.At, Bytes: p.Bytes, KeyIndex: keyIndex,
		}}
	}
	return placed
}

// buffer collects a sealed pack. Unlike bytes.Buffer it grows to the length of a full pack and not much beyond, and can be read again and again.
type buffer struct{ b []byte }

// grow makes room for n bytes.
func (w *buffer) grow(n int) {
	need := len(w.b) + n
	if need <= cap(w.b) {
		return
	}
	room := max(need, 2*cap(w.b))
	if need > smallPack && need <= packRoom {
		room = packRoom // it will be full: growing again would copy it, and leave as much behind
	}
	w.b = append(make([]byte, 0, room), w.b...)
}

// AvailableBuffer returns the empty end of the buffer, to be appended to and given to Write, which copies nothing then.
func (w *buffer) AvailableBuffer() []byte { return w.b[len(w.b):] }

// Write implements io.Writer. It never fails.
func (w *buffer) Write(p []byte) (int, error) {
	end := w.b[len(w.b):cap(w.b)]
	if len(p) > 0 && len(p) <= len(end) && &p[0] == &end[0] {
		w.b = w.b[:len(w.b)+len(p)]
		return len(p), nil
	}
	w.grow(len(p))
	w.b = append(w.b, p...)
	return len(p), nil
}
