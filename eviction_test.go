package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync/wire"
)

func ref(p *ledger.Page) ledger.PageRef {
	return p.Ref()
}

// evictable makes a page with content, synced and closed.
func evictable(t testing.TB, r *ledger.Repository, ledgerName, name string, pairs ...string) ledger.PageRef {
	t.Helper()
	p := page(t, r, ledgerName, name)
	put(t, p, pairs...)
	must(t, p.Sync(t.Context()))
	closeIt(t, p)
	return ref(p)
}

func wantKept(t testing.TB, err error, report admin.EvictReport, bar admin.EvictBar) {
	t.Helper()
	e, ok := errors.AsType[*ledger.EvictError](err)
	if !ok || e.Bar != bar || e.Reason == "" || !errors.Is(err, ledger.ErrConflict) {
		t.Errorf("error %v, want an EvictError: %s", err, bar)
	}
	if len(report.Evicted) != 0 || len(report.Kept) != 1 || report.Kept[0].Bar != bar {
		t.Errorf("report %+v, want one page that stays: %s", report, bar)
	}
}

func namesHere(t testing.TB, r *ledger.Repository) (names []string) {
	t.Helper()
	pages, err := r.Pages(t.Context())
	must(t, err)
	for _, p := range pages {
		if p.State != ledger.PageEvicted {
			names = append(names, p.Ledger+"/"+p.Name)
		}
	}
	return names
}

// evictedPages returns the pages that are in the cloud only.
func evictedPages(t testing.TB, r *ledger.Repository) []ledger.PageInfo {
	t.Helper()
	pages, err := r.Pages(t.Context())
	must(t, err)
	return slices.DeleteFunc(pages, func(p ledger.PageInfo) bool { return p.State != ledger.PageEvicted })
}

func TestEvictAndComeBack(t *testing.T) {
	w := newCloudWorld(t)
	r := w.device(w.options())
	long := string(pseudo(1, 300000))
	at := evictable(t, r, "notes", "inbox", "a", "1", "long", long)
	evict := admin.EvictOptions{Pages: []ledger.PageRef{at}, DryRun: true}
	dry, err := admin.Evict(t.Context(), r, &evict)
	must(t, err)
	if len(dry.Evicted) != 1 || dry.FreedBytes < 300000 || len(namesHere(t, r)) != 1 {
		t.Errorf("dry run: %+v", dry)
	}
	evict.DryRun = false
	report, err := admin.Evict(t.Context(), r, &evict)
	must(t, err)
	if diff := cmp.Diff(dry, report); diff != "" {
		t.Errorf("not what the dry run said (-dry +run):\n%s", diff)
	}
	if names := namesHere(t, r); len(names) != 0 {
		t.Errorf("pages %v are here still", names)
	}
	away := evictedPages(t, r)
	if len(away) != 1 || away[0].Name != "inbox" || away[0].PageRef != at || away[0].EvictedBytes != report.FreedBytes || away[0].EvictedAt.IsZero() {
		t.Errorf("evicted pages %+v", away)
	}
	report, err = admin.Evict(t.Context(), r, &evict)
	wantKept(t, err, report, admin.EvictAway)

	syncAll(t, r) // does not bring it back
	if names := namesHere(t, r); len(names) != 0 {
		t.Errorf("sync brought %v back", names)
	}
	if info, err := r.PageInfo(t.Context(), at); err != nil || info.State != ledger.PageEvicted {
		t.Errorf("the page is not known: %+v, %v", info, err)
	}
	p, err := r.OpenPage(t.Context(), at)
	must(t, err)
	if p.Name() != "inbox" {
		t.Errorf("it came back as %q", p.Name())
	}
	wantContent(t, p, map[string]string{"a": "1", "long": long})
	put(t, p, "b", "2")
	must(t, p.Sync(t.Context()))
	closeIt(t, p)
	if away = evictedPages(t, r); len(away) != 0 {
		t.Errorf("evicted pages %+v", away)
	}
	checkClean(t, r)
	// By name, and by a Sync that names it.
	for range 2 {
		_, err = admin.Evict(t.Context(), r, &evict)
		must(t, err)
		done, err := r.Sync(t.Context(), at)
		must(t, err)
		if len(done) != 1 || !done[0].Created || len(namesHere(t, r)) != 1 {
			t.Errorf("sync of an evicted page: %+v", done)
		}
	}
	wantContent(t, page(t, r, "notes", "inbox"), map[string]string{"a": "1", "b": "2", "long": long})
}

