package format_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

// sealedObject is an object as it stands in a bucket, with what opens it wholly.
type sealedObject struct {
	kind   string
	name   string // what an error must have in it: the whole name, or, of framed objects, which package seal opens, their role
	stored []byte
	open   func(stored []byte) error
}

// sealedObjects returns one object of each kind.
func sealedObjects(t testing.TB, s *seal.Sealer) []sealedObject {
	t.Helper()
	n := namesOf(s)
	entry, _ := sealEntry(t, s, 7, hash(6), fullBody(t))
	floor, err1 := format.SealFloor(s, n, format.Floor{K: 2, Low: 41, Checkpoint: 40})
	device, err2 := format.SealDevice(s, n, format.DevicePosition{Fingerprint: id(1), Number: 9})
	page, err3 := format.SealAnnouncement(s, format.Announcement{Ledger: ledgerName, Name: "notes", Page: pageID})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	c, diffs := fullCheckpoint(t)
	pack, packID := sealPack(t, s, piece(1, object.Chunk, 300), piece(2, object.IndexBit, 10))
	pageName := format.AnnouncementName(s.Keyring(), ledgerName, pageID)
	return []sealedObject{
		{"entry", n.Entry(7), entry, func(b []byte) error { _, err := format.OpenEntry(s, n, 7, b); return err }},
		{"floor", n.Floor(2), floor, func(b []byte) error { _, err := format.OpenFloor(s, n, 2, b); return err }},
		{"device", n.Device(id(1), 9), device, func(b []byte) error { return format.OpenDevice(s, n, id(1), 9, b) }},
		{"page", pageName, page, func(b []byte) error { _, err := format.OpenAnnouncement(s, pageName, b); return err }},
		{"pack", "pack", pack, func(b []byte) error { return openPack(s, packID, b) }},
		{"checkpoint", "checkpoint", sealCheckpoint(t, s, c, diffs), func(b []byte) error { return openCheckpoint(s, n, 40, b) }},
	}
}

// TestDamageIsNamed: I2, every truncation and every flip of every byte.
func TestDamageIsNamed(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *seal.Sealer) {
		for _, o := range sealedObjects(t, s) {
			if err := o.open(o.stored); err != nil {
				t.Fatalf("%s: %v", o.kind, err)
			}
			for i := range o.stored {
				if i > 0 || o.kind != "pack" { // of nothing at all there is no pack, and package seal says so
					mustRefuse(t, o.kind+" cut", o.name, o.open(o.stored[:i]))
				}
				bad := bytes.Clone(o.stored)
				bad[i] ^= 1 << (i % 8)
				mustRefuse(t, o.kind+" changed", o.name, o.open(bad))
			}
			mustRefuse(t, o.kind+" with more", o.name, o.open(append(bytes.Clone(o.stored), 0)))
		}
	})
}

// TestSwappedObjectsAreRefused opens each object in the place of each other one, and those of
// another page and another bucket.
func TestSwappedObjectsAreRefused(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *seal.Sealer) {
		objects := sealedObjects(t, s)
		for i, o := range objects {
			for j, other := range objects {
				if i != j {
					mustRefuse(t, other.kind+" as "+o.kind, o.name, o.open(other.stored))
				}
			}
		}
		n, elsewhere := namesOf(s), format.NamesOf(s.Keyring(), ledgerName, [16]byte{9})
		stored, _ := sealEntry(t, s, 7, hash(6), fullBody(t))
		_, err := format.OpenEntry(s, n, 8, stored)
		mustRefuse(t, "entry of another number", n.Entry(8), err)
		_, err = format.OpenEntry(s, elsewhere, 7, stored)
		mustRefuse(t, "entry of another page", elsewhere.Entry(7), err)
		_, _, err = format.OpenHeader(s, elsewhere, 7, stored)
		mustRefuse(t, "header of another page", elsewhere.Entry(7), err)
		_, err = format.OpenFloor(s, elsewhere, 2, objects[1].stored)
		mustRefuse(t, "floor of another page", elsewhere.Floor(2), err)
		mustRefuse(t, "checkpoint of another page", "checkpoint", openCheckpoint(s, elsewhere, 40, objects[5].stored))
	})
	s := newSealer(t, seal.AES256GCM, 22)
	one, _ := sealPack(t, s, piece(1, object.Chunk, 300))
	_, two := sealPack(t, s, piece(1, object.Chunk, 300))
	mustRefuse(t, "pack under the name of another", "pack", openPack(s, two, one))
	a, b := newSealer(t, seal.AES256GCM, 20), newSealer(t, seal.AES256GCM, 21)
	fromA, fromB := sealedObjects(t, a), sealedObjects(t, b)
	for i := range fromA {
		mustRefuse(t, fromA[i].kind+" of another bucket", fromA[i].name, fromA[i].open(fromB[i].stored))
	}
}

