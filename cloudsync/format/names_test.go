package format_test

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/seal"
)

type parsed struct {
	kind     string
	from, to uint64
	id       format.ID
}

func parseName(n format.PageNames, name string) (parsed, bool) {
	kind, from, to, id, ok := n.ParseName(name)
	return parsed{kind, from, to, id}, ok
}

func TestNames(t *testing.T) {
	n := format.PageNames{Dir: "L/P"}
	for _, c := range []struct {
		name, want string
		parsed     parsed
	}{
		{n.Entry(1), "L/P/log/00000000000000000001", parsed{format.KindEntry, 1, 1, format.ID{}}},
		{n.Entry(format.MaxNumber), "L/P/log/04611686018427387904", parsed{format.KindEntry, format.MaxNumber, format.MaxNumber, format.ID{}}},
		{n.Range(33, 64), "L/P/log/00000000000000000033-00000000000000000064", parsed{format.KindRange, 33, 64, format.ID{}}},
		{n.Range(1, 1024), "L/P/log/00000000000000000001-00000000000000001024", parsed{format.KindRange, 1, 1024, format.ID{}}},
		{n.Range(1, 32768), "L/P/log/00000000000000000001-00000000000000032768", parsed{format.KindRange, 1, 32768, format.ID{}}},
		{n.Pack(id(0xab)), "L/P/packs/abababababababababababababababab", parsed{format.KindPack, 0, 0, id(0xab)}},
		{n.Checkpoint(12), "L/P/checkpoints/00000000000000000012", parsed{format.KindCheckpoint, 12, 12, format.ID{}}},
		{n.Floor(1), "L/P/floor/00000000000000000001", parsed{format.KindFloor, 1, 1, format.ID{}}},
		{n.Device(id(1), 0), "L/P/devices/01010101010101010101010101010101/00000000000000000000", parsed{format.KindDevice, 0, 0, id(1)}},
	} {
		if c.name != c.want {
			t.Errorf("name %q, want %q", c.name, c.want)
		}
		if got, ok := parseName(n, c.name); !ok || got != c.parsed {
			t.Errorf("%q parses as %v %t, want %v", c.name, got, ok, c.parsed)
		}
	}
	for _, prefix := range []struct{ prefix, name string }{
		{n.LogPrefix(), n.Entry(5)}, {n.LogPrefix(), n.Range(1, 32)}, {n.PacksPrefix(), n.Pack(id(5))}, {n.CheckpointsPrefix(), n.Checkpoint(5)},
		{n.FloorPrefix(), n.Floor(5)}, {n.DevicesPrefix(), n.Device(id(5), 5)},
	} {
		if !strings.HasPrefix(prefix.name, prefix.prefix) {
			t.Errorf("%q does not begin with %q", prefix.name, prefix.prefix)
		}
	}
}

func TestForeignNames(t *testing.T) {
	n := format.PageNames{Dir: "L/P"}
	hex := strings.Repeat("ab", 16)
	for _, name := range []string{
		"", "L/P", "L/P/", "L/Q/log/00000000000000000001", "M" + n.Entry(1), n.Entry(0), n.Floor(0), n.Checkpoint(0), n.Entry(1) + "/", n.Entry(1)[1:],
		"L/P/log/1", "L/P/log/+0000000000000000001", "L/P/log/-0000000000000000001", "L/P/log/0000000000000000000_", "L/P/log/0x000000000000000001",
		"L/P/log/04611686018427387905", "L/P/log/18446744073709551616", "L/P/log/99999999999999999999", n.Entry(1) + "0", n.Entry(1) + "\x00",
		n.Range(0, 31), n.Range(2, 33), n.Range(1, 33), n.Range(1, 64), n.Range(33, 1056), n.Range(32, 1), n.Range(1, 32) + "-", n.Range(1, math.MaxUint64),
		"L/P/packs/" + strings.ToUpper(hex), "L/P/packs/" + hex[1:], "L/P/packs/" + hex + "0", "L/P/packs/" + strings.Repeat("0", 32), "L/P/packs/" + strings.Repeat("g", 32),
		"L/P/devices/" + hex, "L/P/devices/" + hex + "/", "L/P/devices/" + hex + "/1", "L/P/devices/x/00000000000000000001", "L/P/floors/00000000000000000001", "L/P/../P/floor/00000000000000000001",
	} {
		if got, ok := parseName(n, name); ok || got != (parsed{}) {
			t.Errorf("%q parses as %v", name, got)
		}
	}
}

// TestNamesTellNothing: names are made by HMAC, of ledger and page, and differ by kind.
func TestNamesTellNothing(t *testing.T) {
	k, other := newSealer(t, seal.AES256GCM, 1).Keyring(), newSealer(t, seal.AES256GCM, 2).Keyring()
	seen := map[string]bool{}
	for _, dir := range []string{
		format.NamesOf(k, "a", [16]byte{}).Dir, format.NamesOf(k, "a", [16]byte{1}).Dir, format.NamesOf(k, "b", [16]byte{}).Dir, format.NamesOf(other, "a", [16]byte{}).Dir,
		format.AnnouncementName(k, "a", [16]byte{}), format.AnnouncementName(k, "a", [16]byte{1}), format.AnnouncementName(k, "b", [16]byte{}), format.AnnouncementName(other, "a", [16]byte{}),
	} {
		l, p, ok := strings.Cut(dir, "/")
		if !ok || len(p) != seal.NameDigits || l != "pages" && len(l) != seal.NameDigits || seen[p] {
			t.Errorf("name %q", dir)
		}
		seen[p] = true
	}
	a, b := format.NamesOf(k, "a", [16]byte{}).Dir, format.NamesOf(k, "a", [16]byte{1}).Dir
	if a[:seal.NameDigits] != b[:seal.NameDigits] {
		t.Error("pages of one ledger do not stand together")
	}
}

func TestRangeOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		number := rapid.Uint64Range(1, 1<<40).Draw(t, "number")
		for _, size := range format.RangeSizes() {
			from, to := format.RangeOf(number, size)
			if from > number || to < number || to-from+1 != size || to%size != 0 {
				t.Fatalf("range of %d with %d entries is %d to %d", number, size, from, to)
			}
			n := format.PageNames{Dir: "d"}
			if got, ok := parseName(n, n.Range(from, to)); !ok || got != (parsed{format.KindRange, from, to, format.ID{}}) {
				t.Fatalf("%s parses as %v", n.Range(from, to), got)
			}
		}
	})
}

func FuzzParseName(f *testing.F) {
	n := format.PageNames{Dir: "L/P"}
	for _, name := range []string{n.Entry(1), n.Range(1, 32), n.Pack(id(1)), n.Checkpoint(1), n.Floor(1), n.Device(id(1), 1), "L/P/log/", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		p, ok := parseName(n, name)
		if !ok {
			return
		}
		again := map[string]string{
			format.KindEntry: n.Entry(p.from), format.KindRange: n.Range(p.from, p.to), format.KindPack: n.Pack(p.id), format.KindCheckpoint: n.Checkpoint(p.from),
			format.KindFloor: n.Floor(p.from), format.KindDevice: n.Device(p.id, p.from),
		}[p.kind]
		if again != name {
			t.Errorf("%q parses as %v, which is %q", name, p, again)
		}
	})
}
