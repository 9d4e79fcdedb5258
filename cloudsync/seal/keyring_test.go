package seal_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/secret"
)

func newMaster(t testing.TB, seed uint64) seal.MasterKey {
	t.Helper()
	m := seal.NewMasterKey(seeded(seed))
	return m
}

// found makes the first ring of a keyring, for a key or, with the zero one, in plaintext.
func found(t testing.TB, k *seal.Keyring, m seal.MasterKey, seed uint64) []byte {
	t.Helper()
	slot := seal.NewSlot{}
	if !m.IsZero() {
		slot = seal.NewSlot{Master: m, Label: "first key"}
	}
	b, _, err := k.Found(slot, seeded(seed))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// open opens a chain.
func open(m seal.MasterKey, rings ...[]byte) (*seal.Keyring, error) {
	c, err := seal.ParseChain(rings)
	if err != nil {
		return nil, err
	}
	return c.Open(m)
}

func mustOpen(t testing.TB, m seal.MasterKey, rings ...[]byte) *seal.Keyring {
	t.Helper()
	k, err := open(m, rings...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// next makes the next ring.
func next(t testing.TB, k *seal.Keyring, c seal.Change, seed uint64) ([]byte, *seal.Keyring) {
	t.Helper()
	b, n, err := k.Next(c, seeded(seed))
	if err != nil {
		t.Fatal(err)
	}
	return b, n
}

// cheap is a KDF at the lower bound.
func cheap(t testing.TB, seed uint64) seal.KDF {
	t.Helper()
	k := seal.NewKDF(seeded(seed))
	k.MemoryKiB, k.Passes, k.Lanes = seal.MinMemoryKiB, 1, 1
	return k
}

// sameKeys checks that two keyrings do the same.
func sameKeys(t testing.TB, a, b *seal.Keyring) {
	t.Helper()
	if a.BucketID() != b.BucketID() || a.Algorithm() != b.Algorithm() || a.DataKeys() != b.DataKeys() || a.Name("r", []byte("p")) != b.Name("r", []byte("p")) || !a.ChunkingSecret().Equal(b.ChunkingSecret()) {
		t.Error("keyrings differ")
	}
	plain, _, err := seal.NewSealer(b, nil).Open(entry, mustSeal(t, seal.NewSealer(a, nil), entry, []byte("hello")), 10)
	if err != nil || string(plain) != "hello" {
		t.Errorf("%q, %v", plain, err)
	}
}

func TestKeyringIsFoundedAndOpened(t *testing.T) {
	ring := newSealer(t, seal.AES256GCM, 40).Keyring()
	master := newMaster(t, 41)
	b := found(t, ring, master, 42)
	r, err := seal.ParseRing(b)
	if err != nil || r.Algorithm != seal.AES256GCM || r.BucketID != ring.BucketID() || r.Number != 0 || r.Hash != sha256.Sum256(b) {
		t.Fatalf("%+v, %v", r, err)
	}
	got := mustOpen(t, master, b)
	sameKeys(t, ring, got)
	if s := got.Slots(); len(s) != 1 || s[0].Kind != seal.SlotKeyFile || s[0].Label != "first key" || !s[0].Own {
		t.Errorf("%+v", s)
	}
	if bytes.Equal(b, found(t, ring, master, 43)) {
		t.Error("founding again gave the same bytes")
	}
	if _, _, err := got.Found(seal.NewSlot{Master: master}, nil); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("founding a chain that is there: %v", err)
	}
	if _, _, err := ring.Next(seal.Change{}, nil); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("the next of no ring: %v", err)
	}
}

func TestPlaintextKeyring(t *testing.T) {
	ring := newSealer(t, seal.Plain, 46).Keyring()
	b := found(t, ring, seal.MasterKey{}, 47)
	got := mustOpen(t, seal.MasterKey{}, b)
	sameKeys(t, ring, got)
	if _, err := open(newMaster(t, 48), b); !errors.Is(err, seal.ErrPlaintext) {
		t.Errorf("with a master key: %v", err)
	}
	if _, _, err := ring.Found(seal.NewSlot{Master: newMaster(t, 48)}, nil); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("founding plaintext with a key: %v", err)
	}
	for _, c := range []seal.Change{{NewDataKey: true}, {AddSlots: []seal.NewSlot{{Master: newMaster(t, 48)}}}} {
		if _, _, err := got.Next(c, nil); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("%+v in plaintext: %v", c, err)
		}
	}
	b1, k1 := next(t, got, seal.Change{}, 49)
	if k, err := open(seal.MasterKey{}, b, b1); err != nil || k.Hash() != k1.Hash() {
		t.Errorf("%v", err)
	}
}

