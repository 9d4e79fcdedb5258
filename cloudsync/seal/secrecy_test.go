package seal_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/internal/secret"
)

// canaries are plaintexts that compress and do not, with the places where they are sealed.
func canaries() map[string][]byte {
	return map[string][]byte{
		"text": bytes.Repeat([]byte("The quick canary sings in the ledger of Ms Zwölf. "), 80), "noise": noise(300, 5000), "zeros": make([]byte, 5000), "short": []byte("canary42"),
	}
}

// TestNoPlaintextIsVisible looks for every 8 bytes of the plaintext, role and name in what a bucket
// gets.
func TestNoPlaintextIsVisible(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 301)
	for what, plain := range canaries() {
		l := seal.Label{Role: "secret-role", Name: "the name of a page"}
		var sight []byte
		sight = append(sight, mustSeal(t, s, l, plain)...)
		sight = append(sight, framed(t, s, l, plain[:len(plain)/2], plain[len(plain)/2:])...)
		sight = append(sight, s.Keyring().Name("role", plain)...)
		grams := map[string]bool{}
		for i := range len(sight) - 7 {
			grams[string(sight[i:i+8])] = true
		}
		for _, hidden := range [][]byte{plain, []byte(l.Role), []byte(l.Name), s.Keyring().ChunkingSecret().Expose()} {
			for i := range len(hidden) - 7 {
				if grams[string(hidden[i:i+8])] {
					t.Fatalf("%s: %q is visible", what, hidden[i:i+8])
				}
			}
		}
		p := newSealer(t, seal.Plain, 302)
		if what == "noise" && !bytes.Contains(mustSeal(t, p, l, plain), plain) {
			t.Error("the search would not find a plaintext")
		}
	}
}

// TestSealedBytesLookRandom is a smoke test: chi-square of the bytes, and of the differences of
// neighbours, with 255 degrees of freedom. Beyond 180 to 350 lies less than one in 20 000; the
// randomness is fixed, so the test does not flicker.
func TestSealedBytesLookRandom(t *testing.T) {
	s := newSealer(t, seal.AES256GCM, 303)
	for what, part := range canaries() {
		var sight []byte
		for len(sight) < 1<<18 { // heads left out
			sealed := mustSeal(t, s, entry, part)
			sight = append(sight, sealed[24:]...)
		}
		var counts, steps [256]float64
		for i, b := range sight {
			counts[b]++
			if i > 0 {
				steps[b-sight[i-1]]++
			}
		}
		for how, c := range map[string][256]float64{"bytes": counts, "differences": steps} {
			expected, chi := float64(len(sight))/256, 0.0
			for _, n := range c {
				chi += (n - expected) * (n - expected) / expected
			}
			if chi < 180 || chi > 350 {
				t.Errorf("%s, %s: chi-square is %.0f", what, how, chi)
			}
		}
	}
}

