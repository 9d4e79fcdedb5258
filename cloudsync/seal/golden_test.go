package seal_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdh"
	"crypto/ed25519"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/crypto/argon2"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/secret"
)

var update = flag.Bool("update", false, "write the golden files that are not there")

const goldenDir = "testdata/golden"

// golden compares got with the golden file of that name. Golden files of a released format are
// written once.
func golden(t *testing.T, name string, got []byte) []byte {
	t.Helper()
	path := filepath.Join(goldenDir, name)
	if _, err := os.Stat(path); *update && os.IsNotExist(err) {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
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
	if got != nil && !bytes.Equal(got, want) {
		t.Errorf("%s differs from the golden file:\n got %x\nwant %x", name, got, want)
	}
	return want
}

const goldenPassphrase = "correct horse battery staple"

// goldenParts do not compress, so that their sealed bytes do not depend on the release of the zstd
// library.
var goldenParts = [][]byte{noise(101, 60), noise(102, 5), noise(103, 200)}

var goldenText = bytes.Repeat([]byte("Ledger keeps what it was given. "), 50)

func mustPad(t *testing.T, s *seal.Sealer, l seal.Label, plain []byte) []byte {
	t.Helper()
	sealed, _, err := s.Seal(l, plain, seal.Form{Parts: whole(plain), Pad: seal.Quarters})
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestGolden(t *testing.T) {
	master := newMaster(t, 100)
	text, err := seal.FormatKeyFile(master)
	if err != nil {
		t.Fatal(err)
	}
	if m, err := seal.ParseKeyFile(golden(t, "v1/keyfile", text.Expose()), secret.Bytes{}); err != nil || !m.Equal(master) {
		t.Errorf("key file: %v", err)
	}
	sealed, plain := newSealer(t, seal.AES256GCM, 104), newSealer(t, seal.Plain, 105)
	derived, err := cheap(t, 106).Derive(secret.FromString(goldenPassphrase))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		s      *seal.Sealer
		master seal.MasterKey
	}{{"sealed", sealed, master}, {"passphrase", sealed, derived}, {"plaintext", plain, seal.MasterKey{}}} {
		first := golden(t, "v5/ring-0-"+c.name, found(t, c.s.Keyring(), c.master, 107))
		var change seal.Change
		if c.name == "sealed" {
			change.AddSlots, change.NewDataKey = []seal.NewSlot{{Master: derived, Label: "passphrase of all"}}, true
		}
		second, _ := next(t, mustOpen(t, c.master, first), change, 108)
		second = golden(t, "v5/ring-1-"+c.name, second)
		if k := mustOpen(t, c.master, first, second); k.Number() != 1 || len(k.Slots()) != len(mustOpen(t, c.master, first).Slots())+len(change.AddSlots) {
			t.Errorf("%s: ring %d, slots %+v", c.name, k.Number(), k.Slots())
		}
		ring := mustOpen(t, c.master, first)
		sameKeys(t, c.s.Keyring(), ring)
		if c.name == "passphrase" {
			continue
		}
		opener := seal.NewSealer(ring, nil)
		name := ring.Name("page", []byte("ledger"), []byte("page"))
		golden(t, "v1/name-"+c.name, []byte(name+"\n"))
		l := seal.Label{Role: "entry", Name: name}
		single := golden(t, "v3/single-"+c.name, mustPad(t, c.s, l, goldenParts[0]))
		if got, _, err := opener.Open(l, single, 1000); err != nil || !bytes.Equal(got, goldenParts[0]) {
			t.Errorf("single %s: %v", c.name, err)
		}
		got, err := readStream(opener, l, golden(t, "v3/framed-"+c.name, framed(t, c.s, l, goldenParts...)))
		if err != nil || !bytes.Equal(got, bytes.Join(goldenParts, nil)) {
			t.Errorf("framed %s: %v", c.name, err)
		}
		var compressed []byte
		if *update {
			if _, err := os.Stat(filepath.Join(goldenDir, "v3/compressed-"+c.name)); err != nil {
				compressed = mustSeal(t, c.s, l, goldenText)
			}
		}
		if got, _, err := opener.Open(l, golden(t, "v3/compressed-"+c.name, compressed), len(goldenText)); err != nil || !bytes.Equal(got, goldenText) {
			t.Errorf("compressed %s: %v", c.name, err)
		}
	}
}

// part and the rest of this file are a second implementation, made from docs/format/sealed.md with
// the standard library.
func part(b []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...)
}

func cat(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func openGCM(t *testing.T, key, salt, info, nonce, sealed, ad []byte) []byte {
	t.Helper()
	sub, err := hkdf.Key(sha256.New, key, salt, string(info), 32)
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(sub)
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		t.Fatal(err)
	}
	plain, err := aead.Open(nil, nonce, sealed, ad)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func nonceOf(kind byte, number uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{kind, 0, 0, 0}, number)
}

