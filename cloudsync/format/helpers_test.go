package format_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
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
	ledgerName = "app"
	pageID     = [16]byte{1, 2, 3}
)

func namesOf(s *seal.Sealer) format.PageNames { return format.NamesOf(s.Keyring(), ledgerName, pageID) }

func id(b byte) format.ID { return format.ID(bytes.Repeat([]byte{b}, 16)) }

func hash(b byte) format.Hash { return format.Hash(bytes.Repeat([]byte{b}, 32)) }

// newCommit returns a commit on parents, or on the first commit.
func newCommit(t testing.TB, seed uint64, parents ...*commit.Commit) *commit.Commit {
	t.Helper()
	if len(parents) == 0 {
		parents = []*commit.Commit{commit.First()}
	}
	c, err := commit.New(commit.Params{
		Now: time.Unix(1_700_000_000, int64(seed)), Root: object.Sum(object.NodeBit, noise(seed, 40)), Parents: parents, Device: "laptop",
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newMerge(t testing.TB, seed uint64, a, b *commit.Commit) *commit.Commit {
	t.Helper()
	c, err := commit.NewMerge(object.Sum(object.NodeBit, noise(seed, 40)), a, b)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// diffOf returns the bytes of a diff.
func diffOf(t testing.TB, changes ...format.Change) []byte {
	t.Helper()
	var b bytes.Buffer
	w := format.NewChangeWriter(&b)
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

func inline(key string, value []byte) format.Change {
	return format.Change{Key: []byte(key), Inline: value, Size: uint64(len(value))}
}

func piece(seed uint64, kind object.Kind, n int) format.InlinePiece {
	content := noise(seed, n)
	return format.InlinePiece{Digest: object.Sum(kind, content), Content: content}
}

// fullBody has everything that a body can have.
func fullBody(t testing.TB) *format.Body {
	t.Helper()
	a := newCommit(t, 1)
	b := newCommit(t, 2, a)
	c := newCommit(t, 3, a)
	m := newMerge(t, 4, b, c)
	big := piece(10, object.Chunk, 400)
	index := piece(11, object.IndexBit, 300)
	return &format.Body{
		Device: id(0xd1),
		Commits: []format.CommitChange{
			{Commit: a, Base: format.Base{Empty: true}, Diff: format.Diff{Inline: diffOf(t, inline("a", []byte("1")), inline("b", nil))}},
			{Commit: b, Base: format.Base{Commit: a.ID}, Diff: format.Diff{Inline: diffOf(t,
				format.Change{Key: []byte("a"), Removed: true},
				format.Change{Key: []byte("c"), Object: big.Digest, Size: 400},
				format.Change{Key: []byte("d"), Object: index.Digest, Size: 1 << 40, Priority: object.Lazy})}},
			{Commit: c, Base: format.Base{Commit: b.ID}, Diff: format.Diff{Pack: id(0x0f), Bytes: 5 << 20}},
			{Commit: m, Base: format.Base{Commit: m.Parents[1]}},
		},
		Explanations:  []format.Explanation{{Merge: m.ID, Root: object.Sum(object.NodeBit, noise(5, 50)), Diff: format.Diff{Inline: diffOf(t, inline("a", []byte("decision")))}}},
		Pieces:        []format.InlinePiece{big, index},
		Packs:         []format.PackRef{{ID: id(0x20), Bytes: 1000, Pieces: 3}, {ID: id(0x21), Bytes: 16 << 20, Pieces: 60_000, Eager: true}},
		Relies:        []format.ID{id(0x10), id(0x11)},
		ReliesEntries: []uint64{3, 4},
		Tags:          []format.TagChange{{Name: "old", Removed: true}, {Name: "v1", Commit: a.ID}},
		Retention:     &format.Retention{Commits: 1000, Age: 90 * 24 * time.Hour},
		Condemned:     &format.Condemnation{Packs: []format.ID{id(0x01), id(0x02)}, Checkpoints: []uint64{1, 2}, Below: 3},
	}
}

func mustEncode(t testing.TB, b *format.Body) []byte {
	t.Helper()
	plain, err := b.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return plain
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
