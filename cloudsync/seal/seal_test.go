package seal_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/base"
)

// seeded is a source of randomness that is the same in each run.
func seeded(seed uint64) *rand.ChaCha8 {
	var key [32]byte
	binary.BigEndian.PutUint64(key[:], seed)
	return rand.NewChaCha8(key)
}

func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	_, _ = seeded(seed).Read(b)
	return b
}

func newSealer(t testing.TB, a seal.Algorithm, seed uint64) *seal.Sealer {
	t.Helper()
	source := seeded(seed)
	ring, err := seal.NewKeyring(a, source)
	if err != nil {
		t.Fatal(err)
	}
	return seal.NewSealer(ring, source)
}

// whole has all of a plaintext compressed.
func whole(plain []byte) []seal.Part { return []seal.Part{{To: len(plain), Compress: true}} }

func mustSeal(t testing.TB, s *seal.Sealer, l seal.Label, plain []byte) []byte {
	t.Helper()
	sealed, _, err := s.Seal(l, plain, seal.Form{Parts: whole(plain)})
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

// mustRefuse checks that err is one that damaged or foreign bytes may give, and that it names what
// was opened.
func mustRefuse(t testing.TB, what string, l seal.Label, err error) {
	t.Helper()
	if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
		t.Errorf("%s: error %v, want corruption", what, err)
	} else if !strings.Contains(err.Error(), l.Role) {
		t.Errorf("%s: error %q does not name %s", what, err, l.Role)
	}
}

var (
	entry      = seal.Label{Role: "entry", Name: "0123456789abcdef"}
	algorithms = []seal.Algorithm{seal.AES256GCM, seal.Plain}
)

func eachAlgorithm(t *testing.T, fn func(t *testing.T, a seal.Algorithm)) {
	for _, a := range algorithms {
		t.Run(a.String(), func(t *testing.T) { fn(t, a) })
	}
}

// contents generates plaintexts that do and do not compress.
func contents(maxBytes int) *rapid.Generator[[]byte] {
	return rapid.Custom(func(t *rapid.T) []byte {
		n := rapid.IntRange(0, maxBytes).Draw(t, "n")
		if rapid.Bool().Draw(t, "compressible") {
			return bytes.Repeat([]byte("ledger "), n/7+1)[:n]
		}
		return noise(rapid.Uint64().Draw(t, "seed"), n)
	})
}

func TestWhatWasSealedOpens(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a seal.Algorithm) {
		s := newSealer(t, a, 1)
		rapid.Check(t, func(t *rapid.T) {
			l := seal.Label{Role: rapid.StringMatching(`[a-z0-9-]{1,32}`).Draw(t, "role"), Name: string(rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "name"))}
			plain := contents(100_000).Draw(t, "plain")
			form := seal.Form{}
			for at := 0; at < len(plain); {
				at += min(len(plain)-at, rapid.IntRange(100, 100+2*len(plain)).Draw(t, "part"))
				form.Parts = append(form.Parts, seal.Part{To: at, Compress: rapid.Bool().Draw(t, "compress")})
			}
			if rapid.Bool().Draw(t, "pad") {
				form.Pad = seal.Quarters
			}
			sealed, sealedRef, err := s.Seal(l, plain, form)
			if err != nil {
				t.Fatal(err)
			}
			n := int(seal.ObjectBytes(int64(len(plain) + len(form.Parts)*seal.BlockOverhead + 4)))
			if form.Pad == nil && len(sealed) > n || len(sealed) > seal.Quarters(n) || len(sealed) > seal.MaxSealed(len(plain)) {
				t.Fatalf("%d bytes became %d", len(plain), len(sealed))
			}
			if n := seal.Quarters(n); form.Pad != nil && !slices.ContainsFunc(form.Parts, func(p seal.Part) bool { return p.Compress }) && len(sealed) != n {
				t.Fatalf("%d bytes became %d, not %d", len(plain), len(sealed), n)
			}
			before := sha256.Sum256(sealed)
			got, gotRef, err := s.Open(l, sealed, len(plain))
			if err != nil || !bytes.Equal(got, plain) || gotRef != sealedRef {
				t.Fatalf("opened %d bytes of %v, %v", len(got), gotRef, err)
			}
			if sha256.Sum256(sealed) != before {
				t.Fatal("Open changed its argument")
			}
			if ref, alg, err := seal.Inspect(l, sealed); err != nil || ref != sealedRef || alg != a {
				t.Fatalf("inspect: %v %v %v", ref, alg, err)
			}
			if len(plain) > 0 {
				if _, _, err := s.Open(l, sealed, len(plain)-1); !errors.Is(err, base.ErrCorrupt) {
					t.Fatalf("beyond the limit: %v", err)
				}
			}
		})
	})
}

