package format_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
)

var sameCommits = cmp.Options{cmpopts.EquateEmpty(), cmp.Comparer(func(a, b *commit.Commit) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ID == b.ID && bytes.Equal(a.Encode(), b.Encode())
})}

func sealEntry(t testing.TB, s *seal.Sealer, number uint64, previous format.Hash, b *format.Body) ([]byte, format.Hash) {
	t.Helper()
	body, err := format.SealBody(s, namesOf(s), id(0xee), b)
	if err != nil {
		t.Fatal(err)
	}
	stored, h, err := format.SealEntry(s, namesOf(s), number, previous, body)
	if err != nil {
		t.Fatal(err)
	}
	return stored, h
}

func TestEntryOpens(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, s *seal.Sealer) {
		n, b := namesOf(s), fullBody(t)
		stored, h := sealEntry(t, s, 7, hash(6), b)
		e, err := format.OpenEntry(s, n, 7, stored)
		if err != nil {
			t.Fatal(err)
		}
		if h != sha256.Sum256(stored[:4+binary.BigEndian.Uint32(stored)]) || e.Hash != h || e.Stored != len(stored) || e.KeyIndex != 0 {
			t.Errorf("hash %s of %d bytes, want %s of %d", e.Hash, e.Stored, h, len(stored))
		}
		want := format.Header{Number: 7, ID: id(0xee), Previous: hash(6)}
		if e.Header != want {
			t.Errorf("header %v, want %v", e.Header, want)
		}
		if diff := cmp.Diff(b, e.Body, sameCommits); diff != "" {
			t.Error(diff)
		}
		if header, got, err := format.OpenHeader(s, n, 7, stored[:format.HeaderBytes]); err != nil || header != want || got != h {
			t.Errorf("header %v, hash %s, %v", header, got, err)
		}
		if len(stored) != seal.Quarters(len(stored)) {
			t.Errorf("an entry of %d bytes", len(stored))
		}
	})
}

// TestALoserMovesOn: a body that is sealed once opens at whatever number it gets.
func TestALoserMovesOn(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 1)
	n := namesOf(s)
	body, err := format.SealBody(s, n, id(1), fullBody(t))
	if err != nil {
		t.Fatal(err)
	}
	for number := uint64(5); number < 8; number++ {
		stored, _, err := format.SealEntry(s, n, number, hash(byte(number)), body)
		if err != nil {
			t.Fatal(err)
		}
		e, err := format.OpenEntry(s, n, number, stored)
		if err != nil || e.ID != id(1) || !bytes.HasSuffix(stored, body.Sealed) {
			t.Errorf("entry %d: %v", number, err)
		}
	}
}

// TestSmallEntryIsSmall bounds what a commit of one key costs.
func TestSmallEntryIsSmall(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 2)
	a := newCommit(t, 1)
	c := newCommit(t, 2, a)
	small := func(value []byte) int {
		stored, _ := sealEntry(t, s, 2, hash(1), &format.Body{Device: id(1), Commits: []format.CommitChange{
			{Commit: c, Base: format.Base{Commit: a.ID}, Diff: format.Diff{Inline: diffOf(t, inline("a key of 20 letters!", value))}},
		}})
		return len(stored)
	}
	random, text := small(noise(1, 100)), small(bytes.Repeat([]byte("ten bytes "), 10))
	t.Logf("%d bytes, %d when it compresses", random, text)
	if random > 640 || text != random {
		t.Errorf("an entry with a commit of 100 bytes has %d bytes, of text %d", random, text)
	}
	if long := small(bytes.Repeat([]byte("ten bytes "), 200)); long > random {
		t.Errorf("%d bytes of text of 2000, %d of noise of 100", long, random)
	}
}

func TestBodyRoundTrip(t *testing.T) {
	b := fullBody(t)
	// Sets may come in any order.
	slices.Reverse(b.Packs)
	slices.Reverse(b.Relies)
	slices.Reverse(b.ReliesEntries)
	slices.Reverse(b.Tags)
	slices.Reverse(b.Condemned.Packs)
	slices.Reverse(b.Condemned.Checkpoints)
	plain := mustEncode(t, b)
	got, err := format.ParseBody(plain)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fullBody(t), got, sameCommits); diff != "" {
		t.Error(diff)
	}
	if again := mustEncode(t, got); !bytes.Equal(again, plain) {
		t.Error("encoding again gives other bytes")
	}
}

