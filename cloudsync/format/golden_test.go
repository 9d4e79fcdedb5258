package format_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/secret"
	"github.com/ledgerd/ledger/object"
)

var update = flag.Bool("update", false, "write the golden files that are not there")

const goldenDir = "testdata/golden/v2"

// golden compares got with the golden file of that name. Golden files of a released format are
// written once.
func golden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join(goldenDir, name)
	if _, err := os.Stat(path); *update && os.IsNotExist(err) {
		if err := os.MkdirAll(goldenDir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the golden file:\n got %x\nwant %x", name, got, want)
	}
	return want
}

// stored returns a golden file of sealed bytes, which depend on the release of the zstd library: it
// is written once from what made gives and then only read.
func stored(t *testing.T, name string, made func() []byte) []byte {
	t.Helper()
	if b, err := os.ReadFile(filepath.Join(goldenDir, name)); err == nil {
		return b
	}
	return golden(t, name, made())
}

// goldenSealer returns what opens the golden objects of an algorithm: its keyring stands among
// them.
func goldenSealer(t *testing.T, a seal.Algorithm) *seal.Sealer {
	t.Helper()
	var master seal.MasterKey
	if a != seal.Plain {
		text := stored(t, "keyfile", func() []byte {
			m, err1 := seal.NewMasterKey(seeded(300))
			text, err2 := seal.FormatKeyFile(m)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(err)
			}
			return text.Expose()
		})
		var err error
		if master, err = seal.ParseKeyFile(text, secret.Bytes{}); err != nil {
			t.Fatal(err)
		}
	}
	first := stored(t, a.String()+"-ring", func() []byte {
		ring, err1 := seal.NewKeyring(a, seeded(301))
		b, _, err2 := ring.Found(seal.NewSlot{Master: master}, seeded(302))
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		return b
	})
	chain, err := seal.ParseChain([][]byte{first})
	if err != nil {
		t.Fatal(err)
	}
	ring, err := chain.Open(master)
	if err != nil {
		t.Fatal(err)
	}
	return seal.NewSealer(ring, seeded(303+uint64(a)))
}

func TestGolden(t *testing.T) {
	golden(t, "body", mustEncode(t, fullBody(t)))
	golden(t, "body-renewed", mustEncode(t, &format.Body{Device: id(1), Renewed: true}))
	golden(t, "body-past", mustEncode(t, pastBody(t)))
	c, _ := fullCheckpoint(t)
	golden(t, "checkpoint", encodeCheckpoint(t, c))
	golden(t, "checkpoint-more", encodeCheckpoint(t, moreCheckpoint(t)))
	golden(t, "packtable", packTable().Encode())
	golden(t, "range", mustRange(t, 33, rangeEntries()))
	golden(t, "position", format.Position{Bucket: id(2), Number: 7, Hash: hash(3)}.Encode())
	for _, a := range algorithms {
		s := goldenSealer(t, a)
		n := namesOf(s)
		golden(t, a.String()+"-names", []byte(strings.Join([]string{
			n.Entry(7), n.Range(33, 64), n.Pack(id(5)), n.Checkpoint(40), n.Floor(2), n.Device(id(1), 9), format.AnnouncementName(s.Keyring(), ledgerName, pageID), "",
		}, "\n")))
		made := sealedObjects(t, s)
		for i, o := range made {
			b := stored(t, a.String()+"-"+o.kind, func() []byte { return made[i].stored })
			open := o.open
			if o.kind == "pack" { // its id is drawn when it is sealed
				ref, _, err := seal.Inspect(n.PackLabel(), b)
				if err != nil {
					t.Fatal(err)
				}
				open = func(b []byte) error { return openPack(s, format.ID(ref.ID), b) }
			}
			if err := open(b); err != nil {
				t.Errorf("%s %s: %v", a, o.kind, err)
			}
		}
		e, err := format.OpenEntry(s, n, 7, stored(t, a.String()+"-entry", nil))
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "body", mustEncode(t, e.Body))
		if f, err := format.OpenFloor(s, n, 2, stored(t, a.String()+"-floor", nil)); err != nil || f != (format.Floor{K: 2, Low: 41, Checkpoint: 40}) {
			t.Errorf("floor %v, %v", f, err)
		}
		want := format.Announcement{Ledger: ledgerName, Name: "notes", Page: pageID}
		if p, err := format.OpenAnnouncement(s, made[3].name, stored(t, a.String()+"-page", nil)); err != nil || p != want {
			t.Errorf("announcement %v, %v", p, err)
		}
	}
}

// other is a second implementation: it reads bytes as docs/cloud-format.md says, without package
// format.
type other struct {
	t *testing.T
	b []byte
}

func (o *other) take(n int) []byte {
	o.t.Helper()
	if n > len(o.b) {
		o.t.Fatalf("%d bytes, and %d are left", n, len(o.b))
	}
	b := o.b[:n]
	o.b = o.b[n:]
	return b
}

func (o *other) uvarint() uint64 {
	v, n := binary.Uvarint(o.b)
	o.take(n)
	return v
}

