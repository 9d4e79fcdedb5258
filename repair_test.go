package ledger_test

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/cloudsync/mem"
	"github.com/ledgerd/ledger/internal/tier"
	"github.com/ledgerd/ledger/storage"
	"github.com/ledgerd/ledger/storage/index"
)

// sickPage is a repository on disk with one page, synced or not, that is damaged again and again.
type sickPage struct {
	*cloudWorld
	dir, page string
	o         *ledger.Options
	files     map[string]string
	state     mem.State
	want      map[string]string
	rng       *rand.Rand
}

// newSickPage makes a page that has rows of every kind. With a cloud all but the last commit is in
// the bucket if local is set.
func newSickPage(t *testing.T, cloud, local bool) *sickPage {
	if fi, err := os.Stat("/dev/shm"); err == nil && fi.IsDir() {
		t.Setenv("TMPDIR", "/dev/shm") // where a sync costs nothing
	}
	s := &sickPage{cloudWorld: newCloudWorld(t), dir: t.TempDir(), rng: rand.New(rand.NewPCG(6+tier.Seed(), 8))}
	s.o = s.options()
	s.o.InMemory, s.o.SegmentBytes = false, 96<<10
	r := open(t, s.dir, s.o)
	p := page(t, r, "app", "page")
	for i := range 30 {
		put(t, p, string(key(i)), fmt.Sprint(i), "counter", fmt.Sprint(i))
	}
	put(t, p, "long", string(pseudo(1, 200_000)), "again", string(pseudo(2, 9_000)))
	must(t, p.Tag(t.Context(), "tagged", ledger.CommitID{}))
	tx, err := p.Begin(t.Context(), nil)
	must(t, err)
	must(t, tx.Put(t.Context(), []byte("counter"), []byte("mine")))
	put(t, p, "counter", "theirs")
	if _, err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Merge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if cloud {
		if _, err := r.SetCloud(t.Context(), s.cloud()); err != nil {
			t.Fatal(err)
		}
		syncAll(t, r)
		if local {
			put(t, p, "local", string(pseudo(3, 9_000)))
			must(t, p.Tag(t.Context(), "fresh", ledger.CommitID{}))
		}
	}
	s.want = pageContent(t, p)
	closeIt(t, r)
	s.page = pageDir(t, s.dir)
	s.files = tree(t, s.page)
	s.state = s.bucket.State()
	return s
}

// restore puts the page's files back, and the bucket's objects.
func (s *sickPage) restore() {
	s.t.Helper()
	s.bucket.Rollback(s.state)
	must(s.t, os.RemoveAll(s.page))
	must(s.t, os.Mkdir(s.page, 0o700))
	for name, b := range s.files {
		must(s.t, os.WriteFile(name, []byte(b), 0o600))
	}
}

// check checks the page once.
func (s *sickPage) check(o admin.CheckOptions) admin.PageReport {
	s.t.Helper()
	r := open(s.t, s.dir, s.o)
	defer closeIt(s.t, r)
	report, err := admin.Check(s.t.Context(), r, &o)
	if err != nil {
		s.t.Fatal(err)
	}
	return report.Pages[0]
}

func remaining(r admin.PageReport) (all []string) {
	for _, p := range r.Problems {
		if !p.Repaired && p.Where != "explanation of merge" { // which no bucket has
			all = append(all, p.String())
		}
	}
	return all
}

// TestRepairRows damages, removes, moves and copies rows of every kind in page.db: a check names
// the family, or opening has found it; repair mends it, and a second check is clean.
func TestRepairRows(t *testing.T) {
	s := newSickPage(t, true, true)
	families := append(slices.Clone(storage.RowFamilies), "state", "numbers", "refsums")
	changes := map[string]func(b index.Bucket, k, v []byte) error{
		"damaged": func(b index.Bucket, k, v []byte) error {
			if len(v) == 0 {
				return b.Put(k, []byte{1})
			}
			v[len(v)/2] ^= 4
			return b.Put(k, v)
		},
		"removed": func(b index.Bucket, k, _ []byte) error { return b.Delete(k) },
		"moved": func(b index.Bucket, k, v []byte) error {
			if err := b.Delete(k); err != nil {
				return err
			}
			return b.Put(unused(b, k), v)
		},
		"copied": func(b index.Bucket, k, v []byte) error { return b.Put(unused(b, k), v) },
	}
	filled := 0
	for _, family := range families {
		for _, what := range sortedKeys(changes) {
			change := changes[what]
			if testing.Short() && (len(family)+len(what))%2 == 0 {
				continue
			}
			s.restore()
			if !s.changeRow(family, change) {
				continue
			}
			filled++
			name := family + ", " + what
			found := s.check(admin.CheckOptions{})
			told := strings.Join(remaining(found), "; ") + found.IndexRebuilt
			if told == "" {
				t.Errorf("%s: a check finds nothing", name)
			}
			mended := s.check(admin.CheckOptions{Repair: true})
			if left := remaining(mended); len(left) > 0 {
				t.Errorf("%s: told %q, not mended: %q", name, told, left)
			}
			if again := s.check(admin.CheckOptions{}); len(again.Problems) > 0 || again.IndexRebuilt != "" {
				t.Errorf("%s: a second check: %q %s", name, remaining(again), again.IndexRebuilt)
			}
		}
	}
	r := open(t, s.dir, s.o)
	wantContent(t, page(t, r, "app", "page"), s.want)
	closeIt(t, r)
	t.Logf("%d rows", filled)
}

