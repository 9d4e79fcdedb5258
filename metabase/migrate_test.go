package metabase_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/metabase"
	"github.com/ledgerd/ledger/metabase/metabasetest"
)

// dump returns all rows of a file; buckets have no value.
func dump(tb testing.TB, path string) map[string]string {
	tb.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{ReadOnly: true})
	must(tb, err)
	defer db.Close()
	rows := map[string]string{}
	must(tb, db.View(func(tx *bbolt.Tx) error {
		return tx.ForEach(func(name []byte, b *bbolt.Bucket) error { return dumpBucket(rows, fmt.Sprintf("%x", name), b) })
	}))
	return rows
}

func dumpBucket(rows map[string]string, path string, b *bbolt.Bucket) error {
	rows[path] = "bucket"
	return b.ForEach(func(k, v []byte) error {
		if v == nil {
			return dumpBucket(rows, fmt.Sprintf("%s/%x", path, k), b.Bucket(k))
		}
		rows[fmt.Sprintf("%s/%x", path, k)] = fmt.Sprintf("%x", v)
		return nil
	})
}

// change writes to a file as bbolt does.
func change(tb testing.TB, path string, fn func(*bbolt.Tx) error) {
	tb.Helper()
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoSync: true})
	must(tb, err)
	must(tb, errors.Join(db.Update(fn), db.Close()))
}

func setVersion(tx *bbolt.Tx, n uint64) error {
	return tx.Bucket([]byte{5}).Put([]byte("version"), binary.LittleEndian.AppendUint64(nil, n))
}

// toVersion2 makes of a file of version 3 one of version 2, in which graves have no epoch.
func toVersion2(tb testing.TB, path string) {
	change(tb, path, func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte{0})
		graves := map[string][]byte{}
		err := b.ForEach(func(k, v []byte) error { graves[string(k)] = bytes.Clone(v[:64]); return nil })
		for k, v := range graves {
			err = errors.Join(err, b.Put([]byte(k), v))
		}
		return errors.Join(err, setVersion(tx, 2))
	})
}

// TestMigrations: versions 2 and 3 become the same version 4, but for the epochs of graves, all
// other rows stay, and migrating again changes nothing.
func TestMigrations(t *testing.T) {
	path3, path2 := realFile(t), realFile(t)
	toVersion2(t, path2)
	before := dump(t, path3)
	for _, path := range []string{path3, path2} {
		must(t, open(t, path, metabase.FileOptions{}).Close())
	}
	got3, got2 := dump(t, path3), dump(t, path2)
	metadata := 0
	for k, v := range got3 {
		switch {
		case k[:2] == "ff":
			metadata++
		case k == "05/76657273696f6e":
			if v != "0400000000000000" {
				t.Errorf("version is %s", v)
			}
		case before[k] != v:
			t.Errorf("row %s is %q, was %q", k, v, before[k])
		}
		delete(before, k)
	}
	if len(before) > 0 || metadata < 5000 {
		t.Errorf("%d rows of metadata; lost are %v", metadata, before)
	}
	for k, v := range got2 {
		if len(k) > 3 && k[:3] == "00/" {
			if want := got3[k][:128] + fmt.Sprintf("%x", binary.LittleEndian.AppendUint64(nil, 105)); v != want {
				t.Errorf("grave %s is %s, want %s", k, v, want)
			}
			got3[k] = v
		}
	}
	if diff := cmp.Diff(got3, got2); diff != "" {
		t.Errorf("version 2 became something else:\n%s", diff)
	}
	must(t, open(t, path2, metabase.FileOptions{}).Close())
	if diff := cmp.Diff(got2, dump(t, path2)); diff != "" {
		t.Errorf("opening again changes rows:\n%s", diff)
	}
}

// countdown is a context that ends when it was looked at so many times.
type countdown struct {
	context.Context
	left int
}

