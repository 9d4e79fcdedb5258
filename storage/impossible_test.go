package storage_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/vfs/vfstest"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// impossible is a change of the rows to what no page has: numbers without measure, keys of a wrong
// length.
type impossible struct {
	name   string
	change func(db index.DB) error
	says   string // in what Check or, of an index that was made anew, the recovery tells
}

func put(family string, k, v []byte) func(index.DB) error {
	return func(db index.DB) error {
		return db.Update(func(tx index.Tx) error { return tx.Bucket(family).Put(k, v) })
	}
}

func numbers(ns ...uint64) (b []byte) {
	for _, n := range ns {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// number6 is a number as rows have it.
func number6(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n)[2:] }

// hugeNumbers are rows of a page that have each number that a row can have as great as can be
// written, some beside others.
func hugeNumbers(t *testing.T, p *syncedPage) []impossible {
	const most = 1<<48 - 1
	var all []impossible
	add := func(name, family, says string, k, v []byte) {
		all = append(all, impossible{name: family + ": " + name, change: put(family, k, v), says: says})
	}
	const refs, sums = "refcounts", "refsums"
	head := p.own.ID
	for _, typ := range []string{"e", "l", "d", "q"} {
		add("greatest destination, type "+typ, refs, refs, append(number6(most), typ+"\x00\x00\x00\x00\x00\x01"...), nil)
	}
	add("greatest destination of a commit", refs, refs, append(append(number6(most), 'c'), head[:]...), nil)
	add("destination without type", refs, refs, number6(most), nil)
	k, _ := rowOf(t, p.ix, refs, 0)
	for n := 0; k[6] == 'c'; n++ {
		k, _ = rowOf(t, p.ix, refs, n)
	}
	add("sources beyond all", refs, refs, k, numbers(1<<63, 1<<63, 5))
	add("source of greatest number", refs, refs, append(bytes.Clone(k[:7]), number6(most)...), nil)
	add("sources behind the greatest number", refs, refs, append(bytes.Clone(k[:7]), number6(most-1)...), numbers(1, 1, 1))
	for _, n := range []uint64{most, most / 256, most/256 + 1, 1 << 30} {
		add(fmt.Sprintf("block %x", n), sums, "ref", number6(n), bytes.Repeat([]byte{0xff}, 8))
	}
	d, v := rowOf(t, p.ix, "objects", 0)
	own, _ := binary.Uvarint(v)
	for name, v := range map[string][]byte{
		"number 2^63":      numbers(1 << 63),
		"number 2^48":      numbers(1<<48, 1, 1, 100, 10),
		"number 2^48 - 1":  numbers(most, 3, 1, 100, 10),
		"segment 2^32":     numbers(own, 3, 1<<32, 100, 10),
		"segment 2^32 - 1": numbers(own, 3, math.MaxUint32, 100, 10),
		"offset 2^64 - 1":  numbers(own, 3, 1, math.MaxUint64, 10),
		"length 2^32 - 1":  numbers(own, 3, 1, 100, math.MaxUint32),
		"base 2^48":        numbers(own, 4, 1, 100, 10, 1<<48, 1),
		"base 2^48 - 2":    numbers(own, 4, 1, 100, 10, most-1, 1),
		"depth 127":        numbers(own, 4, 1, 100, 10, 1, 127),
	} {
		add(name, "objects", "objects", d, v)
	}
	add("greatest number", "numbers", "numbers", number6(most), d)
	add("greatest number but one", "numbers", "numbers", number6(most-1), d)
	k, _ = rowOf(t, p.ix, "unsynced/commits", 0)
	add("generation 2^64 - 1", "unsynced/commits", "unsynced/commits", k, bytes.Repeat([]byte{0xff}, 8))
	k, _ = rowOf(t, p.ix, "heads", 0)
	add("timestamp 2^64 - 1", "heads", "heads", k, bytes.Repeat([]byte{0xff}, 8))
	k, _ = rowOf(t, p.ix, "cloud", 0)
	place := append(append([]byte{0}, bytes.Repeat([]byte{7}, 16)...), numbers(math.MaxUint32, math.MaxUint32, math.MaxInt64, math.MaxUint32, math.MaxUint32, 1<<16)...)
	_, digest := numberRow(t, p.ix, k)
	crc := crc32.Checksum(append(digest, place...), crc32.MakeTable(crc32.Castagnoli))
	add("pack without end", "cloud", "cloud", k, binary.BigEndian.AppendUint32(place, crc))
	for name, change := range map[string]func(next, heads *uint64){
		"next number 0":        func(n, _ *uint64) { *n = 0 },
		"next number 2^48 - 1": func(n, _ *uint64) { *n = most },
		"next number 2^40":     func(n, _ *uint64) { *n = 1 << 40 },
		"next number 2^63":     func(n, _ *uint64) { *n = 1 << 63 },
		"2^64 - 1 heads":       func(_, h *uint64) { *h = math.MaxUint64 },
	} {
		i := impossible{name: "state: " + name, change: func(db index.DB) error { return storage.ChangeState(db, change) }, says: "state"}
		if strings.HasPrefix(name, "next number 2^4") {
			i.says = "" // it could be
		}
		all = append(all, i)
	}
	return all
}

// numberRow returns the row of bucket numbers with a key.
func numberRow(t *testing.T, db index.DB, k []byte) (key, v []byte) {
	t.Helper()
	err := db.View(func(tx index.Tx) error {
		v = bytes.Clone(tx.Bucket("numbers").Get(k))
		return nil
	})
	if err != nil || v == nil {
		t.Fatalf("number %x: %v", k, err)
	}
	return k, v
}

// wrongKeys are rows with keys of any length in each family.
func wrongKeys() (all []impossible) {
	for _, family := range storage.Families {
		for _, k := range [][]byte{{0}, {0xff}, bytes.Repeat([]byte{0xff}, 5), make([]byte, 7), bytes.Repeat([]byte{0xff}, 33), bytes.Repeat([]byte{1}, 300)} {
			says := family
			if family == "refsums" {
				says = "ref"
			}
			v := bytes.Repeat(k[:1], len(k)%9)
			all = append(all, impossible{name: fmt.Sprintf("%s: key of %d bytes %#x", family, len(k), k[0]), change: put(family, k, v), says: says})
		}
	}
	return all
}

// TestImpossibleRows puts numbers without measure and keys of a wrong length into the index. The
// page opens, Check ends and tells of the row, and everything else goes on or fails with an error
// of damage: with as many reads and as much memory as the page is large, not the number.
func TestImpossibleRows(t *testing.T) {
	p := newSyncedPage(t)
	p.o.MemoryIndex = p.ix
	p.open()
	j := p.s.NewJournal()
	_, err := putValue(t.Context(), j, "x", noise(p.rng, 20<<10), 1)
	p.must(err)
	j.Rollback()
	p.must(p.s.Fold(t.Context()))
	p.close()
	all := append(hugeNumbers(t, p), wrongKeys()...)
	for i, c := range all {
		if testing.Short() && i%2 > 0 {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			o := p.o
			o.FS, o.MemoryIndex = p.mem.CrashClone(vfstest.KeepAll), p.ix.Clone()
			if err := c.change(o.MemoryIndex); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			useImpossible(t, p, o, c.says)
			runtime.ReadMemStats(&after)
			if got := after.TotalAlloc - before.TotalAlloc; got > 64<<20 {
				t.Errorf("%d bytes were allocated", got)
			}
		})
	}
}

