package pageusage

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/storage/index"
)

const (
	formatBucket = "format"
	openedBucket = "opened"
	pagesBucket  = "pages"
	sizesBucket  = "sizes"

	versionKey = "version"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// damage makes the error of a bad row. Names are the user's, so of a key only the page id is shown.
func damage(bucket, key, want, got string, args ...any) error {
	return &base.CorruptError{Where: bucket + " in " + fileName, Key: key, Want: want, Got: fmt.Sprintf(got, args...)}
}

// shown is what an error may show of a row's key.
func shown(k []byte) string {
	return hex.EncodeToString(k[max(0, len(k)-16):])
}

// stamp returns t as it stands in a row: never 0, which says open.
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

func usage(p Page, t uint64) Usage {
	if t == 0 {
		return Usage{Page: p, Open: true}
	}
	return Usage{Page: p, Closed: time.Unix(0, int64(t)).UTC()}
}

func encodeTime(t uint64) []byte { return binary.BigEndian.AppendUint64(nil, t) }

// rowKey is the ledger's name and the id, whose length is fixed.
func rowKey(p Page) []byte { return append([]byte(p.Ledger), p.ID[:]...) }

func decodePage(bucket string, k []byte) (p Page, err error) {
	n := len(k) - len(p.ID)
	if n < 1 || n > limits.MaxLedgerNameBytes {
		return Page{}, damage(bucket, shown(k), "ledger name and page id", "%d bytes", len(k))
	}
	p.Ledger = string(k[:n])
	copy(p.ID[:], k[n:])
	return p, nil
}

func decodeUsage(k, v []byte) (Usage, error) {
	p, err := decodePage(openedBucket, k)
	if err != nil {
		return Usage{}, err
	}
	if len(v) != 8 {
		return Usage{}, damage(openedBucket, shown(k), "8 bytes", "%d", len(v))
	}
	t := binary.BigEndian.Uint64(v)
	if t > limits.MaxTimestamp {
		return Usage{}, damage(openedBucket, shown(k), "a time", "%d", t)
	}
	return usage(p, t), nil
}

func encodeSize(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func decodeSize(k, v []byte) (p Page, n int64, err error) {
	if p, err = decodePage(sizesBucket, k); err != nil {
		return Page{}, 0, err
	}
	if len(v) != 8 || v[0]&0x80 != 0 {
		return Page{}, 0, damage(sizesBucket, shown(k), "a size", "%x", v[:min(len(v), 8)])
	}
	return p, int64(binary.BigEndian.Uint64(v)), nil
}

// nameSum covers the length of the key too, so that no byte can move between key and name.
func nameSum(k []byte, name string) uint32 {
	sum := crc32.Checksum(binary.BigEndian.AppendUint32(nil, uint32(len(k))), castagnoli)
	sum = crc32.Update(sum, castagnoli, k)
	return crc32.Update(sum, castagnoli, []byte(name))
}

func encodeName(k []byte, name string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, nameSum(k, name)), name...)
}

func decodeName(k, v []byte) (string, error) {
	if _, err := decodePage(pagesBucket, k); err != nil {
		return "", err
	}
	if len(v) <= 4 || len(v) > 4+limits.MaxLedgerNameBytes {
		return "", damage(pagesBucket, shown(k), "checksum and name", "%d bytes", len(v))
	}
	name := string(v[4:])
	if want, got := binary.BigEndian.Uint32(v), nameSum(k, name); want != got {
		return "", damage(pagesBucket, shown(k), fmt.Sprintf("checksum %08x", want), "%08x", got)
	}
	return name, nil
}

func checkFormat(tx index.Tx) error {
	b := tx.Bucket(formatBucket)
	if b == nil {
		return damage(formatBucket, "bucket", "the bucket", "none")
	}
	v := b.Get([]byte(versionKey))
	switch {
	case len(v) != 1 || v[0] == 0:
		return damage(formatBucket, versionKey, "a version", "%d bytes", len(v))
	case v[0] > formatVersion:
		return &base.FormatError{What: "page usage database", Found: uint64(v[0]), Supported: formatVersion}
	}
	return nil
}
