package multihash

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"slices"
	"sync"
)

// Message is a byte and what follows it, and where its sum goes.
type Message struct {
	// Content is only read, and not retained.
	Content []byte
	// Sum receives the SHA-256 of Prefix and Content.
	Sum *[sha256.Size]byte
	// Prefix is the first byte that is summed.
	Prefix byte
}

// fewMessages are summed one after another faster.
const fewMessages = 3

// Width returns how many messages are summed side by side: 1 where there is nothing to gain by
// having more of them.
func Width() int {
	if available {
		return lanes
	}
	return 1
}

// Sum fills in the sums of all messages. It may change their order.
func Sum(messages []Message) {
	if !available || len(messages) < fewMessages {
		for i := range messages {
			one(&messages[i])
		}
		return
	}
	b := benches.Get().(*bench)
	b.run(messages)
	benches.Put(b)
}

type hasher struct {
	h   hash.Hash
	buf [sha256.Size]byte
}

var hashers = sync.Pool{New: func() any { return &hasher{h: sha256.New()} }}

func one(m *Message) {
	h := hashers.Get().(*hasher)
	h.h.Reset()
	h.buf[0] = m.Prefix
	h.h.Write(h.buf[:1])
	h.h.Write(m.Content)
	copy(m.Sum[:], h.h.Sum(h.buf[:0]))
	hashers.Put(h)
}

const (
	lanes     = 16
	blockSize = sha256.BlockSize
)

// bench holds 16 messages that are being summed.
type bench struct {
	state [8][lanes]uint32
	next  [lanes]*byte // where each lane reads its next block
	lane  [lanes]lane
}

// lane is a message that is being summed: at first its prefix with the beginning of the content,
// then as much of the content as makes whole blocks, in place, and then the rest with the padding.
type lane struct {
	message *Message // nil: nothing to do
	part    int      // partHead to partTail
	blocks  int      // that are left of the part
	head    [blockSize]byte
	tail    [2 * blockSize]byte
}

const (
	partHead = iota
	partBody
	partTail
)

// headBytes is how much of the content stands in the first block.
const headBytes = blockSize - 1

var benches = sync.Pool{New: func() any { return new(bench) }}

var initial = [8]uint32{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19}

// run sums the messages, long ones first, so that the lanes end at about the same time.
func (b *bench) run(messages []Message) {
	slices.SortFunc(messages, func(x, y Message) int { return len(y.Content) - len(x.Content) })
	active := 0
	for i := range b.lane {
		if len(messages) > 0 {
			b.begin(i, &messages[0])
			messages = messages[1:]
			active++
		} else {
			b.lane[i].message = nil
		}
	}
	for active > 0 {
		n := b.step()
		blocks16(&b.state, &b.next, n)
		for i := range b.lane {
			if b.lane[i].message == nil || !b.advance(i, n) {
				continue
			}
			b.finish(i)
			if len(messages) > 0 {
				b.begin(i, &messages[0])
				messages = messages[1:]
			} else {
				active--
			}
		}
	}
	b.next = [lanes]*byte{}
}

// step returns how many blocks all lanes can take. A lane without a message reads what another one
// reads: any memory that is long enough will do.
func (b *bench) step() int {
	n := 0
	for i := range b.lane {
		if l := &b.lane[i]; l.message != nil && (n == 0 || l.blocks < n) {
			n = l.blocks
		}
	}
	for i := range b.lane {
		if b.lane[i].message == nil {
			b.next[i] = b.working()
		}
	}
	return n
}

// working returns where a lane with a message reads.
func (b *bench) working() *byte {
	for i := range b.lane {
		if b.lane[i].message != nil {
			return b.next[i]
		}
	}
	return nil // not reached: Sum has messages
}

func (b *bench) begin(i int, m *Message) {
	l := &b.lane[i]
	l.message = m
	for k, v := range initial {
		b.state[k][i] = v
	}
	l.head[0] = m.Prefix
	if n := copy(l.head[1:], m.Content); n < headBytes {
		l.pad(l.head[:1+n])
		b.to(i, partTail)
		return
	}
	l.part, l.blocks = partHead, 1
	b.next[i] = &l.head[0]
}

// pad makes the tail of the rest of the message.
func (l *lane) pad(rest []byte) {
	clear(l.tail[copy(l.tail[:], rest):])
	l.tail[len(rest)] = 0x80
	l.blocks = 1
	if len(rest)+1+8 > blockSize {
		l.blocks = 2
	}
	binary.BigEndian.PutUint64(l.tail[l.blocks*blockSize-8:], 8*(1+uint64(len(l.message.Content))))
}

// to makes a lane read one of the later parts.
func (b *bench) to(i, part int) {
	l := &b.lane[i]
	l.part = part
	if part == partTail {
		b.next[i] = &l.tail[0]
		return
	}
	body := l.message.Content[headBytes:]
	if l.blocks = len(body) / blockSize; l.blocks > 0 {
		b.next[i] = &body[0]
		return
	}
	l.pad(body)
	b.to(i, partTail)
}

// advance goes n blocks further and reports whether the message has ended.
func (b *bench) advance(i, n int) bool {
	l := &b.lane[i]
	if l.blocks -= n; l.blocks > 0 {
		b.skip(i, n)
		return false
	}
	switch l.part {
	case partHead:
		b.to(i, partBody)
	case partBody:
		body := l.message.Content[headBytes:]
		l.pad(body[len(body)/blockSize*blockSize:])
		b.to(i, partTail)
	case partTail:
		return true
	}
	return false
}

// skip moves a lane that has more blocks of its part.
func (b *bench) skip(i, n int) {
	l := &b.lane[i]
	if l.part == partTail {
		b.next[i] = &l.tail[n*blockSize]
		return
	}
	body := l.message.Content[headBytes:]
	b.next[i] = &body[(len(body)/blockSize-l.blocks)*blockSize]
}

// finish gives the sum of a lane out and frees the lane.
func (b *bench) finish(i int) {
	l := &b.lane[i]
	for k := range b.state {
		binary.BigEndian.PutUint32(l.message.Sum[4*k:], b.state[k][i])
	}
	l.message = nil
}
