package pages_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/indexeddb"
	"github.com/ledgerd/ledger/indexeddb/idb"
	"github.com/ledgerd/ledger/indexeddb/pages"
	"github.com/ledgerd/ledger/indexeddb/profile"
	"github.com/ledgerd/ledger/indexeddb/value"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/keys"
)

// tb is what a test and a check by rapid have in common.
type tb interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
	Context() context.Context
}

func need(t tb, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// device is a repository with a page, and what was done there.
type device struct {
	tb
	repo *ledger.Repository
	page *ledger.Page
	rows idb.Rows
	log  *history
}

// history is what all devices together have done.
type history struct {
	made    int
	added   map[string]bool // items that were added and by nobody deleted
	dropped map[string]bool // object stores that somebody has deleted
}

// newDevices returns devices that share a bucket, and have the database of the first one.
func newDevices(t tb, key string, n int, first func(*device)) []*device {
	t.Helper()
	b := mem.New(mem.Options{})
	open := func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return b, nil }
	log := &history{added: map[string]bool{}, dropped: map[string]bool{}}
	var all []*device
	for i := range n {
		r, err := ledger.Open(t.Context(), "", &ledger.Options{
			InMemory: true, ManualMerge: true,
			Buckets: map[string]bucket.Opener{"mem": open}, Sync: ledger.SyncOptions{Manual: true},
		})
		need(t, err)
		_, err = r.SetCloud(t.Context(), &ledger.Cloud{URL: "mem:x", KeyFile: key})
		need(t, err)
		if i > 0 {
			_, err = r.Sync(t.Context())
			need(t, err)
		}
		p, err := r.Page(t.Context(), "app", "db")
		need(t, err)
		p.SetMergeRules(pages.MergeRule())
		d := &device{t, r, p, pages.Rows(p, ledger.Eager), log}
		all = append(all, d)
		if i == 0 {
			first(d)
			_, err = r.Sync(t.Context())
			need(t, err)
		}
	}
	return all
}

// newKey returns a file with a master key.
func newKey(t *testing.T) string {
	key := filepath.Join(t.TempDir(), "key")
	must(t, keys.CreateFile(key, nil))
	return key
}

// items makes an object store of items with a key generator and indexes, and one of notes.
func items(ctx context.Context, u *idb.Upgrade) error {
	s, err := u.CreateObjectStore("items", &idb.StoreOptions{KeyPath: idb.Path("id"), AutoIncrement: true})
	if err != nil {
		return err
	}
	if _, err := s.CreateIndex(ctx, "by name", idb.Path("name"), &idb.IndexOptions{Unique: true}); err != nil {
		return err
	}
	if _, err := s.CreateIndex(ctx, "by tag", idb.Path("tags"), &idb.IndexOptions{MultiEntry: true}); err != nil {
		return err
	}
	if _, err := s.CreateIndex(ctx, "by id", idb.Path("id"), nil); err != nil {
		return err
	}
	notes, err := u.CreateObjectStore("notes", nil)
	if err != nil {
		return err
	}
	_, err = notes.CreateIndex(ctx, "by word", idb.Paths("word", "n"), nil)
	return err
}

// upgrade makes a new version of the database.
func (d *device) upgrade(fn func(context.Context, *idb.Upgrade) error) {
	d.Helper()
	db, err := idb.New(d.rows, nil).Open(d.Context(), "app", 0, nil)
	version := int64(1)
	if err == nil {
		version = db.Version() + 1
	}
	_, err = idb.New(d.rows, nil).Open(d.Context(), "app", version, fn)
	need(d, err)
}

// in calls fn with an object store in a transaction, unless the store is not there.
func (d *device) in(store string, fn func(context.Context, *idb.ObjectStore) error) {
	d.Helper()
	ctx := d.Context()
	db, err := idb.New(d.rows, nil).Open(ctx, "app", 0, nil)
	need(d, err)
	if !slices.Contains(db.ObjectStoreNames(), store) {
		return
	}
	tx, err := db.Begin(ctx, idb.ReadWrite, store)
	need(d, err)
	defer tx.Abort()
	s, err := tx.ObjectStore(store)
	need(d, err)
	err = fn(ctx, s)
	if errors.Is(err, idb.ErrConstraint) {
		return // a name that is taken
	}
	need(d, err)
	need(d, tx.Commit(ctx))
}

func (d *device) sync() {
	d.Helper()
	_, err := d.repo.Sync(d.Context())
	need(d, err)
}

func (d *device) merge() {
	d.Helper()
	_, err := d.page.Merge(d.Context())
	need(d, err)
	d.clean()
}

// clean verifies all rows, and returns how many were left out of unique indexes.
func (d *device) clean() (out profile.Result) {
	d.Helper()
	ctx := context.WithoutCancel(d.Context())
	need(d, d.page.View(ctx, func(s *ledger.Snapshot) error {
		p, err := profile.OpenPage(ctx, pages.Reader(s.Reader), nil)
		if err == nil {
			out, err = p.Check(ctx)
		}
		return err
	}))
	return out
}

// meet gives all devices the commits of all, has each merge them, and wants the same rows
// everywhere.
func meet(all []*device) {
	t := all[0]
	t.Helper()
	for range 2 {
		for _, d := range all {
			d.sync()
		}
	}
	heads := map[ledger.CommitID]bool{}
	for _, d := range all {
		d.merge()
		at, err := d.page.Heads(t.Context())
		need(t, err)
		for _, h := range at {
			heads[h.ID] = true
		}
	}
	if len(heads) != 1 {
		t.Fatalf("the devices have %d heads", len(heads))
	}
}

