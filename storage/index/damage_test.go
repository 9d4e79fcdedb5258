package index_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/storage/index"
)

// sample writes a small file with every kind of page: two levels of branches, leaves with overflow
// pages, a bucket inside its header, an empty one, and free pages. It returns the bytes.
func sample(t *testing.T, path string) []byte {
	t.Helper()
	f := open(t, path)
	must(t, f.Update(func(tx index.Tx) error {
		if err := errors.Join(fill(tx, "empty", 0, 0), fill(tx, "inline", 5, 20), fill(tx, "leaf", 20, 100), fill(tx, "branch", 150, 100)); err != nil {
			return err
		}
		var err error
		b, big := tx.Bucket("deep"), tx.Bucket("overflow")
		for i := range 90 {
			err = errors.Join(err, b.Put(longKey(i), bytes.Repeat([]byte{byte(i)}, 120)))
		}
		for i := range 4 {
			err = errors.Join(err, big.Put(keyOf(i), make([]byte, 9000)))
		}
		return err
	}))
	for range 2 { // make free pages
		must(t, f.Update(func(tx index.Tx) error { return fill(tx, "leaf", 25, 100) }))
	}
	must(t, f.Close())
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

func longKey(i int) []byte { return fmt.Appendf(nil, "%0900d", i) }

// use does everything that a page store does with an index, and returns the first error.
func use(path string) (err error) {
	f, err := index.OpenFile(path, index.Options{NoSync: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	scan := func(tx index.Tx) error {
		for _, name := range names {
			b := tx.Bucket(name)
			if b == nil {
				continue
			}
			c := b.Cursor()
			sum := 0
			for k, v := c.First(); k != nil; k, v = c.Next() {
				sum += len(k) + len(v) + bytes.Count(v, []byte{'v'}) // touch them
			}
		}
		return nil
	}
	change := func(tx index.Tx) error {
		if b := tx.Bucket("deep"); b != nil {
			for i := 10; i < 30; i++ {
				if err := b.Delete(longKey(i)); err != nil {
					return err
				}
			}
			if err := b.Put(longKey(50), nil); err != nil {
				return err
			}
		}
		if b := tx.Bucket("overflow"); b != nil {
			if err := errors.Join(b.Delete(keyOf(1)), b.Put(keyOf(3), make([]byte, 12000))); err != nil {
				return err
			}
		}
		if b := tx.Bucket("branch"); b != nil {
			c := b.Cursor()
			for k, _ := c.Seek(keyOf(60)); k != nil; k, _ = c.Next() {
				if err := b.Delete(k); err != nil {
					return err
				}
			}
		}
		return errors.Join(fill(tx, "inline", 30, 100), fill(tx, "new", 10, 10))
	}
	if err := f.Update(change); err != nil { // first, while leaves are unverified
		return err
	}
	if err := f.View(scan); err != nil {
		return err
	}
	return f.Update(func(tx index.Tx) error { return fill(tx, "last", 50, 500) })
}

// check fails the test unless err is nil or names the damaged file.
func check(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	c := new(base.CorruptError)
	if !errors.As(err, &c) || !errors.Is(err, base.ErrCorrupt) || c.Where != "page.db" {
		t.Fatalf("%s: %v", what, err)
	}
	if strings.Contains(err.Error(), "read pages:") {
		unforeseen[c.Err.Error()]++
	}
}

// unforeseen counts what was noticed only by bbolt's panics.
var unforeseen = map[string]int{}

// TestDamage changes bytes of a file one at a time, and cuts it: what comes of using it is an error
// or other data, but never a panic, a fault or a loop without end (I1, I2). It tries a sample; with
// LEDGER_TIER=2 every byte of headers and elements, with LEDGER_TIER=3 every byte.
func TestDamage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.db")
	good := sample(t, path)
	if err := use(path); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	skip := func(structure bool) bool {
		switch {
		case tier.Level() > 2:
			return false
		case tier.Nightly():
			return !structure && rng.IntN(20) != 0
		}
		return rng.IntN(600) != 0
	}
	trials, refused := 0, 0
	try := func(what string, b []byte) {
		must(t, os.WriteFile(path, b, 0o600))
		err := use(path)
		check(t, what, err)
		trials++
		if err != nil {
			refused++
		}
	}
	bad := bytes.Clone(good)
	for _, at := range interesting(good) {
		changes := []byte{1, 0x80, good[at.offset], 0xff ^ good[at.offset], 0xff, 1 << rng.IntN(8)} // to 0, to ff, inverted
		for i, x := range changes {
			if x == 0 || !at.structure && i != at.offset%len(changes) || skip(at.structure) {
				continue
			}
			bad[at.offset] ^= x
			try(fmt.Sprintf("byte %d ^ %#x", at.offset, x), bad)
			bad[at.offset] = good[at.offset]
		}
	}
	for n := 0; n < len(good); n += pageBytes {
		for _, cut := range []int{n, n + 1, n + 15, n + 2000} {
			if tier.Nightly() || n < 3*pageBytes || rng.IntN(8) == 0 {
				try(fmt.Sprintf("cut to %d", cut), good[:min(cut, len(good))])
			}
		}
	}
	t.Logf("%d trials, %d refused, noticed by bbolt alone: %v", trials, refused, unforeseen)
}

const pageBytes = 4096

type place struct {
	offset    int
	structure bool // header or element, not content
}

// interesting lists the bytes of used pages.
func interesting(b []byte) (at []place) {
	for p := 0; p+pageBytes <= len(b); {
		flags, count := binary.NativeEndian.Uint16(b[p+8:]), int(binary.NativeEndian.Uint16(b[p+10:]))
		end := p + 16 + 16*count
		if flags == 4 {
			end = p + 80
		}
		length := pageBytes * (1 + int(binary.NativeEndian.Uint32(b[p+12:])))
		for i := p; i < p+length && i < len(b) && flags != 0; i++ {
			at = append(at, place{i, i < end})
		}
		p += max(length, pageBytes)
	}
	return at
}

// TestPoisoned: after damage was met, everything answers with it, and Close works.
func TestPoisoned(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.db")
	b := sample(t, path)
	at := bytes.LastIndex(b, longKey(45))
	leaf := at / pageBytes * pageBytes
	b[leaf+16+4] ^= 0x40 // the offset of its first element
	must(t, os.WriteFile(path, b, 0o600))
	f := open(t, path)
	defer f.Close()
	ok := func(index.Tx) error { return nil }
	must(t, f.View(ok))
	err := f.View(func(tx index.Tx) error {
		if v := tx.Bucket("deep").Get(longKey(45)); v != nil {
			t.Error("a value from a damaged leaf")
		}
		return errors.New("the caller's own")
	})
	if !errors.Is(err, base.ErrCorrupt) {
		t.Fatalf("view: %v", err)
	}
	for _, err := range []error{f.View(ok), f.Update(ok)} {
		if !errors.Is(err, base.ErrCorrupt) {
			t.Errorf("after damage: %v", err)
		}
	}
	must(t, f.Close())
	must(t, os.Remove(path))
	must(t, open(t, path).Close()) // built again in its place
}

// TestCutWhileOpen: the file shrinks under a running transaction, which makes the mapping fault.
func TestCutWhileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.db")
	sample(t, path)
	f := open(t, path)
	defer f.Close()
	err := f.View(func(tx index.Tx) error {
		v := tx.Bucket("overflow").Get(keyOf(3))
		must(t, os.Truncate(path, 2*pageBytes))
		return fmt.Errorf("sum %d", bytes.Count(v, []byte{1})) // faults in the caller's hands
	})
	if !errors.Is(err, base.ErrCorrupt) {
		t.Fatalf("view: %v", err)
	}
	if err := f.Update(func(index.Tx) error { return nil }); !errors.Is(err, base.ErrCorrupt) {
		t.Fatalf("update: %v", err)
	}
}

func FuzzOpenFile(f *testing.F) {
	f.Add(0, byte(1), 0)
	f.Add(4096*3, byte(0xff), 0)
	f.Add(20, byte(1), 9000)
	f.Fuzz(func(t *testing.T, at int, x byte, cut int) {
		path := filepath.Join(t.TempDir(), "page.db")
		b := sample(t, path)
		if at >= 0 && at < len(b) {
			b[at] ^= x
		}
		if cut > 0 && cut < len(b) {
			b = b[:cut]
		}
		must(t, os.WriteFile(path, b, 0o600))
		check(t, "fuzz", use(path))
	})
}
