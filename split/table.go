package split

import (
	"crypto/hmac"
	"crypto/sha256"
	"math/bits"
	"math/rand/v2"

	"github.com/chmduquesne/rollinghash/buzhash64"
)

// Table is a table of the rolling hash. It is immutable and may be used concurrently.
type Table struct {
	// in holds the value of a byte that enters the window, out that of a byte that leaves it:
	// rotated by the window's length.
	in, out [256]uint64
}

var defaultTable = newTable(buzhash64.GenerateHashes(1))

func newTable(in [256]uint64) *Table {
	t := &Table{in: in}
	for i, v := range in {
		t.out[i] = bits.RotateLeft64(v, window)
	}
	return t
}

// DefaultTable returns the table without a secret: buzhash64.GenerateHashes(1).
func DefaultTable() *Table { return defaultTable }

// tableLabel separates the table from all other data derived from the secret of a repository.
const tableLabel = "ledger chunking table 1"

// NewTable returns the table for secret, which it does not retain. Equal secrets give equal tables,
// on every platform and with every release. The secret should have 32 random bytes.
//
// HMAC-SHA256 of a label, keyed with the secret, seeds ChaCha8 (math/rand/v2), which generates the
// values of the bytes 0 to 255 in order. A value is skipped if an earlier byte has it, or if a run
// of its byte would be cut before the greatest length.
//
// A secret table keeps the lengths of chunks from being a public fingerprint of a value.
func NewTable(secret []byte) *Table {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(tableLabel))
	stream := rand.NewChaCha8([32]byte(mac.Sum(nil)))
	var in [256]uint64
	used := make(map[uint64]bool, len(in))
	for i := range in {
		v := stream.Uint64()
		for used[v] || runHash(v)&easyMask == 0 {
			v = stream.Uint64()
		}
		used[v] = true
		in[i] = v
	}
	return newTable(in)
}

// runHash returns the hash of a window filled with one byte of value v.
func runHash(v uint64) uint64 {
	var h uint64
	for range window {
		h = bits.RotateLeft64(h, 1) ^ v
	}
	return h
}
