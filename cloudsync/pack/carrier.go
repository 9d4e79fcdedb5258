package pack

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/storage"
)

// gathering is a pack whose blocks are being made. Runs of blocks of about wire.StretchBytes stay
// together. Their order is drawn when the pack is full, so that a position reveals nothing about
// the content. Blocks with index pieces of LAZY values precede the runs.
type gathering struct {
	sort   int
	order  int
	stored int // bytes of blocks
	runs   []run
	lists  []gathered
	pieces int
}

// run is a sequence of blocks that stay together in a pack.
type run struct {
	plain  int // bytes
	blocks []gathered
}

// gathered is a block with its pieces.
type gathered struct {
	stored []byte
	pieces []wire.PackPiece // Block is set when the order of the blocks is drawn
	memory *room            // that contains stored; nil if stored is a copy
}

// room returns how many bytes of a pack are left for blocks. A full pack lacks less than a block
// and 36 bytes for each of its pieces: padding gives all full packs one length.
func (p *gathering) room() int {
	blocks := len(p.lists)
	for i := range p.runs {
		blocks += len(p.runs[i].blocks)
	}
	return wire.PackBytes - tableRoom - p.stored - pieceTableBytes*p.pieces - blockTableBytes*blocks
}

// runGathering compresses incoming blocks, makes packs of them, and sends these to the carriers. It
// ends when there are no more blocks, or with the context.
func (u *Uploader) runGathering() {
	defer close(u.packs)
	var open [sorts]*gathering
	for b := range u.blocks {
		if u.ctx.Err() != nil {
			continue // Close has closed the channel, or will
		}
		u.gather(&open[b.sort], b)
	}
	for _, p := range open {
		if p != nil {
			u.send(p)
		}
	}
}

// gather adds a block to the open pack of its sort. It begins and ends packs as needed.
func (u *Uploader) gather(open **gathering, b block) {
	if *open == nil {
		*open = u.begin(b.sort)
	}
	if u.add(*open, b) {
		return
	}
	u.send(*open)
	*open = u.begin(b.sort)
	u.add(*open, b)
}

// begin begins a pack.
func (u *Uploader) begin(sort int) *gathering {
	u.begun++
	return &gathering{sort: sort, order: u.begun - 1}
}

// add adds a block to a pack, unless the pack lacks room for it. A run ends when it is long enough,
// if the pack has room for another run. The pack takes over a block's memory if the block fills
// half of it and compression does not make the block shorter; otherwise the block is copied.
func (u *Uploader) add(p *gathering, b block) bool {
	left, stored, shorter := p.room(), b.room, false
	if u.shorter, shorter = u.compressor.AppendShorter(u.shorter[:0], b.plain(), b.compress); shorter {
		stored = u.shorter
	}
	fits := len(stored)+blockTableBytes+pieceTableBytes*len(b.pieces) <= left && p.pieces+len(b.pieces) <= recentPieces
	if p.pieces > 0 && !fits {
		return false
	}
	if !shorter {
		seal.HeadBlock(stored)
	}
	g := gathered{stored: stored, pieces: b.pieces, memory: b.memory}
	if shorter || len(stored) < len(b.memory)/2 {
		g.stored, g.memory = bytes.Clone(stored), nil
		rooms.Put(b.memory)
	}
	p.stored += len(stored)
	p.pieces += len(b.pieces)
	if b.list {
		p.lists = append(p.lists, g)
		return true
	}
	if n := len(p.runs); n == 0 || p.runs[n-1].plain >= wire.StretchBytes && left-len(stored) >= wire.StretchBytes {
		p.runs = append(p.runs, run{})
	}
	r := &p.runs[len(p.runs)-1]
	r.plain += len(b.plain())
	r.blocks = append(r.blocks, g)
	return true
}

// send sends a pack to the carriers.
func (u *Uploader) send(p *gathering) {
	select {
	case u.packs <- p:
	case <-u.ctx.Done():
	}
}

// runCarrier seals and uploads packs until there are no more, or the context ends. It seals here,
// so that meanwhile blocks are compressed, and other packs are sealed and written.
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
	object []byte // its memory is reused
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
	return c.upload(s)
}

// seal seals a pack, with its runs in random order, and releases the memory of its blocks.
func (c *carrier) seal(p *gathering) (*sealed, error) {
	s := &sealed{order: p.order}
	size := seal.ObjectBytes(seal.Padme(int64(p.stored + tableRoom + pieceTableBytes*p.pieces)))
	object := bytes.NewBuffer(slices.Grow(c.object[:0], int(size)))
	var all []gathered
	put := func(blocks []gathered) {
		for _, g := range blocks {
			for _, piece := range g.pieces {
				piece.Block = uint32(len(s.blocks))
				s.pieces = append(s.pieces, piece)
			}
			s.blocks = append(s.blocks, seal.Block{StoredBytes: len(g.stored)})
			all = append(all, g)
		}
	}
	put(p.lists)
	for _, i := range c.o.Sealer.Random().Perm(len(p.runs)) {
		put(p.runs[i].blocks)
	}
	t := wire.PackTable{Blocks: s.blocks, Pieces: s.pieces}
	table := t.Encode()
	w := c.o.Sealer.NewWriter(object, c.o.Names.PackLabel(c.o.Epoch), false, table)
	if _, err := w.Write(table); err != nil {
		return nil, err
	}
	for _, g := range all {
		if err := w.AddBlocks(g.stored); err != nil {
			return nil, err
		}
		if g.memory != nil {
			rooms.Put(g.memory)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	c.object, s.index = object.Bytes(), w.Ref().KeyIndex
	s.ref = wire.Pack{Epoch: c.o.Epoch, ID: epoch.ID(w.Ref().ID), Eager: p.sort == eager, Bytes: uint64(w.Size()), Pieces: uint32(len(s.pieces))}
	return s, nil
}

// upload stores a pack in the bucket and reports it.
func (c *carrier) upload(p *sealed) error {
	name := c.o.Names.Pack(c.o.Epoch, p.ref.ID)
	if err := bucket.PutNew(c.ctx, c.o.Bucket, name, int64(len(c.object)), bytes.NewReader(c.object)); err != nil {
		return err
	}
	if err := c.tell(p); err != nil {
		return fmt.Errorf("record pack %s: %w", name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refs[p.order] = p.ref
	return nil
}

// tell calls Uploaded, even if the context has ended: the pack is in the bucket.
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
