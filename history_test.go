package ledger_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
)

// steppedClock is a time that moves only when told.
type steppedClock struct{ now time.Time }

func (c *steppedClock) Now() time.Time { return c.now }

func TestResolve(t *testing.T) {
	c := &steppedClock{time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)}
	p := memoryPage(t, ledger.Options{Now: c.Now})
	var ids []ledger.CommitID
	for i := range 40 {
		ids = append(ids, put(t, p, "k", fmt.Sprint(i)))
		c.now = c.now.Add(6 * time.Hour)
	}
	head := ids[len(ids)-1]
	must(t, p.Tag(t.Context(), "v1", ids[3]))
	must(t, p.Tag(t.Context(), "caf", ids[4]))
	for revision, want := range map[string]ledger.CommitID{
		"HEAD":                           head,
		"HEAD~":                          ids[38],
		"HEAD~5":                         ids[34],
		"HEAD~2~3":                       ids[34],
		"v1":                             ids[3],
		"v1~1":                           ids[2],
		"caf":                            ids[4],
		head.String():                    head,
		head.String()[:20]:               head,
		head.String()[:21]:               head,
		"2030-05-01":                     ids[1],
		"2030-05-02T00:00:00Z":           ids[2],
		"2030-05-02T05:59:59.999999999Z": ids[2],
		"2030-05-02T08:00:00+02:00":      ids[3],
		"2100-01-01":                     head,
		strings.ToUpper(head.String()):   head,
	} {
		got, err := p.Resolve(t.Context(), revision)
		if err != nil || got != want {
			t.Errorf("%s: got %s, %v", revision, got.Short(), err)
		}
	}
	first, err := p.Resolve(t.Context(), "HEAD~40")
	must(t, err)
	if old, err := p.Resolve(t.Context(), "1999-12-31"); err != nil || old != first {
		t.Errorf("before the first commit: %s, %v", old, err)
	}
	for revision, want := range map[string]error{
		"":                      ledger.ErrInvalid,
		"~1":                    ledger.ErrInvalid,
		"HEAD~x":                ledger.ErrInvalid,
		"HEAD~-1":               ledger.ErrInvalid,
		"HEAD~41":               ledger.ErrNotFound,
		"absent":                ledger.ErrNotFound,
		head.String()[:3]:       ledger.ErrNotFound,
		strings.Repeat("0", 64): ledger.ErrNotFound,
		strings.Repeat("0", 66): ledger.ErrNotFound,
		"2030-13-01":            ledger.ErrNotFound,
	} {
		if _, err := p.Resolve(t.Context(), revision); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", revision, err, want)
		}
	}
}

func TestAmbiguousPrefixListsCandidates(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	seen := map[string]ledger.CommitID{}
	for i := range 3000 {
		id := put(t, p, "k", fmt.Sprint(i))
		other, ok := seen[id.String()[:4]]
		if !ok {
			seen[id.String()[:4]] = id
			continue
		}
		_, err := p.Resolve(t.Context(), id.String()[:4])
		wantErr(t, err, ledger.ErrInvalid)
		for _, x := range []ledger.CommitID{id, other} {
			if !strings.Contains(err.Error(), x.String()[:16]) {
				t.Errorf("%v does not list %s", err, x)
			}
		}
		return
	}
	t.Fatal("no two of 3000 ids begin with the same four digits")
}

func TestTags(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	a, b := put(t, p, "k", "a"), put(t, p, "k", "b")
	must(t, p.Tag(t.Context(), "x", a))
	must(t, p.Tag(t.Context(), "x", b))
	must(t, p.Tag(t.Context(), "é/1.0", a))
	tags, err := p.Tags(t.Context())
	must(t, err)
	if diff := cmp.Diff(map[string]ledger.CommitID{"x": b, "é/1.0": a}, tags); diff != "" {
		t.Error(diff)
	}
	must(t, p.DeleteTag(t.Context(), "x"))
	wantErr(t, p.DeleteTag(t.Context(), "x"), ledger.ErrNotFound)
	wantErr(t, p.Tag(t.Context(), "x", ledger.CommitID{1}), ledger.ErrNotFound)
	wantErr(t, p.Tag(t.Context(), strings.Repeat("t", 257), a), ledger.ErrTooLarge)
	for _, name := range []string{"", "HEAD", "a~1", "a b", "a\x00", "\xff"} {
		wantErr(t, p.Tag(t.Context(), name, a), ledger.ErrInvalid)
	}
}

