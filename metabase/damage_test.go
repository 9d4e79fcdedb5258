package metabase_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"go.etcd.io/bbolt"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/metabase"
	"github.com/ledgerd/ledger/metabase/metabasetest"
	"github.com/ledgerd/ledger/ordered"
)

// sample writes a file with rows of every kind and returns its bytes.
func sample(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sample.db")
	f := open(t, path, metabase.FileOptions{})
	c := metabasetest.Container(1)
	must(t, f.Update(t.Context(), func(m *metabase.Tx) error {
		var all []metabase.Address
		for i := range 40 {
			a, b := metabasetest.Object(t, c, metabase.Regular, 9, "Name", fmt.Sprint("name of the object ", i%7), "N", fmt.Sprint(i-20), metabase.AttributeExpiration, "300")
			_, err := m.Put(t.Context(), b, []byte("storage"))
			must(t, err)
			all = append(all, a)
		}
		_, parts := metabasetest.Parts(t, c, "large")
		for _, b := range parts {
			_, err := m.Put(t.Context(), b, nil)
			must(t, err)
		}
		_, err := m.Inhume(t.Context(), all[0], 200, all[1], all[2])
		must(t, err)
		must(t, m.ToMove(t.Context(), all[3]))
		return m.Lock(t.Context(), all[4], all[5].Object, all[6].Object)
	}))
	for range 2 { // make free pages
		must(t, f.Update(t.Context(), func(m *metabase.Tx) error { return m.SyncCounters(t.Context()) }))
	}
	must(t, f.Close())
	b, err := os.ReadFile(path)
	must(t, err)
	return b
}

// use does what can be done with a file, and returns the first error.
func use(ctx context.Context, path string) (err error) {
	f, err := metabase.OpenFile(ctx, path, metabase.FileOptions{NoSync: true, Epoch: func() uint64 { return 100 }})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	all := map[string]func(*metabase.Tx) error{
		"read": func(m *metabase.Tx) error { return read(ctx, &m.View) },
		"import": func(m *metabase.Tx) error {
			page, err := metabase.Write(ctx, ordered.NewMemory(), 100)
			return errors.Join(err, page.Import(ctx, &m.View))
		},
		"repair": func(m *metabase.Tx) error { _, err := m.Repair(ctx); return err },
		"delete": func(m *metabase.Tx) error {
			page, _, err := m.ListWithCursor(ctx, 100, "")
			for _, l := range page {
				if err == nil {
					_, err = m.Delete(ctx, l.Address)
				}
			}
			return errors.Join(err, m.DeleteContainer(ctx, metabasetest.Container(1)))
		},
	}
	for _, name := range []string{"read", "import", "repair", "delete"} {
		if stepErr := f.Update(ctx, all[name]); stepErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", name, stepErr))
		}
	}
	return err
}

func read(ctx context.Context, v *metabase.View) error {
	for _, err := range v.Verify(ctx) {
		if err != nil {
			return err
		}
	}
	for _, err := range v.Graveyard(ctx, nil) {
		if err != nil {
			return err
		}
	}
	for l, err := range v.ExpiredBefore(ctx, 1000) {
		if err != nil {
			return err
		}
		if _, err := v.Get(ctx, l.Address, false); err != nil {
			return err
		}
	}
	c := metabasetest.Container(1)
	_, err := v.Select(ctx, c, []metabase.Filter{{Key: "N", Op: metabase.Greater, Value: "0"}})
	for _, attributes := range [][]string{nil, {"N", "Name"}} {
		_, _, searchErr := v.Search(ctx, metabase.Query{Container: c, Count: 5, Attributes: attributes, Filters: []metabase.Filter{{Key: "N", Op: metabase.Less, Value: "3"}, {Key: "Name", Op: metabase.Prefix, Value: "name"}}})
		err = errors.Join(err, searchErr)
	}
	return err
}