// changeRow changes one of the first rows of a family in page.db. It returns false when there is
// none.
func (s *sickPage) changeRow(family string, change func(b index.Bucket, k, v []byte) error) (done bool) {
	s.t.Helper()
	db, err := index.OpenFile(filepath.Join(s.page, "page.db"), index.Options{NoSync: true})
	must(s.t, err)
	must(s.t, db.Update(func(tx index.Tx) error {
		b := tx.Bucket(family)
		if b == nil { // its rows are printed from others
			return nil
		}
		c := b.Cursor()
		k, v := c.First()
		for range s.rng.IntN(3) {
			if nk, nv := c.Next(); nk != nil {
				k, v = nk, nv
			}
		}
		if done = k != nil; !done {
			return nil
		}
		return change(b, bytes.Clone(k), bytes.Clone(v))
	}))
	must(s.t, db.Close())
	return done
}

// TestRepairRowsOfDamagedLog damages rows of page.db that cannot be made again, since a segment is
// damaged too: a check says so, and a second check after a repair is clean.
func TestRepairRowsOfDamagedLog(t *testing.T) {
	s := newSickPage(t, false, false)
	segments := s.segmentFiles()
	for _, family := range append(slices.Clone(storage.RowFamilies), "state", "numbers", "refsums") {
		s.restore()
		moved := func(b index.Bucket, k, v []byte) error { return errors.Join(b.Delete(k), b.Put(unused(b, k), v)) }
		if !s.changeRow(family, moved) {
			continue
		}
		name := segments[s.rng.IntN(len(segments))]
		b := []byte(s.files[name])
		b[len(b)/2] ^= 1
		must(t, os.WriteFile(name, b, 0o600))
		if found := s.check(admin.CheckOptions{}); len(found.Problems) == 0 {
			t.Errorf("%s: a check finds nothing", family)
		}
		s.check(admin.CheckOptions{Repair: true})
		if again := s.check(admin.CheckOptions{}); len(again.Problems) > 0 {
			t.Errorf("%s: a second check: %q", family, remaining(again))
		}
	}
}

// unused returns a key near k without a row. Rows of one family can be equal, so that a copy over
// another row changes nothing.
func unused(b index.Bucket, k []byte) []byte {
	k = bytes.Clone(k)
	for d := byte(1); ; d++ {
		if other := append(k[:len(k)-1:len(k)-1], k[len(k)-1]^(d<<4|d>>4)); b.Get(other) == nil {
			return other
		}
	}
}

// segmentFiles returns the names of the page's segments.
func (s *sickPage) segmentFiles() []string {
	return slices.DeleteFunc(sortedKeys(s.files), func(n string) bool { return !strings.HasSuffix(n, ".seg") })
}

// injure damages a segment in some way.
func (s *sickPage) injure(name string) (what string) {
	b := []byte(s.files[name])
	at := s.rng.IntN(len(b))
	switch s.rng.IntN(6) {
	case 0:
		must(s.t, os.RemoveAll(name))
		return "removed " + filepath.Base(name)
	case 1:
		b, what = b[:at], "cut"
	case 2:
		clear(b[at:min(len(b), at+s.rng.IntN(5000)+1)])
		b[at], what = b[at]^0xff, "zeros"
	default:
		b[at] ^= 1 << s.rng.IntN(8)
		what = "flip"
	}
	must(s.t, os.WriteFile(name, b, 0o600))
	return fmt.Sprintf("%s at %d of %s", what, at, filepath.Base(name))
}

