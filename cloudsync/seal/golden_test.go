package seal_test

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/crypto/argon2"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/secret"
)

var update = flag.Bool("update", false, "write the golden files that are not there")

const goldenDir = "testdata/golden"

// golden compares got with the golden file of that name. Golden files of a released format are written once.
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

// goldenParts do not compress, so that their sealed bytes do not depend on the release of the zstd library.
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
	if m, err := seal.ParseKeyFile(golden(t, "v1/keyfile", text.Expose())); err != nil || !m.Equal(master) {
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
		ring, err := seal.OpenKeyring(golden(t, "v1/keyring-"+c.name, wrap(t, c.s.Keyring(), c.master, 107)), c.master)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		sameKeys(t, c.s.Keyring(), ring)
		if c.name == "passphrase" {
			continue
		}
		opener := seal.NewSealer(ring, nil)
		name := ring.Name("page", []byte("ledger"), []byte("page"))
		golden(t, "v1/name-"+c.name, []byte(name+"\n"))
		l := seal.Label{Role: "entry", Name: name}
		single := golden(t, "v2/single-"+c.name, mustPad(t, c.s, l, goldenParts[0]))
		if got, _, err := opener.Open(l, single, 1000); err != nil || !bytes.Equal(got, goldenParts[0]) {
			t.Errorf("single %s: %v", c.name, err)
		}
		object := framed(t, c.s, l, []byte("table"), goldenParts...)
		got, table, err := readFrames(opener, l, golden(t, "v2/framed-"+c.name, object))
		if err != nil || !bytes.Equal(got, bytes.Join(goldenParts, nil)) || string(table) != "table" {
			t.Errorf("framed %s: %v", c.name, err)
		}
		var compressed []byte
		if *update {
			if _, err := os.Stat(filepath.Join(goldenDir, "v2/compressed-"+c.name)); err != nil {
				compressed = mustSeal(t, c.s, l, goldenText)
			}
		}
		if got, _, err := opener.Open(l, golden(t, "v2/compressed-"+c.name, compressed), len(goldenText)); err != nil || !bytes.Equal(got, goldenText) {
			t.Errorf("compressed %s: %v", c.name, err)
		}
	}
}

// part and the rest of this file are a second implementation, made from the tables in doc.go with the standard library.
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

// ringByHand opens a wrapped keyring and returns its keys: names, chunking, data.
func ringByHand(t *testing.T, b, master []byte) [][]byte {
	t.Helper()
	check, err := hkdf.Key(sha256.New, master, b[4:20], "ledger seal 1 check", 16)
	if err != nil || !bytes.Equal(check, b[48:64]) {
		t.Fatal("key check differs")
	}
	if sum := sha256.Sum256(b[:len(b)-32]); !bytes.Equal(sum[:], b[len(b)-32:]) {
		t.Fatal("checksum differs")
	}
	content := openGCM(t, master, cat(b[4:20], b[64:80]), []byte("ledger seal 1 wrap"), nonceOf(5, 0), b[84:len(b)-32], b[:84])
	if len(content) != int(binary.BigEndian.Uint32(b[80:])) || binary.BigEndian.Uint32(content) != 1 || len(content) != 4+3*32 {
		t.Fatalf("content of %d bytes", len(content))
	}
	return [][]byte{content[4:36], content[36:68], content[68:100]}
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
	keys := ringByHand(t, golden(t, "v1/keyring-sealed", nil), master)
	b := golden(t, "v1/keyring-passphrase", nil)
	n := func(at int) uint32 { return binary.BigEndian.Uint32(b[at:]) }
	derived := argon2.IDKey([]byte(goldenPassphrase), b[32:48], n(24), n(20), uint8(n(28)), 32)
	for i, key := range ringByHand(t, b, derived) {
		if !bytes.Equal(key, keys[i]) {
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
	info := func(b []byte) []byte { return cat([]byte("ledger seal 2 object"), b[:8], bound) }
	single := golden(t, "v2/single-sealed", nil)
	content := cat([]byte{0}, goldenParts[0], []byte{0x80}, make([]byte, 512-24-1-len(goldenParts[0])-1-16))
	if got := openGCM(t, keys[2], single[8:24], info(single), nonceOf(4, 0), single[24:], cat(single[:24], bound)); !bytes.Equal(got, content) || len(single) != 512 {
		t.Errorf("single: %x", got)
	}
	f := golden(t, "v2/framed-sealed", nil)
	var stream []byte
	for i, rest := 0, f[24:len(f)-24]; len(rest) > 0; i++ {
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
	padding := len(want)
	length := padmeByHand(padding + 5 + 16)
	table := length - 16 - 5
	want = cat(want, make([]byte, table-padding), []byte("table"))
	want = binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(want, uint64(padding)), uint64(table))
	if !bytes.Equal(stream, want) || !bytes.Equal(f[len(f)-24:], f[:24]) {
		t.Errorf("framed: %x", stream)
	}
	p := golden(t, "v2/single-plaintext", nil)
	plainName := bytes.TrimSpace(golden(t, "v1/name-plaintext", nil))
	ad := cat(p[:24], part([]byte("entry")), part(plainName))
	tag := sha256.Sum256(cat([]byte("ledger seal 1 plain"), nonceOf(4, 0), part(ad), p[24:len(p)-16]))
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