func TestEvictRefuses(t *testing.T) {
	w := newCloudWorld(t)
	r := w.device(w.options())
	ctx := t.Context()
	evict := func(o admin.EvictOptions, refs ...ledger.PageRef) (admin.EvictReport, error) {
		o.Pages = refs
		return admin.Evict(ctx, r, &o)
	}
	p := page(t, r, "l", "p")
	put(t, p, "k", "v")
	report, err := evict(admin.EvictOptions{}, ref(p))
	wantKept(t, err, report, admin.EvictOpen)
	report, err = evict(admin.EvictOptions{DiscardUnsynced: true}, ref(p))
	wantKept(t, err, report, admin.EvictOpen)
	closeIt(t, p)
	report, err = evict(admin.EvictOptions{}, ref(p))
	wantKept(t, err, report, admin.EvictUnsynced)
	if admin.EvictUnsynced.Discardable() != true || admin.EvictOpen.Discardable() {
		t.Error("discardable")
	}
	must(t, errorOf(r.SetCloud(ctx, nil)))
	report, err = evict(admin.EvictOptions{}, ref(p))
	wantKept(t, err, report, admin.EvictNoCloud)
	_, err = r.SetCloud(ctx, w.cloud())
	must(t, err)
	syncAll(t, r)

	p = page(t, r, "l", "p")
	must(t, p.Tag(ctx, "mine", ledger.CommitID{}))
	closeIt(t, p)
	report, err = evict(admin.EvictOptions{}, ref(p))
	wantKept(t, err, report, admin.EvictUnsynced)
	syncAll(t, r)

	w.offline(true)
	report, err = evict(admin.EvictOptions{}, ref(p))
	wantKept(t, err, report, admin.EvictUnproved)
	w.offline(false)

	_, err = evict(admin.EvictOptions{}, ledger.PageRef{Ledger: "l"})
	wantErr(t, err, ledger.ErrNotFound)
	for _, o := range []admin.EvictOptions{{}, {FreeBytes: -1}, {OlderThan: -1}, {FreeBytes: 1, DiscardUnsynced: true}, {Values: true, DiscardUnsynced: true, Pages: []ledger.PageRef{ref(p)}}} {
		_, err = admin.Evict(ctx, r, &o)
		wantErr(t, err, ledger.ErrInvalid)
	}
	if len(namesHere(t, r)) != 1 {
		t.Error("the page is gone")
	}
	_, err = evict(admin.EvictOptions{}, ref(p))
	must(t, err)
	p = page(t, r, "l", "p")
	if tags, err := p.Tags(ctx); err != nil || len(tags) != 1 {
		t.Errorf("tags %v, %v", tags, err)
	}
}

// TestEvictDiscards: what only this device has goes with the flag alone, and what the bucket has
// comes back.
func TestEvictDiscards(t *testing.T) {
	w := newCloudWorld(t)
	r := w.device(w.options())
	at := evictable(t, r, "l", "p", "k", "synced")
	p := page(t, r, "l", "p")
	put(t, p, "k", "not synced")
	closeIt(t, p)
	never := page(t, r, "l", "never")
	put(t, never, "k", "v")
	closeIt(t, never)
	report, err := admin.Evict(t.Context(), r, &admin.EvictOptions{Pages: []ledger.PageRef{at, ref(never)}, DiscardUnsynced: true})
	must(t, err)
	if len(report.Evicted) != 2 || !report.Evicted[0].Discarded || !report.Evicted[1].Discarded {
		t.Errorf("%+v", report)
	}
	wantContent(t, page(t, r, "l", "p"), map[string]string{"k": "synced"})
	wantContent(t, page(t, r, "l", "never"), map[string]string{})
}

