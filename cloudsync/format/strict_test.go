package format_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// TestParentsComeFirst has no base that would tell too.
func TestParentsComeFirst(t *testing.T) {
	a := newCommit(t, 1)
	child := newCommit(t, 2, a)
	empty := format.Base{Empty: true}
	b := &format.Body{Device: id(1), Commits: []format.CommitChange{{Commit: child, Base: empty}, {Commit: a, Base: empty}}}
	if _, err := b.Encode(); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("child before parent: %v", err)
	}
}

// TestRangesWithARightChecksum: what a table says is checked beyond its checksum.
func TestRangesWithARightChecksum(t *testing.T) {
	good := mustRange(t, 33, rangeEntries())
	for name, spoil := range map[string]func(b []byte){
		"zeros":         func(b []byte) { b[6] = 1 },
		"first":         func(b []byte) { b[15]++ },
		"number":        func(b []byte) { b[19]++ },
		"empty entry":   func(b []byte) { binary.BigEndian.PutUint32(b[20:], 0) },
		"long entry":    func(b []byte) { binary.BigEndian.PutUint32(b[20:], format.MaxEntryBytes+1) },
		"too long":      func(b []byte) { binary.BigEndian.PutUint32(b[20:], 9<<20); binary.BigEndian.PutUint32(b[32:], 9<<20) },
		"other lengths": func(b []byte) { b[23]++ },
		"far ahead":     func(b []byte) { b[24] = 0x41 },
	} {
		b := bytes.Clone(good)
		spoil(b)
		table := format.RangeTableBytes(3)
		binary.BigEndian.PutUint32(b[table-4:], crc32.Checksum(b[:table-4], crc32.MakeTable(crc32.Castagnoli)))
		_, err := format.ParseRange(33, 35, b)
		mustRefuse(t, name, "range", err)
	}
}

// TestSpoiltCheckpoints spoils the bytes of a checkpoint by hand where no encoder would.
func TestSpoiltCheckpoints(t *testing.T) {
	withHeader := func(header []byte) []byte {
		return append(binary.BigEndian.AppendUint64([]byte{1}, uint64(len(header))), header...)
	}
	at := format.Position{Bucket: id(1), Number: 1, Hash: hash(1)}.Encode()
	k := newCommit(t, 1).Encode()
	commits := append(binary.AppendUvarint(append(bytes.Clone(at), 1), uint64(len(k))), k...)
	many := append(binary.AppendUvarint(append(bytes.Clone(at), 0, 0, 0, 0, 0, 0), format.MaxCondemnations+1), make([]byte, 3*(format.MaxCondemnations+1))...)
	other := bytes.Clone(k)
	other[4] = 'X'
	for name, header := range map[string][]byte{
		"no header":              nil,
		"more heads":             append(bytes.Clone(commits), 2, 0, 0, 0, 0, 0, 0, 0, 0, 0),
		"long form":              append(bytes.Clone(commits), 0x81, 0x00, 0, 0, 0, 0, 0, 0, 0),
		"head in long form":      append(bytes.Clone(commits), 1, 0x80, 0x00, 0, 0, 0, 0, 0, 0),
		"no head":                append(bytes.Clone(commits), 0, 0, 0, 0, 0, 0),
		"many condemnations":     many,
		"empty condemnation":     append(bytes.Clone(at), 0, 0, 0, 0, 0, 0, 1, 0, 0, 0),
		"condemnation cut":       append(bytes.Clone(at), 0, 0, 0, 0, 0, 0, 2, 0, 0, 0x80, 0, 0, 0),
		"removed tag":            append(bytes.Clone(at), append([]byte{0, 0, 1, 1, 1, 't'}, make([]byte, 40)...)...),
		"commit too long":        append(append(bytes.Clone(at), 1, 0xff, 0xff, 0x03), make([]byte, 70_000)...),
		"commit of another kind": append(append(binary.AppendUvarint(append(bytes.Clone(at), 1), uint64(len(k))), other...), 1, 0, 0, 0, 0, 0, 0, 0),
		"more commits":           append(binary.AppendUvarint(bytes.Clone(at), 1<<30), make([]byte, 1000)...),
	} {
		_, err := format.ReadCheckpoint(bytes.NewReader(withHeader(header)), 1<<20)
		mustRefuse(t, name, "checkpoint", err)
	}
	good := append(bytes.Clone(commits), 1, 0, 0, 0, 0, 0, 0, 0)
	if _, err := format.ReadCheckpoint(bytes.NewReader(withHeader(good)), 1<<20); err != nil {
		t.Errorf("what is spoilt above: %v", err)
	}
}