// TestDamage changes bytes of a file one at a time, and cuts it. Whatever is done with it then
// gives a result or an error that says what is corrupt, and no panic, no endless loop and no more
// memory than the file has (M5).
func TestDamage(t *testing.T) {
	good := sample(t)
	path := filepath.Join(t.TempDir(), "damaged.db")
	try := func(what string, b []byte) {
		t.Helper()
		must(t, os.WriteFile(path, b, 0o600))
		err := use(t.Context(), path)
		if err == nil {
			return
		}
		for _, known := range []error{base.ErrCorrupt, base.ErrUnsupported, base.ErrNotFound, base.ErrInvalid, metabase.ErrEndOfListing, metabase.ErrAlreadyRemoved, metabase.ErrExpired, metabase.ErrObjectLocked} {
			if errors.Is(err, known) {
				return
			}
		}
		t.Fatalf("%s: %v", what, err)
	}
	try("unharmed", good)
	rng := rand.New(rand.NewPCG(3, 4))
	every := 2000
	if tier := os.Getenv("LEDGER_TIER"); tier >= "3" {
		every = 1
	} else if tier == "2" {
		every = 20
	}
	used := bytes.TrimRight(good, "\x00")
	for i := range used {
		page := i % 4096
		if good[i] == 0 && page > 200 || rng.IntN(every) != 0 && (page >= 80 || rng.IntN(every) > 25) {
			continue
		}
		b := bytes.Clone(good)
		b[i] ^= byte(1 + rng.IntN(255))
		try(fmt.Sprintf("byte %d", i), b)
	}
	for n := 0; n < len(used); n += 1 + rng.IntN(len(used)/20) {
		try(fmt.Sprintf("cut at %d", n), good[:n])
	}
}

// TestCycleOfBuckets: a file whose buckets lie in each other in a circle is refused.
func TestCycleOfBuckets(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cycle.db")
	must(t, os.WriteFile(path, sample(t), 0o600))
	var name []byte
	change(t, path, func(tx *bbolt.Tx) error {
		c := metabasetest.Container(1)
		name = append([]byte{13}, append(c[:], "Cycle"...)...)
		b, err := tx.CreateBucket(name)
		if err != nil {
			return err
		}
		inner, err := b.CreateBucket([]byte("inner"))
		for i := range 200 { // too many for a bucket that stands in the row of its parent
			err = errors.Join(err, inner.Put(fmt.Appendf(nil, "%0100d", i), []byte{1}), b.Put(fmt.Appendf(nil, "x%0100d", i), []byte{1}))
		}
		return err
	})
	var outer, inner uint64
	change(t, path, func(tx *bbolt.Tx) error {
		b := tx.Bucket(name)
		outer, inner = uint64(b.Root()), uint64(b.Bucket([]byte("inner")).Root())
		return nil
	})
	b, err := os.ReadFile(path)
	must(t, err)
	from, to := make([]byte, 16), make([]byte, 16)
	for i := range 8 {
		from[i], to[i] = byte(inner>>(8*i)), byte(outer>>(8*i))
	}
	at := bytes.LastIndex(b, append([]byte("inner"), from...))
	if at < 0 || outer == 0 || inner == 0 {
		t.Fatalf("buckets at pages %d and %d", outer, inner)
	}
	copy(b[at+5:], to)
	must(t, os.WriteFile(path, b, 0o600))
	_, err = metabase.OpenFile(t.Context(), path, metabase.FileOptions{})
	wantErr(t, err, base.ErrCorrupt)
}

// TestBombs: messages that nest deeply, or say that they are long, cost what they are long.
func TestBombs(t *testing.T) {
	var nested []byte // a header in a header in a header
	for range 3000 {
		nested = protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), nested)
	}
	long := protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), bytes.Repeat([]byte{0x52, 0}, 1<<20)) // a million attributes
	for _, b := range [][]byte{nested, long, {0x1a, 0xff, 0xff, 0xff, 0xff, 0x0f}, bytes.Repeat([]byte{0x0b}, 1<<20), append([]byte{0x1a}, bytes.Repeat([]byte{0xff}, 100)...)} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := metabase.DecodeObject(b)
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 64<<20 {
			t.Errorf("%d bytes took %d bytes of memory", len(b), n)
		}
		if err != nil && !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrTooLarge) {
			t.Errorf("decode: %v", err)
		}
	}
}