// ringByHand opens a ring with the secret of one of its slots, verifies that the slot before has
// signed it, and returns its keys: names, chunking, data.
func ringByHand(t *testing.T, b, master []byte, slot int, before []byte) [][]byte {
	t.Helper()
	if sum := sha256.Sum256(b[:len(b)-32]); !bytes.Equal(sum[:], b[len(b)-32:]) {
		t.Fatal("checksum differs")
	}
	of := func(key, salt []byte, label string, n int) []byte {
		out, err := hkdf.Key(sha256.New, key, salt, label, n)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	s := b[92+112*slot:][:112]
	salt := cat(b[4:20], s[4:20])
	if !bytes.Equal(of(master, salt, "ledger seal 1 check", 16), s[48:64]) {
		t.Fatal("key check differs")
	}
	private, err1 := ecdh.X25519().NewPrivateKey(of(master, salt, "ledger seal 1 box", 32))
	ephemeral, err2 := ecdh.X25519().NewPublicKey(b[60:92])
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	shared, err := private.ECDH(ephemeral)
	if err != nil {
		t.Fatal(err)
	}
	ringKey := openGCM(t, shared, salt, cat([]byte("ledger seal 1 slot"), b[20:28], b[60:92], private.PublicKey().Bytes()), nonceOf(6, 0), s[64:], s[:64])
	at := 92 + 112*int(binary.BigEndian.Uint16(b[2:]))
	n := int(binary.BigEndian.Uint32(b[at:]))
	content := openGCM(t, ringKey, b[4:20], []byte("ledger seal 1 wrap"), nonceOf(5, 0), b[at+4:at+4+n+16], b[:at+4])
	if before != nil {
		sum := sha256.Sum256(before)
		if !bytes.Equal(sum[:], b[28:60]) {
			t.Error("another ring is named as the one before")
		}
		signer := ed25519.NewKeyFromSeed(of(master, salt, "ledger seal 1 sign", 32)).Public().(ed25519.PublicKey)
		if !ed25519.Verify(signer, cat([]byte("ledger seal 1 ring"), b[:len(b)-32-64]), b[len(b)-32-64:len(b)-32]) {
			t.Error("the signature differs")
		}
	}
	keys := [][]byte{content[:32], content[32:64]}
	for i := range int(binary.BigEndian.Uint32(content[64:])) {
		keys = append(keys, content[68+32*i:][:32])
	}
	return keys
}

func TestASecondImplementationOpensTheGoldenFiles(t *testing.T) {
	lines := strings.Split(string(golden(t, "v1/keyfile", nil)), "\n")
	master, err := hex.DecodeString(lines[1])
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(cat([]byte("ledger seal 1 key file"), master)); hex.EncodeToString(sum[:4]) != lines[2] {
		t.Error("checksum of the key file differs")
	}
	first, second := golden(t, "v5/ring-0-sealed", nil), golden(t, "v5/ring-1-sealed", nil)
	keys := ringByHand(t, first, master, 0, nil)
	b := golden(t, "v5/ring-0-passphrase", nil)[92:]
	n := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	derived := argon2.IDKey([]byte(goldenPassphrase), b[32:48], n(24), n(20), uint8(n(28)), 32)
	later := ringByHand(t, second, derived, 1, nil)
	if again := ringByHand(t, second, master, 0, first); !slices.EqualFunc(later, again, bytes.Equal) || len(later) != len(keys)+1 {
		t.Errorf("the slots of a ring open other keys, or %d", len(later))
	}
	for i, key := range ringByHand(t, golden(t, "v5/ring-0-passphrase", nil), derived, 0, nil) {
		if !bytes.Equal(key, keys[i]) || !bytes.Equal(key, later[i]) {
			t.Errorf("key %d differs", i)
		}
	}
	mac := hmac.New(sha256.New, keys[0])
	mac.Write(cat([]byte("ledger seal 1 name"), part([]byte("page")), []byte{0, 0, 0, 2}, part([]byte("ledger")), part([]byte("page"))))
	name := hex.EncodeToString(mac.Sum(nil)[:20])
	if name+"\n" != string(golden(t, "v1/name-sealed", nil)) {
		t.Errorf("name %s", name)
	}
	bound := cat(part([]byte("entry")), part([]byte(name)))
	info := func(b []byte) []byte { return cat([]byte("ledger seal 3 object"), b[:8], bound) }
	single := golden(t, "v3/single-sealed", nil)
	content := cat([]byte{0, 0, 0, byte(1 + len(goldenParts[0])), 0}, goldenParts[0])
	content = append(content, make([]byte, 512-24-16-len(content))...)
	if got := openGCM(t, keys[2], single[8:24], info(single), nonceOf(2, 0), single[24:], cat(single[:24], bound)); !bytes.Equal(got, content) || len(single) != 512 {
		t.Errorf("single: %x", got)
	}
	f := golden(t, "v3/framed-sealed", nil)
	var stream []byte
	for i, rest := 0, f[24:]; len(rest) > 0; i++ {
		n, kind := min(len(rest), 16384), byte(1)
		if n == len(rest) {
			kind = 2
		}
		stream = append(stream, openGCM(t, keys[2], f[8:24], info(f), nonceOf(kind, uint64(i)), rest[:n], cat(f[:24], bound))...)
		rest = rest[n:]
	}
	var want []byte
	for _, p := range goldenParts {
		want = cat(want, binary.BigEndian.AppendUint32(nil, uint32(1+len(p))), []byte{0}, p)
	}
	want = append(want, 0, 0, 0, 0)
	want = append(want, make([]byte, padmeByHand(len(want))-len(want))...)
	if !bytes.Equal(stream, want) {
		t.Errorf("framed: %x", stream)
	}
	p := golden(t, "v3/single-plaintext", nil)
	plainName := bytes.TrimSpace(golden(t, "v1/name-plaintext", nil))
	ad := cat(p[:24], part([]byte("entry")), part(plainName))
	tag := sha256.Sum256(cat([]byte("ledger seal 1 plain"), nonceOf(2, 0), part(ad), p[24:len(p)-16]))
	if !bytes.Equal(p[24:len(p)-16], content) || !bytes.Equal(p[len(p)-16:], tag[:16]) {
		t.Error("plaintext differs")
	}
}

// padmeByHand is Padmé as the paper has it, in floating point.
func padmeByHand(n int) int {
	e := math.Floor(math.Log2(float64(n)))
	s := math.Floor(math.Log2(e)) + 1
	step := math.Pow(2, e-s)
	return int(math.Ceil(float64(n)/step) * step)
}