// TestNoKeyIsPrinted formats, logs and marshals whatever has a key in it, and the errors of opening
// with it.
func TestNoKeyIsPrinted(t *testing.T) {
	source := seeded(304)
	raw := noise(305, 32)
	master := seal.NewMasterKey(bytes.NewReader(raw))
	ringRaw := noise(306, 16+3*32)
	ring, err := seal.NewKeyring(seal.AES256GCM, bytes.NewReader(ringRaw))
	if err != nil {
		t.Fatal(err)
	}
	wrapped := found(t, ring, master, 307)
	opened := mustOpen(t, master, wrapped)
	s := seal.NewSealer(ring, source)
	var out strings.Builder
	log := slog.New(slog.NewJSONHandler(&out, nil))
	text := slog.New(slog.NewTextHandler(&out, nil))
	for _, v := range []any{master, &master, ring, *ring, opened, *opened, opened.Slots(), s, struct{ m seal.MasterKey }{master}, []seal.MasterKey{master}, map[string]any{"k": ring}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%d", "%q"} {
			fmt.Fprintf(&out, verb+"\n", v)
		}
		log.Info("it", "v", v)
		text.Info("it", "v", v)
		if b, err := json.Marshal(v); err == nil {
			out.Write(b)
		}
	}
	_, err1 := open(newMaster(t, 308), wrapped)

	_, _, err2 := s.Open(entry, mustSeal(t, newSealer(t, seal.AES256GCM, 309), entry, []byte("x")), 10)
	_, err3 := seal.ParseKeyFile(append([]byte("ledger master key 1\n"), hex.EncodeToString(raw)...), secret.Bytes{})
	_, err4 := (seal.KDF{}).Derive(secret.FromString("passphrase-canary"))
	fmt.Fprintf(&out, "%v %+v %#v %v %+v %v %v", err1, err1, err1, err2, err2, err3, err4)
	seen := out.String() + string(wrapped)
	if strings.Contains(seen, "passphrase-canary") {
		t.Error("the passphrase is printed")
	}
	for i, key := range [][]byte{raw, ringRaw[16:48], ringRaw[48:80], ringRaw[80:]} {
		decimal := strings.Trim(fmt.Sprint(key[:6]), "[]")
		for _, form := range []string{
			string(key[:8]), hex.EncodeToString(key[:6]), strings.ToUpper(hex.EncodeToString(key[:6])), base64.StdEncoding.EncodeToString(key[:9]), decimal, strings.ReplaceAll(decimal, " ", ", "),
			strings.TrimSuffix(strings.TrimPrefix(fmt.Sprintf("%#v", key[:6]), "[]byte{"), "}"),
		} {
			if strings.Contains(seen, form) {
				t.Errorf("key %d is printed as %s", i, form)
			}
		}
	}
}

// repeated is a source of randomness that gives the same again and again.
type repeated struct{}

func (repeated) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = 7
	}
	return len(b), nil
}

// TestRepeatedRandomness seals with a source that repeats itself: only equal content gets one id,
// and with it one key.
func TestRepeatedRandomness(t *testing.T) {
	for _, a := range algorithms {
		s := seal.NewSealer(newSealer(t, a, 1).Keyring(), repeated{})
		ids := map[seal.ID]string{}
		see := func(what string, sealed []byte) {
			t.Helper()
			ref, _, err := seal.Inspect(pack, sealed)
			if err != nil {
				t.Fatal(err)
			}
			if other, ok := ids[ref.ID]; ok {
				t.Errorf("%s: %s and %s have one id", a, other, what)
			}
			ids[ref.ID] = what
		}
		for _, plain := range []string{"", "a", "b", strings.Repeat("a", 100_000), strings.Repeat("a", 99_999) + "b"} {
			sealed, ref, err := s.Seal(pack, []byte(plain), seal.Form{})
			if err != nil {
				t.Fatal(err)
			}
			see(fmt.Sprintf("object of %d", len(plain)), sealed)
			if got, opened, err := s.Open(pack, sealed, 1<<20); err != nil || string(got) != plain || opened != ref {
				t.Errorf("%s: opened %d bytes with %v, want %v, %v", a, len(got), opened, ref, err)
			}
		}
		for _, f := range []struct {
			what, content, known string
		}{
			{"content", "a", ""}, {"other content", "b", ""},
			{"known content", strings.Repeat("a", 100_000), "1"}, {"other known content", strings.Repeat("a", 100_000), "2"},
		} {
			var out bytes.Buffer
			w := s.NewWriter(&out, pack, false, []byte(f.known))
			_, err := w.Write([]byte(f.content))
			if err == nil {
				err = w.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			see("stream with "+f.what, out.Bytes())
		}
	}
	master := newMaster(t, 2)
	first, _, err := newSealer(t, seal.AES256GCM, 3).Keyring().Found(seal.NewSlot{Master: master}, nil)
	if err != nil {
		t.Fatal(err)
	}
	const publicKeyAt = 60
	keys := map[string]bool{string(first[publicKeyAt:][:32]): true}
	for name := range 5 {
		second, _, err := mustOpen(t, master, first).Next(seal.Change{AddSlots: []seal.NewSlot{{Master: newMaster(t, 4), Label: fmt.Sprint(name)}}}, repeated{})
		if err != nil {
			t.Fatal(err)
		}
		if key := string(second[publicKeyAt:][:32]); keys[key] {
			t.Error("two rings have one key")
		} else {
			keys[key] = true
		}
		mustOpen(t, master, first, second)
	}
}