func (o *other) part() []byte { return o.take(int(o.uvarint())) }

func (o *other) want(what string, want []byte, got []byte) {
	o.t.Helper()
	if !bytes.Equal(got, want) {
		o.t.Errorf("%s is %x, want %x", what, got, want)
	}
}

func (o *other) numbers(what string, want ...uint64) {
	o.t.Helper()
	got := make([]uint64, len(want))
	for i := range got {
		got[i] = o.uvarint()
	}
	if diff := cmp.Diff(want, got); diff != "" {
		o.t.Errorf("%s: %s", what, diff)
	}
}

// pastBody brings a commit that the log is past, with a tag.
func pastBody(tb testing.TB) *format.Body {
	c := newCommit(tb, 1)
	return &format.Body{Device: id(1), Commits: []format.CommitChange{{Commit: c, Base: format.Base{Empty: true}, Past: true}}, Tags: []format.TagChange{{Name: "v1", Commit: c.ID}}, Shallow: true}
}

func TestASecondImplementationReadsWhatTheLogIsPast(t *testing.T) {
	o := &other{t, stored(t, "body-past", nil)}
	o.want("version and flags", []byte{1, 4, 0x21}, o.take(3))
	id := id(1)
	o.want("device", id[:], o.take(16))
	o.numbers("commits", 1)
	o.want("flags", []byte{8}, o.take(1))
	if sha256.Sum256(o.part()) != pastBody(t).Commits[0].Commit.ID {
		t.Error("another commit")
	}
}

func TestASecondImplementationReadsTheGoldenEntry(t *testing.T) {
	for _, a := range algorithms {
		s := goldenSealer(t, a)
		b := stored(t, a.String()+"-entry", nil)
		ring := s.Keyring()
		dir := ring.Name("ledger", []byte(ledgerName)) + "/" + ring.Name("page", []byte(ledgerName), pageID[:])
		length := binary.BigEndian.Uint32(b)
		head, _, err := s.Open(seal.Label{Role: "head", Name: dir + "/log/00000000000000000007"}, b[4:4+length], 81)
		if err != nil {
			t.Fatal(err)
		}
		o := &other{t, head}
		o.want("version", []byte{1}, o.take(1))
		o.want("hash before", bytes.Repeat([]byte{6}, 32), o.take(32))
		name := fmt.Sprintf("%s/%x", dir, o.take(16))
		sum := sha256.Sum256(b[4+length:])
		o.want("hash of the body", sum[:], o.take(32))
		plain, _, err := s.Open(seal.Label{Role: "body", Name: name}, b[4+length:], 8<<20)
		if err != nil || len(o.b) != 0 {
			t.Fatal(err)
		}
		readBody(&other{t, plain}, fullBody(t))
	}
}

// readBody reads the plaintext of what fullBody gives.
func readBody(o *other, b *format.Body) {
	o.want("version and flags", []byte{1, 1, 0xff}, o.take(3))
	o.want("device", b.Device[:], o.take(16))
	o.numbers("commits", 4)
	for i, flags := range []byte{0, 1, 3 | 4, 2} {
		o.want("flags", []byte{flags}, o.take(1))
		encoded := o.part()
		if sha256.Sum256(encoded) != b.Commits[i].Commit.ID {
			o.t.Errorf("commit %d", i)
		}
		if flags&3 == 3 {
			o.want("base", b.Commits[i].Base.Commit[:], o.take(32))
		}
		if flags&4 != 0 {
			o.want("diff", b.Commits[i].Diff.Pack[:], o.take(16))
			o.numbers("its length", 5<<20)
			continue
		}
		diff := o.part()
		if i == 1 { // three changes: a is removed, c an eager object of 400 bytes, d a lazy one of 1 TiB
			big, index := object.Sum(0, b.Pieces[0].Content), object.Sum(1, b.Pieces[1].Content)
			want := append([]byte{4, 'a', 6, 'c'}, big[:]...)
			want = append(binary.AppendUvarint(want, 400), 7, 'd')
			o.want("changes", binary.AppendUvarint(append(want, index[:]...), 1<<40), diff)
		}
	}
	o.numbers("explanations", 1, 3, 0)
	o.want("root", b.Explanations[0].Root[:], o.take(33))
	o.want("decisions", []byte("\x05a\x08decision"), o.part())
	o.numbers("packs", 2)
	o.want("pack", bytes.Repeat([]byte{0x20}, 16), o.take(16))
	o.numbers("lazy, bytes, pieces", 0, 1000, 3)
	o.want("pack", bytes.Repeat([]byte{0x21}, 16), o.take(16))
	o.numbers("eager, bytes, pieces", 1, 16<<20, 60_000)
	o.numbers("relies", 2)
	o.want("packs", append(bytes.Repeat([]byte{0x10}, 16), bytes.Repeat([]byte{0x11}, 16)...), o.take(32))
	o.numbers("entries", 2, 3, 4)
	o.numbers("tags", 2, 1)
	o.want("removed tag", []byte("old"), o.part())
	o.numbers("flags", 0)
	o.want("tag", []byte("v1"), o.part())
	o.want("its commit", b.Commits[0].Commit.ID[:], o.take(32))
	o.numbers("retention", 1000, uint64(90*24*time.Hour))
	o.numbers("condemned packs", 2)
	o.want("condemned packs", append(bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 16)...), o.take(32))
	o.numbers("condemned checkpoints, below", 2, 1, 2, 3)
	o.numbers("pieces", 2, 0)
	o.want("chunk", b.Pieces[0].Content, o.part())
	o.numbers("kind", 1)
	o.want("index", b.Pieces[1].Content, o.part())
	o.want("the rest", nil, o.b)
}