// TestRepairFromCloud damages segments, and page.db too now and then, of a page that is in the
// bucket: it comes back whole. What only this device has may be gone; then that is told.
func TestRepairFromCloud(t *testing.T) {
	cases := 12
	if testing.Short() {
		cases = 6
	}
	if tier.Nightly() {
		cases = 200
	}
	for _, local := range []bool{false, true} {
		s := newSickPage(t, true, local)
		lost := 0
		for i := range cases {
			lost += s.mend(fmt.Sprintf("case %d, local %v", i, local), local)
		}
		t.Logf("%d cases, local %v: %d in which something was gone", cases, local, lost)
	}
}

// mend damages the page and repairs it. It returns 1 when something was gone.
func (s *sickPage) mend(what string, local bool) (lost int) {
	s.t.Helper()
	s.restore()
	names := s.segmentFiles()
	for range 1 + s.rng.IntN(len(names)) {
		what += ", " + s.injure(names[s.rng.IntN(len(names))])
	}
	indexed := s.rng.IntN(3) > 0
	if !indexed {
		what += ", no page.db"
		must(s.t, os.Remove(filepath.Join(s.page, "page.db")))
	}
	if found := s.check(admin.CheckOptions{}); indexed && len(found.Problems) == 0 {
		s.t.Fatalf("%s: no damage is found", what)
	}
	report := s.check(admin.CheckOptions{Repair: true})
	left := remaining(report)
	if report.CloudErr != nil || !local && (len(left) > 0 || len(report.Rescued) > 0) {
		s.t.Fatalf("%s: not mended: %q, %+v", what, left, report)
	}
	again := s.check(admin.CheckOptions{})
	if len(again.Problems) > 0 || len(left) == 0 && again.MissingPieces+len(again.Holes) > 0 {
		s.t.Fatalf("%s: a second check: %+v\nREPAIR %+v", what, again, report)
	}
	r := open(s.t, s.dir, s.o)
	defer closeIt(s.t, r)
	syncAll(s.t, r)
	p := page(s.t, r, "app", "page")
	err := p.View(s.t.Context(), func(sn *ledger.Snapshot) error {
		for k, v := range s.want {
			got, err := sn.Get(s.t.Context(), []byte(k))
			if k == "local" && (errors.Is(err, ledger.ErrGone) || errors.Is(err, ledger.ErrNotFound)) {
				if lost = 1; indexed && len(left) == 0 {
					return fmt.Errorf("key %q is gone, and nobody has said so: %w", k, err)
				}
				continue
			}
			if err != nil || string(got) != v {
				return fmt.Errorf("key %q: other content, %w", k, err)
			}
		}
		return nil
	})
	if err != nil {
		s.t.Fatalf("%s: %v; told %q; %+v", what, err, left, report)
	}
	return lost
}

// TestRepairOffline repairs a page while the bucket cannot be reached, and again when it can.
func TestRepairOffline(t *testing.T) {
	s := newSickPage(t, true, true)
	for i, name := range s.segmentFiles() {
		s.restore()
		must(t, os.Remove(name))
		s.offline(true)
		first := s.check(admin.CheckOptions{Repair: true})
		if len(remaining(first)) == 0 || first.CloudErr == nil && i == 0 {
			t.Fatalf("%s: offline: %+v", name, first)
		}
		again := s.check(admin.CheckOptions{})
		for _, p := range again.Problems {
			if p.Where != "tree of commit" {
				t.Fatalf("%s: a second check: %+v", name, again)
			}
		}
		if len(again.Problems) == 0 { // the newest version is readable, though not each of its values
			r := open(t, s.dir, s.o)
			readKeys(t, page(t, r, "app", "page"))
			closeIt(t, r)
		}
		s.offline(false)
		second := s.check(admin.CheckOptions{Repair: true})
		if len(remaining(second)) > 0 || second.CloudErr != nil {
			t.Fatalf("%s: online: %+v", name, second)
		}
		r := open(t, s.dir, s.o)
		syncAll(t, r)
		if _, err := admin.Collect(t.Context(), r, nil); err != nil {
			t.Fatal(err)
		}
		p := page(t, r, "app", "page")
		err := p.View(t.Context(), func(sn *ledger.Snapshot) error {
			for k, v := range s.want {
				got, err := sn.Get(t.Context(), []byte(k))
				if k == "local" && (errors.Is(err, ledger.ErrGone) || errors.Is(err, ledger.ErrNotFound)) {
					continue // only this device had it
				}
				if err != nil || string(got) != v {
					return fmt.Errorf("key %q: %w", k, err)
				}
			}
			return nil
		})
		must(t, err)
		closeIt(t, r)
	}
}