// TestEvictBlank: a page into which nothing was ever put has nothing in a cloud from which it would
// come back. It stays, unless that is allowed: then it comes back as empty as it was.
func TestEvictBlank(t *testing.T) {
	r := open(t, t.TempDir(), nil)
	blank := page(t, r, "l", "blank")
	closeIt(t, blank)
	_, err := admin.Evict(t.Context(), r, &admin.EvictOptions{Pages: []ledger.PageRef{ref(blank)}})
	if e, ok := errors.AsType[*ledger.EvictError](err); !ok || e.Bar != admin.EvictBlank {
		t.Errorf("evicted with %v", err)
	}
	if kept, err := admin.Evict(t.Context(), r, &admin.EvictOptions{FreeBytes: 1 << 40}); err != nil || len(kept.Evicted) != 0 {
		t.Errorf("evicted %+v, %v", kept, err)
	}
	emptied := page(t, r, "l", "emptied")
	put(t, emptied, "k", "v")
	update(t, emptied, func(tx *ledger.Tx) error { return tx.Delete(t.Context(), []byte("k")) })
	closeIt(t, emptied)
	report, err := admin.Evict(t.Context(), r, &admin.EvictOptions{FreeBytes: 1 << 40, Blank: true})
	must(t, err)
	if len(report.Evicted) != 1 || report.Evicted[0].Name != "blank" || len(report.Kept) != 1 {
		t.Errorf("%+v", report)
	}
	wantContent(t, page(t, r, "l", "blank"), map[string]string{})
}

// stepClock is a clock that tests move.
func stepClock(start int64) (now func() time.Time, step func(time.Duration)) {
	at := time.Unix(start, 0).UTC()
	return func() time.Time { return at }, func(d time.Duration) { at = at.Add(d) }
}

func TestEvictLeastRecent(t *testing.T) {
	w := newCloudWorld(t)
	o := w.options()
	var step func(time.Duration)
	o.Now, step = stepClock(1e9)
	r := w.device(o)
	for i := range 5 {
		evictable(t, r, "l", fmt.Sprint(i), "k", string(pseudo(uint64(i), 50000)))
		step(time.Hour)
	}
	closeIt(t, page(t, r, "l", "1")) // used again
	for _, err := range []error{errorOf(admin.Usage(t.Context(), r)), errorOf(admin.Status(t.Context(), r)), errorOf(r.Sync(t.Context()))} {
		must(t, err) // are no use of any page
	}
	step(30 * time.Minute)
	evicted := func(o admin.EvictOptions) (names []string) {
		t.Helper()
		report, err := admin.Evict(t.Context(), r, &o)
		must(t, err)
		for _, e := range report.Evicted {
			names = append(names, e.Name)
		}
		return names
	}
	if got := evicted(admin.EvictOptions{OlderThan: 3 * time.Hour, DryRun: true}); !cmp.Equal(got, []string{"0", "2"}) {
		t.Errorf("older than 3 hours: %v", got)
	}
	if got := evicted(admin.EvictOptions{FreeBytes: 60000}); !cmp.Equal(got, []string{"0", "2"}) {
		t.Errorf("60000 bytes: %v", got)
	}
	if got := evicted(admin.EvictOptions{OlderThan: time.Hour}); !cmp.Equal(got, []string{"3", "4"}) {
		t.Errorf("older than an hour: %v", got)
	}
	if names := namesHere(t, r); !cmp.Equal(names, []string{"l/1"}) {
		t.Errorf("%v are here", names)
	}
}

func errorOf[T any](_ T, err error) error { return err }

