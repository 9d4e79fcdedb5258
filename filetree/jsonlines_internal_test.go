package filetree

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf8"

	"github.com/ledgerd/ledger"
	"pgregory.net/rapid"
)

type jsonLine struct {
	key, value string
	lazy       bool
}

// readLines reads all lines, or up to the first error.
func readLines(r io.Reader) ([]jsonLine, error) {
	l := newLineReader(r)
	var lines []jsonLine
	for {
		if err := l.next(); err != nil {
			if errors.Is(err, io.EOF) {
				return lines, nil
			}
			return lines, err
		}
		lines = append(lines, jsonLine{string(l.key), string(l.value), l.lazy})
	}
}

func writeLines(lines []jsonLine) []byte {
	var b []byte
	for _, l := range lines {
		b = append(b, `{"key":`...)
		b = AppendJSONBytes(b, []byte(l.key))
		if l.lazy {
			b = append(b, `,"priority":"lazy"`...)
		}
		b = append(b, `,"value":`...)
		b = AppendJSONBytes(b, []byte(l.value))
		b = append(b, "}\n"...)
	}
	return b
}

func TestJSONLinesRoundTrip(t *testing.T) {
	text := rapid.OneOf(rapid.Map(rapid.SliceOfN(rapid.Byte(), 0, 50), func(b []byte) string { return string(b) }), rapid.String())
	rapid.Check(t, func(t *rapid.T) {
		lines := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) jsonLine {
			return jsonLine{text.Draw(t, "key"), text.Draw(t, "value"), rapid.Bool().Draw(t, "lazy")}
		}), 0, 5).Draw(t, "lines")
		written := writeLines(lines)
		var reader io.Reader = bytes.NewReader(written)
		if rapid.Bool().Draw(t, "slow") {
			reader = iotest.OneByteReader(reader)
		}
		back, err := readLines(reader)
		if err != nil {
			t.Fatalf("read %q: %v", written, err)
		}
		if len(back) != len(lines) {
			t.Fatalf("%d lines became %d", len(lines), len(back))
		}
		for i := range lines {
			if lines[i] != back[i] {
				t.Fatalf("line %+v became %+v", lines[i], back[i])
			}
		}
	})
}

// What is written must be JSON for everybody.
func TestAppendJSONBytesIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.String().Draw(t, "text")
		var back string
		if err := json.Unmarshal(AppendJSONBytes(nil, []byte(s)), &back); utf8.ValidString(s) && (err != nil || back != s) {
			t.Fatalf("%q became %q, %v", s, back, err)
		}
		b := append([]byte{0xff}, s...)
		var object struct{ Base64 []byte }
		if err := json.Unmarshal(AppendJSONBytes(nil, b), &object); err != nil || !bytes.Equal(object.Base64, b) {
			t.Fatalf("%x became %x, %v", b, object.Base64, err)
		}
	})
}

