package records_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/keys"
	"github.com/ledgerd/ledger/ledgertest"
	"github.com/ledgerd/ledger/records"
)

func TestMain(m *testing.M) {
	if os.Getenv("LEDGER_TIER") < "2" {
		if err := flag.Set("rapid.checks", "20"); err != nil { // the command line may say otherwise
			panic(err)
		}
	}
	goleak.VerifyTestMain(m)
}

type note struct {
	Title  string
	Mail   string
	Tags   []string         `ledger:"set"`
	Views  int64            `ledger:"counter"`
	Seen   time.Time        `ledger:"max"`
	Votes  map[string]int64 `ledger:"set"`
	Nested struct {
		Color string
		Size  float64 `ledger:"counter"`
	}
}

func options() *records.Options[note] {
	return &records.Options[note]{Indexes: []records.Index[note]{
		{Name: "mail", Unique: true, Keys: func(n *note) [][]byte {
			if n.Mail == "" {
				return nil
			}
			return [][]byte{records.Key(n.Mail)}
		}},
		{Name: "tag", Keys: func(n *note) (keys [][]byte) {
			for _, t := range n.Tags {
				keys = append(keys, records.Key(t, n.Views))
			}
			return keys
		}},
		{Name: "title", Keys: func(n *note) [][]byte { return [][]byte{records.Key(n.Title)} }},
	}}
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

func open(t *testing.T, page *ledger.Page) *records.Collection[note] {
	t.Helper()
	c, err := records.Open(t.Context(), page, "notes", options())
	must(t, err)
	return c
}

func page(t *testing.T) *ledger.Page { return ledgertest.Page(t, ledgertest.Open(t), "app", "main") }

// found returns what a query yields, as "id:key".
func found(t *testing.T, c *records.Collection[note], q records.Query) (all []string) {
	t.Helper()
	for r, err := range c.Query(t.Context(), q) {
		must(t, err)
		all = append(all, r.ID)
	}
	return all
}

// TestLife: a record is put, found, changed and deleted, and its index rows go with it.
func TestLife(t *testing.T) {
	ctx := t.Context()
	c := open(t, page(t))
	if _, err := c.Get(ctx, "a"); !errors.Is(err, ledger.ErrNotFound) {
		t.Fatal(err)
	}
	must(t, c.Put(ctx, "a", &note{Title: "one", Mail: "a@x", Tags: []string{"red", "blue", "red"}}))
	must(t, c.Put(ctx, "b", &note{Title: "two", Tags: []string{"red"}, Views: 5}))
	must(t, c.Put(ctx, "c\x00d", &note{Title: "three", Tags: []string{"redder"}}))
	for _, x := range []struct {
		q    records.Query
		want string
	}{
		{records.Query{}, "a b c\x00d"},
		{records.Query{Reverse: true, Limit: 2}, "c\x00d b"},
		{records.Query{Equal: []byte("b")}, "b"},
		{records.Query{From: []byte("b"), To: []byte("c")}, "b"},
		{records.Query{Prefix: []byte("c")}, "c\x00d"},
		{records.Query{Index: "tag", Prefix: records.Key("red")}, "a b"},
		{records.Query{Index: "tag", Equal: records.Key("red", 5)}, "b"},
		{records.Query{Index: "tag", From: records.Key("red", 1), To: records.Key("s")}, "b c\x00d"},
		{records.Query{Index: "tag"}, "a a b c\x00d"},
		{records.Query{Index: "title", Reverse: true}, "b c\x00d a"},
		{records.Query{Index: "mail"}, "a"},
	} {
		if got := strings.Join(found(t, c, x.q), " "); got != x.want {
			t.Errorf("%+v: %q, want %q", x.q, got, x.want)
		}
	}
	must(t, c.Put(ctx, "a", &note{Title: "one again"}))
	if got := found(t, c, records.Query{Index: "tag", Prefix: records.Key("red")}); !slices.Equal(got, []string{"b"}) {
		t.Error(got)
	}
	r, err := c.Find(ctx, "title", records.Key("one again"))
	if err != nil || r.ID != "a" || r.Value.Title != "one again" {
		t.Errorf("%+v %v", r, err)
	}
	must(t, c.Delete(ctx, "a"))
	must(t, c.Delete(ctx, "a"))
	if _, err := c.Find(ctx, "title", records.Key("one again")); !errors.Is(err, ledger.ErrNotFound) {
		t.Error(err)
	}
	for _, err := range c.Query(ctx, records.Query{Index: "none"}) {
		if !errors.Is(err, ledger.ErrInvalid) {
			t.Error(err)
		}
	}
}

// TestTransactions: changes of several records count together or not at all, and a transaction sees
// its own.
func TestTransactions(t *testing.T) {
	ctx := t.Context()
	p := page(t)
	c := open(t, p)
	failed := errors.New("failed")
	_, err := p.Update(ctx, func(tx *ledger.Tx) error {
		in := c.In(tx)
		must(t, in.Put(ctx, "a", &note{Title: "x"}))
		for r, err := range in.Query(ctx, records.Query{Index: "title", Equal: records.Key("x")}) {
			if err != nil || r.ID != "a" {
				t.Errorf("%+v %v", r, err)
			}
		}
		return failed
	})
	if !errors.Is(err, failed) || len(found(t, c, records.Query{Index: "title"})) > 0 {
		t.Errorf("%v, %v", err, found(t, c, records.Query{}))
	}
}

// TestUnique: no Put gives two records one key, but a record may keep its own.
func TestUnique(t *testing.T) {
	ctx := t.Context()
	c := open(t, page(t))
	must(t, c.Put(ctx, "a", &note{Mail: "x"}))
	must(t, c.Put(ctx, "a", &note{Mail: "x", Title: "again"}))
	if err := c.Put(ctx, "b", &note{Mail: "x"}); !errors.Is(err, records.ErrUnique) || !errors.Is(err, ledger.ErrConflict) {
		t.Error(err)
	}
	must(t, c.Delete(ctx, "a"))
	must(t, c.Put(ctx, "b", &note{Mail: "x"}))
}

// TestRefuses: bad names, ids, tags and keys are errors, and change nothing.
func TestRefuses(t *testing.T) {
	ctx := t.Context()
	p := page(t)
	for _, name := range []string{"", "a\x00", strings.Repeat("a", 65), "\xff"} {
		if _, err := records.Open[note](ctx, p, name, nil); !errors.Is(err, ledger.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	type wrong struct {
		A []string `ledger:"counter"`
	}
	if _, err := records.Open[wrong](ctx, p, "wrong", nil); !errors.Is(err, ledger.ErrInvalid) {
		t.Error(err)
	}
	o := options()
	o.Indexes[0].Keys = func(*note) [][]byte { return [][]byte{[]byte("raw")} }
	c, err := records.Open(ctx, p, "notes", o)
	must(t, err)
	for _, id := range []string{"", strings.Repeat("i", 513)} {
		if err := c.Put(ctx, id, &note{}); !errors.Is(err, ledger.ErrInvalid) {
			t.Error(err)
		}
	}
	if err := c.Put(ctx, "a", &note{}); !errors.Is(err, ledger.ErrInvalid) {
		t.Error(err)
	}
	if err := c.Put(ctx, "a", nil); !errors.Is(err, ledger.ErrInvalid) {
		t.Error(err)
	}
	if got := found(t, c, records.Query{}); len(got) > 0 {
		t.Error(got)
	}
}

// TestKeyOrder: keys sort as their parts do, and a prefix of parts is a prefix of the key.
func TestKeyOrder(t *testing.T) {
	texts := []string{"", "\x00", "\x00\x00", "\x00\x01", "a", "a\x00", "ab", "b", "\xff"}
	for i, a := range texts {
		for j, b := range texts {
			if got := bytes.Compare(records.Key(a, 1), records.Key(b, 0)); i != j && (got < 0) != (i < j) {
				t.Errorf("%q and %q: %d", a, b, got)
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.Int64().Draw(t, "a"), rapid.Int64().Draw(t, "b")
		x, y := rapid.Float64().Draw(t, "x"), rapid.Float64().Draw(t, "y")
		if (bytes.Compare(records.Key(a), records.Key(b)) < 0) != (a < b) {
			t.Errorf("integers %d and %d", a, b)
		}
		if (bytes.Compare(records.Key(x), records.Key(y)) < 0) != (x < y) {
			t.Errorf("numbers %g and %g", x, y)
		}
		if !bytes.HasPrefix(records.Key("a", a, x), records.Key("a", a)) || bytes.Compare(records.Key(uint64(math.MaxUint64)), records.Key(a)) <= 0 {
			t.Error("a prefix, or the greatest integer")
		}
		s, u := time.Unix(0, a), time.Unix(0, b)
		if (bytes.Compare(records.Key(s), records.Key(u)) < 0) != s.Before(u) {
			t.Errorf("times %s and %s", s, u)
		}
	})
}

// TestVersions: records of an older version are migrated when they are read, and put again on
// demand; those of a newer one are told.
func TestVersions(t *testing.T) {
	ctx := t.Context()
	p := page(t)
	old := open(t, p)
	must(t, old.Put(ctx, "a", &note{Title: "small"}))
	o := options()
	o.Version = 2
	o.Migrate = func(version uint32, b []byte) (*note, error) {
		n := &note{}
		err := json.Unmarshal(b, n)
		n.Title = fmt.Sprint(version, strings.ToUpper(n.Title))
		return n, err
	}
	c, err := records.Open(ctx, p, "notes", o)
	must(t, err)
	if v, err := c.Get(ctx, "a"); err != nil || v.Title != "0SMALL" {
		t.Fatalf("%+v %v", v, err)
	}
	if got := found(t, c, records.Query{Index: "title", Equal: records.Key("0SMALL")}); len(got) != 1 {
		t.Error("the index has the old value")
	}
	for want := range []int{1, 0} {
		if n, err := c.MigrateAll(ctx); err != nil || n != 1-want {
			t.Errorf("%d %v", n, err)
		}
	}
	if _, err := old.Get(ctx, "a"); !errors.Is(err, records.ErrNewer) {
		t.Error(err)
	}
	if _, err := records.Open(ctx, p, "notes", options()); !errors.Is(err, records.ErrNewer) {
		t.Error(err)
	}
}

// TestIndexesChange: an index that is new is made, one that is gone is removed, and a program with
// other indexes beside gives right answers.
func TestIndexesChange(t *testing.T) {
	ctx := t.Context()
	p := page(t)
	c := open(t, p)
	must(t, c.Put(ctx, "a", &note{Title: "x", Tags: []string{"t"}}))
	o := options()
	o.Indexes = append(o.Indexes[2:], records.Index[note]{Name: "length", Keys: func(n *note) [][]byte { return [][]byte{records.Key(len(n.Title))} }})
	d, err := records.Open(ctx, p, "notes", o)
	must(t, err)
	if got := found(t, d, records.Query{Index: "length", Equal: records.Key(1)}); len(got) != 1 {
		t.Error(got)
	}
	if got := found(t, c, records.Query{Index: "tag", Prefix: records.Key("t")}); len(got) != 1 {
		t.Error("an index whose rows are gone:", got)
	}
	must(t, c.Put(ctx, "b", &note{Title: "yy", Tags: []string{"t"}}))
	if got := found(t, d, records.Query{Index: "length", From: records.Key(1), Reverse: true, Limit: 5}); !slices.Equal(got, []string{"b", "a"}) {
		t.Error(got)
	}
	if got := found(t, c, records.Query{Index: "tag", Prefix: records.Key("t")}); len(got) != 2 {
		t.Error(got)
	}
}

// TestLive: a live query tells what there is, and each change.
func TestLive(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := open(t, page(t))
	step := 0
	for all, err := range c.Live(ctx, records.Query{Index: "title"}) {
		must(t, err)
		if len(all) != step {
			t.Fatalf("step %d: %d records", step, len(all))
		}
		if step++; step > 3 {
			break
		}
		must(t, c.Put(ctx, fmt.Sprint(step), &note{Title: "t"}))
	}
}

// device is a repository that syncs and merges when it is told.
type device struct {
	repo *ledger.Repository
	page *ledger.Page
	c    *records.Collection[note]
}

func devices(t *testing.T, n int) []*device {
	key := filepath.Join(t.TempDir(), "key")
	must(t, keys.CreateFile(key, nil))
	shared := mem.New(mem.Options{})
	buckets := map[string]bucket.Opener{"mem": func(context.Context, string, bucket.OpenOptions) (bucket.Bucket, error) { return shared, nil }}
	var all []*device
	for i := range n {
		r := ledgertest.OpenWith(t, ledger.Options{InMemory: true, Device: fmt.Sprint("device ", i), ManualMerge: true,
			Buckets: buckets, Sync: ledger.SyncOptions{Manual: true}})
		_, err := r.SetCloud(t.Context(), &ledger.Cloud{URL: "mem:x", KeyFile: key})
		must(t, err)
		if i > 0 {
			_, err := r.Sync(t.Context())
			must(t, err)
		}
		d := &device{repo: r, page: ledgertest.Page(t, r, "app", "main")}
		d.c = open(t, d.page)
		_, err = r.Sync(t.Context())
		must(t, err)
		all = append(all, d)
	}
	return all
}

func (d *device) sync(t *testing.T) {
	t.Helper()
	_, err := d.repo.Sync(t.Context())
	must(t, err)
	_, err = d.page.Merge(t.Context())
	must(t, err)
	_, err = d.repo.Sync(t.Context()) // a merge that others do not see, they make otherwise
	must(t, err)
	_, err = d.page.Refresh(t.Context())
	must(t, err)
}

// rows returns all rows of the page.
func (d *device) rows(t *testing.T) map[string]string {
	rows := map[string]string{}
	must(t, d.page.View(t.Context(), func(s *ledger.Snapshot) error {
		for e, err := range s.Scan(t.Context(), ledger.ScanOptions{}) {
			if err != nil {
				return err
			}
			v, err := e.Value(t.Context())
			if err != nil {
				return err
			}
			rows[string(e.Key)] = string(v)
		}
		return nil
	}))
	return rows
}

// verify fails when the index rows are not what the records say.
func (d *device) verify(t *testing.T, fail func(string, ...any)) {
	t.Helper()
	if n := d.answers(t, fail); d.stored(t) != n {
		fail("%d index rows are stored, %d found", d.stored(t), n)
	}
}

// answers fails when queries by an index do not give what the records say, and returns how many
// records they give.
func (d *device) answers(t *testing.T, fail func(string, ...any)) (n int) {
	t.Helper()
	want := map[string]int{}
	for r, err := range d.c.Scan(t.Context()) {
		must(t, err)
		for _, x := range options().Indexes {
			seen := map[string]bool{}
			for _, k := range x.Keys(r.Value) {
				if !seen[string(k)] {
					seen[string(k)] = true
					want[x.Name+"\x00"+string(k)+"\x00"+r.ID]++
				}
			}
		}
	}
	for _, x := range options().Indexes {
		for r, err := range d.c.Query(t.Context(), records.Query{Index: x.Name}) {
			must(t, err)
			if n++; want[x.Name+"\x00"+string(r.Key)+"\x00"+r.ID] != 1 {
				fail("index %s has a row for %q of %s, which the record does not say", x.Name, r.Key, r.ID)
			}
		}
	}
	if n != len(want) {
		fail("%d index rows, want %d", n, len(want))
	}
	return n
}

// stored returns how many index rows the page has.
func (d *device) stored(t *testing.T) (n int) {
	for k := range d.rows(t) {
		if strings.HasPrefix(k, "notes\x00i") {
			n++
		}
	}
	return n
}

// TestLawsOfMerging: whatever three devices do offline, and in whatever order they merge, index
// rows are what the records say after each merge, and in the end all devices have the same rows. A
// counter is no more than the sum of what was added, and no less than the most that one device has
// seen.
func TestLawsOfMerging(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all := devices(t, 3)
		fail := func(format string, args ...any) { rt.Fatalf(format, args...) }
		added, seen := map[string]int64{}, map[string]int64{}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			d := all[rapid.IntRange(0, 2).Draw(rt, "device")]
			id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "id")
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				must(t, d.c.Delete(t.Context(), id))
				added[id] = -1 << 40
			case 1, 2, 3:
				d.sync(t)
				d.verify(t, fail)
			default:
				v, err := d.c.Get(t.Context(), id)
				if errors.Is(err, ledger.ErrNotFound) {
					v, err = &note{}, nil
				}
				must(t, err)
				switch rapid.IntRange(0, 5).Draw(rt, "change") {
				case 0:
					v.Title = rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "title")
				case 1:
					v.Tags = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"p", "q", "r", "s"}), 0, 3, rapid.ID[string]).Draw(rt, "tags")
				case 2, 3:
					by := rapid.Int64Range(1, 9).Draw(rt, "by")
					v.Views += by
					added[id] += by
				case 4:
					v.Mail = rapid.SampledFrom([]string{"", "1", "2"}).Draw(rt, "mail")
				case 5:
					v.Votes = map[string]int64{rapid.SampledFrom([]string{"k", "l"}).Draw(rt, "voter"): rapid.Int64Range(0, 3).Draw(rt, "vote")}
				}
				seen[id] = max(seen[id], v.Views)
				if err := d.c.Put(t.Context(), id, v); err != nil && !errors.Is(err, records.ErrUnique) {
					t.Fatal(err)
				} else if err != nil {
					added[id] = -1 << 40
				}
				d.verify(t, fail)
			}
		}
		for range 4 {
			for _, d := range all {
				d.sync(t)
				d.verify(t, fail)
			}
		}
		for _, d := range all {
			d.sync(t)
		}
		want := all[0].rows(t)
		for _, d := range all[1:] {
			got := d.rows(t)
			for k, v := range want {
				if got[k] != v {
					rt.Errorf("row %q is %q, not %q", k, got[k], v)
				}
			}
			if len(got) != len(want) {
				rt.Errorf("%d rows, not %d", len(got), len(want))
			}
		}
		for id, n := range added {
			if v, err := all[0].c.Get(t.Context(), id); n > 0 && (err != nil || v.Views > n || v.Views < seen[id]) {
				rt.Errorf("the counter of %s is %+v, not %d: %v", id, v, n, err)
			}
		}
	})
}