// TestEvictedNeedsTheCloud: an evicted page is never taken for a new one.
func TestEvictedNeedsTheCloud(t *testing.T) {
	w := newCloudWorld(t)
	r := w.device(w.options())
	ctx := t.Context()
	at := evictable(t, r, "l", "p", "k", "v")
	_, err := admin.Evict(ctx, r, &admin.EvictOptions{Pages: []ledger.PageRef{at}})
	must(t, err)
	w.offline(true)
	_, err = r.Page(ctx, "l", "p")
	wantErr(t, err, ledger.ErrNeedsFetch)
	wantErr(t, err, ledger.ErrNetwork)
	w.offline(false)
	canceled, cancel := context.WithCancel(ctx)
	cancel()
	_, err = r.Page(canceled, "l", "p")
	wantErr(t, err, context.Canceled)

	// Another cloud is set only after the page has come back.
	other := newCloudWorld(t)
	mem := w.bucket
	w.offline(true)
	w.bucket = other.bucket
	elsewhere := other.cloud()
	elsewhere.URL = "mem:other"
	_, err = r.SetCloud(ctx, elsewhere)
	wantErr(t, err, ledger.ErrNeedsFetch)
	w.bucket = mem
	w.offline(false)
	must(t, errorOf(r.SetCloud(ctx, nil)))
	_, err = r.Page(ctx, "l", "p")
	wantErr(t, err, ledger.ErrNeedsFetch)
	wantErr(t, err, ledger.ErrNoCloud)
	_, err = r.SetCloud(ctx, w.cloud())
	must(t, err)
	if names := namesHere(t, r); len(names) != 0 {
		t.Errorf("%v are half here", names)
	}
	wantContent(t, page(t, r, "l", "p"), map[string]string{"k": "v"})
}

// TestEvictedFromARolledBackBucket: a bucket that has less than was evicted does not give a page
// that is older than it was.
func TestEvictedFromARolledBackBucket(t *testing.T) {
	w := newCloudWorld(t)
	r := w.device(w.options())
	at := evictable(t, r, "l", "p", "k", "v")
	_, err := admin.Evict(t.Context(), r, &admin.EvictOptions{Pages: []ledger.PageRef{at}})
	must(t, err)
	var logs []string
	infos, err := w.bucket.List(t.Context(), "", "", 1000)
	must(t, err)
	for _, i := range infos {
		if !strings.HasPrefix(i.Name, wire.KeysPrefix) {
			logs = append(logs, i.Name)
			must(t, w.bucket.Delete(t.Context(), i.Name))
		}
	}
	_, err = r.Page(t.Context(), "l", "p")
	wantErr(t, err, ledger.ErrCloudRolledBack)
	if names := namesHere(t, r); len(names) != 0 || len(logs) == 0 {
		t.Errorf("%v are here", names)
	}
}

func TestEvictValues(t *testing.T) {
	w := newCloudWorld(t)
	r := w.device(w.options())
	p := page(t, r, "l", "p")
	long, other := string(pseudo(1, 400000)), string(pseudo(2, 200000))
	put(t, p, "long", long)
	must(t, p.Sync(t.Context()))
	put(t, p, "other", other)
	o := admin.EvictOptions{Pages: []ledger.PageRef{ref(p)}, Values: true, DryRun: true}
	dry, err := admin.Evict(t.Context(), r, &o)
	must(t, err)
	o.DryRun = false
	report, err := admin.Evict(t.Context(), r, &o)
	must(t, err)
	if report.FreedBytes < 390000 || report.FreedBytes > 410000 || dry.FreedBytes < report.FreedBytes*9/10 || dry.FreedBytes > report.FreedBytes*11/10 {
		t.Errorf("%d bytes were dropped, %d of a dry run", report.FreedBytes, dry.FreedBytes)
	}
	if again, err := admin.Evict(t.Context(), r, &o); err != nil || again.FreedBytes != 0 {
		t.Errorf("again: %+v, %v", again, err)
	}
	o.KeepBytes = 1
	for _, bad := range []admin.EvictOptions{{Values: true, KeepBytes: -1}, {KeepBytes: 1, FreeBytes: 1}} {
		_, err := admin.Evict(t.Context(), r, &bad)
		wantErr(t, err, ledger.ErrInvalid)
	}
	w.offline(true)
	err = p.View(t.Context(), func(s *ledger.Snapshot) error {
		if v, err := s.Get(t.Context(), []byte("other")); err != nil || string(v) != other {
			t.Errorf("what the bucket does not have: %v", err)
		}
		_, err := s.Get(t.Context(), []byte("long"))
		return err
	})
	wantErr(t, err, ledger.ErrNetwork)
	w.offline(false)
	wantContent(t, p, map[string]string{"long": long, "other": other})
	must(t, p.Sync(t.Context()))
	o.KeepBytes = 600000
	report, err = admin.Evict(t.Context(), r, &o)
	if must(t, err); report.FreedBytes != 0 {
		t.Errorf("%d bytes were dropped of what was to be kept", report.FreedBytes)
	}
	o.KeepBytes = 300000
	report, err = admin.Evict(t.Context(), r, &o)
	if must(t, err); report.FreedBytes < 290000 || report.FreedBytes > 300000+64<<10 { // pieces are dropped whole
		t.Errorf("%d bytes were dropped", report.FreedBytes)
	}
	o.KeepBytes = 0
	w.offline(true)
	_, err = admin.Evict(t.Context(), r, &o)
	if e, ok := errors.AsType[*ledger.EvictError](err); !ok || e.Bar != admin.EvictUnproved {
		t.Errorf("without a network: %v", err)
	}
	w.offline(false)
	must(t, errorOf(r.SetCloud(t.Context(), nil)))
	report, err = admin.Evict(t.Context(), r, &o)
	wantKept(t, err, report, admin.EvictNoCloud)
}

