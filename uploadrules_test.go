package ledger_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// TestUncompressedKeys: what a device is told not to compress is as long in the bucket as it is, at
// once and after the repository was opened again.
func TestUncompressedKeys(t *testing.T) {
	w := newCloudWorld(t)
	o := w.options()
	o.InMemory = false
	dir := t.TempDir()
	r := open(t, dir, o)
	keys := []admin.PageUploadRule{{
		Page: ledger.PageRef{Ledger: "notes", ID: ledger.DerivePageID("notes", "n")}, UploadRule: ledger.UploadRule{Prefix: []byte("secret/"), CompressionOff: true},
	}}
	wantErr(t, admin.SetUploadRules(t.Context(), r, keys), ledger.ErrNoCloud)
	if _, err := r.SetCloud(t.Context(), w.cloud()); err != nil {
		t.Fatal(err)
	}
	const length = 200_000
	sent := func(key string) int64 {
		t.Helper()
		var value strings.Builder
		for i := 0; value.Len() < length; i++ {
			fmt.Fprintf(&value, "%s %08d\n", key, i)
		}
		put(t, page(t, r, "notes", "n"), key, value.String())
		before := admin.Metrics(r).Up
		syncAll(t, r)
		return admin.Metrics(r).Up - before
	}
	want := func(when, key string, whole bool) {
		t.Helper()
		if n := sent(key); n > length/2 != whole {
			t.Errorf("%s: %d bytes went up for %d of key %s", when, n, length, key)
		}
	}
	want("before", "secret/1", false)
	if err := admin.SetUploadRules(t.Context(), r, keys); err != nil {
		t.Fatal(err)
	}
	want("after", "secret/2", true)
	want("after", "other/1", false)
	closeIt(t, r)
	r = open(t, dir, o)
	want("opened again", "secret/3", true)
	want("opened again", "other/2", false)
	if err := admin.SetUploadRules(t.Context(), r, nil); err != nil {
		t.Fatal(err)
	}
	want("at the end", "secret/4", false)
}

// TestValuesGoUpWhole: the upload of a value that was in the page before is as long as that of a
// fresh one, under a prefix where deduplication is off. It is read everywhere, also when a cut has
// taken older copies away.
func TestValuesGoUpWhole(t *testing.T) {
	w := newCloudWorld(t)
	o := w.options()
	o.Upload = func(string, ledger.PageID) []ledger.UploadRule {
		return []ledger.UploadRule{{Prefix: []byte("secret/"), DedupOff: true}}
	}
	a, b := w.device(o), w.device(w.options())
	p := page(t, a, "notes", "n")
	put(t, p, "warm", "up")
	syncAll(t, a, b)
	want := map[string]string{"warm": "up"}
	// up puts a value, and returns how long what goes up is, without what a cut writes.
	up := func(priority ledger.Priority, key, value string) (n int64) {
		t.Helper()
		update(t, p, func(tx *ledger.Tx) error {
			return tx.PutReader(t.Context(), []byte(key), strings.NewReader(value), int64(len(value)), priority)
		})
		want[key] = value
		before := w.bucket.Names()
		syncAll(t, a)
		for _, name := range w.bucket.Names() {
			parts := strings.Split(name, "/")
			in := "/" + parts[len(parts)-2] + "/" // the epoch
			if !slices.Contains(before, name) && slices.ContainsFunc(before, func(n string) bool { return strings.Contains(n, in) }) {
				content, _ := w.bucket.Content(name)
				n += int64(len(content))
			}
		}
		return n
	}
	for i, size := range []int{3_000, 90_000, 400_000, 3_000_000} {
		for j, priority := range []ledger.Priority{ledger.Eager, ledger.Lazy} {
			name := fmt.Sprintf("%d-%d", i, j)
			value := string(pseudo(uint64(10*i+j), size))
			fresh := up(priority, "secret/a"+name, value)
			again := up(priority, "secret/b"+name, value)
			edited := up(priority, "secret/c"+name, value[:size-7]+"another")
			for what, n := range map[string]int64{"again": again, "edited": edited} {
				if n < fresh*88/100 || n > fresh*112/100 { // lengths have steps of at most 12 %
					t.Errorf("%d bytes of priority %d: %d went up when the value was fresh, and %d when it was put %s", size, priority, fresh, n, what)
				}
			}
			if n := up(priority, "other/"+name, value); n > 2000+fresh/20 {
				t.Errorf("%d bytes of priority %d: %d went up under a key without the rule", size, priority, n)
			}
		}
	}
	before := admin.Metrics(a).Up
	syncAll(t, a, b, a)
	if n := admin.Metrics(a).Up - before; n > 0 {
		t.Errorf("%d bytes went up when there was nothing to send", n)
	}
	read := func(rs ...*ledger.Repository) {
		t.Helper()
		for _, r := range rs {
			syncAll(t, r)
			if got := pageContent(t, page(t, r, "notes", "n")); !maps.Equal(got, want) {
				t.Errorf("%d keys, want %d, or another value", len(got), len(want))
			}
			checkClean(t, r)
		}
	}
	read(w.device(w.options()))
	for i := range 3 {
		put(t, p, "cut", fmt.Sprint(i))
		want["cut"] = fmt.Sprint(i)
		syncAll(t, a)
		if _, err := admin.Collect(t.Context(), a, &admin.CollectOptions{Retention: &admin.Retention{Commits: 1}}); err != nil {
			t.Fatal(err)
		}
		syncAll(t, b, a)
	}
	read(w.device(w.options()), b, a)
}