// TestMergesWithoutTheRule: a device that merges without the rule of the collection decides each
// row by itself. Queries on the others still give what the records say, and the next change, or
// Open, makes the index rows right.
func TestMergesWithoutTheRule(t *testing.T) {
	// Two titles of one record: the merge without the rule keeps the index rows of both.
	all := devices(t, 3)
	all[2].page.SetMergeRules()
	must(t, all[0].c.Put(t.Context(), "a", &note{Title: "x"}))
	for _, d := range all {
		d.sync(t)
	}
	for i, title := range []string{"y", "z"} {
		must(t, all[i].c.Put(t.Context(), "a", &note{Title: title}))
		_, err := all[i].repo.Sync(t.Context())
		must(t, err)
	}
	for _, d := range []*device{all[2], all[0]} {
		d.sync(t)
	}
	if n := all[0].answers(t, t.Fatalf); all[0].stored(t) == n {
		t.Error("the merge has left no index row that no record has")
	}
	rapid.Check(t, func(rt *rapid.T) {
		all := devices(t, 3)
		plain := all[2]
		plain.page.SetMergeRules()
		fail := func(format string, args ...any) { rt.Fatalf(format, args...) }
		for range rapid.IntRange(1, 6).Draw(rt, "rounds") {
			for _, d := range all[:2] {
				for range rapid.IntRange(0, 3).Draw(rt, "changes") {
					d.change(t, rt, fail)
				}
				_, err := d.repo.Sync(t.Context())
				must(t, err)
			}
			all[rapid.IntRange(0, 2).Draw(rt, "merges first")].sync(t)
			for _, d := range all[:2] {
				d.sync(t)
				d.answers(t, fail)
				if rapid.Bool().Draw(rt, "open") {
					d.c = open(t, d.page)
					d.verify(t, fail)
				}
			}
		}
	})
}