// TestFloorsThatNobodyWrites are sealed by a member.
func TestFloorsThatNobodyWrites(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 8)
	n := namesOf(s)
	for name, plain := range map[string][]byte{
		"low 0": {1, 0, 0, 0}, "gap": {1, 0, 9, 7}, "deleted and kept": {1, 1, 2, 1}, "flags": {1, 2, 2, 1}, "short": {1, 0, 2}, "more": {1, 0, 2, 1, 0}, "version 0": {0, 0, 2, 1}, "long form": {1, 0, 0x82, 0x00, 1}, "empty": {},
	} {
		_, err := format.OpenFloor(s, n, 3, sealAs(t, s, n.FloorLabel(3), plain))
		mustRefuse(t, name, n.Floor(3), err)
	}
	_, err := format.OpenFloor(s, n, 3, sealAs(t, s, n.FloorLabel(3), []byte{2, 0, 2, 1}))
	if !isA[*base.FormatError](err) {
		t.Errorf("newer version: %v", err)
	}
	_, err = format.OpenFloor(s, n, 0, sealAs(t, s, n.FloorLabel(0), []byte{1, 0, 2, 1}))
	mustRefuse(t, "number 0", n.Floor(0), err)
}

// TestABodyOfAnotherKind: the seals are right, what is sealed is not.
func TestABodyOfAnotherKind(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 9)
	n := namesOf(s)
	bad := &format.SealedBody{ID: id(1), Sealed: sealAs(t, s, n.BodyLabel(id(1)), []byte("no body")), Body: &format.Body{}}
	stored, _, err := format.SealEntry(s, n, 7, hash(6), bad)
	if err != nil {
		t.Fatal(err)
	}
	_, err = format.OpenEntry(s, n, 7, stored)
	mustRefuse(t, "no body", n.Entry(7), err)
}

// TestNoRandomness: errors of the source come through.
func TestNoRandomness(t *testing.T) {
	ring := newSealer(t, seal.AES256GCM, 10).Keyring()
	n := format.NamesOf(ring, ledgerName, pageID)
	dry := seal.NewSealer(ring, bytes.NewReader(nil))
	if _, err := format.SealBody(dry, n, id(1), fullBody(t)); !errors.Is(err, io.EOF) {
		t.Errorf("body: %v", err)
	}
	once := seal.NewSealer(ring, bytes.NewReader(make([]byte, 16)))
	body, err := format.SealBody(once, n, id(1), fullBody(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := format.SealEntry(once, n, 7, hash(6), body); !errors.Is(err, io.EOF) {
		t.Errorf("entry: %v", err)
	}
	if _, err := format.SealFloor(dry, n, format.Floor{K: 1, Low: 1}); !errors.Is(err, io.EOF) {
		t.Errorf("floor: %v", err)
	}
	if _, err := format.SealBody(dry, n, id(1), &format.Body{}); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("empty body: %v", err)
	}
}

// TestDiffObject: a diff in packs/ opens under its own id and role alone.
func TestDiffObject(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 11)
	n := namesOf(s)
	var b bytes.Buffer
	w, err := s.NewWriter(&b, n.DiffLabel(id(1)), true)
	if err != nil {
		t.Fatal(err)
	}
	diff := diffOf(t, inline("a", []byte("1")))
	if _, err := w.Write(diff); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	read := func(l seal.Label) error {
		r, err := s.NewStream(bytes.NewReader(b.Bytes()), l)
		if err != nil {
			return err
		}
		_, err = readChanges(format.NewChangeReader(r, int64(len(diff))))
		return err
	}
	if err := read(n.DiffLabel(id(1))); err != nil {
		t.Error(err)
	}
	mustRefuse(t, "other id", "diff", read(n.DiffLabel(id(2))))
	mustRefuse(t, "as pack", "pack", read(n.PackLabel()))
}

// TestLongCheckpointsThatEndEarly are longer than what is held of them.
func TestLongCheckpointsThatEndEarly(t *testing.T) {
	c := &format.Checkpoint{At: format.Position{Bucket: id(1), Number: 1, Hash: hash(1)}}
	for i := range 1000 {
		c.Commits = append(c.Commits, newCommit(t, uint64(i)))
		c.Heads, c.DiffBytes = append(c.Heads, uint32(i)), append(c.DiffBytes, 1)
	}
	for i := range 4000 {
		c.Tags = append(c.Tags, format.TagChange{Name: string([]byte{byte('a' + i/256%26), byte('a' + i/26%26), byte('a' + i%26), byte('a' + i/676)}), Commit: c.Commits[i%1000].ID})
	}
	good := encodeCheckpoint(t, c)
	broken := errors.New("broken")
	for n := 1000; n < len(good); n += 10_000 {
		_, err := format.ReadCheckpoint(bytes.NewReader(good[:n]), 1<<20)
		mustRefuse(t, "cut", "checkpoint", err)
		if err := c.EncodeTo(&limitedWriter{n, broken}); !errors.Is(err, broken) {
			t.Errorf("writer that breaks after %d bytes: %v", n, err)
		}
	}
	if _, err := format.ReadCheckpoint(bytes.NewReader(good), 1<<20); err != nil {
		t.Error(err)
	}
}

// limitedWriter breaks after so many bytes.
type limitedWriter struct {
	left int
	err  error
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	if len(p) > w.left {
		return 0, w.err
	}
	w.left -= len(p)
	return len(p), nil
}