// TestTimestampsAndTheClock: a clock that is set back by less than a day puts no commit before its
// parent, and one that was years ahead has no part in later commits.
func TestTimestampsAndTheClock(t *testing.T) {
	c := &steppedClock{time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)}
	p := memoryPage(t, ledger.Options{Now: c.Now})
	ahead := func() time.Duration {
		t.Helper()
		st, err := admin.Status(t.Context(), p.Repository())
		must(t, err)
		return st.Pages[0].Ahead
	}
	stamp := func(value string) int64 {
		t.Helper()
		commit, err := p.Commit(t.Context(), put(t, p, "k", value))
		must(t, err)
		return commit.Timestamp
	}
	first := stamp("1")
	c.now = c.now.Add(-23 * time.Hour)
	if second := stamp("2"); second != first+1 || ahead() < 22*time.Hour {
		t.Errorf("timestamp %d after %d, ahead %s", second, first, ahead())
	}
	c.now = c.now.Add(-20 * 365 * 24 * time.Hour)
	if ahead() < 19*365*24*time.Hour {
		t.Errorf("ahead %s", ahead())
	}
	now := c.now.UnixNano()
	if third := stamp("3"); third < now || third > now+int64(time.Hour) || ahead() > time.Hour {
		t.Errorf("timestamp %d at %d, ahead %s", third, now, ahead())
	}
}

func TestDiffLimits(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	a := put(t, p, "a1", "1", "a2", "2", "b1", "1", "b2", "2")
	b := update(t, p, func(tx *ledger.Tx) error {
		must(t, tx.Delete(t.Context(), []byte("a2")))
		must(t, tx.Put(t.Context(), []byte("b2"), []byte("new")))
		return tx.Put(t.Context(), []byte("b3"), []byte("3"))
	})
	for _, c := range []struct {
		o    *ledger.DiffOptions
		want []string
	}{
		{nil, []string{"a2 2 -", "b2 2 new", "b3 - 3"}},
		{&ledger.DiffOptions{Prefix: []byte("b")}, []string{"b2 2 new", "b3 - 3"}},
		{&ledger.DiffOptions{Start: []byte("b3")}, []string{"b3 - 3"}},
		{&ledger.DiffOptions{Prefix: []byte("b"), Start: []byte("c")}, nil},
	} {
		var got []string
		for d, err := range p.Diff(t.Context(), a, b, c.o) {
			must(t, err)
			line := string(d.Key)
			for _, e := range []*ledger.Entry{d.Old, d.New} {
				if e == nil {
					line += " -"
					continue
				}
				v, err := e.Value(t.Context())
				must(t, err)
				line += " " + string(v)
			}
			got = append(got, line)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.o, diff)
		}
	}
	for _, err := range p.Diff(t.Context(), ledger.CommitID{9}, b, nil) {
		wantErr(t, err, ledger.ErrNotFound)
	}
}

func TestRestore(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	old := put(t, p, "a", "1", "b", "1", "long", string(pseudo(1, 90_000)))
	want := pageContent(t, p)
	put(t, p, "a", "2", "b", "2", "c", "2")
	id, err := p.Restore(t.Context(), old, "")
	must(t, err)
	wantContent(t, p, want)
	c, err := p.Commit(t.Context(), id)
	must(t, err)
	if c.Generation != 3 || c.Message != "restore "+old.Short() {
		t.Errorf("commit %+v", c)
	}
	if again, err := p.Restore(t.Context(), old, ""); err != nil || again != id {
		t.Errorf("nothing to restore: %s, %v", again, err)
	}
	_, err = p.Restore(t.Context(), ledger.CommitID{}, "")
	wantErr(t, err, ledger.ErrInvalid)
	_, err = p.Restore(t.Context(), ledger.CommitID{7}, "")
	wantErr(t, err, ledger.ErrNotFound)
	checkClean(t, p.Repository())
}

