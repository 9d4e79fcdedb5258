package metabase_test

import (
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/metabase"
	"github.com/ledgerd/ledger/ordered"
)

// fixture is what a node answers about its file, in epoch 100.
type fixture struct {
	Epoch    uint64
	Counters struct{ Logic, Phy uint64 }
	// Containers, objects and so on are addresses as CONTAINER/OBJECT.
	Containers []struct {
		ID   string
		Size uint64
	}
	ContainersNamed map[string]string `json:"containers_named"`
	Objects         []struct {
		Name, Address, Header, StorageID, SplitInfo string
		Exists, ExistsIgnoreExp, Locked             bool
		ExistsError, ExistsIgnoreExpError           string
		GetError, GetRawError                       string
		State                                       []string
	}
	ExpiredAt100, Garbage, Graveyard, ListWithCursor7, Movable []string
	GetGarbage1000                                             struct{ Containers, Objects []string }
	Search                                                     []struct {
		Container  string
		Filters    []fixtureFilter
		Attributes []string
		Count      int
		Cursors    []string
		Pages      [][]struct {
			ID    string
			Attrs []string
		}
		Error       string
		Unreachable bool
	}
	SelectA []struct {
		Container string
		Filters   []fixtureFilter
		IDs       []string
	}
}

type fixtureFilter struct{ K, Op, V string }

func (f fixtureFilter) filter(t *testing.T) metabase.Filter {
	ops := map[string]metabase.Op{
		"EQ": metabase.Equal, "NE": metabase.NotEqual, "NP": metabase.Absent, "PFX": metabase.Prefix, "GT": metabase.Greater,
		"GE": metabase.GreaterOrEqual, "LT": metabase.Less, "LE": metabase.LessOrEqual, "-": metabase.Flag,
	}
	op, ok := ops[f.Op]
	if !ok {
		t.Fatalf("unknown operation %s", f.Op)
	}
	return metabase.Filter{Key: f.K, Op: op, Value: f.V}
}

func gunzip(tb testing.TB, name string) []byte {
	tb.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	must(tb, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	must(tb, err)
	b, err := io.ReadAll(z)
	must(tb, err)
	return b
}

func loadFixture(t *testing.T) *fixture {
	t.Helper()
	var x fixture
	must(t, json.Unmarshal(gunzip(t, "expected.json.gz"), &x))
	return &x
}

// realFile writes the file of version 3 and returns its path.
func realFile(tb testing.TB) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "meta.db")
	must(tb, os.WriteFile(path, gunzip(tb, "v3.db.gz"), 0o600))
	return path
}

func open(tb testing.TB, path string, o metabase.FileOptions) *metabase.File {
	tb.Helper()
	if o.Epoch == nil {
		o.Epoch = func() uint64 { return 100 }
	}
	o.NoSync = true
	f, err := metabase.OpenFile(tb.Context(), path, o)
	must(tb, err)
	tb.Cleanup(func() { must(tb, f.Close()) })
	return f
}

// onBoth runs a test with the fixture in a file and on a page.
func onBoth(t *testing.T, fn func(t *testing.T, v *metabase.View, x *fixture, page bool)) {
	x := loadFixture(t)
	f := open(t, realFile(t), metabase.FileOptions{})
	t.Run("file", func(t *testing.T) {
		must(t, f.View(t.Context(), func(v *metabase.View) error { fn(t, v, x, false); return nil }))
	})
	t.Run("page", func(t *testing.T) {
		rows := ordered.NewMemory()
		tx, err := metabase.Write(t.Context(), rows, 100)
		must(t, err)
		must(t, f.View(t.Context(), func(v *metabase.View) error { return tx.Import(t.Context(), v) }))
		v, err := metabase.Read(t.Context(), rows, 100)
		must(t, err)
		fn(t, v, x, true)
	})
}

func address(tb testing.TB, s string) metabase.Address {
	tb.Helper()
	a, err := metabase.ParseAddress(strings.Fields(s)[0])
	must(tb, err)
	return a
}

