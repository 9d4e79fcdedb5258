package pack

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// packRoom is the length of a full pack, whose buffer need not grow again, and of a block that does
// not fit any more.
var packRoom = int(seal.ObjectBytes(wire.PackBytes)) + wire.BlockBytes + seal.BlockOverhead

// smallPack is the length beyond which the buffer of a pack gets packRoom at once.
const smallPack = 1 << 20

// gathering is a pack whose blocks are being made. Runs of blocks of about wire.StretchBytes stay
// together; in which order the runs stand is drawn when the pack is full, so that where something
// stands says nothing about what it is. What lists pieces of LAZY values stands behind them.
type gathering struct {
	sort   int
	order  int
	copied buffer // blocks that are short, compressed or the beginning of one
	stored int    // bytes of blocks
	runs   []run
	lists  []gathered
	pieces int
}

// run is some blocks of a pack that stand together.
type run struct {
	plain  int // bytes
	blocks []gathered
}

// gathered is a block and what stands in it.
type gathered struct {
	stored []byte
	pieces []wire.PackPiece // Block is set when the order is known
	memory []byte           // of a block that is not among the copied ones
}

// room returns how many bytes of a pack are left for blocks.
func (p *gathering) room() int {
	blocks := len(p.lists)
	for i := range p.runs {
		blocks += len(p.runs[i].blocks)
	}
	return wire.PackBytes - tableRoom - p.stored - pieceTableBytes*p.pieces - blockTableBytes*blocks
}

// runGathering compresses blocks as they come, makes packs of them, and gives those to the
// carriers. It ends when there are no more blocks, or with the context.
func (u *Uploader) runGathering() {
	defer close(u.packs)
	var open [sorts]*gathering
	for b := range u.blocks {
		if u.ctx.Err() != nil {
			continue // Close has made the channel end, or will
		}
		u.gather(&open[b.sort], b)
	}
	for _, p := range open {
		if p != nil {
			u.send(p)
		}
	}
}

// gather adds a block to the pack of its sort, *open, which it begins and ends.
func (u *Uploader) gather(open **gathering, b block) {
	if *open == nil {
		*open = u.begin(b.sort)
	}
	p := *open
	added, lent := u.add(p, b, true)
	if !added {
		if head := p.fitting(b); len(head.pieces) > 0 { // fills the pack
			u.add(p, head, false)
			b = b.behind(head)
		}
		u.send(p)
		*open = u.begin(b.sort)
		_, lent = u.add(*open, b, true)
	}
	if !lent {
		u.free.put(b.memory)
	}
}

// fits reports whether a block of stored bytes fits into the room of a pack.
func (p *gathering) fits(stored, room, pieces int) bool {
	return stored+blockTableBytes+pieceTableBytes*pieces <= room && p.pieces+pieces <= recentPieces
}

// fitting returns as many of the first pieces of a block, but not all of them, as have room in a
// pack even if they cannot be compressed.
func (p *gathering) fitting(b block) block {
	n, room := 0, p.room()
	for n+1 < len(b.pieces) && p.fits(int(b.pieces[n].At+b.pieces[n].Bytes)+seal.BlockOverhead, room, n+1) {
		n++
	}
	b.pieces, b.room = b.pieces[:n], b.room[:seal.BlockOverhead+int(b.pieces[n].At)]
	return b
}

// behind returns what of a block is behind its beginning, which takes the end of that as its room.
func (b block) behind(head block) block {
	n := len(head.plain())
	b.room, b.pieces = b.room[n:], b.pieces[len(head.pieces):]
	for i := range b.pieces {
		b.pieces[i].At -= uint32(n)
	}
	return b
}

// begin begins a pack.
func (u *Uploader) begin(sort int) *gathering {
	p := &gathering{sort: sort, order: u.begun}
	p.copied.b = u.spare.get()
	u.begun++
	return p
}

// add adds a block to a pack, unless that has no room for it. A run ends when it is long enough,
// and what is left of the pack is enough for another one. With lend a block that fills half of its
// memory, and that compression does not make shorter, is not copied: the pack has the memory.
func (u *Uploader) add(p *gathering, b block, lend bool) (added, lent bool) {
	room, stored, shorter := p.room(), b.room, false
	if u.shorter, shorter = u.compressor.AppendShorter(u.shorter[:0], b.plain(), b.compress); shorter {
		stored = u.shorter
	}
	if p.pieces > 0 && !p.fits(len(stored), room, len(b.pieces)) {
		return false, false
	}
	if !shorter {
		seal.HeadBlock(stored)
	}
	g := gathered{stored: stored, pieces: b.pieces}
	if lent = lend && !shorter && len(stored) >= cap(b.memory)/2; lent {
		g.memory = b.memory
	} else {
		from := len(p.copied.b)
		p.copied.add(stored)
		g.stored = p.copied.b[from:]
	}
	p.stored += len(stored)
	p.pieces += len(b.pieces)
	if b.list {
		p.lists = append(p.lists, g)
		return true, lent
	}
	if n := len(p.runs); n == 0 || p.runs[n-1].plain >= wire.StretchBytes && room-len(stored) >= wire.StretchBytes {
		p.runs = append(p.runs, run{})
	}
	r := &p.runs[len(p.runs)-1]
	r.plain += len(b.plain())
	r.blocks = append(r.blocks, g)
	return true, lent
}

// send gives a pack to the carriers.
func (u *Uploader) send(p *gathering) {
	select {
	case u.packs <- p:
	case <-u.ctx.Done():
	}
}

