package seal_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/secret"
)

// known reports whether err is one that a decoder may give.
func known(err error) bool {
	return errors.Is(err, base.ErrCorrupt) || errors.Is(err, base.ErrUnsupported) || errors.Is(err, seal.ErrWrongKey) || errors.Is(err, seal.ErrPlaintext)
}

// FuzzOpenEnvelope opens bytes of a bucket at once, as a stream and as a part of one. With sealing,
// only sealed objects open; in plaintext, all bytes with a right hash.
func FuzzOpenEnvelope(f *testing.F) {
	sealers := []*seal.Sealer{newSealer(f, seal.AES256GCM, 200), newSealer(f, seal.Plain, 200)}
	for _, s := range sealers {
		for _, plain := range [][]byte{nil, []byte("short"), bytes.Repeat([]byte("long "), 100), noise(201, 100)} {
			f.Add(mustSeal(f, s, pack, plain))
			f.Add(framed(f, s, pack, []byte("first"), []byte("second")))
		}
	}
	f.Add([]byte{})
	f.Add(make([]byte, 200))
	const limit = 1 << 20
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, s := range sealers {
			plain, _, err := s.Open(pack, b, limit)
			if err != nil && !known(err) || len(plain) > limit {
				t.Errorf("open: %d bytes, %v", len(plain), err)
			}
			if _, err := readStream(s, pack, b); err != nil && !known(err) {
				t.Errorf("stream: %v", err)
			}
			ref, _, _ := seal.Inspect(pack, b)
			st, err := s.NewPart(bytes.NewReader(b[min(len(b), 24):]), int64(len(b)), pack, ref, 0, 0, 1)
			if err == nil {
				_, err = st.Next()
			}
			if err != nil && !known(err) {
				t.Errorf("frame: %v", err)
			}
		}
	})
}

// FuzzOpenRing opens rings: without a key everything but the plaintext is refused.
func FuzzOpenRing(f *testing.F) {
	kdf := cheap(f, 202)
	derived, err := kdf.Derive(secret.FromString("p"))
	if err != nil {
		f.Fatal(err)
	}
	master := newMaster(f, 203)
	first := found(f, newSealer(f, seal.AES256GCM, 204).Keyring(), master, 205)
	second, _ := next(f, mustOpen(f, master, first), seal.Change{AddSlots: []seal.NewSlot{{Master: derived}}}, 206)
	f.Add(first)
	f.Add(second)
	f.Add(found(f, newSealer(f, seal.AES256GCM, 206).Keyring(), derived, 207))
	f.Add(found(f, newSealer(f, seal.Plain, 208).Keyring(), seal.MasterKey{}, 209))
	f.Add(make([]byte, 300))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range []seal.MasterKey{master, derived, {}} {
			if _, err := open(m, b); err != nil && !known(err) {
				t.Error(err)
			}
			if _, err := open(m, first, b); err != nil && !known(err) {
				t.Error(err)
			}
		}
	})
}

// FuzzParseKeyFile: one key has one text.
func FuzzParseKeyFile(f *testing.F) {
	text, err := seal.FormatKeyFile(newMaster(f, 211))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text.Expose())
	f.Add([]byte("ledger master key 2\n"))
	f.Add([]byte("ledger master key 99999999999999999999\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := seal.ParseKeyFile(b, secret.Bytes{})
		if err != nil {
			if !known(err) {
				t.Error(err)
			}
			return
		}
		if again, err := seal.FormatKeyFile(m); err != nil || !bytes.Equal(again.Expose(), b) {
			t.Errorf("accepted %q, formats otherwise: %v", b, err)
		}
	})
}