// said turns an error into what the node says.
func said(err error) string {
	split := new(metabase.SplitInfoError)
	switch {
	case err == nil:
		return ""
	case errors.As(err, &split):
		return "logical error: object not found, split info has been provided"
	case errors.Is(err, base.ErrNotFound):
		return "logical error: status: code = 2049 message = object not found"
	case errors.Is(err, metabase.ErrAlreadyRemoved):
		return "logical error: status: code = 2052 message = object already removed"
	case errors.Is(err, metabase.ErrExpired):
		return "logical error: object is expired"
	}
	return err.Error()
}

func TestObjectsOfARealFile(t *testing.T) {
	onBoth(t, func(t *testing.T, v *metabase.View, x *fixture, page bool) {
		for _, o := range x.Objects {
			a := address(t, o.Address)
			exists, err := v.Exists(t.Context(), a, false)
			if exists != o.Exists || said(err) != o.ExistsError {
				t.Errorf("%s exists: %t, %v; want %t, %s", o.Name, exists, err, o.Exists, o.ExistsError)
			}
			exists, err = v.Exists(t.Context(), a, true)
			if exists != o.ExistsIgnoreExp || said(err) != o.ExistsIgnoreExpError {
				t.Errorf("%s exists in any epoch: %t, %v; want %t, %s", o.Name, exists, err, o.ExistsIgnoreExp, o.ExistsIgnoreExpError)
			}
			b, err := v.Get(t.Context(), a, false)
			if hex.EncodeToString(b) != o.Header || said(err) != o.GetError {
				t.Errorf("get %s: %x, %v; want %s, %s", o.Name, b, err, o.Header, o.GetError)
			}
			_, err = v.Get(t.Context(), a, true)
			if said(err) != o.GetRawError {
				t.Errorf("get %s raw: %v; want %s", o.Name, err, o.GetRawError)
			}
			if split := new(metabase.SplitInfoError); errors.As(err, &split) && hex.EncodeToString(split.Info.Marshal()) != o.SplitInfo {
				t.Errorf("split information of %s is %x, want %s", o.Name, split.Info.Marshal(), o.SplitInfo)
			}
			locked, err := v.IsLocked(t.Context(), a)
			must(t, err)
			states, err := v.States(t.Context(), a)
			must(t, err)
			if diff := cmp.Diff(o.State, states); diff != "" || locked != o.Locked {
				t.Errorf("states of %s (-want +got), locked %t:\n%s", o.Name, locked, diff)
			}
			id, err := v.StorageID(t.Context(), a)
			must(t, err)
			if string(id) != o.StorageID && !page {
				t.Errorf("storage id of %s is %q, want %q", o.Name, id, o.StorageID)
			}
		}
	})
}

func TestListsOfARealFile(t *testing.T) {
	onBoth(t, func(t *testing.T, v *metabase.View, x *fixture, page bool) {
		same := func(what string, want, got any) {
			t.Helper()
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", what, diff)
			}
		}
		counters, err := v.Counters(t.Context())
		must(t, err)
		if page { // which counts, and does not inherit the counter that the node has set to 0 with a container
			same("counters", metabase.Counters{Physical: x.Counters.Phy, Logical: 159}, counters)
		} else {
			same("counters", metabase.Counters{Physical: x.Counters.Phy, Logical: x.Counters.Logic}, counters)
		}
		containers, err := v.Containers(t.Context())
		must(t, err)
		var got []string
		for _, c := range containers {
			got = append(got, fmt.Sprint(c.ID, " ", c.Size))
		}
		var want []string
		for _, c := range x.Containers {
			if page && c.ID == x.ContainersNamed["A"] {
				c.Size -= 2000 // the node does not count that an object without marks was deleted
			}
			want = append(want, fmt.Sprint(c.ID, " ", c.Size))
		}
		same("containers", want, got)

		var garbage []string
		for a, err := range v.Garbage(t.Context(), nil) {
			must(t, err)
			garbage = append(garbage, a.String())
		}
		same("garbage", x.Garbage, garbage)
		var graves []string
		for g, err := range v.Graveyard(t.Context(), nil) {
			must(t, err)
			graves = append(graves, fmt.Sprintf("%s -> %s exp %d", g.Object, g.Tombstone, g.Expiration))
		}
		same("graves", x.Graveyard, graves)
		var expired []string
		for l, err := range v.ExpiredBefore(t.Context(), 100) {
			must(t, err)
			expired = append(expired, fmt.Sprint(l.Address, " ", l.Type))
		}
		same("expired", sorted(x.ExpiredAt100), sorted(expired))
		movable, err := v.Movable(t.Context())
		must(t, err)
		same("movable", x.Movable, texts(movable))
		objects, collectable, err := v.Garbages(t.Context(), 1000)
		must(t, err)
		same("garbage objects", sorted(x.GetGarbage1000.Objects), sorted(texts(objects)))
		same("garbage containers", x.GetGarbage1000.Containers, texts(collectable))
		same("listing", x.ListWithCursor7, listing(t, t.Context(), v, 7))
	})
}

