package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger"
)

// follower is a consumer of a Watch that keeps a copy of the page below a prefix: it takes over a
// notification when its last part has come.
type follower struct {
	t       testing.TB
	o       ledger.WatchOptions
	content map[string]string
	parts   []ledger.Notification // whose last one has not come
	next    func() (ledger.Notification, error, bool)
	stop    func()
}

// newFollower returns a follower whose copy is what the page holds at o.From.
func newFollower(t testing.TB, p *ledger.Page, o ledger.WatchOptions, content map[string]string) *follower {
	t.Helper()
	f := &follower{t: t, o: o, content: below(content, string(o.Prefix))}
	f.begin(p)
	return f
}

// begin watches from where the follower is.
func (f *follower) begin(p *ledger.Page) {
	f.parts = nil
	ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Minute) // a test fails rather than waits for ever
	next, stop := iter.Pull2(p.Watch(ctx, &f.o))
	f.next, f.stop = next, func() { stop(); cancel() }
}

// take asks for the next part. It must not block.
func (f *follower) take() ledger.Notification {
	f.t.Helper()
	n, err, ok := f.next()
	if err != nil || !ok {
		f.t.Fatalf("notification: %v, %t", err, ok)
	}
	f.add(n)
	return n
}

// takeWhole asks for parts up to the last one and returns them.
func (f *follower) takeWhole() []ledger.Notification {
	f.t.Helper()
	var parts []ledger.Notification
	for {
		n := f.take()
		parts = append(parts, n)
		if len(f.parts) == 0 {
			return parts
		}
	}
}

// add takes over a part.
func (f *follower) add(n ledger.Notification) {
	f.t.Helper()
	wantKind := len(f.parts) > 0
	if isLater := !n.First; isLater != wantKind {
		f.t.Fatalf("a part that is the first, %v, comes after %d others", n.First, len(f.parts))
	}
	if len(n.Changes) == 0 {
		f.t.Fatal("a part is empty")
	}
	if f.o.PageEntries > 0 && len(n.Changes) > f.o.PageEntries {
		f.t.Fatalf("part of %d changes, limit %d", len(n.Changes), f.o.PageEntries)
	}
	if len(f.parts) > 0 {
		if first := f.parts[0]; n.Commit.ID != first.Commit.ID || n.Base != first.Base {
			f.t.Fatalf("parts of %s..%s and %s..%s", first.Base.Short(), first.Commit.ID.Short(), n.Base.Short(), n.Commit.ID.Short())
		}
	}
	f.parts = append(f.parts, n)
	if !n.Last {
		if n.Resume != n.Base {
			f.t.Fatalf("a part that is not the last resumes at %s, want its base", n.Resume.Short())
		}
		return
	}
	f.finish()
	f.o.From = n.Resume
}

// finish makes the changes of all parts.
func (f *follower) finish() {
	f.t.Helper()
	var last []byte
	for i, part := range f.parts {
		for j, c := range part.Changes {
			if (i > 0 || j > 0) && bytes.Compare(c.Key, last) <= 0 {
				f.t.Fatalf("key %q comes after %q", c.Key, last)
			}
			last = c.Key
			f.change(c)
		}
	}
	f.parts = nil
}

// change makes one change, which must be one.
func (f *follower) change(c ledger.Change) {
	f.t.Helper()
	k := string(c.Key)
	old, had := f.content[k]
	if !strings.HasPrefix(k, string(f.o.Prefix)) {
		f.t.Fatalf("key %q is not below %q", k, f.o.Prefix)
	}
	if had != (c.Old != nil) || had && f.value(c.Old) != old {
		f.t.Fatalf("key %q is told as if it had %v, the copy has %q (%t)", k, c.Old, old, had)
	}
	if c.New == nil {
		if !had {
			f.t.Fatalf("key %q is deleted, and the copy does not have it", k)
		}
		delete(f.content, k)
		return
	}
	v := f.value(c.New)
	if had && v == old {
		f.t.Fatalf("key %q is told to have what it had", k)
	}
	f.content[k] = v
}

func (f *follower) value(e *ledger.Entry) string {
	f.t.Helper()
	v, err := e.Value(f.t.Context())
	must(f.t, err)
	return string(v)
}