func TestQuota(t *testing.T) {
	w := newCloudWorld(t)
	o := w.options()
	o.Quota = 250000
	r := w.device(o)
	for i := range 6 {
		evictable(t, r, "l", fmt.Sprint(i), "k", string(pseudo(uint64(i), 90000)))
	}
	waitFor(t, "pages go", func() bool { return len(namesHere(t, r)) <= 2 })
	for i := range 6 {
		p := page(t, r, "l", fmt.Sprint(i))
		if c := pageContent(t, p); c["k"] != string(pseudo(uint64(i), 90000)) {
			t.Errorf("page %d has something else", i)
		}
		closeIt(t, p)
	}
}

func TestUsageReport(t *testing.T) {
	w := newCloudWorld(t)
	r := w.device(w.options())
	at := evictable(t, r, "l", "away", "k", "v")
	_, err := admin.Evict(t.Context(), r, &admin.EvictOptions{Pages: []ledger.PageRef{at}})
	must(t, err)
	evictable(t, r, "l", "synced", "k", string(pseudo(1, 100000)))
	p := page(t, r, "l", "unsynced")
	put(t, p, "k", string(pseudo(2, 100000)))
	must(t, p.Tag(t.Context(), "t", ledger.CommitID{}))
	closeIt(t, p)
	opened := page(t, r, "m", "open")
	u, err := admin.Usage(t.Context(), r)
	must(t, err)
	got := map[string]admin.EvictBar{}
	for _, p := range u.Pages {
		got[p.Name] = p.Bar
		if p.Err != nil || (p.Reason == "") != (p.Bar == admin.EvictFree) {
			t.Errorf("%+v", p)
		}
		switch p.Name {
		case "away":
			if p.State != ledger.PageEvicted || p.SizeBytes != 0 || p.EvictedBytes == 0 || p.EvictedAt.IsZero() {
				t.Errorf("%+v", p)
			}
		case "synced", "unsynced":
			if p.SizeBytes < 100000 || p.Kinds.Values < 100000 || p.LastClosed.IsZero() {
				t.Errorf("%+v", p)
			}
		}
		if p.Name == "unsynced" && (p.Unsynced != 1 || p.UnsyncedTags != 1 || !p.LocalValues) {
			t.Errorf("%+v", p)
		}
	}
	want := map[string]admin.EvictBar{"away": admin.EvictAway, "synced": admin.EvictFree, "unsynced": admin.EvictUnsynced, "open": admin.EvictOpen}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("bars (-want +got):\n%s", diff)
	}
	if u.EvictableBytes < 100000 || u.SizeBytes < u.EvictableBytes+100000 {
		t.Errorf("%+v", u)
	}
	closeIt(t, opened)
}

