package segment

import (
	"context"
	"encoding/binary"
	"hash/crc32"
)

// NewerHeader returns the header of a segment of the next format version.
func NewerHeader(page [16]byte, segment uint32) []byte {
	b := encodeHeader(page, segment)
	binary.BigEndian.PutUint32(b[4:], formatVersion+1)
	binary.BigEndian.PutUint32(b[28:], crc32.Checksum(b[:28], castagnoli))
	return b
}

// Position is PositionOf for a disk that can be read.
func (l *Log) Position(upTo uint64) Position {
	p, err := l.PositionOf(upTo)
	if err != nil {
		panic(err)
	}
	return p
}

// PositionOf returns the position for an index that reflects every batch with a number up to upTo,
// which is at most Complete, else Complete counts.
func (l *Log) PositionOf(upTo uint64) (p Position, err error) {
	upTo = min(upTo, l.Complete())
	err = l.Verify(context.Background(), func(b BatchInfo, _ []Record) error {
		if b.Number <= upTo {
			p.Add(b)
		}
		return nil
	})
	for _, s := range l.Segments() {
		if p.end(s.ID) == 0 {
			p.setEnd(End{s.ID, headerBytes})
		}
	}
	return p, err
}

// Ends returns the synced ends of all segments at one moment, ascending by segment.
func (l *Log) Ends() []End {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.endsLocked()
}