func (c *countdown) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestInterruptedMigration interrupts a migration in steps of more than one transaction at many
// places (M4).
func TestInterruptedMigration(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meta.db")
	f := open(t, path, metabase.FileOptions{})
	must(t, f.Update(t.Context(), func(tx *metabase.Tx) error {
		for i := range 1500 {
			a, b := metabasetest.Object(t, metabasetest.Container(byte(i%3)), metabase.Regular, 1, "Name", fmt.Sprint(i))
			if i%2 == 0 {
				if _, err := tx.Put(t.Context(), b, nil); err != nil {
					return err
				}
			}
			if i%3 > 0 {
				if _, err := tx.Inhume(t.Context(), a, 105, metabase.Address{Container: metabasetest.Container(9), Object: a.Object}); err != nil {
					return err
				}
			}
		}
		_, parts := metabasetest.Parts(t, metabasetest.Container(1), "large")
		for _, b := range parts {
			if _, err := tx.Put(t.Context(), b, nil); err != nil {
				return err
			}
		}
		return nil
	}))
	must(t, f.Close())
	want := dump(t, path)
	change(t, path, func(tx *bbolt.Tx) error {
		for i := range byte(3) {
			c := metabasetest.Container(i)
			if err := tx.DeleteBucket(append([]byte{255}, c[:]...)); err != nil {
				return err
			}
		}
		return setVersion(tx, 3)
	})
	toVersion2(t, path)
	interrupted := 0
	for step := 1; ; step += 400 + step/3 {
		ctx := &countdown{t.Context(), step}
		f, err := metabase.OpenFile(ctx, path, metabase.FileOptions{NoSync: true, Epoch: func() uint64 { return 100 }})
		if err == nil {
			must(t, f.Close())
			break
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		interrupted++
	}
	if diff := cmp.Diff(want, dump(t, path)); diff != "" || interrupted < 5 {
		t.Errorf("after %d interruptions:\n%s", interrupted, diff)
	}
}

func TestVersions(t *testing.T) {
	for _, version := range []uint64{0, 1, 5, 1 << 60} {
		path := realFile(t)
		change(t, path, func(tx *bbolt.Tx) error { return setVersion(tx, version) })
		before, err := os.ReadFile(path)
		must(t, err)
		for _, mode := range []metabase.Mode{metabase.ReadOnly, metabase.ReadWrite} {
			_, err := metabase.OpenFile(t.Context(), path, metabase.FileOptions{Mode: mode})
			v := new(metabase.VersionError)
			if !errors.As(err, &v) || v.Found != version || v.Newest != 4 || !errors.Is(err, base.ErrUnsupported) {
				t.Errorf("version %d: %v", version, err)
			}
		}
		after, err := os.ReadFile(path)
		must(t, err)
		if !bytes.Equal(before[2*4096:], after[2*4096:]) {
			t.Errorf("version %d: the file was changed", version)
		}
	}
}

// TestReadOnly: a file of an older version can be read, but not searched, and stays as it is.
func TestReadOnly(t *testing.T) {
	path := realFile(t)
	before, err := os.ReadFile(path)
	must(t, err)
	x := loadFixture(t)
	f := open(t, path, metabase.FileOptions{Mode: metabase.ReadOnly})
	container, err := metabase.ParseID(x.ContainersNamed["A"])
	must(t, err)
	must(t, f.View(t.Context(), func(v *metabase.View) error {
		if _, _, err := v.Search(t.Context(), metabase.Query{Container: container, Count: 1}); !errors.Is(err, metabase.ErrOldVersion) {
			t.Errorf("search: %v", err)
		}
		ids, err := v.Select(t.Context(), container, nil)
		if len(ids) != len(x.SelectA[0].IDs) || err != nil {
			t.Errorf("select: %d, %v", len(ids), err)
		}
		for issue, err := range v.Verify(t.Context()) {
			must(t, err)
			if issue.Bucket[:8] != "bucket 3" && issue.Bucket != "bucket 5" {
				t.Errorf("issue %s", issue)
			}
		}
		return nil
	}))
	if err := f.Update(t.Context(), func(*metabase.Tx) error { return nil }); !errors.Is(err, metabase.ErrReadOnlyMode) || !errors.Is(err, base.ErrReadOnly) {
		t.Errorf("update: %v", err)
	}
	must(t, f.SetMode(t.Context(), metabase.Degraded))
	if err := f.View(t.Context(), func(*metabase.View) error { return nil }); !errors.Is(err, metabase.ErrDegradedMode) {
		t.Errorf("view: %v", err)
	}
	must(t, f.Close())
	if err := f.View(t.Context(), func(*metabase.View) error { return nil }); !errors.Is(err, base.ErrClosed) {
		t.Errorf("view of a closed file: %v", err)
	}
	after, err := os.ReadFile(path)
	must(t, err)
	if !bytes.Equal(before, after) {
		t.Error("the file was changed")
	}
	f = open(t, path, metabase.FileOptions{Mode: metabase.Degraded})
	must(t, f.SetMode(t.Context(), metabase.ReadWrite))
	must(t, f.View(t.Context(), func(v *metabase.View) error {
		_, _, err := v.Search(t.Context(), metabase.Query{Container: container, Count: 1})
		return err
	}))
}

// TestForeignFile: a bbolt file of something else is refused and stays as it is.
func TestForeignFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.db")
	change(t, path, func(tx *bbolt.Tx) error { _, err := tx.CreateBucket([]byte("mine")); return err })
	if _, err := metabase.OpenFile(t.Context(), path, metabase.FileOptions{}); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("open: %v", err)
	}
	if rows := dump(t, path); len(rows) != 1 {
		t.Errorf("rows %v", rows)
	}
	must(t, os.WriteFile(path, []byte("no database"), 0o600))
	if _, err := metabase.OpenFile(t.Context(), path, metabase.FileOptions{}); !errors.Is(err, base.ErrCorrupt) {
		t.Errorf("open: %v", err)
	}
}
