package storage

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/ledgerd/ledger/object"
)

// recencyWays is the number of pieces that share a set in a Recency.
const recencyWays = 4

// Recency records when pieces of values were read, to the minute and in memory of a fixed size.
// When it is full, it forgets the pieces read longest ago; rarely it confuses two pieces. No data
// depends on it. It is safe for concurrent use, also by several pages, and never blocks.
type Recency struct {
	entries []atomic.Uint64 // in sets of recencyWays; 32 bits of the digest, then the minute since 1970; 0: none
	sets    uint64
}

// NewRecency returns a Recency for about the given number of pieces, 8 bytes for each.
func NewRecency(pieces int) *Recency {
	sets := uint64(1)
	for sets*recencyWays < uint64(max(pieces, 1)) {
		sets *= 2
	}
	return &Recency{entries: make([]atomic.Uint64, sets*recencyWays), sets: sets}
}

func (r *Recency) set(d *object.Digest) (entries []atomic.Uint64, mark uint64) {
	first := binary.BigEndian.Uint64(d[1:9]) % r.sets * recencyWays
	return r.entries[first : first+recencyWays], uint64(binary.BigEndian.Uint32(d[9:13])) << 32
}

// minuteOf returns the minute of a time, at least 1.
func minuteOf(t time.Time) uint64 { return uint64(min(max(t.Unix()/60, 1), 1<<32-1)) }

// note records a read of a piece. r may be nil.
func (r *Recency) note(d *object.Digest, now time.Time) {
	if r == nil {
		return
	}
	entries, mark := r.set(d)
	minute := minuteOf(now)
	oldest, least := 0, uint64(1<<32)
	for i := range entries {
		e := entries[i].Load()
		if e&^(1<<32-1) == mark && e != 0 {
			if e != mark|minute {
				entries[i].Store(mark | minute)
			}
			return
		}
		if m := e & (1<<32 - 1); m < least {
			oldest, least = i, m
		}
	}
	entries[oldest].Store(mark | minute)
}

// readSince reports whether a read of a piece at a minute or later is recorded. r may be nil.
func (r *Recency) readSince(d *object.Digest, minute uint64) bool {
	if r == nil {
		return false
	}
	entries, mark := r.set(d)
	for i := range entries {
		if e := entries[i].Load(); e != 0 && e&^(1<<32-1) == mark {
			return e&(1<<32-1) >= minute
		}
	}
	return false
}