// change puts or deletes a record. After a change the index rows are right.
func (d *device) change(t *testing.T, rt *rapid.T, fail func(string, ...any)) {
	id := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "id")
	before, err := d.c.Get(t.Context(), id)
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		t.Fatal(err)
	}
	if err == nil && rapid.IntRange(0, 3).Draw(rt, "delete") == 0 {
		must(t, d.c.Delete(t.Context(), id))
		d.verify(t, fail)
		return
	}
	v := &note{Title: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(rt, "title"), Mail: id,
		Tags: rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"p", "q", "r"}), 0, 3, rapid.ID[string]).Draw(rt, "tags")}
	must(t, d.c.Put(t.Context(), id, v))
	if before == nil || before.Title != v.Title { // else it may be what was there
		d.verify(t, fail)
	}
}

// TestNothingChanges: a Put of what is there, and a Delete of what is not, make no commit.
func TestNothingChanges(t *testing.T) {
	ctx := t.Context()
	p := page(t)
	c := open(t, p)
	must(t, c.Put(ctx, "a", &note{Title: "t", Tags: []string{"x"}}))
	var before ledger.CommitID
	id, err := p.Update(ctx, func(tx *ledger.Tx) error {
		if err := c.In(tx).Put(ctx, "a", &note{Title: "t", Tags: []string{"x"}}); err != nil {
			return err
		}
		if err := c.In(tx).Delete(ctx, "b"); err != nil {
			return err
		}
		before = tx.Base().ID
		return nil
	})
	must(t, err)
	if id != before {
		t.Error("there is another commit")
	}
}

