package metabase_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/metabase"
	"github.com/ledgerd/ledger/metabase/metabasetest"
	"github.com/ledgerd/ledger/ordered"
)

// inBoth runs a test with an empty metabase in a file and on a page, in epoch 10, and verifies it
// afterwards.
func inBoth(t *testing.T, fn func(t *testing.T, ctx context.Context, m *metabase.Tx)) {
	t.Run("file", func(t *testing.T) {
		f := open(t, filepath.Join(t.TempDir(), "m.db"), metabase.FileOptions{Epoch: func() uint64 { return 10 }})
		must(t, f.Update(t.Context(), func(m *metabase.Tx) error { fn(t, t.Context(), m); clean(t, &m.View); return nil }))
	})
	t.Run("page", func(t *testing.T) {
		m, err := metabase.Write(t.Context(), ordered.NewMemory(), 10)
		must(t, err)
		fn(t, t.Context(), m)
		clean(t, &m.View)
	})
}

func clean(t *testing.T, v *metabase.View) {
	t.Helper()
	for issue, err := range v.Verify(t.Context()) {
		must(t, err)
		t.Errorf("issue %s", issue)
	}
}

// put stores a new regular object.
func put(t *testing.T, m *metabase.Tx, typ metabase.Type, pairs ...string) metabase.Address {
	t.Helper()
	a, b := metabasetest.Object(t, metabasetest.Container(1), typ, 100, pairs...)
	_, err := m.Put(t.Context(), b, nil)
	must(t, err)
	return a
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v, want %v", err, want)
	}
}

func wantCounters(t *testing.T, m *metabase.Tx, physical, logical, volume uint64) {
	t.Helper()
	c, err := m.Counters(t.Context())
	must(t, err)
	n, err := m.Volume(t.Context(), metabasetest.Container(1))
	must(t, err)
	if c != (metabase.Counters{Physical: physical, Logical: logical}) || n != volume {
		t.Errorf("counters %+v, volume %d; want %d, %d, %d", c, n, physical, logical, volume)
	}
}

func TestRemovingAndReviving(t *testing.T) {
	inBoth(t, func(t *testing.T, ctx context.Context, m *metabase.Tx) {
		a, b, c := put(t, m, metabase.Regular, "N", "a"), put(t, m, metabase.Regular, "N", "b"), put(t, m, metabase.Regular, "N", "c")
		tomb, locker := put(t, m, metabase.Tombstone, "N", "t"), put(t, m, metabase.Lock, "N", "l")
		wantCounters(t, m, 5, 5, 300)
		must(t, m.Lock(ctx, locker, a.Object))
		wantErr(t, m.Lock(ctx, locker, b.Object, tomb.Object), metabase.ErrLockNonRegular)
		if locked, err := m.IsLocked(ctx, b); locked || err != nil {
			t.Errorf("b is locked: %t, %v", locked, err)
		}
		_, err := m.Inhume(ctx, tomb, 12, b, a)
		wantErr(t, err, metabase.ErrObjectLocked)
		op := new(metabase.ObjectError)
		if !errors.As(err, &op) || op.Address != a {
			t.Errorf("error %v does not name %s", err, a)
		}
		_, err = m.Inhume(ctx, tomb, 12, b, locker)
		wantErr(t, err, metabase.ErrLockRemoval)
		wantCounters(t, m, 5, 5, 300)

		n, err := m.Inhume(ctx, tomb, 12, b, metabase.Address{Container: a.Container})
		if n != 1 || err != nil {
			t.Errorf("removed %d, %v", n, err)
		}
		wantCounters(t, m, 5, 4, 200)
		_, err = m.Get(ctx, b, false)
		wantErr(t, err, metabase.ErrAlreadyRemoved)
		_, object := metabasetest.Object(t, a.Container, metabase.Regular, 100, "N", "b")
		_, err = m.Put(ctx, object, nil)
		wantErr(t, err, metabase.ErrAlreadyRemoved)
		if n, err = m.Inhume(ctx, tomb, 12, tomb); n != 0 || err != nil { // a tombstone that is in use
			t.Errorf("removed %d, %v", n, err)
		}
		r, err := m.Revive(ctx, b)
		if r.Tombstone == nil || *r.Tombstone != tomb || err != nil {
			t.Errorf("revived %+v, %v", r, err)
		}
		wantCounters(t, m, 5, 5, 300)
		_, err = m.Revive(ctx, b)
		wantErr(t, err, base.ErrNotFound)

		n, lockers, err := m.MarkGarbage(ctx, true, a, c, locker)
		if n != 3 || len(lockers) != 1 || lockers[0] != locker || err != nil {
			t.Errorf("marked %d, %v, %v", n, lockers, err)
		}
		wantCounters(t, m, 5, 2, 100)
		_, err = m.Get(ctx, a, false) // locked
		must(t, err)
		_, err = m.Get(ctx, c, false)
		wantErr(t, err, base.ErrNotFound)
		freed, err := m.FreeLockedBy(ctx, locker)
		if len(freed) != 1 || freed[0] != a || err != nil {
			t.Errorf("freed %v, %v", freed, err)
		}
		d, err := m.Delete(ctx, a, locker, metabase.Address{})
		if diff := cmp.Diff(metabase.Deleted{Stored: 2, Sizes: []uint64{100, 100, 0}}, d); diff != "" || err != nil {
			t.Errorf("deleted, %v:\n%s", err, diff)
		}
		wantCounters(t, m, 3, 2, 100)
		if n, err := m.DropExpiredGraves(ctx, 13); n != 1 || err != nil {
			t.Errorf("dropped %d graves, %v", n, err)
		}
		removed, err := m.InhumeContainer(ctx, a.Container)
		if removed != 2 || err != nil {
			t.Errorf("container with %d objects, %v", removed, err)
		}
		wantCounters(t, m, 3, 0, 0)
		must(t, m.DeleteContainer(ctx, a.Container))
		wantCounters(t, m, 0, 0, 0)
		objects, containers, err := m.Garbages(ctx, 10)
		if len(objects) != 0 || len(containers) != 1 || err != nil {
			t.Errorf("garbage %v, %v, %v", objects, containers, err)
		}
		must(t, m.Reset(ctx))
	})
}