// BenchmarkEvict1000 evicts 1000 small pages; BenchmarkRemove1000 removes as many directories, with
// what is in them.
func BenchmarkEvict1000(b *testing.B) {
	w := newCloudWorld(b)
	o := w.options()
	o.InMemory = false
	for b.Loop() {
		b.StopTimer()
		r := open(b, b.TempDir(), o)
		_, err := r.SetCloud(b.Context(), w.cloud())
		must(b, err)
		for i := range 1000 {
			evictable(b, r, "l", fmt.Sprint(i), "k", "v")
		}
		b.StartTimer()
		report, err := admin.Evict(b.Context(), r, &admin.EvictOptions{FreeBytes: 1 << 40})
		b.StopTimer()
		must(b, err)
		if len(report.Evicted) != 1000 {
			b.Fatalf("%d evicted", len(report.Evicted))
		}
		closeIt(b, r)
		b.StartTimer()
	}
}

func BenchmarkRemove1000(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		dir := b.TempDir()
		r := open(b, dir, nil)
		for i := range 1000 {
			p := page(b, r, "l", fmt.Sprint(i))
			put(b, p, "k", "v")
			closeIt(b, p)
		}
		closeIt(b, r)
		ledgers, err := filepath.Glob(filepath.Join(dir, "1", "ledgers", "*", "*"))
		must(b, err)
		b.StartTimer()
		for _, d := range ledgers {
			must(b, os.RemoveAll(d))
		}
	}
}

// waitFor looks again and again until a condition holds that something in the background brings
// about.
func waitFor(t testing.TB, what string, done func() bool) {
	t.Helper()
	deadline := time.After(5 * time.Minute) // against a test that hangs
	for !done() {
		select {
		case <-deadline:
			t.Fatalf("%s: it does not come about", what)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// TestValuesGoByThemselves: of the values of an open page so many stay as the options say, and when
// the quota is exceeded and no closed page may go, they go too. What was read lately stays longest,
// and the files shrink.
func TestValuesGoByThemselves(t *testing.T) {
	for name, set := range map[string]func(*ledger.Options){
		"a bound of values": func(o *ledger.Options) { o.ValueBytes = 1 << 20 },
		"the quota":         func(o *ledger.Options) { o.Quota = 2 << 20 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newCloudWorld(t)
			o := w.options()
			o.SegmentBytes = 256 << 10
			set(o)
			r := w.device(o)
			p := page(t, r, "l", "p")
			want := map[string]string{}
			for i := range 12 {
				k := fmt.Sprintf("%02d", i)
				want[k] = string(pseudo(uint64(i), 250000))
				put(t, p, k, want[k])
			}
			must(t, p.Sync(t.Context()))
			values := func() (held, size int64) {
				u, err := admin.Usage(t.Context(), r)
				must(t, err)
				return u.Kinds.Values, u.SizeBytes
			}
			waitFor(t, "values are dropped", func() bool {
				closeIt(t, page(t, r, "l", "other")) // so that it is looked at
				n, size := values()
				return n < 11*250000 && size <= 2<<20
			})
			wantContent(t, p, want)
			checkClean(t, r)
			closeIt(t, p)
		})
	}
}

// TestBarsHaveWords: each bar has words of its own.
func TestBarsHaveWords(t *testing.T) {
	for bar, want := range map[admin.EvictBar]string{
		admin.EvictFree: "none", admin.EvictOpen: "open", admin.EvictNoCloud: "no cloud", admin.EvictUnsynced: "unsynced",
		admin.EvictOtherCloud: "other cloud", admin.EvictDamaged: "damaged", admin.EvictAway: "in the cloud only",
		admin.EvictUnproved: "cloud out of reach", admin.EvictBlank: "blank", admin.EvictBlank + 1: "bar 9",
	} {
		if got := bar.String(); got != want {
			t.Errorf("bar %d is %q, want %q", uint8(bar), got, want)
		}
	}
}