// TestBodiesThatNobodyWrites: I4.
func TestBodiesThatNobodyWrites(t *testing.T) {
	other := newCommit(t, 50)
	for name, spoil := range map[string]func(b *format.Body){
		"no device":                   func(b *format.Body) { b.Device = format.ID{} },
		"nothing":                     func(b *format.Body) { *b = format.Body{Device: id(1)} },
		"only relies":                 func(b *format.Body) { *b = format.Body{Device: id(1), Relies: []format.ID{id(2)}} },
		"first commit":                func(b *format.Body) { b.Commits[0].Commit = commit.First() },
		"no commit":                   func(b *format.Body) { b.Commits[0].Commit = nil },
		"commit twice":                func(b *format.Body) { b.Commits = append(b.Commits, b.Commits[1]) },
		"child before parent":         func(b *format.Body) { b.Commits[0], b.Commits[1] = b.Commits[1], b.Commits[0] },
		"base is the commit":          func(b *format.Body) { b.Commits[1].Base.Commit = b.Commits[1].Commit.ID },
		"base comes later":            func(b *format.Body) { b.Commits[1].Base.Commit = b.Commits[2].Commit.ID },
		"no base":                     func(b *format.Body) { b.Commits[1].Base = format.Base{} },
		"two bases":                   func(b *format.Body) { b.Commits[1].Base.Empty = true },
		"diff in both":                func(b *format.Body) { b.Commits[2].Diff.Inline = b.Commits[1].Diff.Inline },
		"diff without length":         func(b *format.Body) { b.Commits[2].Diff.Bytes = 0 },
		"diff too long":               func(b *format.Body) { b.Commits[2].Diff.Bytes = format.MaxDiffBytes + 1 },
		"inline diff with length":     func(b *format.Body) { b.Commits[1].Diff.Bytes = 1 },
		"no diff":                     func(b *format.Body) { b.Commits[1].Diff.Inline = []byte("no diff") },
		"removal from the empty tree": func(b *format.Body) { b.Commits[0].Diff = b.Commits[1].Diff },
		"explanation of no merge":     func(b *format.Body) { b.Explanations[0].Merge = b.Commits[0].Commit.ID },
		"explanation of a stranger":   func(b *format.Body) { b.Explanations[0].Merge = other.ID },
		"explanation twice":           func(b *format.Body) { b.Explanations = append(b.Explanations, b.Explanations[0]) },
		"empty explanation":           func(b *format.Body) { b.Explanations[0].Diff = format.Diff{} },
		"explanation of the empty":    func(b *format.Body) { b.Explanations[0].Root = commit.First().Root },
		"explanation's root no node":  func(b *format.Body) { b.Explanations[0].Root = b.Pieces[0].Digest },
		"piece twice":                 func(b *format.Body) { b.Pieces = append(b.Pieces, b.Pieces[0]) },
		"piece empty":                 func(b *format.Body) { b.Pieces[0].Content = nil },
		"piece too long":              func(b *format.Body) { b.Pieces[0].Content = make([]byte, 64<<10+1) },
		"piece of a node":             func(b *format.Body) { b.Pieces[0].Digest[0] |= byte(object.NodeBit) },
		"piece without digest":        func(b *format.Body) { b.Pieces[0].Digest = object.Digest{} },
		"pack zero":                   func(b *format.Body) { b.Packs[0].ID = format.ID{} },
		"pack twice":                  func(b *format.Body) { b.Packs[1] = b.Packs[0] },
		"pack empty":                  func(b *format.Body) { b.Packs[0].Bytes = 0 },
		"pack too long":               func(b *format.Body) { b.Packs[0].Bytes = format.MaxPackObjectBytes + 1 },
		"pack without pieces":         func(b *format.Body) { b.Packs[0].Pieces = 0 },
		"pack with too many pieces":   func(b *format.Body) { b.Packs[0].Pieces = format.MaxPackPieces + 1 },
		"pack is a diff":              func(b *format.Body) { b.Packs[0].ID = b.Commits[2].Diff.Pack },
		"relies on its own pack":      func(b *format.Body) { b.Relies[0] = b.Packs[0].ID },
		"relies twice":                func(b *format.Body) { b.Relies[1] = b.Relies[0] },
		"relies on zero":              func(b *format.Body) { b.Relies[1] = format.ID{} },
		"relies on entry 0":           func(b *format.Body) { b.ReliesEntries[0] = 0 },
		"relies on the same entry":    func(b *format.Body) { b.ReliesEntries[1] = b.ReliesEntries[0] },
		"relies on no number":         func(b *format.Body) { b.ReliesEntries[1] = format.MaxNumber + 1 },
		"relies on the condemned":     func(b *format.Body) { b.Relies[0] = b.Condemned.Packs[0] },
		"relies on condemned entries": func(b *format.Body) { b.Condemned.Below = 4 },
		"is built on the condemned":   func(b *format.Body) { b.Since, b.Condemned.Below = 2, 3 },
		"is built on no number":       func(b *format.Body) { b.Since = format.MaxNumber + 1 },
		"gives a commit up twice":     func(b *format.Body) { b.GivenUp = []commit.ID{{1}, {1}} },
		"gives the first commit up":   func(b *format.Body) { b.GivenUp = []commit.ID{commit.First().ID} },
		"condemns its own pack":       func(b *format.Body) { b.Condemned.Packs[0] = b.Packs[0].ID },
		"condemns nothing":            func(b *format.Body) { *b.Condemned = format.Condemnation{} },
		"condemns pack 0":             func(b *format.Body) { b.Condemned.Packs[0] = format.ID{} },
		"condemns below 1":            func(b *format.Body) { b.Condemned.Below = 1 },
		"condemns checkpoint 0":       func(b *format.Body) { b.Condemned.Checkpoints[0] = 0 },
		"negative age":                func(b *format.Body) { b.Retention.Age = -1 },
		"tag without name":            func(b *format.Body) { b.Tags[0].Name = "" },
		"tag with a long name":        func(b *format.Body) { b.Tags[0].Name = string(make([]byte, 257)) },
		"tag twice":                   func(b *format.Body) { b.Tags[0].Name = b.Tags[1].Name },
		"tag of nothing":              func(b *format.Body) { b.Tags[1].Commit = commit.ID{} },
		"removed tag of something":    func(b *format.Body) { b.Tags[1].Removed = true },
	} {
		t.Run(name, func(t *testing.T) {
			b := fullBody(t)
			mustEncode(t, b)
			spoil(b)
			if _, err := b.Encode(); !errors.Is(err, base.ErrInvalid) || errors.Is(err, base.ErrCorrupt) {
				t.Errorf("error %v, want invalid", err)
			}
		})
	}
}