func listing(t *testing.T, ctx context.Context, v *metabase.View, count int) (all []string) {
	t.Helper()
	for cursor := ""; ; {
		page, next, err := v.ListWithCursor(ctx, count, cursor)
		if errors.Is(err, metabase.ErrEndOfListing) {
			return all
		}
		must(t, err)
		for _, l := range page {
			all = append(all, fmt.Sprint(l.Address, " ", l.Type))
		}
		cursor = next
	}
}

func TestSearchesOfARealFile(t *testing.T) {
	onBoth(t, func(t *testing.T, v *metabase.View, x *fixture, page bool) {
		for i, s := range x.Search {
			container, err := metabase.ParseID(s.Container)
			must(t, err)
			q := metabase.Query{Container: container, Attributes: s.Attributes, Count: s.Count}
			for _, f := range s.Filters {
				q.Filters = append(q.Filters, f.filter(t))
			}
			if s.Error != "" {
				found, cursor, err := v.Search(t.Context(), q)
				if len(found) > 0 || cursor != "" || s.Unreachable == (err != nil) || err != nil && !errors.Is(err, base.ErrInvalid) {
					t.Errorf("search %d: %v, %q, %v; want %s", i, found, cursor, err, s.Error)
				}
				continue
			}
			for j, want := range s.Pages {
				found, cursor, err := v.Search(t.Context(), q)
				must(t, err)
				var got, wanted []string
				for _, f := range found {
					got = append(got, fmt.Sprintf("%s %q", f.ID, f.Attributes))
				}
				for _, w := range want {
					wanted = append(wanted, fmt.Sprintf("%s %q", w.ID, w.Attrs))
				}
				if diff := cmp.Diff(wanted, got); diff != "" {
					t.Errorf("page %d of search %d (-want +got):\n%s", j, i, diff)
				}
				next := ""
				if j < len(s.Cursors) {
					next = s.Cursors[j]
				}
				if cursor != next {
					t.Errorf("cursor of page %d of search %d is %q, want %q", j, i, cursor, next)
				}
				q.Cursor = next
			}
		}
		for i, s := range x.SelectA {
			container, err := metabase.ParseID(s.Container)
			must(t, err)
			var filters []metabase.Filter
			for _, f := range s.Filters {
				filters = append(filters, f.filter(t))
			}
			ids, err := v.Select(t.Context(), container, filters)
			must(t, err)
			if diff := cmp.Diff(sorted(s.IDs), sorted(texts(ids))); diff != "" {
				t.Errorf("select %d (-want +got):\n%s", i, diff)
			}
		}
	})
}

// TestVerifyARealFile: nothing but the counters that the node itself gets wrong is found.
func TestVerifyARealFile(t *testing.T) {
	onBoth(t, func(t *testing.T, v *metabase.View, x *fixture, page bool) {
		var issues []string
		for issue, err := range v.Verify(t.Context()) {
			must(t, err)
			issues = append(issues, issue.String())
		}
		want := []string{
			"bucket 3 " + x.ContainersNamed["A"] + ": counter is 268443, the objects are 266443",
			"bucket 5 6c6f6769635f636f756e746572: counter is 0, the objects are 159",
		}
		if page {
			want = nil
		}
		if diff := cmp.Diff(want, issues); diff != "" {
			t.Errorf("issues (-want +got):\n%s", diff)
		}
	})
}
