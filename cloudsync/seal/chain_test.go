package seal_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// member is somebody who has or had a slot.
type member struct {
	master seal.MasterKey
	id     seal.ID
	ring   *seal.Keyring // the newest that it could open
	gone   bool
}

// TestChain: whoever has a slot opens every ring of a chain that anybody has gone on with, has the
// same keys as all others; whoever had one is told so, and does not open what is sealed with later
// keys; nobody else opens anything. Who follows ring by ring knows what a new one finds.
func TestChain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := uint64(1000)
		source := func() *randomSource { seed++; return &randomSource{seed: seed} }
		draw := func() seal.MasterKey {
			m := seal.NewMasterKey(source())
			if rapid.Bool().Draw(t, "words") {
				m = seal.NewRecoveryWords(source())
			}
			return m
		}
		keys, err := seal.NewKeyring(seal.AES256GCM, source())
		check(t, err)
		first := &member{master: draw()}
		raw, ring, err := keys.Found(seal.NewSlot{Master: first.master, Label: "first"}, source())
		check(t, err)
		first.id, first.ring = ring.Slots()[0].ID, ring
		members, rings := []*member{first}, [][]byte{raw}
		for i := range rapid.IntRange(1, 8).Draw(t, "changes") {
			there := slices.DeleteFunc(slices.Clone(members), func(m *member) bool { return m.gone })
			by := rapid.SampledFrom(there).Draw(t, "by")
			change := seal.Change{NewDataKey: rapid.Bool().Draw(t, "rotate")}
			for range rapid.IntRange(0, 2).Draw(t, "slots") {
				change.AddSlots = append(change.AddSlots, seal.NewSlot{Master: draw(), Label: fmt.Sprint("of change ", i)})
			}
			for _, m := range there {
				if m != by && rapid.IntRange(0, 3).Draw(t, "remove") == 0 {
					m.gone = true
					change.RemoveSlots = append(change.RemoveSlots, m.id)
				}
			}
			before := by.ring
			raw, ring, err := before.Next(change, source())
			check(t, err)
			if shut := len(change.RemoveSlots) > 0; (ring.DataKeys() > before.DataKeys()) != (shut || change.NewDataKey) {
				t.Fatalf("%d data keys after %d, %+v", ring.DataKeys(), before.DataKeys(), change)
			}
			for j, n := range change.AddSlots {
				members = append(members, &member{master: n.Master, id: ring.Slots()[len(ring.Slots())-len(change.AddSlots)+j].ID})
			}
			rings = append(rings, raw)
			sealed, _, err := seal.NewSealer(ring, source()).Seal(entry, []byte("later"), seal.Form{})
			check(t, err)
			for _, m := range members {
				m.see(t, rings, ring, sealed)
			}
		}
		if _, err := open(draw(), rings...); !errors.Is(err, seal.ErrWrongKey) || errors.Is(err, seal.ErrShutOut) {
			t.Fatalf("a key that was never a slot: %v", err)
		}
	})
}

// see opens the chain anew, and goes on from what the member knew.
func (m *member) see(t *rapid.T, rings [][]byte, want *seal.Keyring, sealed []byte) {
	ring, err := open(m.master, rings...)
	var followed *seal.Keyring
	followErr := err
	if m.ring != nil && m.ring.Number() < want.Number() {
		followed, followErr = m.ring.Accept(rings[len(rings)-1])
	}
	if m.gone {
		if !errors.Is(err, seal.ErrShutOut) || !errors.Is(err, seal.ErrWrongKey) || m.ring != nil && m.ring.Number()+2 == uint64(len(rings)) && !errors.Is(followErr, seal.ErrShutOut) {
			t.Fatalf("who was shut out: %v, %v", err, followErr)
		}
		if m.ring != nil && m.ring.DataKeys() < want.DataKeys() {
			if _, _, err := seal.NewSealer(m.ring, nil).Open(entry, sealed, 10); !errors.Is(err, seal.ErrUnknownKey) {
				t.Fatalf("who was shut out opens what came later: %v", err)
			}
		}
		return
	}
	check(t, errors.Join(err, followErr))
	for _, k := range []*seal.Keyring{ring, followed} {
		if k == nil {
			continue
		}
		plain, _, err := seal.NewSealer(k, nil).Open(entry, sealed, 10)
		if err != nil || string(plain) != "later" || k.Hash() != want.Hash() || len(k.Slots()) != len(want.Slots()) {
			t.Fatalf("ring %d: %q, %v", k.Number(), plain, err)
		}
	}
	m.ring = ring
}