// readKeys reads all keys, and no values.
func readKeys(t *testing.T, p *ledger.Page) {
	t.Helper()
	must(t, p.View(t.Context(), func(sn *ledger.Snapshot) error {
		keysIn(t, sn.Reader, ledger.ScanOptions{})
		return nil
	}))
}

// TestReadingFetchesWhatARepairOfflineLacks repairs a page while the bucket cannot be reached: a
// check tells as long as the newest version cannot be read wholly. As soon as the bucket is there
// again, whatever is read or written brings what is missing, and so does a sync.
func TestReadingFetchesWhatARepairOfflineLacks(t *testing.T) {
	s := newSickPage(t, true, false)
	ctx := t.Context()
	uses := map[string]func(r *ledger.Repository, p *ledger.Page) error{
		"read": func(_ *ledger.Repository, p *ledger.Page) error {
			wantContent(t, p, s.want)
			return nil
		},
		"transaction": func(_ *ledger.Repository, p *ledger.Page) error {
			tx, err := p.Begin(ctx, nil)
			if err == nil {
				err = tx.Put(ctx, []byte("new"), []byte("x"))
			}
			if err == nil {
				_, err = tx.Commit(ctx)
			}
			return err
		},
		"watch": func(_ *ledger.Repository, p *ledger.Page) error {
			f := newFollower(t, p, ledger.WatchOptions{From: ledger.FirstCommit()}, nil)
			defer f.stop()
			f.takeWhole()
			return nil
		},
		"sync": func(r *ledger.Repository, p *ledger.Page) error {
			syncAll(t, r)
			s.offline(true)
			readKeys(t, p)
			s.offline(false)
			return nil
		},
	}
	for name, use := range uses {
		s.restore()
		for _, n := range s.segmentFiles() {
			must(t, os.Remove(n))
		}
		s.offline(true)
		s.check(admin.CheckOptions{Repair: true})
		if again := s.check(admin.CheckOptions{}); len(again.Problems) != 1 || !again.Problems[0].Fetchable {
			t.Errorf("%s: the newest version cannot be read, and a check says %+v", name, again)
		}
		s.offline(false)
		r := open(t, s.dir, s.o)
		p := page(t, r, "app", "page")
		if err := use(r, p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		closeIt(t, r)
		if again := s.check(admin.CheckOptions{}); len(again.Problems) > 0 {
			t.Errorf("%s, and a check says %+v", name, again)
		}
	}
}

// TestAllFilesAreGone removes all files of a page, or its index and what its log has: a check says
// so, again and again, until repair has brought it back from the cloud, or has told that it is gone
// for good. A page that nobody wrote to is no such.
func TestAllFilesAreGone(t *testing.T) {
	logs := map[string]func(content []byte) []byte{
		"gone":        func([]byte) []byte { return nil },
		"empty":       func([]byte) []byte { return []byte{} },
		"header only": func(b []byte) []byte { return b[:32] },
		"zeros":       func(b []byte) []byte { return make([]byte, len(b)) },
		"ones":        func(b []byte) []byte { return bytes.Repeat([]byte{0xff}, len(b)) },
	}
	names := slices.Sorted(maps.Keys(logs))
	for i := range 2 * len(names) {
		cloud, log := i%2 == 0, logs[names[i/2]]
		t.Run(fmt.Sprint(names[i/2], " ", cloud), func(t *testing.T) {
			s := newSickPage(t, cloud, false)
			for n, content := range s.files {
				if left := log([]byte(content)); left != nil && filepath.Ext(n) == ".seg" {
					must(t, os.WriteFile(n, left, 0o600))
				} else {
					must(t, os.Remove(n))
				}
			}
			for range 2 {
				if found := s.check(admin.CheckOptions{}); len(found.Problems) != 1 || found.Problems[0].Fetchable != cloud || !strings.Contains(found.Problems[0].Message, "gone") {
					t.Errorf("found %+v", found)
				}
			}
			r := open(t, s.dir, s.o)
			p := page(t, r, "app", "page") // who looks at it does not hide that
			closeIt(t, p)
			closeIt(t, r)
			mended := s.check(admin.CheckOptions{Repair: true})
			if len(mended.Problems) != 1 || mended.Problems[0].Repaired != cloud {
				t.Errorf("repaired %+v", mended)
			}
			if again := s.check(admin.CheckOptions{}); len(again.Problems) > 0 {
				t.Errorf("again %+v", again)
			}
			r = open(t, s.dir, s.o)
			defer closeIt(t, r)
			if p = page(t, r, "app", "page"); cloud {
				wantContent(t, p, s.want)
			}
			closeIt(t, p)
			closeIt(t, page(t, r, "app", "empty"))
			checkClean(t, r)
		})
	}
}