func TestSealingTwiceGivesOtherBytes(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 2)
	plain := noise(3, 200)
	a, b := mustSeal(t, s, entry, plain), mustSeal(t, s, entry, plain)
	same := 0
	for i := 24; i < len(a); i++ {
		if a[i] == b[i] {
			same++
		}
	}
	if same > 12 {
		t.Errorf("%d of %d bytes are equal", same, len(a)-24)
	}
}

// TestEachChangeOfAnObjectIsSeen flips every bit, cuts at every length and adds a byte.
func TestEachChangeOfAnObjectIsSeen(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a seal.Algorithm) {
		s := newSealer(t, a, 4)
		for _, plain := range [][]byte{nil, []byte("x"), noise(5, 60), bytes.Repeat([]byte("compress me "), 40)} {
			sealed := mustSeal(t, s, entry, plain)
			changes(sealed, func(what string, changed []byte) {
				got, _, err := s.Open(entry, changed, 1000)
				mustRefuse(t, what, entry, err)
				if got != nil {
					t.Errorf("%s: gave out %d bytes", what, len(got))
				}
			})
		}
	})
}

// changes calls fn with every flip of a bit, every byte set to 0 and 255, every truncation, and a
// byte more.
func changes(b []byte, fn func(what string, changed []byte)) {
	for i := range b {
		for bit := range 8 {
			c := bytes.Clone(b)
			c[i] ^= 1 << bit
			fn(fmt.Sprintf("bit %d of byte %d of %d", bit, i, len(b)), c)
		}
		for _, v := range []byte{0, 255} {
			if b[i] != v {
				c := bytes.Clone(b)
				c[i] = v
				fn(fmt.Sprintf("byte %d of %d set to %d", i, len(b), v), c)
			}
		}
		fn(fmt.Sprintf("%d of %d bytes", i, len(b)), bytes.Clone(b[:i]))
	}
	fn("a byte more", append(bytes.Clone(b), 0))
	fn("twice", append(bytes.Clone(b), b...))
}

func TestAnObjectIsBoundToItsPlace(t *testing.T) {
	eachAlgorithm(t, func(t *testing.T, a seal.Algorithm) {
		s := newSealer(t, a, 6)
		sealed := mustSeal(t, s, entry, []byte("content of one page"))
		for _, l := range []seal.Label{
			{Role: "pack", Name: entry.Name}, {Role: "entry", Name: "0123456789abcdee"}, {Role: "entry"}, {Role: "entry0", Name: entry.Name[1:]}, {Role: "entr", Name: "y" + entry.Name},
		} {
			_, _, err := s.Open(l, sealed, 1000)
			mustRefuse(t, fmt.Sprint(l), l, err)
		}
		// Parts of one object in another.
		other := mustSeal(t, s, entry, []byte("content of two page"))
		for cut := 1; cut < len(sealed); cut++ {
			if mixed := append(bytes.Clone(sealed[:cut]), other[cut:]...); !bytes.Equal(mixed, sealed) && !bytes.Equal(mixed, other) {
				_, _, err := s.Open(entry, mixed, 1000)
				mustRefuse(t, fmt.Sprint("mixed at ", cut), entry, err)
			}
		}
		if a == seal.AES256GCM {
			_, _, err := newSealer(t, a, 7).Open(entry, sealed, 1000)
			mustRefuse(t, "another bucket's key", entry, err)
		}
	})
}