// TestMixedEntriesAreRefused: the head of one entry with the body of another, and heads that a
// member sealed and no device writes.
func TestMixedEntriesAreRefused(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *seal.Sealer) {
		n := namesOf(s)
		body := func(id format.ID) *format.SealedBody {
			b, err := format.SealBody(s, n, id, fullBody(t))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		one, two := body(id(1)), body(id(2))
		mixed, _, err := format.SealEntry(s, n, 7, hash(6), &format.SealedBody{ID: one.ID, Sealed: two.Sealed, Body: one.Body})
		if err != nil {
			t.Fatal(err)
		}
		_, err = format.OpenEntry(s, n, 7, mixed)
		mustRefuse(t, "mixed", n.Entry(7), err)
		head := func(version byte, previous format.Hash, id format.ID, more ...byte) []byte {
			return append(append(append([]byte{version}, previous[:]...), id[:]...), more...)
		}
		for name, c := range map[string]struct {
			number uint64
			plain  []byte
		}{
			"version 0":           {7, head(0, hash(6), one.ID)},
			"version 2":           {7, head(2, hash(6), one.ID)},
			"no hash":             {7, head(1, format.Hash{}, one.ID)},
			"hash before entry 1": {1, head(1, hash(6), one.ID)},
			"no id":               {7, head(1, hash(6), format.ID{})},
			"short":               {7, head(1, hash(6), one.ID)[:48]},
			"long":                {7, head(1, hash(6), one.ID, 0)},
			"number 0":            {0, head(1, hash(6), one.ID)},
			"number 2^63":         {1 << 63, head(1, hash(6), one.ID)},
		} {
			sealed := sealAs(t, s, n.HeadLabel(c.number), c.plain)
			stored := append(append(binary.BigEndian.AppendUint32(nil, uint32(len(sealed))), sealed...), one.Sealed...)
			_, err := format.OpenEntry(s, n, c.number, stored)
			mustRefuse(t, name, n.Entry(c.number), err)
			_, _, err = format.OpenHeader(s, n, c.number, stored)
			mustRefuse(t, name, n.Entry(c.number), err)
		}
	})
}

func TestEntriesThatNobodyWrites(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 3)
	n := namesOf(s)
	if _, err := format.SealBody(s, n, format.ID{}, fullBody(t)); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("no id: %v", err)
	}
	body, err := format.SealBody(s, n, id(1), fullBody(t))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		number   uint64
		previous format.Hash
	}{
		"number 0": {0, hash(1)}, "no hash": {7, format.Hash{}}, "hash before 1": {1, hash(1)}, "number 2^63": {1 << 63, hash(1)},
		"relies on a later entry": {4, hash(1)}, "condemns a later entry": {2, hash(1)},
	} {
		if _, _, err := format.SealEntry(s, n, c.number, c.previous, body); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	big := *body
	big.Sealed = make([]byte, format.MaxEntryBytes)
	if _, _, err := format.SealEntry(s, n, 7, hash(1), &big); !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("too large: %v", err)
	}
	// What a member seals at a number that does not suit it.
	for name, spoil := range map[string]func(b *format.Body){
		"relies on itself": func(b *format.Body) { b.ReliesEntries = []uint64{7}; b.Condemned = nil },
		"condemns itself":  func(b *format.Body) { b.Condemned.Checkpoints = []uint64{7} },
		"condemns below":   func(b *format.Body) { b.ReliesEntries = nil; b.Condemned.Below = 8 },
	} {
		b := fullBody(t)
		spoil(b)
		bad, err := format.SealBody(s, n, id(1), b)
		if err != nil {
			t.Fatal(err)
		}
		bad.Body = &format.Body{}
		stored, _, err := format.SealEntry(s, n, 7, hash(6), bad)
		if err != nil {
			t.Fatal(err)
		}
		_, err = format.OpenEntry(s, n, 7, stored)
		mustRefuse(t, name, n.Entry(7), err)
	}
}