// Long values are written by characters.
func TestLongText(t *testing.T) {
	for _, s := range []string{strings.Repeat("aé日😀\u2028", 20000), strings.Repeat("x", smallBytes-1) + "日", strings.Repeat("x", smallBytes-2) + "\u2029"} {
		var got []byte
		err := eachRune(iotest.HalfReader(strings.NewReader(s)), func(r rune) error {
			got = appendEscaped(got, r)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		var back string
		if err := json.Unmarshal([]byte(`"`+string(got)+`"`), &back); err != nil || back != s {
			t.Errorf("text of %d bytes does not come back: %v", len(s), err)
		}
	}
	for _, s := range []string{"\xff", strings.Repeat("x", smallBytes-1) + "\xe6\x97", "a\xe6\x97z"} {
		if text, err := isText(strings.NewReader(s)); text || err != nil {
			t.Errorf("%d bytes that are not UTF-8 are taken for text (%v)", len(s), err)
		}
	}
}

func TestJSONLinesErrors(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{`[]`, "no object"},
		{`nonsense`, "no object"},
		{`{`, "too early"},
		{`{}`, "too early"},
		{`{"key":"a"`, "too early"},
		{`{"key":"a"}`, "too early"},
		{`{"key":"a","value":"b"`, "too early"},
		{`{"key":"a","value":"b`, "EOF"},
		{`{"key":"a","value":"b"} x`, "follows the object"},
		{`{"key":"a","value":"b"}{}`, "follows the object"},
		{`{"value":"b","key":"a"}`, `member "value" where "key" must be`},
		{`{"key":"a","vlaue":"b"}`, `member "vlaue" where "value" must be`},
		{`{"key":"a","value":"b","value":"c"}`, `member "value" where`},
		{`{"key":"a","priority":"lazy","priority":"lazy","value":"b"}`, `member "priority" where "value" must be`},
		{`{"key":"a","priority":"late","value":"b"}`, `priority "late"`},
		{`{"key":1,"value":"b"}`, "want a string"},
		{`{"key":"a","value":null}`, "want a string"},
		{`{"key":"a","value":["b"]}`, "want a string"},
		{`{"key":"a","value":{"hex":"00"}}`, `unknown field "hex"`},
		{`{"key":"a","value":{}}`, `want {"base64"`},
		{`{"key":"a","value":{"base64":null}}`, `want {"base64"`},
		{`{"key":"a","value":{"base64":"A"}}`, "base64"},
		{`{"key":"a","value":{"base64":"AB=="}}`, "base64"},
		{`{"key":"a","value":{"base64":"AA=="`, "EOF"},
		{`{"key":"a","value":{"base64":"AA\n=="}}`, "line break"},
		{`{"key":"a","value":"\q"}`, "invalid character 'q'"},
		{`{"key":"a","value":"\u12g4"}`, "invalid character 'g'"},
		{`{"key":"a","value":"\ud800"}`, "surrogate"},
		{`{"key":"a","value":"\ud800\u0041"}`, "surrogate"},
		{`{"key":"a","value":"\udc00\ud800"}`, "surrogate"},
		{`{"key":"a","value":"\ud83d\ude00\uDBFF"}`, "surrogate"},
		{`{"key":"\\\ud800","value":""}`, "surrogate"},
		{"{\"key\":\"a\",\"value\":\"\x01\"}", `'\x01'`},
		{"{\"key\":\"a\",\"value\":\"\xff\"}", "not UTF-8"},
		{"{\"key\":\"a\",\n\"value\":\"b\"}", "EOF"},
		{`{"key":"` + strings.Repeat("k", 4097) + `","value":"b"}`, "more than 4096 bytes"},
	} {
		lines, err := readLines(strings.NewReader(c.line))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: got %v, %v; want an error with %q", c.line, lines, err, c.want)
			continue
		}
		if !errors.Is(err, ledger.ErrInvalid) && !errors.Is(err, ledger.ErrTooLarge) {
			t.Errorf("%.60s: %v is no error about the argument", c.line, err)
		}
	}
}

// Escapes mean what they mean to everybody.
func TestJSONLinesEscapes(t *testing.T) {
	lines, err := readLines(strings.NewReader(`{"key":"\\ud800\u00e9\uD83D\ude00\ud7ff\ue000","value":{"base64":"\/\/4="}}`))
	if want := (jsonLine{key: `\ud800` + "é😀\ud7ff\ue000", value: "\xff\xfe"}); err != nil || len(lines) != 1 || lines[0] != want {
		t.Errorf("%+v, %v, want %+v", lines, err, want)
	}
}

func FuzzJSONLines(f *testing.F) {
	f.Add([]byte(`{"key":"a","value":"b"}`))
	f.Add([]byte("{\"key\":{\"base64\":\"AP8=\"},\"priority\":\"lazy\",\"value\":\"\\ud83d\\ude00\\n\"}\n\n {}"))
	f.Add([]byte(`{"key":"","value":{"base64":""}} `))
	f.Fuzz(func(t *testing.T, b []byte) {
		lines, err := readLines(bytes.NewReader(b))
		if err != nil && !errors.Is(err, ledger.ErrInvalid) && !errors.Is(err, ledger.ErrTooLarge) {
			t.Fatalf("error of another kind: %v", err)
		}
		again, err := readLines(bytes.NewReader(writeLines(lines)))
		if err != nil || len(again) != len(lines) {
			t.Fatalf("%d lines became %d: %v", len(lines), len(again), err)
		}
		for i := range lines {
			if lines[i] != again[i] {
				t.Fatalf("line %+v became %+v", lines[i], again[i])
			}
		}
	})
}
