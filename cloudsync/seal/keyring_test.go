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
	m, err := seal.NewMasterKey(seeded(seed))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func wrap(t testing.TB, k *seal.Keyring, m seal.MasterKey, seed uint64) []byte {
	t.Helper()
	b, err := k.Wrap(m, seeded(seed))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// cheap is a KDF at the lower bound.
func cheap(t testing.TB, seed uint64) seal.KDF {
	t.Helper()
	k, err := seal.NewKDF(seeded(seed))
	if err != nil {
		t.Fatal(err)
	}
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

func TestKeyringIsWrappedAndOpened(t *testing.T) {
	ring := newSealer(t, seal.AES256GCM, 40).Keyring()
	master := newMaster(t, 41)
	b := wrap(t, ring, master, 42)
	w, err := seal.ParseKeyring(b)
	if err != nil || w.Algorithm != seal.AES256GCM || w.BucketID != ring.BucketID() || w.KDF != nil {
		t.Fatalf("%+v, %v", w, err)
	}
	got, err := w.Open(master)
	if err != nil {
		t.Fatal(err)
	}
	sameKeys(t, ring, got)
	if bytes.Equal(b, wrap(t, ring, master, 43)) {
		t.Error("wrapping again gave the same bytes")
	}
	for range 5 {
		if ring, err = ring.WithNewDataKey(nil); err != nil {
			t.Fatal(err)
		}
	}
	got, err = seal.OpenKeyring(wrap(t, ring, newMaster(t, 44), 45), newMaster(t, 44))
	if err != nil {
		t.Fatal(err)
	}
	sameKeys(t, ring, got)
}

func TestPlaintextKeyring(t *testing.T) {
	ring := newSealer(t, seal.Plain, 46).Keyring()
	b := wrap(t, ring, seal.MasterKey{}, 47)
	got, err := seal.OpenKeyring(b, seal.MasterKey{})
	if err != nil {
		t.Fatal(err)
	}
	sameKeys(t, ring, got)
	if _, err := seal.OpenKeyring(b, newMaster(t, 48)); !errors.Is(err, seal.ErrPlaintext) {
		t.Errorf("with a master key: %v", err)
	}
	if _, err := ring.Wrap(newMaster(t, 48), nil); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("wrapping plaintext with a key: %v", err)
	}
	if _, err := ring.WithNewDataKey(nil); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("data key in plaintext: %v", err)
	}
}

func TestWrongKey(t *testing.T) {
	ring := newSealer(t, seal.AES256GCM, 49).Keyring()
	b := wrap(t, ring, newMaster(t, 50), 51)
	for what, m := range map[string]seal.MasterKey{"another": newMaster(t, 52), "none": {}} {
		if _, err := seal.OpenKeyring(b, m); !errors.Is(err, seal.ErrWrongKey) || errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := ring.Wrap(seal.MasterKey{}, nil); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("wrapping without a key: %v", err)
	}
}

func TestPassphrase(t *testing.T) {
	ring := newSealer(t, seal.AES256GCM, 53).Keyring()
	kdf := cheap(t, 54)
	master, err := kdf.Derive(secret.FromString("correct horse"))
	if err != nil {
		t.Fatal(err)
	}
	w, err := seal.ParseKeyring(wrap(t, ring, master, 55))
	if err != nil || w.KDF == nil || *w.KDF != kdf {
		t.Fatalf("%+v, %v", w, err)
	}
	for _, c := range []struct {
		passphrase string
		want       error
	}{{"correct horse", nil}, {"correct horse ", seal.ErrWrongKey}, {"Correct horse", seal.ErrWrongKey}} {
		m, err := w.KDF.Derive(secret.FromString(c.passphrase))
		if err != nil {
			t.Fatal(err)
		}
		got, err := w.Open(m)
		if !errors.Is(err, c.want) {
			t.Errorf("%q: %v", c.passphrase, err)
		}
		if err == nil {
			sameKeys(t, ring, got)
		}
	}
	if _, err := kdf.Derive(secret.Bytes{}); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("empty passphrase: %v", err)
	}
	if _, err := seal.FormatKeyFile(master); !errors.Is(err, base.ErrInvalid) {
		t.Errorf("key file of a passphrase: %v", err)
	}
}

