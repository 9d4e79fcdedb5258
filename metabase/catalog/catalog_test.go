package catalog_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/keys"
	"github.com/ledgerd/ledger/keyspace"
	"github.com/ledgerd/ledger/metabase"
	"github.com/ledgerd/ledger/metabase/catalog"
	"github.com/ledgerd/ledger/metabase/metabasetest"
)

func TestMain(m *testing.M) {
	if os.Getenv("LEDGER_TIER") < "2" {
		if err := flag.Set("rapid.checks", "15"); err != nil { // the command line may say otherwise
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// device is a repository with a catalogue that syncs and merges when it is told.
type device struct {
	repo *ledger.Repository
	page *ledger.Page
}

func newDevices(t *testing.T, n int, key string) []device {
	t.Helper()
	shared := mem.New(mem.Options{})
	open := func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return shared, nil }
	rules := []ledger.MergeRule{catalog.Rule()}
	var all []device
	for i := range n {
		r, err := ledger.Open(t.Context(), "", &ledger.Options{
			InMemory: true, Device: fmt.Sprint("device ", i),
			ManualMerge: true, MergeRules: func(string, ledger.PageID) []ledger.MergeRule { return rules },
			Buckets: map[string]bucket.Opener{"mem": open}, Sync: ledger.SyncOptions{Manual: true},
		})
		must(t, err)
		_, err = r.SetCloud(t.Context(), &ledger.Cloud{URL: "mem:x", KeyFile: key})
		must(t, err)
		if i > 0 {
			_, err = r.Sync(t.Context())
			must(t, err)
		}
		p, err := r.Page(t.Context(), "things", "catalogue")
		must(t, err)
		all = append(all, device{r, p})
		if i == 0 {
			must(t, all[0].update(t, func(*metabase.Tx) error { return nil }))
			_, err = r.Sync(t.Context())
			must(t, err)
		}
	}
	return all
}

func (d device) update(t *testing.T, fn func(*metabase.Tx) error) error {
	_, err := d.page.Update(t.Context(), func(tx *ledger.Tx) error {
		m, err := catalog.Write(t.Context(), tx, 10)
		if err != nil {
			return err
		}
		return fn(m)
	})
	return err
}

func (d device) sync(t *testing.T) {
	t.Helper()
	_, err := d.repo.Sync(t.Context())
	must(t, err)
}

func (d device) merge(t *testing.T, rt *rapid.T) {
	t.Helper()
	if _, err := d.page.Merge(t.Context()); err != nil {
		rt.Fatal(err)
	}
}

func (d device) head(t *testing.T, rt *rapid.T) ledger.CommitID {
	t.Helper()
	heads, err := d.page.Heads(t.Context())
	must(t, err)
	if len(heads) != 1 {
		rt.Fatalf("%d heads", len(heads))
	}
	return heads[0].ID
}

// verify fails the test when a row of the catalogue does not follow from the others, and returns
// all rows.
func (d device) verify(t *testing.T, fail func(string, ...any)) map[string]string {
	t.Helper()
	rows := map[string]string{}
	must(t, d.page.View(t.Context(), func(s *ledger.Snapshot) error {
		v, err := catalog.Read(t.Context(), s.Reader, 10)
		if err != nil {
			return err
		}
		for issue, err := range v.Verify(t.Context()) {
			if err != nil {
				return err
			}
			fail("%s", issue)
		}
		it := s.Iter(ledger.ScanOptions{})
		for it.Next(t.Context()) {
			value, err := it.Value(t.Context())
			if err != nil {
				return err
			}
			rows[string(it.Key())] = string(value)
		}
		return it.Err()
	}))
	return rows
}

// pool are the objects of the property test, with parts of larger ones among them, and lockers and
// tombstones.
type pool struct {
	addresses []metabase.Address
	bytes     [][]byte
}

func newPool(t *testing.T) pool {
	var p pool
	c := metabasetest.Container(1)
	add := func(a metabase.Address, b []byte) {
		p.addresses, p.bytes = append(p.addresses, a), append(p.bytes, b)
	}
	for i := range 4 {
		add(metabasetest.Object(t, c, metabase.Regular, 7, "Name", fmt.Sprint("object ", i), "Kind", fmt.Sprint(i%2)))
	}
	add(metabasetest.Object(t, c, metabase.Tombstone, 1, "Name", "tombstone"))
	add(metabasetest.Object(t, c, metabase.Lock, 1, "Name", "locker"))
	for _, name := range []string{"large", "larger"} {
		_, parts := metabasetest.Parts(t, c, name)
		for _, b := range parts {
			o, err := metabase.DecodeObject(b)
			must(t, err)
			add(metabase.Address{Container: c, Object: o.ID}, b)
		}
	}
	return p
}

// step does something with a catalogue. What the catalogue refuses is left.
func (p pool) step(t *testing.T, rt *rapid.T, m *metabase.Tx, put, deleted map[metabase.Address]bool) error {
	ctx := t.Context()
	i := rapid.IntRange(0, len(p.bytes)-1).Draw(rt, "object")
	a := p.addresses[i]
	var err error
	switch rapid.SampledFrom([]string{"put", "put", "put", "inhume", "mark", "lock", "free", "delete", "revive", "graves", "move"}).Draw(rt, "step") {
	case "put":
		if _, err = m.Put(ctx, p.bytes[i], nil); err == nil {
			put[a] = true
		}
	case "inhume":
		_, err = m.Inhume(ctx, p.addresses[4], rapid.Uint64Range(5, 15).Draw(rt, "expiration"), a)
	case "mark":
		_, _, err = m.MarkGarbage(ctx, false, a)
	case "lock":
		err = m.Lock(ctx, metabase.Address{Container: a.Container, Object: p.addresses[rapid.IntRange(4, 5).Draw(rt, "locker")].Object}, a.Object)
	case "free":
		_, err = m.FreeLockedBy(ctx, p.addresses[5])
	case "delete":
		deleted[a] = true
		_, err = m.Delete(ctx, a)
	case "revive":
		_, err = m.Revive(ctx, a)
	case "graves":
		_, err = m.DropExpiredGraves(ctx, rapid.Uint64Range(5, 15).Draw(rt, "epoch"))
	case "move":
		err = m.ToMove(ctx, a)
	}
	for _, refused := range []error{ledger.ErrNotFound, metabase.ErrAlreadyRemoved, metabase.ErrObjectLocked, metabase.ErrLockRemoval, metabase.ErrLockNonRegular} {
		if errors.Is(err, refused) {
			return nil
		}
	}
	return err
}

// TestLawsOfMerging has three devices change a catalogue, sync and merge at random, so that there
// are merges with several bases. After each merge all rows follow from the objects; in the end all
// devices have one head, and every object that was put somewhere and deleted nowhere is there.
//
// They come to one head in two ways. When everybody has everything, each makes the same merge. And
// when one after the other syncs, merges and sends the merge, as verb sync does, the last one's is
// everybody's in the second round. It is no law that devices come to rest which send a merge only
// after the others have merged again: each merges what is no head any more, for as long as they go
// on. They may even have other rows meanwhile, as the merges of three commits need not have the
// content of each other: what is the same addition on two sides, and is then removed on one, is
// gone where they were merged before it was removed, and stays where that is merged with the other
// side.
func TestLawsOfMerging(t *testing.T) {
	objects, key := newPool(t), filepath.Join(t.TempDir(), "key")
	must(t, keys.CreateFile(key, nil))
	rapid.Check(t, func(rt *rapid.T) {
		devices := newDevices(t, 3, key)
		defer func() {
			for _, d := range devices {
				must(t, errors.Join(d.page.Close(), d.repo.Close()))
			}
		}()
		put, deleted := map[metabase.Address]bool{}, map[metabase.Address]bool{}
		for range rapid.IntRange(5, 25).Draw(rt, "steps") {
			d := devices[rapid.IntRange(0, 2).Draw(rt, "device")]
			switch rapid.SampledFrom([]string{"write", "write", "write", "sync", "merge"}).Draw(rt, "what") {
			case "write":
				if err := d.update(t, func(m *metabase.Tx) error { return objects.step(t, rt, m, put, deleted) }); err != nil {
					rt.Fatal(err)
				}
			case "sync":
				d.sync(t)
			case "merge":
				d.merge(t, rt)
				d.verify(t, rt.Fatalf)
			}
		}
		come := rapid.SampledFrom([]string{"together", "in turn", "together, late"}).Draw(rt, "come to rest")
		switch come {
		case "in turn":
			for range 2 {
				for _, d := range devices {
					d.sync(t)
					d.merge(t, rt)
					d.sync(t)
				}
			}
		case "together, late":
			for range 3 {
				for _, d := range devices {
					d.sync(t)
					d.merge(t, rt)
				}
			}
			fallthrough
		case "together":
			for _, d := range slices.Concat(devices, devices) {
				d.sync(t)
			}
			for _, d := range devices {
				d.merge(t, rt)
			}
		}
		head := devices[0].head(t, rt)
		for _, d := range devices {
			if got := d.head(t, rt); got != head {
				rt.Fatalf("heads %s and %s", head, got)
			}
		}
		rows := devices[0].verify(t, rt.Fatalf)
		for _, d := range devices[1:] {
			if diff := cmp.Diff(rows, d.verify(t, rt.Fatalf)); diff != "" {
				rt.Fatalf("rows differ:\n%s", diff)
			}
		}
		must(t, devices[0].page.View(t.Context(), func(s *ledger.Snapshot) error {
			v, err := catalog.Read(t.Context(), s.Reader, 0)
			must(t, err)
			for a := range put {
				b, err := v.Stored(t.Context(), a)
				must(t, err)
				if b == nil && !deleted[a] {
					rt.Fatalf("object %s is lost", a)
				}
			}
			return nil
		}))
	})
}

// TestLockAgainstGrave: of an object that one device locks and another removes at the same time
// both are kept, it stays available, and that is reported.
func TestLockAgainstGrave(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	must(t, keys.CreateFile(key, nil))
	devices := newDevices(t, 2, key)
	defer func() {
		for _, d := range devices {
			must(t, errors.Join(d.page.Close(), d.repo.Close()))
		}
	}()
	syncAll := func() {
		for range 2 {
			for _, d := range devices {
				_, err := d.repo.Sync(t.Context())
				must(t, err)
			}
		}
	}
	a, b := metabasetest.Object(t, metabasetest.Container(1), metabase.Regular, 5, "Name", "x")
	tombstone, _ := metabasetest.Object(t, a.Container, metabase.Tombstone, 5, "Name", "t")
	locker, _ := metabasetest.Object(t, a.Container, metabase.Lock, 5, "Name", "l")
	must(t, devices[0].update(t, func(m *metabase.Tx) error { _, err := m.Put(t.Context(), b, nil); return err }))
	syncAll()
	must(t, devices[0].update(t, func(m *metabase.Tx) error { return m.Lock(t.Context(), locker, a.Object) }))
	must(t, devices[1].update(t, func(m *metabase.Tx) error { _, err := m.Inhume(t.Context(), tombstone, 20, a); return err }))
	syncAll()
	for _, d := range devices {
		results, err := d.page.Merge(t.Context())
		must(t, err)
		if len(results) != 1 || results[0].Conflicts != 1 {
			t.Fatalf("merges %+v", results)
		}
		for c, err := range d.page.Conflicts(t.Context(), results[0].Commit.ID, nil) {
			must(t, err)
			if c.Rule != metabase.RuleLockWins {
				t.Errorf("decided by %s", c.Rule)
			}
		}
		must(t, d.page.View(t.Context(), func(s *ledger.Snapshot) error {
			v, err := catalog.Read(t.Context(), s.Reader, 10)
			must(t, err)
			got, err := v.Get(t.Context(), a, false)
			if !bytes.Equal(got, b) || err != nil {
				t.Errorf("get: %x, %v", got, err)
			}
			states, err := v.States(t.Context(), a)
			if diff := cmp.Diff([]string{"LOCKED", "AVAILABLE", "IN GRAVEYARD"}, states); diff != "" || err != nil {
				t.Errorf("states, %v:\n%s", err, diff)
			}
			return nil
		}))
		d.verify(t, t.Fatalf)
	}
}

// TestDamagedRowsMerge: rows that cannot be read, which a device has written, keep no merge from
// ending, and are reported afterwards.
func TestDamagedRowsMerge(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	must(t, keys.CreateFile(key, nil))
	devices := newDevices(t, 2, key)
	defer func() {
		for _, d := range devices {
			must(t, errors.Join(d.page.Close(), d.repo.Close()))
		}
	}()
	c := metabasetest.Container(1)
	a, b := metabasetest.Object(t, c, metabase.Regular, 5, "Name", "x")
	_, parts := metabasetest.Parts(t, c, "large")
	put := func(objects ...[]byte) func(*metabase.Tx) error {
		return func(m *metabase.Tx) error {
			for _, o := range objects {
				if _, err := m.Put(t.Context(), o, nil); err != nil {
					return err
				}
			}
			return nil
		}
	}
	must(t, devices[0].update(t, put(b, parts[0], parts[1], parts[2])))
	for _, d := range append(devices, devices...) {
		_, err := d.repo.Sync(t.Context())
		must(t, err)
	}
	_, err := devices[0].page.Update(t.Context(), func(tx *ledger.Tx) error {
		it := tx.Iter(ledger.ScanOptions{})
		var keys [][]byte
		for it.Next(t.Context()) {
			value, err := it.Value(t.Context())
			must(t, err)
			if len(value) > 8 { // objects and lists
				keys = append(keys, bytes.Clone(it.Key()))
			}
		}
		for _, k := range keys {
			must(t, tx.Put(t.Context(), k, []byte{0xff, 1}))
		}
		return it.Err()
	})
	must(t, err)
	for _, d := range append(devices, devices...) {
		_, err := d.repo.Sync(t.Context())
		must(t, err)
	}
	other, o := metabasetest.Object(t, c, metabase.Regular, 5, "Name", "y") // of the same list of payloads as a
	_, err = devices[0].page.Update(t.Context(), func(tx *ledger.Tx) error {
		row, err := keyspace.Escaped{}.Encode([][]byte{[]byte(metabase.Namespace), append([]byte{6}, c[:]...)}, other.Object[:])
		must(t, err)
		return tx.Put(t.Context(), row, o)
	})
	must(t, err)
	must(t, devices[1].update(t, func(m *metabase.Tx) error { return m.ToMove(t.Context(), a) }))
	for _, d := range append(devices, devices...) {
		_, err := d.repo.Sync(t.Context())
		must(t, err)
	}
	for _, d := range devices {
		_, err := d.page.Merge(t.Context())
		must(t, err)
		issues := 0
		d.verify(t, func(string, ...any) { issues++ })
		if issues == 0 {
			t.Error("nothing is reported")
		}
		must(t, d.page.View(t.Context(), func(s *ledger.Snapshot) error {
			v, err := catalog.Read(t.Context(), s.Reader, 10)
			must(t, err)
			_, err = v.Get(t.Context(), other, false)
			return err
		}))
	}
}