// TestFieldsMerge: two devices change one record, and each field becomes what its tag says.
func TestFieldsMerge(t *testing.T) {
	ctx := t.Context()
	all := devices(t, 2)
	a, b := all[0], all[1]
	first := note{Title: "t", Tags: []string{"old", "gone"}, Views: 10, Votes: map[string]int64{"x": 1}}
	must(t, a.c.Put(ctx, "n", &first))
	a.sync(t)
	a.sync(t)
	b.sync(t)
	left, right := first, first
	left.Title, left.Views, left.Tags, left.Mail = "from a", 13, []string{"old", "a"}, "m"
	left.Nested.Size, left.Seen, left.Votes = 2, time.Unix(5, 0), map[string]int64{"x": 1, "y": 2}
	right.Views, right.Tags = 15, []string{"old", "gone", "b"}
	right.Nested.Color, right.Nested.Size, right.Seen, right.Votes = "red", 3, time.Unix(9, 0), map[string]int64{"z": 3}
	must(t, a.c.Put(ctx, "n", &left))
	must(t, b.c.Put(ctx, "n", &right))
	for range 3 {
		a.sync(t)
		b.sync(t)
	}
	v, err := b.c.Get(ctx, "n")
	must(t, err)
	slices.Sort(v.Tags)
	if v.Title != "from a" || v.Mail != "m" || v.Views != 18 || !slices.Equal(v.Tags, []string{"a", "b", "old"}) || v.Nested.Color != "red" || v.Nested.Size != 5 ||
		!v.Seen.Equal(time.Unix(9, 0)) || fmt.Sprint(v.Votes) != "map[y:2 z:3]" {
		t.Errorf("%+v", v)
	}
}