func TestLargeBodies(t *testing.T) {
	b := &format.Body{Device: id(1)}
	for i := range 130 {
		b.Pieces = append(b.Pieces, piece(uint64(i), object.Chunk, 64<<10))
	}
	if _, err := b.Encode(); !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("130 pieces of 64 KiB: %v", err)
	}
	b.Pieces = b.Pieces[:128] // as many bytes as a body may have, without their lengths
	if _, err := b.Encode(); !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("128 pieces of 64 KiB: %v", err)
	}
	b.Pieces = b.Pieces[:127]
	plain := mustEncode(t, b)
	bounded(t, len(plain), func() {
		if _, err := format.ParseBody(plain); err != nil {
			t.Error(err)
		}
	})
	_, err := format.ParseBody(make([]byte, format.MaxBodyBytes+1))
	mustRefuse(t, "too long", "body", err)
	many := &format.Body{Device: id(1), Pieces: make([]format.InlinePiece, format.MaxBodyPieces+1)}
	if _, err := many.Encode(); !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("many pieces: %v", err)
	}
	tags := &format.Body{Device: id(1), Tags: make([]format.TagChange, format.MaxBodyTags+1)}
	if _, err := tags.Encode(); !errors.Is(err, base.ErrTooLarge) {
		t.Errorf("many tags: %v", err)
	}
	// What costs most beside its length: as many short pieces as there may be.
	short := &format.Body{Device: id(1)}
	for i := range format.MaxBodyPieces {
		content := []byte{byte(i), byte(i >> 8)}
		short.Pieces = append(short.Pieces, format.InlinePiece{Digest: object.Sum(object.Kind(i%2), content), Content: content})
	}
	plain = mustEncode(t, short)
	t.Logf("%d bytes of short pieces: %d allocated", len(plain), allocated(func() {
		if b, err := format.ParseBody(plain); err != nil || b.Pieces[5].Digest.Verify(b.Pieces[5].Content) != nil {
			t.Error(err)
		}
	}))
	bounded(t, 8*len(plain), func() { _, _ = format.ParseBody(plain) })
	// Claims without content: I3.
	for _, bits := range []uint16{1, 1 << 2, 1 << 3, 1 << 4, 1 << 5, 1 << 8} {
		for _, n := range []uint64{1 << 20, 1 << 40, 1<<64 - 1} {
			claim := append(binary.BigEndian.AppendUint16([]byte{1}, bits), bytes.Repeat([]byte{7}, 16)...)
			claim = append(binary.AppendUvarint(claim, n), make([]byte, 3<<20)...)
			bounded(t, 0, func() {
				_, err := format.ParseBody(claim[:19+binary.MaxVarintLen64+100])
				mustRefuse(t, "claim", "body", err)
			})
			bounded(t, len(claim), func() {
				_, err := format.ParseBody(claim)
				mustRefuse(t, "claim with zeros", "body", err)
			})
		}
	}
}