// runCarrier seals packs and uploads them until there are no more, or the context ends. A pack is
// sealed here, so that blocks are compressed, and other packs are sealed and written, meanwhile.
func (u *Uploader) runCarrier() {
	c := carrier{Uploader: u}
	for p := range u.packs {
		if u.ctx.Err() != nil {
			continue
		}
		if err := c.carry(p); err != nil {
			u.cancel(err)
		}
	}
}

// carrier seals and uploads one pack at a time.
type carrier struct {
	*Uploader
	sealed buffer // memory of the object
}

// sealed is a pack whose object is in the memory of its carrier.
type sealed struct {
	ref    wire.Pack
	order  int
	index  uint32 // of the key
	blocks []seal.Block
	pieces []wire.PackPiece
}

func (c *carrier) carry(p *gathering) error {
	s, err := c.seal(p)
	if err != nil {
		return fmt.Errorf("seal pack: %w", err)
	}
	c.spare.put(p.copied.b)
	return c.upload(s)
}

// seal seals a pack, with its runs in random order, and gives the memory of its blocks back.
func (c *carrier) seal(p *gathering) (*sealed, error) {
	s := &sealed{order: p.order}
	c.sealed.b = c.sealed.b[:0]
	c.sealed.grow(int(seal.ObjectBytes(seal.Padme(int64(p.stored + tableRoom + pieceTableBytes*p.pieces)))))
	rnd, err := c.o.Sealer.Random()
	if err != nil {
		return nil, err
	}
	w, err := c.o.Sealer.NewWriter(&c.sealed, c.o.Names.PackLabel(c.o.Epoch), false)
	if err != nil {
		return nil, err
	}
	var all []gathered
	at := 0
	put := func(blocks []gathered) {
		for _, g := range blocks {
			for _, piece := range g.pieces {
				piece.Block = uint32(len(s.blocks))
				s.pieces = append(s.pieces, piece)
			}
			s.blocks = append(s.blocks, seal.Block{Offset: int64(at), StoredBytes: len(g.stored)})
			all, at = append(all, g), at+len(g.stored)
		}
	}
	for _, i := range rnd.Perm(len(p.runs)) {
		put(p.runs[i].blocks)
	}
	put(p.lists)
	t := wire.PackTable{Blocks: s.blocks, Pieces: s.pieces}
	if err := w.SetTable(t.Encode()); err != nil { // first, so that the id depends on all of it
		return nil, err
	}
	for _, g := range all {
		if err := w.AddBlocks(g.stored); err != nil {
			return nil, err
		}
		if g.memory != nil {
			c.free.put(g.memory)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	s.index = w.Ref().KeyIndex
	s.ref = wire.Pack{Epoch: c.o.Epoch, ID: epoch.ID(w.Ref().ID), Eager: p.sort == eager, Bytes: uint64(w.Size()), Pieces: uint32(len(s.pieces))}
	return s, nil
}

// upload stores a pack in the bucket and tells of it.
func (c *carrier) upload(p *sealed) error {
	name := c.o.Names.Pack(c.o.Epoch, p.ref.ID)
	size := int64(len(c.sealed.b))
	err := c.o.Bucket.PutIfAbsent(c.ctx, name, size, bytes.NewReader(c.sealed.b))
	if errors.Is(err, bucket.ErrExists) && bucket.Ambiguous(err) {
		err = c.verify(p.ref.ID, size)
	}
	if err != nil {
		return fmt.Errorf("upload pack %s: %w", name, err)
	}
	if err := c.tell(p); err != nil {
		return fmt.Errorf("record pack %s: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refs[p.order] = p.ref
	return nil
}

// verify looks whether the object that took the name of a pack can be the pack: nobody else knows
// its random name, so an earlier try has stored it, whole.
func (c *carrier) verify(id epoch.ID, sizeBytes int64) error {
	o, err := c.o.Bucket.Get(c.ctx, c.o.Names.Pack(c.o.Epoch, id), 0, 0)
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

// tell calls Uploaded, also when the context has ended: the pack is in the bucket.
func (c *carrier) tell(p *sealed) error {
	if c.o.Uploaded == nil {
		return nil
	}
	pieces := place(&p.ref, p.index, p.blocks, p.pieces)
	return c.Alone(func() error { return c.o.Uploaded(c.ctx, p.ref, pieces) })
}

// place returns the places of pieces in a pack.
func place(ref *wire.Pack, keyIndex uint32, blocks []seal.Block, pieces []wire.PackPiece) []storage.PlacedPiece {
	placed := make([]storage.PlacedPiece, len(pieces))
	for i, p := range pieces {
		b := blocks[p.Block]
		placed[i] = storage.PlacedPiece{Digest: p.Digest, Place: storage.CloudPlace{
			Pack: ref.ID, Block: p.Block, Offset: b.Offset, StoredBytes: uint32(b.StoredBytes), At: p.At, Bytes: p.Bytes, KeyIndex: keyIndex,
		}}
	}
	return placed
}

// buffer collects a pack. Unlike bytes.Buffer it grows to the length of a full pack and not much
// beyond, and can be read again and again.
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

// add appends p.
func (w *buffer) add(p []byte) {
	w.grow(len(p))
	w.b = append(w.b, p...)
}

// AvailableBuffer returns the empty end of the buffer, to be appended to and given to Write, which
// copies nothing then.
func (w *buffer) AvailableBuffer() []byte { return w.b[len(w.b):] }

// Write implements io.Writer. It never fails.
func (w *buffer) Write(p []byte) (int, error) {
	end := w.b[len(w.b):cap(w.b)]
	if len(p) > 0 && len(p) <= len(end) && &p[0] == &end[0] {
		w.b = w.b[:len(w.b)+len(p)]
		return len(p), nil
	}
	w.add(p)
	return len(p), nil
}