func TestNoDowngrade(t *testing.T) {
	sealed, plain := newSealer(t, seal.AES256GCM, 8), newSealer(t, seal.Plain, 8)
	_, _, err := sealed.Open(entry, mustSeal(t, plain, entry, []byte("forged")), 1000)
	mustRefuse(t, "plaintext in a sealed bucket", entry, err)
	if err == nil || !strings.Contains(err.Error(), "plaintext") {
		t.Errorf("error %v does not say that it is plaintext", err)
	}
	_, _, err = plain.Open(entry, mustSeal(t, sealed, entry, []byte("sealed")), 1000)
	mustRefuse(t, "sealed in a plaintext bucket", entry, err)
}

func TestRotatedKeys(t *testing.T) {
	source := seeded(9)
	keys, err := seal.NewKeyring(seal.AES256GCM, source)
	if err != nil {
		t.Fatal(err)
	}
	_, ring, err := keys.Found(seal.NewSlot{Master: newMaster(t, 9)}, source)
	if err != nil {
		t.Fatal(err)
	}
	_, next, err := ring.Next(seal.Change{NewDataKey: true}, source)
	if err != nil {
		t.Fatal(err)
	}
	oldSealer, newSealer := seal.NewSealer(ring, source), seal.NewSealer(next, source)
	old, recent := mustSeal(t, oldSealer, entry, []byte("old")), mustSeal(t, newSealer, entry, []byte("new"))
	if plain, _, err := newSealer.Open(entry, old, 10); err != nil || string(plain) != "old" {
		t.Errorf("old object with new keyring: %q, %v", plain, err)
	}
	if _, _, err := oldSealer.Open(entry, recent, 10); !errors.Is(err, seal.ErrUnknownKey) || !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("new object with old keyring: %v", err)
	}
	if ref, _, _ := seal.Inspect(entry, recent); ref.KeyIndex != 1 || next.DataKeys() != 2 || ring.DataKeys() != 1 {
		t.Errorf("key index %d, %d and %d keys", ref.KeyIndex, next.DataKeys(), ring.DataKeys())
	}
	if oldSealer.Use(next); !bytes.Equal([]byte("new"), mustOpenObject(t, oldSealer, entry, recent)) {
		t.Error("the newer keyring is not used")
	}
	if ring.Name("page", []byte("a")) != next.Name("page", []byte("a")) {
		t.Error("a new data key changed names")
	}
}

func mustOpenObject(t *testing.T, s *seal.Sealer, l seal.Label, sealed []byte) []byte {
	t.Helper()
	plain, _, err := s.Open(l, sealed, 1000)
	if err != nil {
		t.Fatal(err)
	}
	return plain
}

func TestArgumentsAreChecked(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 10)
	if _, _, err := s.Seal(entry, make([]byte, seal.MaxObjectBytes+1), seal.Form{}); !errors.Is(err, base.ErrTooLarge) {
		t.Error(err)
	}
	if _, err := seal.NewKeyring(7, nil); !errors.Is(err, base.ErrInvalid) {
		t.Error(err)
	}
	if _, _, err := s.Open(entry, mustSeal(t, s, entry, nil), -1); !errors.Is(err, base.ErrCorrupt) {
		t.Error(err)
	}
}

func TestNamesTellDifferentThingsApart(t *testing.T) {
	ring := newSealer(t, seal.AES256GCM, 11).Keyring()
	seen := map[string]string{}
	for _, role := range []string{"page", "ledger", "", "pag"} {
		for _, parts := range [][]string{nil, {""}, {"", ""}, {"a"}, {"a", ""}, {"", "a"}, {"ab"}, {"a", "b"}, {"b", "a"}, {"e", "a"}, {"\x00\x00\x00\x01a"}} {
			var raw [][]byte
			for _, p := range parts {
				raw = append(raw, []byte(p))
			}
			name, what := ring.Name(role, raw...), fmt.Sprintf("%q %q", role, parts)
			if len(name) != seal.NameDigits || strings.Trim(name, "0123456789abcdef") != "" {
				t.Errorf("name %q", name)
			}
			if seen[name] != "" {
				t.Errorf("%s and %s have one name", what, seen[name])
			}
			seen[name] = what
			if ring.Name(role, raw...) != name {
				t.Errorf("%s has two names", what)
			}
			if newSealer(t, seal.AES256GCM, 12).Keyring().Name(role, raw...) == name {
				t.Errorf("%s has the same name in two buckets", what)
			}
		}
	}
}
