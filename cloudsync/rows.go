package cloudsync

import (
	"encoding/binary"
	"math"
	"time"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/protocol"
	"github.com/ledgerd/ledger/internal/limits"
)

// These rows of metadata are estimates, or can be made anew: one that nobody can have written is
// passed over.

// checkpointRow says what is known of the newest checkpoint. As a row: number 8, room 8, size 8.
type checkpointRow struct {
	number uint64 // 0: none is known
	room   uint64 // how long the log behind a checkpoint may be, as the page was when it was measured last; see roomFor
	size   uint64 // of the object
}

func (c checkpointRow) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, c.number)
	b = binary.BigEndian.AppendUint64(b, c.room)
	return binary.BigEndian.AppendUint64(b, c.size)
}

// deviceRow says what the bucket was told of this device. As a row: fingerprint 16, number 8, time
// 8.
type deviceRow struct {
	number uint64
	told   time.Time // by the bucket's clock
}

func (d deviceRow) encode(fingerprint format.ID) []byte {
	b := binary.BigEndian.AppendUint64(fingerprint[:], d.number)
	return binary.BigEndian.AppendUint64(b, rowTime(d.told))
}

// floorRow says which floor was seen, and when it was looked for. As a row: k 8, lowest number 8,
// checkpoint 8, time 8. A floor that says that the page is deleted is not kept: it is found again.
type floorRow struct {
	floor format.Floor
	seen  time.Time // by the bucket's clock
}

func parseFloor(b []byte) (f floorRow) {
	if len(b) != 32 {
		return f
	}
	f.floor = format.Floor{K: binary.BigEndian.Uint64(b), Low: binary.BigEndian.Uint64(b[8:]), Checkpoint: binary.BigEndian.Uint64(b[16:])}
	seen, ok := parseTime(b[24:])
	if f.seen = seen; !ok || max(f.floor.K, f.floor.Low, f.floor.Checkpoint) > format.MaxNumber {
		return floorRow{}
	}
	return f
}

// parseTime reads a time of a row, in nanoseconds since 1970. It reports false for one that no
// bucket's clock can have said.
func parseTime(b []byte) (time.Time, bool) {
	n := binary.BigEndian.Uint64(b)
	return time.Unix(0, int64(n)), n <= limits.MaxTimestamp
}

// rowTime is the inverse of parseTime. A bucket's clock may be anywhere.
func rowTime(t time.Time) uint64 { return uint64(protocol.TimeOf(t)) }

func parseCheckpointRow(b []byte) (c checkpointRow, ok bool) {
	if len(b) != 24 {
		return c, false
	}
	c = checkpointRow{binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])}
	return c, c.number <= format.MaxNumber && max(c.room, c.size) <= math.MaxInt64
}

// parseDevice reads the row of a device; that of another one says nothing.
func parseDevice(b []byte, fingerprint format.ID) (d deviceRow) {
	if len(b) != 32 || format.ID(b[:16]) != fingerprint {
		return d
	}
	told, ok := parseTime(b[24:])
	if d = (deviceRow{binary.BigEndian.Uint64(b[16:]), told}); !ok || d.number > format.MaxNumber {
		return deviceRow{}
	}
	return d
}

func (f floorRow) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, f.floor.K)
	b = binary.BigEndian.AppendUint64(b, f.floor.Low)
	b = binary.BigEndian.AppendUint64(b, f.floor.Checkpoint)
	return binary.BigEndian.AppendUint64(b, rowTime(f.seen))
}