func below(m map[string]string, prefix string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		if strings.HasPrefix(k, prefix) {
			out[k] = v
		}
	}
	return out
}

func contentAt(t testing.TB, p *ledger.Page, id ledger.CommitID) map[string]string {
	t.Helper()
	s, err := p.At(t.Context(), id)
	must(t, err)
	defer closeIt(t, s)
	return content(t, s.Reader, ledger.ScanOptions{})
}

func firstCommit(t testing.TB, p *ledger.Page) ledger.CommitID {
	t.Helper()
	var id ledger.CommitID
	for c, err := range p.Log(t.Context()) {
		must(t, err)
		id = c.ID
	}
	return id
}

// watchMachine drives a page with siblings and merges, and followers that must at every
// notification have what the page has.
type watchMachine struct {
	t         testing.TB
	o         ledger.Options
	dir       string
	repo      *ledger.Repository
	page      *ledger.Page
	ancestors map[ledger.CommitID]map[ledger.CommitID]bool // of each commit, itself included
	commits   []ledger.CommitID
	contents  map[ledger.CommitID]map[string]string
	followers []*follower
}

func newWatchMachine(t testing.TB) *watchMachine {
	m := &watchMachine{t: t, dir: t.TempDir(), contents: map[ledger.CommitID]map[string]string{}}
	m.o.ManualMerge = true
	m.ancestors = map[ledger.CommitID]map[ledger.CommitID]bool{}
	m.open()
	m.add(firstCommit(t, m.page))
	return m
}

func (m *watchMachine) open() {
	m.repo = open(m.t, m.dir, &m.o)
	m.page = page(m.t, m.repo, "app", "page")
}

func (m *watchMachine) close() {
	for _, f := range m.followers {
		f.stop()
	}
	closeIt(m.t, m.page)
	checkClean(m.t, m.repo)
	closeIt(m.t, m.repo)
}

// add notes a commit whose parents are known.
func (m *watchMachine) add(id ledger.CommitID) {
	m.t.Helper()
	if m.ancestors[id] != nil {
		return
	}
	c, err := m.page.Commit(m.t.Context(), id)
	must(m.t, err)
	all := map[ledger.CommitID]bool{id: true}
	for _, parent := range c.Parents {
		m.add(parent)
		maps.Copy(all, m.ancestors[parent])
	}
	m.ancestors[id] = all
	m.commits = append(m.commits, id)
	m.contents[id] = contentAt(m.t, m.page, id)
}

func (m *watchMachine) heads() []ledger.CommitID {
	heads, err := m.page.Heads(m.t.Context())
	must(m.t, err)
	ids := make([]ledger.CommitID, 0, len(heads))
	for _, h := range heads {
		ids = append(ids, h.ID)
	}
	return ids
}

// change makes drawn changes in a transaction.
func (m *watchMachine) change(rt *rapid.T, tx *ledger.Tx) {
	for range rapid.IntRange(1, 12).Draw(rt, "changes") {
		k := []byte(rapid.StringMatching(`[ab][a-d]{0,2}`).Draw(rt, "key"))
		if rapid.IntRange(0, 2).Draw(rt, "delete") == 0 {
			must(m.t, tx.Delete(m.t.Context(), k))
			continue
		}
		n := rapid.SampledFrom([]int{0, 1, 30, 300}).Draw(rt, "length")
		must(m.t, tx.Put(m.t.Context(), k, pseudo(rapid.Uint64Range(0, 5).Draw(rt, "seed"), n)))
	}
}

func (m *watchMachine) update(rt *rapid.T) {
	m.add(update(m.t, m.page, func(tx *ledger.Tx) error {
		m.change(rt, tx)
		return nil
	}))
}

// sibling commits on any of the newest commits.
func (m *watchMachine) sibling(rt *rapid.T) {
	if len(m.heads()) > 4 {
		rt.Skip("enough heads")
	}
	base := m.commits[len(m.commits)-1-rapid.IntRange(0, min(3, len(m.commits)-1)).Draw(rt, "back")]
	tx, err := m.page.Begin(m.t.Context(), &ledger.TxOptions{Base: base})
	must(m.t, err)
	m.change(rt, tx)
	id, err := tx.Commit(m.t.Context())
	must(m.t, err)
	m.add(id)
}