func TestExpiration(t *testing.T) {
	inBoth(t, func(t *testing.T, ctx context.Context, m *metabase.Tx) {
		var all []metabase.Address
		for _, epoch := range []string{"5", "8", "10", "x", "20"} {
			all = append(all, put(t, m, metabase.Regular, metabase.AttributeExpiration, epoch, "N", epoch))
		}
		_, gone := metabasetest.Object(t, all[0].Container, metabase.Regular, 100, metabase.AttributeExpiration, "9")
		last, err := m.Put(ctx, gone, nil)
		must(t, err)
		_, err = m.Get(ctx, last, false)
		wantErr(t, err, metabase.ErrExpired)
		exists, err := m.Exists(ctx, last, true)
		if !exists || err != nil {
			t.Errorf("exists %t, %v", exists, err)
		}
		_, err = m.Get(ctx, all[0], false) // as the reference has it: only the epoch before counts
		must(t, err)
		must(t, m.Lock(ctx, put(t, m, metabase.Lock), all[1].Object))
		var expired []string
		for l, err := range m.ExpiredBefore(ctx, 10) {
			must(t, err)
			expired = append(expired, l.Address.String())
		}
		if diff := cmp.Diff(sorted([]string{all[0].String(), last.String()}), sorted(expired)); diff != "" {
			t.Errorf("expired:\n%s", diff)
		}
	})
}

// TestParts puts and deletes parts of an object in every order: what is known of the whole follows
// from the parts that are there.
func TestParts(t *testing.T) {
	for _, order := range [][3]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}} {
		inBoth(t, func(t *testing.T, ctx context.Context, m *metabase.Tx) {
			whole, parts := metabasetest.Parts(t, metabasetest.Container(1), "large")
			_, bytesOfWhole := metabasetest.Object(t, whole.Container, metabase.Regular, 200, "FileName", "large")
			var addresses [3]metabase.Address
			for n, i := range order {
				a, err := m.Put(ctx, parts[i], nil)
				must(t, err)
				addresses[n] = a
				clean(t, &m.View)
			}
			_, err := m.Exists(ctx, whole, false)
			split := new(metabase.SplitInfoError)
			if !errors.As(err, &split) || split.Info.LastPart.IsZero() || split.Info.Link.IsZero() || split.Info.First.IsZero() {
				t.Errorf("exists: %v, %+v", err, split)
			}
			got, err := m.Get(ctx, whole, false)
			if !bytes.Equal(got, bytesOfWhole) || err != nil {
				t.Errorf("get: %x, %v; want %x", got, err, bytesOfWhole)
			}
			q := metabase.Query{Container: whole.Container, Count: 10, Filters: []metabase.Filter{{Key: "FileName", Op: metabase.Equal, Value: "large"}}}
			found, _, err := m.Search(ctx, q)
			if len(found) != 1 || found[0].ID != whole.Object || err != nil {
				t.Errorf("found %v, %v", found, err)
			}
			for n := range order {
				_, err := m.Delete(ctx, addresses[n])
				must(t, err)
				clean(t, &m.View)
			}
			_, err = m.Get(ctx, whole, true)
			wantErr(t, err, base.ErrNotFound)
			if found, _, err = m.Search(ctx, q); len(found) != 0 || err != nil {
				t.Errorf("found %v, %v", found, err)
			}
		})
	}
}