func TestWrongKey(t *testing.T) {
	ring := newSealer(t, seal.AES256GCM, 49).Keyring()
	b := found(t, ring, newMaster(t, 50), 51)
	for what, m := range map[string]seal.MasterKey{"another": newMaster(t, 52), "none": {}} {
		if _, err := open(m, b); !errors.Is(err, seal.ErrWrongKey) || errors.Is(err, seal.ErrShutOut) || errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := ring.Found(seal.NewSlot{}, nil); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("founding without a key: %v", err)
	}
}

func TestPassphrase(t *testing.T) {
	ring := newSealer(t, seal.AES256GCM, 53).Keyring()
	kdf := cheap(t, 54)
	master, err := kdf.Derive(secret.FromString("correct horse"))
	if err != nil {
		t.Fatal(err)
	}
	b := found(t, ring, master, 55)
	c, err := seal.ParseChain([][]byte{b})
	if err != nil {
		t.Fatal(err)
	}
	for _, try := range []struct {
		passphrase string
		want       error
	}{{"correct horse", nil}, {"correct horse ", seal.ErrWrongKey}, {"Correct horse", seal.ErrWrongKey}} {
		m, err := c.Derive(secret.FromString(try.passphrase))
		if !errors.Is(err, try.want) {
			t.Errorf("%q: %v", try.passphrase, err)
		}
		if err == nil {
			sameKeys(t, ring, mustOpen(t, m, b))
		}
	}
	if _, err := kdf.Derive(secret.Bytes{}); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("empty passphrase: %v", err)
	}
	if _, err := seal.FormatKeyFile(master); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("key file of a passphrase: %v", err)
	}
	if c, err = seal.ParseChain([][]byte{found(t, ring, newMaster(t, 56), 57)}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Derive(secret.FromString("correct horse")); !errors.Is(err, seal.ErrWrongKey) || !strings.Contains(err.Error(), "key file") {
		t.Errorf("a passphrase where there is none: %v", err)
	}
}

// TestEachChangeOfAKeyringIsSeen: by the checksum, and with the checksum made anew by the key
// check, a tag or the signature.
func TestEachChangeOfAKeyringIsSeen(t *testing.T) {
	kdf := cheap(t, 56)
	derived, err := kdf.Derive(secret.FromString("p"))
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		algorithm seal.Algorithm
		master    seal.MasterKey
	}{"key file": {seal.AES256GCM, newMaster(t, 57)}, "passphrase": {seal.AES256GCM, derived}, "plaintext": {seal.Plain, seal.MasterKey{}}} {
		t.Run(what, func(t *testing.T) {
			b := found(t, newSealer(t, c.algorithm, 58).Keyring(), c.master, 59)
			changes(b, func(what string, changed []byte) {
				if _, err := open(c.master, changed); !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
					t.Errorf("%s: %v", what, err)
				}
			})
			changes(b[:len(b)-sha256.Size], func(what string, changed []byte) {
				sum := sha256.Sum256(changed)
				_, err := open(c.master, append(changed, sum[:]...))
				if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) && !errors.Is(err, seal.ErrWrongKey) {
					t.Errorf("%s with a checksum: %v", what, err)
				}
			})
		})
	}
}

// TestAHostileKeyringAsksForLittle: parameters out of bounds are refused before they are used.
func TestAHostileKeyringAsksForLittle(t *testing.T) {
	kdf := cheap(t, 60)
	master, err := kdf.Derive(secret.FromString("p"))
	if err != nil {
		t.Fatal(err)
	}
	good := found(t, newSealer(t, seal.AES256GCM, 61).Keyring(), master, 62)
	for _, c := range []struct {
		memory, passes, lanes uint32
		ok                    bool
	}{
		{seal.MinMemoryKiB, 1, 1, true}, {seal.MaxMemoryKiB, 4, 16, true}, {64 << 10, 64, 1, true},
		{1 << 30, 1, 1, false}, {1<<32 - 1, 1<<32 - 1, 1<<32 - 1, false}, {seal.MaxMemoryKiB + 1, 1, 1, false}, {seal.MinMemoryKiB - 1, 1, 1, false},
		{seal.MinMemoryKiB, 0, 1, false}, {seal.MinMemoryKiB, 65, 1, false}, {seal.MinMemoryKiB, 1, 0, false}, {seal.MinMemoryKiB, 1, 17, false},
		{seal.MinMemoryKiB, 1, 257, false}, {seal.MaxMemoryKiB, 5, 1, false}, {0, 0, 0, false},
	} {
		b := bytes.Clone(good)
		const kdf = 92 + 20 // of the first slot
		binary.BigEndian.PutUint32(b[kdf:], c.memory)
		binary.BigEndian.PutUint32(b[kdf+4:], c.passes)
		binary.BigEndian.PutUint32(b[kdf+8:], c.lanes)
		sum := sha256.Sum256(b[:len(b)-sha256.Size])
		copy(b[len(b)-sha256.Size:], sum[:])
		_, err := seal.ParseRing(b)
		if c.ok && err != nil || !c.ok && !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%+v: %v", c, err)
		}
		if !c.ok {
			if _, err := (seal.KDF{MemoryKiB: c.memory, Passes: c.passes, Lanes: c.lanes}).Derive(secret.FromString("p")); !errors.Is(err, base.ErrInvalid) {
				t.Errorf("derive with %+v: %v", c, err)
			}
		}
	}
}