func (m *watchMachine) merge(*rapid.T) {
	_, err := m.page.Merge(m.t.Context())
	must(m.t, err)
	for _, h := range m.heads() {
		m.add(h)
	}
}

// follow begins to watch somewhere.
func (m *watchMachine) follow(rt *rapid.T) {
	if len(m.followers) > 3 {
		rt.Skip("enough followers")
	}
	from := rapid.SampledFrom(m.commits).Draw(rt, "from")
	o := ledger.WatchOptions{
		From: from, Prefix: []byte(rapid.SampledFrom([]string{"", "a", "b", "ab", "abc"}).Draw(rt, "prefix")),
		PageEntries: rapid.IntRange(0, 3).Draw(rt, "entries"), PageBytes: rapid.SampledFrom([]int{0, 1, 40}).Draw(rt, "bytes"),
	}
	m.followers = append(m.followers, newFollower(m.t, m.page, o, m.contents[from]))
}

// due returns the commit of which f is to be told next, and whether there is one.
func (m *watchMachine) due(f *follower) (ledger.CommitID, bool) {
	for _, h := range slices.Backward(m.heads()) {
		if m.ancestors[h][f.o.From] {
			return h, !maps.Equal(below(m.contents[h], string(f.o.Prefix)), f.content)
		}
	}
	m.t.Fatalf("no head descends from %s", f.o.From.Short())
	return ledger.CommitID{}, false
}

func (m *watchMachine) pick(rt *rapid.T) *follower {
	if len(m.followers) == 0 {
		rt.Skip("nobody follows")
	}
	return rapid.SampledFrom(m.followers).Draw(rt, "follower")
}

// take has a follower take one part.
func (m *watchMachine) take(rt *rapid.T) { m.takeBy(m.pick(rt)) }

// takeBy has f take one part, if one is due, and reports whether.
func (m *watchMachine) takeBy(f *follower) bool {
	if len(f.parts) > 0 {
		m.compare(f, f.take())
		return true
	}
	want, due := m.due(f)
	if !due {
		return false
	}
	from := f.o.From
	n := f.take()
	if n.Commit.ID != want || n.Base != from {
		m.t.Fatalf("told of %s..%s, want %s..%s", n.Base.Short(), n.Commit.ID.Short(), from.Short(), want.Short())
	}
	m.compare(f, n)
	return true
}

func (m *watchMachine) compare(f *follower, n ledger.Notification) {
	if len(f.parts) > 0 {
		return
	}
	if diff := cmp.Diff(below(m.contents[n.Commit.ID], string(f.o.Prefix)), f.content); diff != "" {
		m.t.Fatalf("copy below %q at %s (-page +copy):\n%s", f.o.Prefix, n.Commit.ID.Short(), diff)
	}
}

// again breaks a follower off and lets it go on.
func (m *watchMachine) again(rt *rapid.T) {
	f := m.pick(rt)
	f.stop()
	f.begin(m.page)
}

// reopen closes everything and goes on.
func (m *watchMachine) reopen(*rapid.T) {
	m.close()
	m.open()
	for _, f := range m.followers {
		f.begin(m.page)
	}
}

// settle merges all, and each follower ends with what the page has.
func (m *watchMachine) settle(rt *rapid.T) {
	m.merge(rt)
	head := m.contents[m.heads()[0]]
	for _, f := range m.followers {
		for m.takeBy(f) {
		}
		if diff := cmp.Diff(below(head, string(f.o.Prefix)), f.content); diff != "" {
			m.t.Fatalf("copy below %q in the end (-page +copy):\n%s", f.o.Prefix, diff)
		}
	}
}

// TestWatchAgainstAModel replays what watches tell into copies of the page, with random histories,
// pauses, interruptions and reopening.
func TestWatchAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newWatchMachine(t)
		m.follow(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"update": m.update, "update again": m.update, "sibling": m.sibling, "merge": m.merge, "follow": m.follow,
			"take": m.take, "take again": m.take, "take once more": m.take, "again": m.again, "reopen": m.reopen,
		})
		m.settle(rt)
		m.close()
	})
}

