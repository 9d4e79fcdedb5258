package layout

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
)

func anyAbsence(t *rapid.T) *Absence {
	a := &Absence{
		Kind: AbsenceKind(rapid.IntRange(1, 2).Draw(t, "kind")), Number: rapid.Uint64().Draw(t, "number"), Since: rapid.Int64Min(0).Draw(t, "since"),
		SizeBytes: rapid.Int64Min(0).Draw(t, "size"), Name: rapid.StringN(0, -1, 1024).Draw(t, "name"),
	}
	copy(a.Bucket[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "bucket"))
	return a
}

// TestAbsenceFile: what was written is read, and nothing else is.
func TestAbsenceFile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := anyAbsence(t)
		b := a.Encode()
		got, err := ParseAbsence(b)
		if err != nil || !cmp.Equal(a, got) {
			t.Fatalf("read %+v, %v; wrote %+v", got, err, a)
		}
		i := rapid.IntRange(0, 8*len(b)-1).Draw(t, "bit")
		b[i/8] ^= 1 << (i % 8)
		if got, err := ParseAbsence(b); err == nil {
			t.Fatalf("with bit %d changed read %+v", i, got)
		}
		b[i/8] ^= 1 << (i % 8)
		if got, err := ParseAbsence(b[:rapid.IntRange(0, len(b)-1).Draw(t, "length")]); err == nil {
			t.Fatalf("cut short read %+v", got)
		}
	})
}

// TestFlippedBits: a changed bit is damage, also one of the version.
func TestFlippedBits(t *testing.T) {
	identity := func(b []byte) error { _, err := ParseIdentity(b); return err }
	absence := func(b []byte) error { _, err := ParseAbsence(b); return err }
	for _, f := range []struct {
		name  string
		b     []byte
		parse func(b []byte) error
	}{{"identity", NewIdentity().Encode(), identity}, {"absence", (&Absence{Kind: Evicted}).Encode(), absence}} {
		b := f.b
		for i := range 8 * len(b) {
			b[i/8] ^= 1 << (i % 8)
			if err := f.parse(b); !errors.Is(err, base.ErrCorrupt) {
				t.Errorf("%s with bit %d changed: %v", f.name, i, err)
			}
			b[i/8] ^= 1 << (i % 8)
		}
	}
}

func FuzzParseAbsence(f *testing.F) {
	f.Add((&Absence{Kind: Evicted, Number: 7, Name: "name"}).Encode())
	f.Add((&Absence{Kind: Deleted}).Encode())
	f.Add([]byte(absenceMagic))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ParseAbsence(b)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
				t.Errorf("error %v", err)
			}
			return
		}
		if !bytes.Equal(a.Encode(), b) {
			t.Error("read what encode would not write")
		}
	})
}

// TestLockFollowsNoLink: in a directory that somebody else made, lock.pid may lead to another file.
func TestLockFollowsNoLink(t *testing.T) {
	dir, other := t.TempDir(), filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, filepath.Join(dir, lockPIDName)); err != nil {
		t.Skip(err)
	}
	l, err := TakeLock(t.Context(), dir, false, 0)
	if err != nil {
		t.Fatal(err)
	}
	if pid := holder(dir); pid != os.Getpid() {
		t.Errorf("the holder is %d", pid)
	}
	if err := l.Release(); err != nil {
		t.Error(err)
	}
	if b, err := os.ReadFile(other); string(b) != "content" {
		t.Errorf("the other file has %q, %v", b, err)
	}
}

func TestDirectoryNames(t *testing.T) {
	for _, name := range []string{"a", "A", "\x00\xff", string(make([]byte, limits.MaxLedgerNameBytes))} {
		got, ok := parseLedgerDirName(LedgerDirName(name))
		if got != name || !ok || len(LedgerDirName(name)) > 240 {
			t.Errorf("%q: %q %t", name, got, ok)
		}
	}
	for _, name := range []string{"", "x", "A", "zz", "c5o7", "0", "lost+found"} {
		if l, ok := parseLedgerDirName(name); ok && LedgerDirName(l) != name {
			t.Errorf("%q is taken for the directory of %q", name, l)
		}
	}
}

func FuzzParseIdentity(f *testing.F) {
	f.Add(NewIdentity().Encode())
	f.Add([]byte(identityMagic))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		i, err := ParseIdentity(b)
		if err != nil {
			if !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrUnsupported) {
				t.Fatalf("got %v", err)
			}
			return
		}
		if string(i.Encode()) != string(b) {
			t.Fatal("another encoding was accepted")
		}
	})
}