// TestWhatAMergeTells: a record that got something of both sides is neither's, which Conflicts says
// as Why does. Its id follows from the key.
func TestWhatAMergeTells(t *testing.T) {
	ctx := t.Context()
	all := devices(t, 2)
	a, b := all[0], all[1]
	must(t, a.c.Put(ctx, "n", &note{Title: "t"}))
	a.sync(t)
	b.sync(t)
	must(t, a.c.Put(ctx, "n", &note{Title: "from a", Views: 1}))
	must(t, b.c.Put(ctx, "n", &note{Title: "from b", Views: 2}))
	must(t, a.c.Put(ctx, "whole", &note{Title: "t"}))
	for range 3 {
		a.sync(t)
		b.sync(t)
	}
	key, merge := b.c.PageKey("n"), ledger.CommitID{}
	for s, err := range b.page.Why(ctx, ledger.CommitID{}, key) {
		must(t, err)
		merge = s.Commit.ID
		if s.Outcome != "new" {
			t.Errorf("the newest step is %q", s.Outcome)
		}
		break
	}
	told := 0
	for d, err := range b.page.Conflicts(ctx, merge, key) {
		must(t, err)
		id, ok := b.c.IDOf(d.Key)
		if told++; !ok || id != "n" || d.Outcome != "new" || d.Rule != records.Rule {
			t.Errorf("%q %v: %+v", id, ok, d)
		}
	}
	if id, ok := b.c.IDOf([]byte("elsewhere")); told != 1 || ok {
		t.Errorf("%d conflicts; %q is a record", told, id)
	}
}

// TestDuplicates: two devices give one unique key, both records stay, and are told until one is
// changed.
func TestDuplicates(t *testing.T) {
	ctx := t.Context()
	all := devices(t, 2)
	a, b := all[0], all[1]
	must(t, a.c.Put(ctx, "1", &note{Mail: "same"}))
	must(t, b.c.Put(ctx, "2", &note{Mail: "same"}))
	for range 3 {
		a.sync(t)
		b.sync(t)
	}
	duplicates := func() (ids []string) {
		for r, err := range a.c.Duplicates(ctx, "mail") {
			must(t, err)
			ids = append(ids, r.ID)
		}
		return ids
	}
	if got := duplicates(); !slices.Equal(got, []string{"1", "2"}) {
		t.Fatal(got)
	}
	if r, err := a.c.Find(ctx, "mail", records.Key("same")); err != nil || r.ID != "1" {
		t.Errorf("%+v %v", r, err)
	}
	must(t, a.c.Put(ctx, "2", &note{Mail: "other"}))
	if got := duplicates(); len(got) > 0 {
		t.Error(got)
	}
}
