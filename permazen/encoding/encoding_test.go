package encoding_test

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/permazen/encoding"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type vector struct {
	ID      string
	Default string
	Error   string
	Name    string `json:"encoding"`
	Values  []struct {
		S   *string
		Hex string
	}
}

func vectors(t testing.TB) (all []vector) {
	f, err := os.Open("../testdata/encodings.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		var v vector
		if err := json.Unmarshal(s.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		all = append(all, v)
	}
	return all
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestVectors: each value of the reference means what the reference says, and has its bytes.
func TestVectors(t *testing.T) {
	names := map[string]bool{}
	for _, v := range vectors(t) {
		e, err := encoding.Builtin(encoding.Prefix + v.Name)
		if v.Error != "" {
			if !errors.Is(err, base.ErrUnsupported) {
				t.Errorf("%s: %v", v.Name, err)
			}
			continue
		}
		if err != nil || e.ID() != v.ID {
			t.Errorf("%s is %v, %v", v.ID, e, err)
			continue
		}
		names[v.Name] = true
		if !bytes.Equal(e.Default(), unhex(t, v.Default)) {
			t.Errorf("%s: default %x, want %s", v.Name, e.Default(), v.Default)
		}
		for _, x := range v.Values {
			checkVector(t, v.Name, e, x.S, unhex(t, x.Hex))
		}
	}
	for _, name := range encoding.Names() {
		if !names[name] {
			t.Errorf("there is no vector of %s", name)
		}
	}
}

func checkVector(t *testing.T, name string, e *encoding.Encoding, want *string, b []byte) {
	t.Helper()
	v, n, err := e.Decode(append(bytes.Clone(b), 0xee))
	if err != nil || n != len(b) {
		t.Errorf("%s %x: read %d bytes, %v", name, b, n, err)
		return
	}
	if (v == nil) != (want == nil) || want != nil && javaText(name, v) != *want {
		t.Errorf("%s %x: is %s, want %v", name, b, javaText(name, v), *want)
	}
	if again, err := e.Append([]byte{7}, v); err != nil || !bytes.Equal(again[1:], b) {
		t.Errorf("%s %x: written as %x, %v", name, b, again, err)
	}
	if n, err := e.Len(append(bytes.Clone(b), 0xee)); err != nil || n != len(b) {
		t.Errorf("%s %x: has %d bytes, %v", name, b, n, err)
	}
	for i := range b {
		if _, _, err := e.Decode(b[:i]); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s %x: first %d bytes: %v", name, b, i, err)
		}
	}
}

// TestUint: the vectors of the reference.
func TestUint(t *testing.T) {
	f, err := os.ReadFile("../testdata/uint.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(f)) {
		var v uint32
		var h string
		if n, _ := fmt.Sscanf(line, "%d %s", &v, &h); n != 2 {
			continue
		}
		b := encoding.AppendUint(nil, v)
		got, n, err := encoding.StrictUint(b)
		if hex.EncodeToString(b) != h || got != v || n != len(b) || err != nil {
			t.Errorf("%d is %x, want %s; read as %d of %d bytes, %v", v, b, h, got, n, err)
		}
	}
}

// TestLenient: what is read and never written.
func TestLenient(t *testing.T) {
	for name, forms := range map[string][2]string{
		"int":    {"f80005", "f705"},
		"long":   {"07fffe", "08fe"},
		"String": {"fc000500", "fb0500"},
		"float":  {"ffc00001", "ffc00000"},
		"double": {"fff8000000000001", "fff8000000000000"},
	} {
		e, err := encoding.Builtin(encoding.Prefix + name)
		if err != nil {
			t.Fatal(err)
		}
		v, n, err := e.Decode(unhex(t, forms[0]))
		if err != nil || n != len(forms[0])/2 {
			t.Errorf("%s %s: %d bytes, %v", name, forms[0], n, err)
			continue
		}
		if b, err := e.Append(nil, v); err != nil || hex.EncodeToString(b) != forms[1] {
			t.Errorf("%s %s: is %x, %v", name, forms[0], b, err)
		}
		if _, err := e.Len(unhex(t, forms[0])); !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("%s %s: canonical, %v", name, forms[0], err)
		}
	}
}

// TestInvalid: bytes that are no value, and values that have no bytes.
func TestInvalid(t *testing.T) {
	for name, forms := range map[string]string{
		"boolean":      "02 ff",
		"byte":         "f709 00 ff",
		"int":          "fb7fffffff",
		"long":         "feffffffffffffffff 010000000000000000",
		"boolean[]":    "c0 41",
		"BigInteger":   "80ff 7e7f fe7fffffffffffff00",
		"BigDecimal":   "04 037f0f 037fc0 037f1f00",
		"MonthDay":     "3e fbff",
		"Character":    "02 000061",
		"Inet4Address": "027f000001", "InetAddress": "057f000001",
		"Duration": "7ffefffffffffffffff0", "ZoneOffset": "fa7fffffff",
		"String": "0102 fdffffff00 ",
	} {
		e, err := encoding.Builtin(encoding.Prefix + name)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range strings.Fields(forms) {
			if v, _, err := e.Decode(append(unhex(t, h), make([]byte, 9)...)); !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("%s %s: is %v, %v", name, h, v, err)
			}
		}
	}
	for name, v := range map[string]any{
		"int": int64(1), "boolean": nil, "String": "\xff", "URI": "\xed\xa0\x80\xed\xb0\x80",
		"BigDecimal": encoding.Decimal{Scale: -1}, "MonthDay": encoding.MonthDay{Month: 2, Day: 30}, "Void": 1,
		"YearMonth": encoding.YearMonth{Year: 1, Month: 13}, "String[]": []any{1},
	} {
		e, err := encoding.Builtin(encoding.Prefix + name)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := e.Append(nil, v); !errors.Is(err, base.ErrInvalid) || b != nil {
			t.Errorf("%s of %v: %x, %v", name, v, b, err)
		}
	}
}

// TestManyStrings: the memory for an array of strings is bounded by its length.
func TestManyStrings(t *testing.T) {
	e, err := encoding.Builtin(encoding.Prefix + "String[]")
	if err != nil {
		t.Fatal(err)
	}
	b := append(bytes.Repeat([]byte{1, 0}, 10_000), 0)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if v, err := e.Value(b); err != nil || len(v.([]any)) != 10_000 {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > uint64(200*len(b)) {
		t.Errorf("%d bytes of memory for a value of %d", n, len(b))
	}
}
