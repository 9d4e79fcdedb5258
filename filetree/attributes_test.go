package filetree_test

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/ledgerd/ledger/filetree"
	"pgregory.net/rapid"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestAttributesGolden(t *testing.T) {
	at := time.Date(2024, 5, 1, 12, 30, 45, 123456789, time.UTC)
	cases := []struct {
		name string
		a    filetree.Attributes
	}{
		{"file", filetree.Attributes{Type: filetree.File, Mode: 0o644, ModTime: at}},
		{"executable", filetree.Attributes{Type: filetree.File, Mode: 0o755, ModTime: at}},
		{"setuid", filetree.Attributes{Type: filetree.File, Mode: 0o755 | fs.ModeSetuid, ModTime: at}},
		{"setgid", filetree.Attributes{Type: filetree.File, Mode: 0o755 | fs.ModeSetgid, ModTime: at}},
		{"sticky directory", filetree.Attributes{Type: filetree.Directory, Mode: 0o777 | fs.ModeSticky}},
		{"link", filetree.Attributes{Type: filetree.Link, ModTime: at}},
		{"before 1970", filetree.Attributes{Type: filetree.File, Mode: 0o600, ModTime: time.Unix(-2, 5).UTC()}},
		{"year 9999", filetree.Attributes{Type: filetree.File, Mode: 0o600, ModTime: time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)}},
	}
	var got strings.Builder
	for _, c := range cases {
		b := c.a.Encode()
		fmt.Fprintf(&got, "%s %s\n", hex.EncodeToString(b), c.name)
		back, err := filetree.DecodeAttributes(b)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.a, back); diff != "" {
			t.Errorf("%s: decoded attributes differ (-want +got):\n%s", c.name, diff)
		}
	}
	const golden = "testdata/attributes.golden"
	if *update {
		if err := os.WriteFile(golden, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("encoding has changed (-want +got):\n%s", diff)
	}
}

func TestAttributesRejectsWhatNobodyWrites(t *testing.T) {
	valid := filetree.Attributes{Type: filetree.File, Mode: 0o644, ModTime: time.Unix(1, 2)}.Encode()
	for name, change := range map[string]func(b []byte) []byte{
		"empty":              func([]byte) []byte { return nil },
		"too short":          func(b []byte) []byte { return b[:15] },
		"too long":           func(b []byte) []byte { return append(b, 0) },
		"version 0":          func(b []byte) []byte { b[0] = 0; return b },
		"newer version":      func(b []byte) []byte { b[0] = 2; return b },
		"type 0":             func(b []byte) []byte { b[1] = 0; return b },
		"type 4":             func(b []byte) []byte { b[1] = 4; return b },
		"mode of 13 bits":    func(b []byte) []byte { b[2] = 0x10; return b },
		"a second of nanos":  func(b []byte) []byte { copy(b[12:], []byte{0x3b, 0x9a, 0xca, 0x00}); return b },
		"link with mode":     func(b []byte) []byte { b[1] = byte(filetree.Link); return b },
		"directory's time":   func(b []byte) []byte { b[1] = byte(filetree.Directory); return b },
		"directory's second": func(b []byte) []byte { b[1] = byte(filetree.Directory); b[15] = 0; return b },
	} {
		if a, err := filetree.DecodeAttributes(change(bytes.Clone(valid))); err == nil {
			t.Errorf("%s: decoded as %+v, want an error", name, a)
		}
	}
}

func TestAttributesPath(t *testing.T) {
	if path, ok := filetree.AttributesPath(filetree.AttributesKey([]byte("a/b"))); !ok || string(path) != "a/b" {
		t.Errorf("got %q, %v", path, ok)
	}
	for _, key := range []string{"", "a", "\x00attr", "\x00attrx", "\x00att\x00r"} {
		if path, ok := filetree.AttributesPath([]byte(key)); ok {
			t.Errorf("key %q is taken for the attributes of %q", key, path)
		}
	}
}

func attributesGen() *rapid.Generator[filetree.Attributes] {
	return rapid.Custom(func(t *rapid.T) filetree.Attributes {
		a := filetree.Attributes{Type: filetree.Type(rapid.IntRange(1, 3).Draw(t, "type"))}
		if a.Type != filetree.Link {
			a.Mode = fs.FileMode(rapid.Uint16Range(0, 0o777).Draw(t, "mode"))
			for _, bit := range []fs.FileMode{fs.ModeSetuid, fs.ModeSetgid, fs.ModeSticky} {
				if rapid.Bool().Draw(t, "bit") {
					a.Mode |= bit
				}
			}
		}
		if a.Type != filetree.Directory {
			a.ModTime = time.Unix(rapid.Int64().Draw(t, "seconds"), rapid.Int64Range(0, 999_999_999).Draw(t, "nanos")).UTC()
		}
		return a
	})
}

func TestAttributesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := attributesGen().Draw(t, "attributes")
		back, err := filetree.DecodeAttributes(a.Encode())
		if err != nil {
			t.Fatal(err)
		}
		if !back.Equal(a) || !bytes.Equal(back.Encode(), a.Encode()) {
			t.Fatalf("%+v became %+v", a, back)
		}
	})
}

func FuzzDecodeAttributes(f *testing.F) {
	f.Add([]byte{})
	f.Add(filetree.Attributes{Type: filetree.File, Mode: 0o4755, ModTime: time.Unix(1, 2)}.Encode())
	f.Add(filetree.Attributes{Type: filetree.Link, ModTime: time.Unix(-1, 2)}.Encode())
	f.Add(filetree.Attributes{Type: filetree.Directory, Mode: 0o700}.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := filetree.DecodeAttributes(b)
		if err != nil {
			return
		}
		if again := a.Encode(); !bytes.Equal(again, b) {
			t.Fatalf("%x decodes as %+v, which is encoded as %x", b, a, again)
		}
	})
}

// The text is that of ls -l.
func TestAttributesText(t *testing.T) {
	for want, a := range map[string]filetree.Attributes{
		"-rw-r--r--": {Type: filetree.File, Mode: 0o644},
		"lrwxrwxrwx": {Type: filetree.Link},
		"drwxrwxrwt": {Type: filetree.Directory, Mode: 0o777 | fs.ModeSticky},
		"drwxr-s--T": {Type: filetree.Directory, Mode: 0o750 | fs.ModeSetgid | fs.ModeSticky},
		"-rwsr-Sr--": {Type: filetree.File, Mode: 0o744 | fs.ModeSetuid | fs.ModeSetgid},
		"-rwSr-s--T": {Type: filetree.File, Mode: 0o650 | fs.ModeSetuid | fs.ModeSetgid | fs.ModeSticky},
		"----------": {Type: filetree.File},
	} {
		if got := a.String(); got != want {
			t.Errorf("%+v is %q, want %q", a, got, want)
		}
	}
}