// TestDamagedObject: it is named, does not keep others from being used, and can be deleted with all
// of its rows.
func TestDamagedObject(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	f := open(t, path, metabase.FileOptions{})
	var a metabase.Address
	must(t, f.Update(t.Context(), func(m *metabase.Tx) error {
		put(t, m, metabase.Regular, "Name", "good")
		a = put(t, m, metabase.Regular, "Name", "bad", "N", "5")
		return nil
	}))
	must(t, f.Close())
	change(t, path, func(tx *bbolt.Tx) error {
		return tx.Bucket(append([]byte{6}, a.Container[:]...)).Put(a.Object[:], []byte{0x0a, 0x7f})
	})
	f = open(t, path, metabase.FileOptions{})
	must(t, f.Update(t.Context(), func(m *metabase.Tx) error {
		_, err := m.Get(t.Context(), a, false)
		wantErr(t, err, base.ErrCorrupt)
		if !strings.Contains(err.Error(), a.Object.String()) {
			t.Errorf("error %v does not name %s", err, a.Object)
		}
		n := 0
		for issue, err := range m.Verify(t.Context()) {
			must(t, err)
			if n++; n == 1 && (issue.Derived || issue.Key != a.Object.String()) {
				t.Errorf("issue %+v", issue)
			}
		}
		if n == 0 {
			t.Error("nothing is wrong")
		}
		d, err := m.Delete(t.Context(), a)
		if d.Stored != 1 || err != nil {
			t.Errorf("deleted %+v, %v", d, err)
		}
		must(t, m.SyncCounters(t.Context()))
		clean(t, &m.View)
		return nil
	}))
}

// TestRepair takes rows of every derived kind away and adds others; all come to be what they were.
func TestRepair(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.db")
	must(t, os.WriteFile(path, sample(t), 0o600))
	want := dump(t, path)
	c := metabasetest.Container(1)
	change(t, path, func(tx *bbolt.Tx) error {
		for _, kind := range []byte{11, 12, 14, 15, 19, 255} {
			b := tx.Bucket(append([]byte{kind}, c[:]...))
			k, v := b.Cursor().First()
			if v == nil {
				b = b.Bucket(k)
				k, _ = b.Cursor().First()
			}
			if err := errors.Join(b.Delete(bytes.Clone(k)), b.Put(bytes.Repeat([]byte{kind}, 32), []byte{0xff})); err != nil {
				return err
			}
		}
		return errors.Join(tx.Bucket([]byte{3}).Put(c[:], []byte("12345678")), tx.Bucket([]byte{5}).Put([]byte("phy_counter"), []byte("x")))
	})
	f := open(t, path, metabase.FileOptions{})
	must(t, f.Update(t.Context(), func(m *metabase.Tx) error {
		n, err := m.Repair(t.Context())
		if n < 14 || err != nil {
			t.Errorf("repaired %d, %v", n, err)
		}
		clean(t, &m.View)
		return nil
	}))
	must(t, f.Close())
	got := dump(t, path)
	for k := range want {
		if strings.HasPrefix(k, "0e") || strings.HasPrefix(k, "0f") || strings.HasPrefix(k, "13") { // the order of a list is lost with it
			delete(want, k)
			delete(got, k)
		}
	}
	for k, v := range want {
		if got[k] != v {
			t.Errorf("row %s is %q, want %q", k, got[k], v)
		}
		delete(got, k)
	}
	if len(got) > 0 {
		t.Errorf("rows too many: %v", got)
	}
}