func check(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// randomSource gives bytes that follow from a seed.
type randomSource struct{ seed uint64 }

func (r *randomSource) Read(p []byte) (int, error) {
	r.seed += 1 << 32
	return copy(p, noise(r.seed, len(p))), nil
}

// TestForgedRings: nobody makes a ring count who may not.
func TestForgedRings(t *testing.T) {
	a, b := newMaster(t, 80), newMaster(t, 81)
	first := found(t, newSealer(t, seal.AES256GCM, 82).Keyring(), a, 83)
	ka := mustOpen(t, a, first)
	second, ka2 := next(t, ka, seal.Change{AddSlots: []seal.NewSlot{{Master: b}}}, 84)
	kb := mustOpen(t, b, first, second)
	third, ka3 := next(t, ka2, seal.Change{RemoveSlots: []seal.ID{kb.Slots()[1].ID}}, 85)

	// The one that is shut out goes on from where it was a member.
	fork, _ := next(t, kb, seal.Change{RemoveSlots: []seal.ID{kb.Slots()[0].ID}}, 86)
	if _, err := ka3.Accept(fork); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a ring of a number that is there: %v", err)
	}
	binary.BigEndian.PutUint64(fork[20:], 3)
	if _, err := ka3.Accept(fork); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("with another number: %v", err)
	}
	// A later ring with another signature, which everything else fits.
	unsigned := bytes.Clone(second)
	unsigned[len(unsigned)-sha256.Size-1] ^= 1
	sum := sha256.Sum256(unsigned[:len(unsigned)-sha256.Size])
	copy(unsigned[len(unsigned)-sha256.Size:], sum[:])
	if _, err := ka.Accept(unsigned); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a ring with another signature: %v", err)
	}
	if _, err := open(a, first, unsigned); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("a chain with another signature: %v", err)
	}
	// Rings of another bucket with the same key, one that is left out, and one twice.
	other := found(t, newSealer(t, seal.AES256GCM, 87).Keyring(), a, 88)
	foreign, _ := next(t, mustOpen(t, a, other), seal.Change{}, 89)
	for what, rings := range map[string][][]byte{
		"of another bucket": {first, foreign}, "with a gap": {first, third}, "twice": {first, first}, "without the first": {second}, "none": nil,
	} {
		if _, err := seal.ParseChain(rings); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := open(a, first, second, third); err != nil {
		t.Error(err)
	}
	if _, _, err := ka3.Next(seal.Change{RemoveSlots: []seal.ID{ka3.Slots()[0].ID}}, nil); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("removing the own slot: %v", err)
	}
	if _, _, err := ka3.Next(seal.Change{RemoveSlots: []seal.ID{{9}}}, nil); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("removing a slot that is not there: %v", err)
	}
	for what, c := range map[string]seal.Change{
		"label": {AddSlots: []seal.NewSlot{{Master: b, Label: "a\x1b[2J"}}}, "key": {AddSlots: []seal.NewSlot{{}}},
		"key, which has a slot": {AddSlots: []seal.NewSlot{{Master: a}}},
	} {
		if _, _, err := ka3.Next(c, nil); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("bad %s: %v", what, err)
		}
	}
}

// TestRecoveryWords are those of BIP-39, whose own vectors they give.
func TestRecoveryWords(t *testing.T) {
	for _, c := range []struct {
		key  byte
		last string
		one  string
	}{{0, "art", "abandon"}, {0x7f, "title", "legal"}, {0x80, "bless", "letter"}, {0xff, "vote", "zoo"}} {
		m := seal.NewRecoveryWords(bytes.NewReader(bytes.Repeat([]byte{c.key}, 32)))
		words, err := m.RecoveryWords()
		if err != nil {
			t.Fatal(err)
		}
		all := bytes.Fields(words.Expose())
		if len(all) != 24 || string(all[0]) != c.one || string(all[23]) != c.last {
			t.Errorf("%x: %s", c.key, words.Expose())
		}
		again, err := seal.ParseRecoveryWords(bytes.ToUpper(bytes.ReplaceAll(words.Expose(), []byte(" "), []byte("\n  "))))
		if err != nil || !again.Equal(m) || again.Kind() != seal.SlotWords {
			t.Errorf("%v", err)
		}
	}
	m := seal.NewRecoveryWords(seeded(95))
	words, err := m.RecoveryWords()
	if err != nil {
		t.Fatal(err)
	}
	all := bytes.Fields(words.Expose())
	for what, bad := range map[string][][]byte{
		"23 words": all[1:], "25 words": append(slices.Clone(all), all[0]), "swapped": append([][]byte{all[1], all[0]}, all[2:]...),
		"no word": append([][]byte{[]byte("ledger")}, all[1:]...), "none": nil,
	} {
		if _, err := seal.ParseRecoveryWords(bytes.Join(bad, []byte(" "))); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := newMaster(t, 96).RecoveryWords(); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("words of a key file: %v", err)
	}
	if _, err := seal.FormatKeyFile(m); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("key file of words: %v", err)
	}
}