func TestDefaultKDF(t *testing.T) {
	kdf := seal.NewKDF(nil)
	if kdf.MemoryKiB != 65536 || kdf.Passes != 3 || kdf.Lanes != 4 || kdf.Salt == (seal.ID{}) {
		t.Errorf("%+v", kdf)
	}
	if _, err := kdf.Derive(secret.FromString("p")); err != nil {
		t.Error(err)
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	master := newMaster(t, 63)
	if err := seal.CreateKeyFile(path, master, secret.Bytes{}); err != nil {
		t.Fatal(err)
	}
	got, err := seal.ReadKeyFile(path, false, secret.Bytes{})
	if err != nil || !got.Equal(master) || got.IsZero() {
		t.Fatalf("%v, %v", got, err)
	}
	if err := seal.CreateKeyFile(path, newMaster(t, 64), secret.Bytes{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a key file was overwritten: %v", err)
	}
	if again, err := seal.ReadKeyFile(path, false, secret.Bytes{}); err != nil || !again.Equal(master) {
		t.Errorf("the first key is gone: %v", err)
	}
	if runtime.GOOS != "windows" {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		for _, mode := range []fs.FileMode{0o640, 0o604, 0o620, 0o610} {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
			if _, err := seal.ReadKeyFile(path, false, secret.Bytes{}); !errors.Is(err, fs.ErrPermission) {
				t.Errorf("mode %o: %v", mode, err)
			}
			if got, err := seal.ReadKeyFile(path, true, secret.Bytes{}); err != nil || !got.Equal(master) {
				t.Errorf("mode %o, told to: %v", mode, err)
			}
		}
	}
	if _, err := seal.ReadKeyFile(filepath.Join(t.TempDir(), "none"), false, secret.Bytes{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := seal.CreateKeyFile(filepath.Join(t.TempDir(), "zero"), seal.MasterKey{}, secret.Bytes{}); !errors.Is(err, base.ErrInvalid) {
		t.Error(err)
	}
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.ReadKeyFile(path, true, secret.Bytes{}); !errors.Is(err, base.ErrCorrupt) {
		t.Error(err)
	}
}

// TestEachChangeOfAKeyFileIsSeen: typed by hand, it can be wrong anywhere. The errors show nothing
// of the key.
func TestEachChangeOfAKeyFileIsSeen(t *testing.T) {
	text, err := seal.FormatKeyFile(newMaster(t, 65))
	if err != nil {
		t.Fatal(err)
	}
	key := strings.Split(string(text.Expose()), "\n")[1]
	try := func(what string, changed []byte) {
		_, err := seal.ParseKeyFile(changed, secret.Bytes{})
		if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
			return
		}
		for i := range len(key) - 7 {
			if strings.Contains(err.Error(), key[i:i+8]) {
				t.Fatalf("%s: error %v shows the key", what, err)
			}
		}
	}
	changes(text.Expose(), try)
	try("carriage returns", bytes.ReplaceAll(text.Expose(), []byte("\n"), []byte("\r\n")))
	try("upper case", bytes.ToUpper(text.Expose()))
	try("the key in the first line", []byte("ledger master key 1"+key+"\n"))
	for _, c := range []struct{ text, want string }{
		{"ledger master key 2\n\n\n", "version 2"}, {"", "first line"}, {"ledger master key 1\n" + key + "\n", "three whole lines"}, {"ledger master key 1\n\n\n", "second line"},
	} {
		if _, err := seal.ParseKeyFile([]byte(c.text), secret.Bytes{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}