// TestEachChangeOfAKeyringIsSeen: by the checksum, and with the checksum made anew by the key check or the tag.
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
			b := wrap(t, newSealer(t, c.algorithm, 58).Keyring(), c.master, 59)
			changes(b, func(what string, changed []byte) {
				if _, err := seal.OpenKeyring(changed, c.master); !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
					t.Errorf("%s: %v", what, err)
				}
			})
			changes(b[:len(b)-sha256.Size], func(what string, changed []byte) {
				sum := sha256.Sum256(changed)
				_, err := seal.OpenKeyring(append(changed, sum[:]...), c.master)
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
	good := wrap(t, newSealer(t, seal.AES256GCM, 61).Keyring(), master, 62)
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
		binary.BigEndian.PutUint32(b[20:], c.memory)
		binary.BigEndian.PutUint32(b[24:], c.passes)
		binary.BigEndian.PutUint32(b[28:], c.lanes)
		sum := sha256.Sum256(b[:len(b)-sha256.Size])
		copy(b[len(b)-sha256.Size:], sum[:])
		_, err := seal.ParseKeyring(b)
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
	kdf, err := seal.NewKDF(nil)
	if err != nil || kdf.MemoryKiB != 65536 || kdf.Passes != 3 || kdf.Lanes != 4 || kdf.Salt == (seal.ID{}) {
		t.Errorf("%+v, %v", kdf, err)
	}
	if _, err := kdf.Derive(secret.FromString("p")); err != nil {
		t.Error(err)
	}
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	master := newMaster(t, 63)
	if err := seal.CreateKeyFile(path, master); err != nil {
		t.Fatal(err)
	}
	got, err := seal.ReadKeyFile(path, false)
	if err != nil || !got.Equal(master) || got.IsZero() {
		t.Fatalf("%v, %v", got, err)
	}
	if err := seal.CreateKeyFile(path, newMaster(t, 64)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a key file was overwritten: %v", err)
	}
	if again, err := seal.ReadKeyFile(path, false); err != nil || !again.Equal(master) {
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
			if _, err := seal.ReadKeyFile(path, false); !errors.Is(err, fs.ErrPermission) {
				t.Errorf("mode %o: %v", mode, err)
			}
			if got, err := seal.ReadKeyFile(path, true); err != nil || !got.Equal(master) {
				t.Errorf("mode %o, told to: %v", mode, err)
			}
		}
	}
	if _, err := seal.ReadKeyFile(filepath.Join(t.TempDir(), "none"), false); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	if err := seal.CreateKeyFile(filepath.Join(t.TempDir(), "zero"), seal.MasterKey{}); !errors.Is(err, base.ErrInvalid) {
		t.Error(err)
	}
	if err := os.WriteFile(path, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.ReadKeyFile(path, true); !errors.Is(err, base.ErrCorrupt) {
		t.Error(err)
	}
}

// TestEachChangeOfAKeyFileIsSeen: typed by hand, it can be wrong anywhere. The errors show nothing of the key.
func TestEachChangeOfAKeyFileIsSeen(t *testing.T) {
	text, err := seal.FormatKeyFile(newMaster(t, 65))
	if err != nil {
		t.Fatal(err)
	}
	key := strings.Split(string(text.Expose()), "\n")[1]
	try := func(what string, changed []byte) {
		_, err := seal.ParseKeyFile(changed)
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
		if _, err := seal.ParseKeyFile([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}

func TestKeyringTakesAChunkingSecret(t *testing.T) {
	chunking := bytes.Repeat([]byte{7}, 32)
	ring, err := seal.NewKeyringWith(seal.AES256GCM, chunking, seeded(70))
	if err != nil {
		t.Fatal(err)
	}
	chunking[0] = 8
	want := append([]byte{7}, chunking[1:]...)
	if !bytes.Equal(ring.ChunkingSecret().Expose(), want) {
		t.Error("the keyring has another secret, or shares the slice")
	}
	master := newMaster(t, 71)
	opened, err := seal.OpenKeyring(wrap(t, ring, master, 72), master)
	if err != nil {
		t.Fatal(err)
	}
	sameKeys(t, ring, opened)
	for _, n := range []int{0, 31, 33} {
		if _, err := seal.NewKeyringWith(seal.Plain, make([]byte, n), nil); !errors.Is(err, base.ErrInvalid) {
			t.Errorf("secret of %d bytes: %v", n, err)
		}
	}
}
