package pageusage

import (
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"math"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/storage/index"
)

const (
	formatBucket = "format"
	pagesBucket  = "pages"
	versionKey   = "version"
	// formatVersion is the value in the format bucket.
	formatVersion = 2
	// rowBytes is the length of a row without its name.
	rowBytes = 20
	// never is the value of an unknown closing time.
	never = math.MaxUint64
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// row is the usage of a page.
type row struct {
	closed    uint64 // ns since 1970; 0 while the page is open, or never
	sizeBytes int64
	name      string
}

// blank is the row of a page without usage. It is not stored.
var blank = row{closed: never}

// stamp returns the form of t in a row: never 0, which means open.
func stamp(t time.Time) uint64 {
	const most = limits.MaxTimestamp / int64(time.Second)
	switch s := t.Unix(); {
	case s < 0:
		return 1
	case s > most:
		return limits.MaxTimestamp
	}
	return uint64(min(max(t.UnixNano(), 1), limits.MaxTimestamp))
}

// rowKey is the ledger's name and the id, whose length is fixed.
func rowKey(p Page) []byte { return append([]byte(p.Ledger), p.ID[:]...) }

// damaged returns the error of a bad row. Names are private to the user, so it shows only the page
// id of a key.
func damaged(k []byte, got string) error {
	return &base.CorruptError{Where: pagesBucket + " in " + FileName, Key: hex.EncodeToString(k[max(0, len(k)-16):]), Got: got}
}

// encode returns the value of the row with the key k.
func (r *row) encode(k []byte) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 4, rowBytes+len(r.name)), r.closed)
	b = append(binary.BigEndian.AppendUint64(b, uint64(r.sizeBytes)), r.name...)
	binary.BigEndian.PutUint32(b, checksum(k, b[4:]))
	return b
}

// checksum covers the length of the key too, so that no byte can move between key and value.
func checksum(k, v []byte) uint32 {
	n := [4]byte{2: byte(len(k) >> 8), 3: byte(len(k))}
	return crc32.Update(crc32.Update(crc32.Checksum(n[:], castagnoli), castagnoli, k), castagnoli, v)
}

func decode(k, v []byte) (p Page, r row, err error) {
	n := len(k) - len(p.ID)
	if n < 1 || n > limits.MaxLedgerNameBytes {
		return p, blank, damaged(k, "no name of a ledger and id of a page")
	}
	p.Ledger = string(k[:n])
	copy(p.ID[:], k[n:])
	if len(v) < rowBytes || len(v) > rowBytes+limits.MaxPageNameBytes {
		return p, blank, damaged(k, "a row of another length")
	}
	r = row{closed: binary.BigEndian.Uint64(v[4:]), sizeBytes: int64(binary.BigEndian.Uint64(v[12:])), name: string(v[rowBytes:])}
	if r.closed > limits.MaxTimestamp && r.closed != never || r.sizeBytes < 0 || binary.BigEndian.Uint32(v) != checksum(k, v[4:]) {
		return p, blank, damaged(k, "bytes that do not match their checksum")
	}
	return p, r, nil
}

// scan checks every row and calls fn with it.
func scan(tx index.Tx, fn func(Page, row)) error {
	f, b := tx.Bucket(formatBucket), tx.Bucket(pagesBucket)
	if f == nil || b == nil {
		return damaged(nil, "no bucket")
	}
	v := f.Get([]byte(versionKey))
	if len(v) == 1 && v[0] > formatVersion {
		return &base.FormatError{What: "page usage database", Found: uint64(v[0]), Supported: formatVersion}
	}
	if len(v) != 1 || v[0] != formatVersion {
		return damaged(nil, "no version of the format")
	}
	c := b.Cursor()
	for k, v := c.First(); k != nil; k, v = c.Next() {
		p, r, err := decode(k, v)
		if err != nil {
			return err
		}
		fn(p, r)
	}
	return nil
}
