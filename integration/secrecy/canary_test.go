package secrecy_test

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// canary is a text that stands nowhere else.
type canary struct {
	what  string
	text  []byte
	forms []form
}

// form is one way in which a canary may be written.
type form struct {
	name string
	text []byte
}

// newCanary draws a canary of the given kind.
func newCanary(rng *rand.Rand, what string) canary {
	const letters = "abcdefghijkmnopqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789"
	b := []byte("Zq/+") // what URLs escape
	for range 20 {
		b = append(b, letters[rng.IntN(len(letters))])
	}
	return canaryOf(what, b)
}

func canaryOf(what string, b []byte) canary {
	c := canary{what: what, text: b}
	add := func(name string, text []byte) { c.forms = append(c.forms, form{name, text}) }
	add("raw", b)
	add("a part", b[4:16])
	add("hex", []byte(hex.EncodeToString(b)))
	add("upper hex", []byte(strings.ToUpper(hex.EncodeToString(b))))
	add("upper case", bytes.ToUpper(b))
	add("lower case", bytes.ToLower(b))
	add("query", []byte(url.QueryEscape(string(b))))
	add("path", []byte(url.PathEscape(string(b))))
	add("quoted", []byte(fmt.Sprintf("%+q", b))[1:len(b)])
	add("numbers", []byte(strings.Trim(fmt.Sprint(b), "[]")))
	reversed := bytes.Clone(b)
	slices.Reverse(reversed)
	add("reversed", reversed)
	for shift := range 3 { // where a canary begins within a group of three bytes changes all of it
		for name, enc := range map[string]*base64.Encoding{"base64": base64.RawStdEncoding, "base64 for URLs": base64.RawURLEncoding} {
			text := enc.EncodeToString(append(make([]byte, shift), b...))
			add(name, []byte(text[4*((shift+2)/3):len(text)-3]))
		}
	}
	return c
}

// find returns the forms of canaries that stand in content.
func find(content []byte, canaries []canary) (found []string) {
	for _, c := range canaries {
		for _, f := range c.forms {
			if bytes.Contains(content, f.text) {
				found = append(found, c.what+" ("+f.name+")")
				break
			}
		}
	}
	return found
}

// unpacked returns content, and what comes of each place in it that looks like the beginning of a
// zstd frame.
func unpacked(t testing.TB, content []byte) [][]byte {
	t.Helper()
	const most = 4 << 20
	all := [][]byte{content}
	for at := 0; ; {
		i := bytes.Index(content[at:], []byte{0x28, 0xb5, 0x2f, 0xfd})
		if i < 0 {
			return all
		}
		at += i
		r, err := zstd.NewReader(bytes.NewReader(content[at:]), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(16<<20))
		if err != nil {
			t.Fatal(err)
		}
		plain := make([]byte, most)
		n := 0
		for n < most {
			k, err := r.Read(plain[n:])
			n += k
			if err != nil {
				break // what came before is looked at
			}
		}
		r.Close()
		all = append(all, plain[:n])
		at += 4
	}
}

// TestForms finds each form that it makes.
func TestForms(t *testing.T) {
	c := newCanary(rand.New(rand.NewPCG(1, 1)), "x")
	enc, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	for _, f := range c.forms {
		text := slices.Concat([]byte("before"), f.text, []byte("after"))
		if find(text, []canary{c}) == nil || find(text[:8], []canary{c}) != nil {
			t.Errorf("%s is not found", f.name)
		}
		packed := enc.EncodeAll(bytes.Repeat(text, 20), []byte("header"))
		found := false
		for _, u := range unpacked(t, packed) {
			found = found || find(u, []canary{c}) != nil
		}
		if !found {
			t.Errorf("%s is not found when it is compressed", f.name)
		}
	}
	for shift := range 3 {
		text := base64.StdEncoding.EncodeToString(append(make([]byte, shift), append(c.text, "more"...)...))
		if find([]byte(text), []canary{c}) == nil {
			t.Errorf("base64 behind %d bytes is not found", shift)
		}
	}
}