func TestWatchParts(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	base := put(t, p, "a", "0", "z", "0")
	var pairs []string
	for i := range 12 {
		pairs = append(pairs, fmt.Sprintf("k%02d", i), "value")
	}
	head := put(t, p, pairs...)
	for _, c := range []struct {
		entries, bytes int
		want           []int
	}{
		{0, 0, []int{12}},
		{12, 0, []int{12}},
		{11, 0, []int{11, 1}},
		{6, 0, []int{6, 6}},
		{4, 0, []int{4, 4, 4}},
		{5, 0, []int{5, 5, 2}},
		{1, 0, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		{0, 8 * 12, []int{12}},
		{0, 8 * 6, []int{6, 6}},
		{0, 8*6 - 1, []int{5, 5, 2}},
		{0, 1, []int{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}},
		{5, 8 * 4, []int{4, 4, 4}},
	} {
		t.Run(fmt.Sprintf("%d entries, %d bytes", c.entries, c.bytes), func(t *testing.T) {
			f := newFollower(t, p, ledger.WatchOptions{From: base, PageEntries: c.entries, PageBytes: c.bytes}, map[string]string{"a": "0", "z": "0"})
			defer f.stop()
			var got []int
			for _, n := range f.takeWhole() {
				got = append(got, len(n.Changes))
				if n.Commit.ID != head || n.Base != base {
					t.Errorf("%s..%s", n.Base.Short(), n.Commit.ID.Short())
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("changes in each part (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(pageContent(t, p), f.content); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWatchBeginsWhenItIsCalled: what is committed between the call and the loop is told, each time
// the sequence is ranged over.
func TestWatchBeginsWhenItIsCalled(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	base := put(t, p, "k", "0")
	seq := p.Watch(t.Context(), nil)
	put(t, p, "k", "1")
	head := put(t, p, "l", "1")
	for range 2 {
		for n, err := range seq {
			must(t, err)
			if n.Base != base || n.Commit.ID != head || !n.First || !n.Last || len(n.Changes) != 2 {
				t.Errorf("notification %+v", n)
			}
			break
		}
	}
	for n, err := range p.Watch(t.Context(), &ledger.WatchOptions{From: firstCommit(t, p)}) {
		must(t, err)
		if len(n.Changes) != 2 || n.Changes[0].Old != nil || n.Changes[1].Old != nil {
			t.Errorf("from the first commit: %+v", n)
		}
		break
	}
}

// TestWatchOfWhatDoesNotChange: commits outside the prefix, and changes that were taken back, are
// no notification.
func TestWatchOfWhatDoesNotChange(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	base := put(t, p, "a", "0", "b", "0")
	o := ledger.WatchOptions{Prefix: []byte("b"), From: base}
	told := make(chan ledger.Notification)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() {
		for n, err := range p.Watch(ctx, &o) {
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Errorf("watch: %v", err)
				}
				break
			}
			told <- n
		}
		close(told)
	})
	for i := range 100 {
		put(t, p, "a", fmt.Sprint(i), "c", fmt.Sprint(i))
	}
	head := put(t, p, "b", "1")
	n := <-told
	if n.Commit.ID != head || len(n.Changes) != 1 || string(n.Changes[0].Key) != "b" {
		t.Errorf("notification %+v", n)
	}
	put(t, p, "c", "last")
	cancel()
	if n, ok := <-told; ok {
		t.Errorf("more: %+v", n)
	}
	wg.Wait()

	// A new watch skips what nothing was told of.
	o.From = head
	seq := p.Watch(t.Context(), &o)
	put(t, p, "b", "2")
	put(t, p, "b", "1")
	put(t, p, "b", "3", "c", "3")
	for n, err := range seq {
		must(t, err)
		if len(n.Changes) != 1 || n.Base != head {
			t.Errorf("notification %+v", n)
		}
		break
	}
}

func TestWatchFollowsItsBranch(t *testing.T) {
	o := ledger.Options{}
	o.ManualMerge = true
	p := memoryPage(t, o)
	base := put(t, p, "k", "0")
	sibling := func(k string) ledger.CommitID {
		tx, err := p.Begin(t.Context(), &ledger.TxOptions{Base: base})
		must(t, err)
		must(t, tx.Put(t.Context(), []byte(k), []byte("1")))
		id, err := tx.Commit(t.Context())
		must(t, err)
		return id
	}
	a := sibling("a")
	f := newFollower(t, p, ledger.WatchOptions{From: a}, map[string]string{"k": "0", "a": "1"})
	defer f.stop()
	b := sibling("b") // newer, and not above a
	tx, err := p.Begin(t.Context(), &ledger.TxOptions{Base: a})
	must(t, err)
	must(t, tx.Put(t.Context(), []byte("a"), []byte("2")))
	onA, err := tx.Commit(t.Context())
	must(t, err)
	if n := f.takeWhole()[0]; n.Commit.ID != onA {
		t.Errorf("told of %s, want the head %s of the branch", n.Commit.ID.Short(), onA.Short())
	}
	merged, err := p.Merge(t.Context())
	must(t, err)
	n := f.takeWhole()[0]
	if len(merged) != 1 || n.Commit.ID != merged[0].Commit.ID || len(n.Changes) != 1 || string(n.Changes[0].Key) != "b" {
		t.Errorf("merge %+v of %s is told as %+v", merged, b.Short(), n)
	}
	if diff := cmp.Diff(pageContent(t, p), f.content); diff != "" {
		t.Error(diff)
	}
}

// TestSlowConsumer lets 1000 commits happen while the loop stands: they come as one, in parts as
// long as is allowed.
func TestSlowConsumer(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	f := newFollower(t, p, ledger.WatchOptions{PageEntries: 7}, nil)
	defer f.stop()
	put(t, p, "begin", "")
	f.takeWhole()
	var head ledger.CommitID
	for i := range 1000 {
		head = put(t, p, fmt.Sprintf("k%03d", i%50), fmt.Sprint(i))
	}
	parts := f.takeWhole()
	if len(parts) != 8 || parts[0].Commit.ID != head {
		t.Errorf("%d parts of %s, want 8 of %s", len(parts), parts[0].Commit.ID.Short(), head.Short())
	}
	if diff := cmp.Diff(pageContent(t, p), f.content); diff != "" {
		t.Error(diff)
	}
}

// TestWatchersAndWriters has transactions that write several keys alike, some of them beside each
// other so that they are merged: whoever is told sees the keys alike, and in the end all that was
// written.
func TestWatchersAndWriters(t *testing.T) {
	const writers, commits = 4, 30
	p := memoryPage(t, ledger.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	done := make(chan struct{}, 3)
	var watchers, wg sync.WaitGroup
	for i, prefix := range []string{"", "a/", "b/"} {
		f := &follower{t: t, o: ledger.WatchOptions{Prefix: []byte(prefix), PageEntries: i}, content: map[string]string{}}
		seq := p.Watch(ctx, &f.o)
		watchers.Go(func() {
			for n, err := range seq {
				if err != nil {
					t.Errorf("watch %q: %v, the copy is %v", prefix, err, f.content)
					return
				}
				f.add(n)
				if len(f.parts) == 0 && f.complete(writers, commits-1) {
					done <- struct{}{}
					return
				}
			}
		})
	}
	write := func(tx *ledger.Tx, w, i int) error {
		for _, k := range []string{"a/%d/0", "a/%d/1", "b/%d/0", "b/%d/1", "b/%d/2"} {
			if err := tx.Put(ctx, fmt.Appendf(nil, k, w), fmt.Append(nil, i)); err != nil {
				return err
			}
		}
		return nil
	}
	for w := range writers {
		q := page(t, p.Repository(), "app", "page")
		wg.Go(func() {
			for i := range commits {
				var err error
				if w%2 == 0 {
					_, err = p.Update(ctx, func(tx *ledger.Tx) error { return write(tx, w, i) })
				} else {
					err = beside(ctx, q, func(tx *ledger.Tx) error { return write(tx, w, i) })
				}
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
				}
			}
		})
	}
	wg.Wait()
	watchers.Wait()
	if len(done) != 3 {
		t.Errorf("%d watchers have seen everything, want 3", len(done))
	}
}

// complete reports whether every writer has written its last number. All keys of a writer must have
// the same.
func (f *follower) complete(writers, last int) bool {
	n := 0
	for w := range writers {
		seen := map[string]bool{}
		for k, v := range f.content {
			if _, rest, _ := strings.Cut(k, "/"); strings.HasPrefix(rest, fmt.Sprint(w)+"/") {
				seen[v] = true
			}
		}
		if len(seen) > 1 {
			f.t.Errorf("the keys of writer %d have %v: a transaction was split", w, seen)
		}
		if seen[fmt.Sprint(last)] {
			n++
		}
	}
	return n == writers
}

// beside commits what fn does without regard to what others commit meanwhile.
func beside(ctx context.Context, p *ledger.Page, fn func(*ledger.Tx) error) error {
	tx, err := p.Begin(ctx, nil)
	if err != nil {
		return err
	}
	if err := fn(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	_, err = tx.Commit(ctx)
	return err
}

// TestWatchEnds: a waiting watch, and one whose loop body runs, end when the page closes or the
// context does.
func TestWatchEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		end  func(p *ledger.Page, cancel func()) error
		want error
	}{
		{"close", func(p *ledger.Page, _ func()) error { return p.Close() }, ledger.ErrClosed},
		{"cancel", func(_ *ledger.Page, cancel func()) error { cancel(); return nil }, context.Canceled},
	} {
		t.Run(c.name+" while it waits", func(t *testing.T) {
			p := memoryPage(t, ledger.Options{})
			page(t, p.Repository(), "app", "page") // the store stays open
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended, told := make(chan error), make(chan struct{})
			go func() {
				for _, err := range p.Watch(ctx, &ledger.WatchOptions{From: firstCommit(t, p)}) {
					if err != nil {
						ended <- err
						return
					}
					told <- struct{}{}
				}
				ended <- nil
			}()
			put(t, p, "k", "1")
			<-told
			must(t, c.end(p, cancel))
			wantErr(t, <-ended, c.want)
		})
		t.Run(c.name+" in the loop", func(t *testing.T) {
			p := memoryPage(t, ledger.Options{})
			other := page(t, p.Repository(), "app", "page") // the store stays open
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			seq := p.Watch(ctx, &ledger.WatchOptions{PageEntries: 1})
			put(t, other, "k", "1", "l", "1", "m", "1")
			n := 0
			var last error
			for _, err := range seq {
				if n++; err != nil {
					last = err
					continue
				}
				must(t, c.end(p, cancel))
			}
			if wantErr(t, last, c.want); n != 2 {
				t.Errorf("%d elements, want a part and the error", n)
			}
		})
		t.Run(c.name+" before", func(t *testing.T) {
			p := memoryPage(t, ledger.Options{})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			seq := p.Watch(ctx, nil)
			must(t, c.end(p, cancel))
			for _, seq := range []iter.Seq2[ledger.Notification, error]{seq, p.Watch(ctx, nil)} {
				n := 0
				for _, err := range seq {
					n++
					wantErr(t, err, c.want)
				}
				if n != 1 {
					t.Errorf("%d elements", n)
				}
			}
		})
	}
}

func TestWatchRefuses(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	put(t, p, "k", "v")
	for _, c := range []struct {
		name string
		o    ledger.WatchOptions
		want error
	}{
		{"a commit that is not here", ledger.WatchOptions{From: ledger.CommitID{1}}, ledger.ErrGone},
		{"negative entries", ledger.WatchOptions{PageEntries: -1}, ledger.ErrInvalid},
		{"negative bytes", ledger.WatchOptions{PageBytes: -1}, ledger.ErrInvalid},
	} {
		n := 0
		for _, err := range p.Watch(t.Context(), &c.o) {
			n++
			wantErr(t, err, c.want)
			if errors.Is(err, ledger.ErrNotFound) {
				t.Errorf("%s: %v matches ErrNotFound too", c.name, err)
			}
		}
		if n != 1 {
			t.Errorf("%s: %d elements, want one", c.name, n)
		}
	}
}

// TestWatchWithTwoHandles: a handle that is closed ends its own watches only.
func TestWatchWithTwoHandles(t *testing.T) {
	p := memoryPage(t, ledger.Options{})
	q := page(t, p.Repository(), "app", "page")
	f, g := newFollower(t, p, ledger.WatchOptions{}, nil), newFollower(t, q, ledger.WatchOptions{}, nil)
	defer f.stop()
	defer g.stop()
	put(t, q, "k", "1")
	f.takeWhole()
	g.takeWhole()
	closeIt(t, q)
	put(t, p, "k", "2")
	f.takeWhole()
	if f.content["k"] != "2" {
		t.Errorf("copy %v", f.content)
	}
	_, err, _ := g.next()
	wantErr(t, err, ledger.ErrClosed)
}