// act does something at random.
func (d *device) act(t *rapid.T) {
	key := float64(rapid.IntRange(1, 8).Draw(t, "key"))
	name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f"}).Draw(t, "name")
	tags := value.NewArray()
	for _, tag := range rapid.SliceOfN(rapid.SampledFrom([]string{"x", "y", "z"}), 0, 2).Draw(t, "tags") {
		tags.Elements = append(tags.Elements, tag)
		tags.Length++
	}
	switch rapid.IntRange(0, 9).Draw(t, "action") {
	case 0, 1, 2:
		d.log.made++
		is := fmt.Sprint("item ", d.log.made)
		added := false
		d.in("items", func(ctx context.Context, s *idb.ObjectStore) error {
			_, err := s.Add(ctx, value.NewObject("is", is, "name", name, "tags", tags, "group", key), nil)
			added = err == nil
			return err
		})
		if added {
			d.log.added[is] = true
		}
	case 3, 4:
		d.in("items", func(ctx context.Context, s *idb.ObjectStore) error {
			r, err := s.Record(ctx, key)
			if err != nil || r == nil {
				return err
			}
			o := r.Value.(*value.Object)
			o.Set("name", name)
			o.Set("tags", tags)
			_, err = s.Put(ctx, o, nil)
			return err
		})
	case 5:
		d.in("items", func(ctx context.Context, s *idb.ObjectStore) error {
			r, err := s.Record(ctx, key)
			if err != nil || r == nil {
				return err
			}
			is, _ := r.Value.(*value.Object).Get("is")
			delete(d.log.added, is.(string))
			return s.Delete(ctx, key)
		})
	case 6, 7:
		d.in("notes", func(ctx context.Context, s *idb.ObjectStore) error {
			_, err := s.Put(ctx, value.NewObject("word", name, "n", key), float64(rapid.IntRange(1, 4).Draw(t, "note")))
			return err
		})
	case 8:
		d.in("notes", func(ctx context.Context, s *idb.ObjectStore) error { return s.Delete(ctx, key) })
	default:
		d.upgrade(func(ctx context.Context, u *idb.Upgrade) error { return d.reform(ctx, t, u, name) })
	}
}

// reform changes the schema at random.
func (d *device) reform(ctx context.Context, t *rapid.T, u *idb.Upgrade, name string) error {
	s, err := u.ObjectStore("items")
	if err != nil {
		return err
	}
	index := rapid.SampledFrom([]string{"by group", "by tag", "by tag 2"}).Draw(t, "index")
	switch rapid.IntRange(0, 4).Draw(t, "reform") {
	case 0:
		if slices.Contains(u.ObjectStoreNames(), "notes") {
			return u.DeleteObjectStore(ctx, "notes")
		}
		notes, err := u.CreateObjectStore("notes", nil)
		if err == nil {
			_, err = notes.CreateIndex(ctx, "by word", idb.Path("word"), nil)
		}
		return err
	case 1:
		store := "more " + name
		if slices.Contains(u.ObjectStoreNames(), store) {
			return nil
		}
		more, err := u.CreateObjectStore(store, &idb.StoreOptions{AutoIncrement: rapid.Bool().Draw(t, "generator")})
		if err == nil {
			_, err = more.Put(ctx, value.NewObject("word", name), 7.0)
		}
		return err
	case 2:
		if slices.Contains(s.IndexNames(), index) {
			return s.DeleteIndex(ctx, index)
		}
		fallthrough
	default:
		if slices.Contains(s.IndexNames(), index) {
			return nil
		}
		path := rapid.SampledFrom([]indexeddb.KeyPath{idb.Path("group"), idb.Path("tags"), idb.Paths("name", "group")}).Draw(t, "path")
		_, err := s.CreateIndex(ctx, index, path, &idb.IndexOptions{MultiEntry: path.Type == indexeddb.StringKeyPath && rapid.Bool().Draw(t, "multi")})
		return err
	}
}

// items returns the items that are there.
func (d *device) items() map[string]bool {
	there := map[string]bool{}
	d.in("items", func(ctx context.Context, s *idb.ObjectStore) error {
		all, err := s.GetAllRecords(ctx, nil, 0, idb.Next)
		for _, r := range all {
			is, _ := r.Value.(*value.Object).Get("is")
			there[is.(string)] = true
		}
		return err
	})
	return there
}

// lost returns items that were added, by nobody deleted, and are not there.
func (d *device) lost() (missing []string) {
	there := d.items()
	for is := range d.log.added {
		if !there[is] {
			missing = append(missing, is)
		}
	}
	slices.Sort(missing)
	return missing
}

// TestThreeDevices: laws M2 to M5 of package merging and equal pages, with random histories, in
// which devices also merge beside each other, each before it has the merges of the others.
func TestThreeDevices(t *testing.T) {
	must(t, flag.Set("rapid.checks", strconv.Itoa(tier.Of(20, 60, 400))))
	key := newKey(t)
	rapid.Check(t, func(rt *rapid.T) {
		all := newDevices(rt, key, 3, func(d *device) {
			d.upgrade(items)
			for range 3 {
				d.act(rt)
			}
		})
		defer func() {
			for _, d := range all {
				need(rt, d.repo.Close())
			}
		}()
		for range rapid.IntRange(1, 3).Draw(rt, "rounds") {
			for _, d := range all {
				for range rapid.IntRange(0, 4).Draw(rt, "actions") {
					d.act(rt)
				}
				if rapid.Bool().Draw(rt, "sync") {
					d.sync()
					d.merge()
				}
			}
		}
		meet(all)
		if missing := all[0].lost(); len(missing) > 0 {
			rt.Fatalf("lost: %q", missing)
		}
	})
}