func useImpossible(t *testing.T, p *syncedPage, o storage.Options, says string) {
	s, err := storage.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err) // the log is whole
	}
	damage := func(what string, err error) {
		t.Helper()
		tooMany := errors.Is(err, base.ErrTooLarge) && strings.HasSuffix(t.Name(), "next_number_2^48_-_1") // there is no other number
		if err != nil && !errors.Is(err, base.ErrCorrupt) && !tooMany {
			t.Errorf("%s: %v", what, err)
		}
	}
	defer func() { damage("close", s.Close()) }()
	storage.BoundReads(s, 20_000)
	r, err := s.Check(t.Context(), storage.CheckOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if told := fmt.Sprint(r.Problems, s.Recovery().IndexRebuilt); !strings.Contains(told, says) {
		t.Errorf("check tells %q", told)
	}
	for _, u := range []struct {
		what string
		fn   func() error
	}{
		{"rows", func() error {
			for _, family := range storage.Families {
				for _, err := range s.Rows(t.Context(), family) {
					if errors.Is(err, base.ErrNotFound) {
						continue // it has none that are shown
					}
					damage("rows of "+family, err)
				}
			}
			return nil
		}},
		{"unsynced", func() error { _, err := s.Unsynced(t.Context()); return err }},
		{"tags", func() error { _, err := s.Tags(t.Context()); return err }},
		{"holes", func() error { _, err := s.Holes(t.Context()); return err }},
		{"garbage", func() error { _, err := s.Garbage(t.Context()); return err }},
		{"space", func() error { _, err := s.Space(t.Context()); return err }},
		{"local", func() error { return s.LocalPieces(t.Context(), func(object.Digest) error { return nil }) }},
		{"piece", func() error { _, err := s.Piece(t.Context(), p.held); return err }},
		{"content", func() error { _, err := contentOf(context.Background(), s, p.own.Root); return err }},
		{"collect", func() error {
			c := s.NewCollector(storage.CollectOptions{})
			for range 20 {
				if more, err := c.Step(t.Context()); err != nil || !more {
					return err
				}
			}
			return nil
		}},
	} {
		damage(u.what, u.fn())
	}
	p.s = s
	_, err = p.tryCommit(p.own, edit{"another": noise(p.rng, 3000)}, 1)
	damage("commit", err)
	damage("fold", s.Fold(t.Context()))
}
