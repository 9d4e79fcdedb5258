package wire_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// seeded is a source of randomness that is the same in each run.
func seeded(seed uint64) *rand.ChaCha8 {
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], seed)
	return rand.NewChaCha8(key)
}

func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	_, _ = seeded(seed).Read(b)
	return b
}

func newSealer(t testing.TB, a seal.Algorithm, seed uint64) *seal.Sealer {
	t.Helper()
	source := seeded(seed)
	ring, err := seal.NewKeyring(a, source)
	if err != nil {
		t.Fatal(err)
	}
	return seal.NewSealer(ring, source)
}

var algorithms = []seal.Algorithm{seal.AES256GCM, seal.Plain}

func eachAlgorithm(t *testing.T, fn func(t *testing.T, s *seal.Sealer)) {
	for i, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) { fn(t, newSealer(t, a, uint64(i))) })
	}
}

var (
	pageID = [16]byte{1, 2, 3}
)

// diffOf returns the bytes of a diff.
func diffOf(t testing.TB, changes ...btree.Change) []byte {
	t.Helper()
	var b bytes.Buffer
	w := wire.NewChangeWriter(&b)
	for i := range changes {
		if err := w.Write(&changes[i]); err != nil {
			t.Fatal(err)
		}
	}
	if w.Bytes() != int64(b.Len()) {
		t.Fatalf("Bytes is %d, written %d", w.Bytes(), b.Len())
	}
	return b.Bytes()
}

func inline(key string, value []byte) btree.Change {
	return btree.Change{Entry: fb.Entry{Key: []byte(key), Inline: true, Value: value, Size: uint64(len(value))}}
}

// far returns the change that puts a value which is an object of 200 bytes.
func far(key string, d object.Digest, p object.Priority) btree.Change {
	return btree.Change{Entry: fb.Entry{Key: []byte(key), Digest: d, Size: 200, Priority: p}}
}

func removed(key string) btree.Change {
	return btree.Change{Delete: true, Entry: fb.Entry{Key: []byte(key)}}
}

// mustRefuse checks that err is one that damaged or foreign bytes may give, and that it names what
// was opened.
func mustRefuse(t testing.TB, what, name string, err error) {
	t.Helper()
	if !isRefusal(err) {
		t.Errorf("%s: error %v, want corruption", what, err)
	} else if !strings.Contains(err.Error(), name) {
		t.Errorf("%s: error %q does not name %s", what, err, name)
	}
}

func isRefusal(err error) bool {
	return isA[*base.CorruptError](err) || isA[*base.FormatError](err)
}

func isA[T error](err error) bool {
	_, ok := errors.AsType[T](err)
	return ok
}

// allocated returns how many bytes fn allocates.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// bounded fails when decoding n bytes allocates more than a small multiple of them.
func bounded(t testing.TB, n int, fn func()) {
	t.Helper()
	if got, most := allocated(fn), uint64(10*n+256<<10); got > most { // a fuzzing process allocates a little beside
		t.Errorf("decoding %d bytes allocates %d, more than %d", n, got, most)
	}
}