func TestReadsOfAClosedSnapshot(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	put(t, p, "a", "1", "b", "4")
	s, err := p.Snapshot(t.Context())
	must(t, err)
	for from, want := range map[string]string{"": "a", "a": "a", "aa": "b", "c": ""} {
		k, err := s.Seek(t.Context(), []byte(from))
		if string(k) != want || errors.Is(err, ledger.ErrNotFound) != (want == "") {
			t.Errorf("seek %q: %q, %v, want %q", from, k, err, want)
		}
	}
	must(t, s.Close())
	_, err = s.Get(t.Context(), []byte("a"))
	wantErr(t, err, ledger.ErrClosed)
	_, err = s.Seek(t.Context(), []byte("a"))
	wantErr(t, err, ledger.ErrClosed)
}

func TestInspect(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	update(t, p, func(tx *ledger.Tx) error {
		for i := range 500 {
			must(t, tx.Put(t.Context(), key(i), []byte("value")))
		}
		return tx.PutPriority(t.Context(), []byte("long"), pseudo(1, 500_000), ledger.Lazy)
	})
	st, err := admin.Tree(t.Context(), p, ledger.CommitID{})
	must(t, err)
	if st.Entries != 501 || st.InlineEntries != 500 || st.ValueBytes != 500_000 || st.LazyEntries != 1 || st.Depth < 2 || st.InlineBytes != 2500 {
		t.Errorf("%+v", st)
	}
	nodes, entries := int64(0), 0
	for n, err := range admin.Nodes(t.Context(), p, ledger.CommitID{}) {
		must(t, err)
		nodes++
		entries += n.Entries
	}
	if nodes != st.Nodes || entries != 501 {
		t.Errorf("%d nodes with %d entries", nodes, entries)
	}
	must(t, p.View(t.Context(), func(s *ledger.Snapshot) error {
		var sum int64
		for piece, err := range admin.Pieces(t.Context(), s, []byte("long")) {
			must(t, err)
			if piece.Kind == "chunk" {
				sum += piece.Size
			}
		}
		if sum != 500_000 {
			t.Errorf("chunks of %d bytes", sum)
		}
		return nil
	}))
	rows := map[string]int{}
	for r, err := range admin.Rows(t.Context(), p, "") {
		must(t, err)
		rows[strings.SplitN(r.Key, "/", 2)[0]]++
	}
	if rows["commits"] == 0 || rows["objects"] == 0 || rows["heads"] != 1 {
		t.Errorf("rows %v", rows)
	}
	for _, err := range admin.Rows(t.Context(), p, "nonsense") {
		wantErr(t, err, ledger.ErrNotFound)
	}
}

func TestObserver(t *testing.T) {
	var events recorder
	r := open(t, t.TempDir(), &ledger.Options{Observe: events.Observe})
	p := page(t, r, "app", "page")
	put(t, p, "a", "1", "b", "2")
	put(t, p, "a", "1")
	closeIt(t, r)
	for kind, want := range map[ledger.EventKind]int{ledger.EventPageOpened: 1, ledger.EventCommit: 1, ledger.EventPageClosed: 1} {
		if got := events.count(kind); got != want {
			t.Errorf("%d events %s, want %d", got, kind, want)
		}
	}
	e := events.events[1]
	if e.Changes != 2 || e.Syncs == 0 || e.WrittenBytes == 0 || e.Ledger != "app" || e.Commit.IsZero() {
		t.Errorf("%+v", e)
	}
}