// moreCheckpoint is fullCheckpoint with what may be left out at the end of the header.
func moreCheckpoint(t *testing.T) *format.Checkpoint {
	c, _ := fullCheckpoint(t)
	c.Lacks, c.Trees, c.TreeBytes, c.Partial = true, []uint32{0}, []uint64{77}, partial(0x20, 1, 3, 7, 1)
	return c
}

func TestASecondImplementationReadsTheEndOfTheGoldenCheckpoint(t *testing.T) {
	bare, more := stored(t, "checkpoint", nil), stored(t, "checkpoint-more", nil)
	o := &other{t, more}
	o.take(1)
	if header := int(binary.BigEndian.Uint64(o.take(8))); header != len(o.b) {
		t.Fatalf("header of %d bytes, there are %d", header, len(o.b))
	}
	o.want("what is always there", bare[9:], o.take(len(bare)-9))
	o.want("flags", []byte{7}, o.take(1))
	o.numbers("trees", 1, 0, 77)
	o.numbers("partial packs", 1)
	o.want("pack", bytes.Repeat([]byte{0x20}, 16), o.take(16))
	o.numbers("spans: left out, blocks", 2, 1, 3, 3, 1)
	o.want("the rest", nil, o.b)
}

func TestASecondImplementationReadsTheGoldenCheckpoint(t *testing.T) {
	c, diffs := fullCheckpoint(t)
	for _, a := range algorithms {
		s := goldenSealer(t, a)
		ring := s.Keyring()
		dir := ring.Name("ledger", []byte(ledgerName)) + "/" + ring.Name("page", []byte(ledgerName), pageID[:])
		b := stored(t, a.String()+"-checkpoint", nil)
		r, err := s.NewReader(bytes.NewReader(b), int64(len(b)), seal.Label{Role: "checkpoint", Name: dir + "/checkpoints/00000000000000000040"})
		if err != nil {
			t.Fatal(err)
		}
		f, err := r.Whole(bytes.Clone(b))
		if err == nil {
			err = f.OpenTo(r.BlockBytes())
		}
		if err != nil {
			t.Fatal(err)
		}
		o := &other{t, f.Plain()[:r.BlockBytes()]}
		if n := binary.BigEndian.Uint32(o.take(4)); int(n) != len(o.b) {
			t.Errorf("block of %d bytes, there are %d", n, len(o.b))
		}
		o.want("flags", []byte{0}, o.take(1))
		o.want("version", []byte{1}, o.take(1))
		header := int(binary.BigEndian.Uint64(o.take(8)))
		rest := o.b[header:]
		o.b = o.b[:header]
		o.want("bucket", bytes.Repeat([]byte{0xb0}, 16), o.take(16))
		o.want("number", []byte{0, 0, 0, 0, 0, 0, 0, 40}, o.take(8))
		o.want("hash", bytes.Repeat([]byte{40}, 32), o.take(32))
		o.numbers("commits", 3)
		for i := range 3 {
			if k, err := commit.Parse(o.part()); err != nil || k.ID != c.Commits[i].ID {
				t.Errorf("commit %d: %v", i, err)
			}
		}
		o.numbers("heads", 2, 2, uint64(len(diffs[0])), 1, uint64(len(diffs[1])))
		o.numbers("tags", 2, 0)
		o.want("name", []byte("v1"), o.part())
		o.want("commit", c.Commits[0].ID[:], o.take(32))
		o.numbers("flags", 0)
		o.want("name", []byte("v2"), o.part())
		o.want("commit", c.Commits[1].ID[:], o.take(32))
		o.numbers("retention and packs", 10, uint64(time.Hour), 2)
		o.want("pack", bytes.Repeat([]byte{0x20}, 16), o.take(16))
		o.numbers("eager, bytes, pieces", 1, 1000, 3)
		o.want("pack", bytes.Repeat([]byte{0x21}, 16), o.take(16))
		o.numbers("lazy, bytes, pieces", 0, 1, 1)
		o.numbers("condemnations, packs", 2, 2)
		o.want("packs", append(bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 16)...), o.take(32))
		o.numbers("checkpoints, below", 2, 1, 39, 0)
		o.numbers("second condemnation", 0, 0, 40)
		o.want("the rest of the header", nil, o.b)
		o.want("diffs", append(bytes.Clone(diffs[0]), diffs[1]...), rest)
	}
}