func TestPutRefuses(t *testing.T) {
	c := metabasetest.Container(1)
	good := func() *metabase.Object {
		owner := metabase.NewOwner([20]byte{1})
		return &metabase.Object{Container: c, Owner: owner[:], PayloadHash: []byte{1}, Attributes: []metabase.Attribute{{Key: "k", Value: "v"}}}
	}
	for name, x := range map[string]struct {
		change func(*metabase.Object)
		want   error
	}{
		"container":   {func(o *metabase.Object) { o.Container = metabase.ID{} }, base.ErrInvalid},
		"owner":       {func(o *metabase.Object) { o.Owner = make([]byte, 25) }, base.ErrInvalid},
		"zero in key": {func(o *metabase.Object) { o.Attributes[0].Key = "a\x00" }, base.ErrInvalid},
		"zero":        {func(o *metabase.Object) { o.Attributes[0].Value = "a\x00" }, base.ErrInvalid},
		"empty":       {func(o *metabase.Object) { o.Attributes[0].Value = "" }, base.ErrInvalid},
		"type":        {func(o *metabase.Object) { o.Type = 5 }, base.ErrInvalid},
		"large":       {func(o *metabase.Object) { o.Attributes[0].Value = strings.Repeat("x", 16<<10) }, base.ErrTooLarge},
		"no UTF-8":    {func(o *metabase.Object) { o.Attributes[0].Value = "\xff" }, base.ErrCorrupt},
	} {
		o := good()
		x.change(o)
		if _, err := metabase.NewObject(o); !errors.Is(err, x.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	inBoth(t, func(t *testing.T, ctx context.Context, m *metabase.Tx) {
		_, b := metabasetest.Object(t, c, metabase.Regular, 1)
		_, err := m.Put(ctx, b[:20], nil)
		wantErr(t, err, base.ErrCorrupt)
		_, err = m.Put(ctx, nil, nil)
		wantErr(t, err, base.ErrInvalid)
		withPayload := append(append([]byte{0x22, 3, 'a', 'b', 'c'}, b...), 0x22, 1, 'd', 0x7a, 1, 'u') // and an unknown field
		a, err := m.Put(ctx, withPayload, nil)
		must(t, err)
		got, err := m.Get(ctx, a, false)
		if want := append(bytes.Clone(b), 0x7a, 1, 'u'); !bytes.Equal(got, want) || err != nil {
			t.Errorf("get: %x, %v; want %x", got, err, want)
		}
	})
}

func TestStorageIDs(t *testing.T) {
	inBoth(t, func(t *testing.T, ctx context.Context, m *metabase.Tx) {
		a, b := metabasetest.Object(t, metabasetest.Container(1), metabase.Regular, 1)
		_, err := m.Put(ctx, b, []byte("here"))
		if err != nil {
			wantErr(t, err, base.ErrUnsupported) // on a page
			wantErr(t, m.SetShardID(ctx, []byte("shard")), base.ErrUnsupported)
			return
		}
		must(t, m.UpdateStorageID(ctx, a, []byte("there")))
		id, err := m.StorageID(ctx, a)
		if string(id) != "there" || err != nil {
			t.Errorf("storage id %q, %v", id, err)
		}
		wantErr(t, m.UpdateStorageID(ctx, metabase.Address{}, []byte("x")), base.ErrNotFound)
		must(t, m.SetShardID(ctx, []byte("shard")))
		id, err = m.ShardID(ctx)
		if string(id) != "shard" || err != nil {
			t.Errorf("shard %q, %v", id, err)
		}
	})
}

// TestListingGoesOn: a cursor stays good while objects come and go.
func TestListingGoesOn(t *testing.T) {
	inBoth(t, func(t *testing.T, ctx context.Context, m *metabase.Tx) {
		for i := range 20 {
			put(t, m, metabase.Regular, "N", fmt.Sprint(i))
		}
		page, cursor, err := m.ListWithCursor(ctx, 10, "")
		must(t, err)
		for _, l := range page {
			_, err := m.Delete(ctx, l.Address)
			must(t, err)
		}
		rest, cursor, err := m.ListWithCursor(ctx, 100, cursor)
		if len(rest) != 10 || err != nil {
			t.Errorf("%d objects, %v", len(rest), err)
		}
		_, _, err = m.ListWithCursor(ctx, 100, cursor)
		wantErr(t, err, metabase.ErrEndOfListing)
		for _, bad := range []string{"x", "AAAA", strings.Repeat("A", 88)} {
			_, _, err = m.ListWithCursor(ctx, 1, bad)
			wantErr(t, err, metabase.ErrInvalidCursor)
		}
		_, _, err = m.ListWithCursor(ctx, 0, "")
		wantErr(t, err, base.ErrInvalid)
	})
}