// TestSpoiltBodies spoils the bytes of a body by hand where no encoder would.
func TestSpoiltBodies(t *testing.T) {
	a := newCommit(t, 1)
	child := newCommit(t, 2, a)
	plain := mustEncode(t, &format.Body{Device: id(1), Commits: []format.CommitChange{{Commit: child, Base: format.Base{Commit: a.ID}}}})
	const flagsAt = 3 + 16 + 1
	other := append(bytes.Clone(plain[:len(plain)-1]), a.ID[:]...)
	other = append(other, 0)
	for name, b := range map[string][]byte{
		"version 0":               append([]byte{0}, plain[1:]...),
		"unknown list":            append([]byte{1, 64}, plain[2:]...),
		"only that it is shallow": append([]byte{1, 4, 0}, plain[3:19]...),
		"only that it lacks":      append([]byte{1, 2, 0}, plain[3:19]...),
		"no lists":                append([]byte{1, 0, 0}, plain[3:19]...),
		"unknown flag":            changed(plain, flagsAt, 0x11),
		"second of one parent":    changed(plain, flagsAt, 2),
		"parent written out":      changed(other, flagsAt, 3),
		"base zero":               changed(append(append(bytes.Clone(plain[:len(plain)-1]), make([]byte, 32)...), 0), flagsAt, 3),
		"base itself":             changed(append(append(bytes.Clone(plain[:len(plain)-1]), child.ID[:]...), 0), flagsAt, 3),
		"diff zero":               changed(append(append(bytes.Clone(plain[:len(plain)-1]), make([]byte, 16)...), 1), flagsAt, 1|4),
		"commit's length":         changed(plain, flagsAt+1, plain[flagsAt+1]-4),
		"the first commit":        first(plain, flagsAt),
		"commit of another kind":  changed(plain, flagsAt+3+4, 'X'),
		"no commits":              append(bytes.Clone(plain[:flagsAt-1]), 0),
		"explanation":             append(append([]byte{1, 0, 3}, plain[3:]...), append([]byte{1, 9, 0}, make([]byte, 34)...)...),
		"piece of kind 2":         append(append([]byte{1, 1, 1}, plain[3:]...), 1, 2, 1, 'x'),
		"piece of 0":              append(append([]byte{1, 1, 1}, plain[3:]...), 1, 0, 0),
		"more":                    append(bytes.Clone(plain), 0),
	} {
		_, err := format.ParseBody(b)
		mustRefuse(t, name, "body", err)
	}
	if _, err := format.ParseBody(append([]byte{2}, plain[1:]...)); !isA[*base.FormatError](err) {
		t.Errorf("newer version: %v", err)
	}
	for n := range plain {
		_, err := format.ParseBody(plain[:n])
		mustRefuse(t, "cut", "body", err)
	}
}

func changed(b []byte, at int, to byte) []byte {
	b = bytes.Clone(b)
	b[at] = to
	return b
}

// first puts the first commit in the place of a body's only one.
func first(plain []byte, flagsAt int) []byte {
	b := append(bytes.Clone(plain[:flagsAt]), 0)
	encoded := commit.First().Encode()
	return append(append(binary.AppendUvarint(b, uint64(len(encoded))), encoded...), 0)
}

func FuzzDecodeBody(f *testing.F) {
	f.Add(mustEncode(f, fullBody(f)))
	a := newCommit(f, 1)
	f.Add(mustEncode(f, &format.Body{Device: id(1), Commits: []format.CommitChange{{Commit: a, Base: format.Base{Empty: true}}}}))
	f.Add(mustEncode(f, pastBody(f)))
	f.Add(mustEncode(f, &format.Body{Device: id(1), Pieces: []format.InlinePiece{piece(1, object.Chunk, 1)}}))
	f.Add(mustEncode(f, &format.Body{Device: id(1), Retention: &format.Retention{}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, p []byte) {
		var b *format.Body
		var err error
		bounded(t, 8*len(p), func() { b, err = format.ParseBody(p) })
		if err != nil {
			if !isRefusal(err) {
				t.Error(err)
			}
			return
		}
		for i := range b.Pieces {
			if err := b.Pieces[i].Digest.Verify(b.Pieces[i].Content); err != nil {
				t.Error(err)
			}
		}
		if again := mustEncode(t, b); !bytes.Equal(again, p) {
			t.Errorf("accepted %x, encodes as %x", p, again)
		}
	})
}

// FuzzDecodeLogEntry opens what a bucket gives, sealed and in plaintext.
func FuzzDecodeLogEntry(f *testing.F) {
	sealers := []*seal.Sealer{newSealer(f, seal.AES256GCM, 4), newSealer(f, seal.Plain, 4)}
	for _, s := range sealers {
		stored, _ := sealEntry(f, s, 7, hash(6), fullBody(f))
		f.Add(stored)
	}
	f.Add([]byte{0, 0, 0, 90})
	f.Fuzz(func(t *testing.T, stored []byte) {
		for _, s := range sealers {
			n := namesOf(s)
			e, err := format.OpenEntry(s, n, 7, stored)
			if err != nil {
				mustRefuse(t, "entry", n.Entry(7), err)
				continue
			}
			if h, sum, err := format.OpenHeader(s, n, 7, stored); err != nil || h != e.Header || sum != e.Hash {
				t.Errorf("header %v, %v", h, err)
			}
			mustEncode(t, e.Body)
		}
	})
}
