package ledger_test

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger"
)

// modelMachine drives two pages of a repository on disk and a map for each, with snapshots and
// commits that must not change.
type modelMachine struct {
	t       testing.TB
	dir     string
	o       ledger.Options
	repo    *ledger.Repository
	pages   [2]*ledger.Page
	models  [2]map[string]string
	history [2]map[ledger.CommitID]map[string]string
	frozen  []frozen
}

type frozen struct {
	s    *ledger.Snapshot
	want map[string]string
}

var pageNames = [2]string{"one", "two"}

func (m *modelMachine) open() {
	m.repo = open(m.t, m.dir, &m.o)
	for i, name := range pageNames {
		m.pages[i] = page(m.t, m.repo, "app", name)
	}
}

func drawKey(rt *rapid.T) string {
	return rapid.OneOf(
		rapid.StringMatching(`[a-d]{0,3}`),
		rapid.SampledFrom([]string{"", "\x00", "\xff", "\xff\xff", "a\x00", strings.Repeat("k", 4096)}),
	).Draw(rt, "key")
}

func drawValue(rt *rapid.T) string {
	n := rapid.SampledFrom([]int{0, 1, 20, 255, 256, 257, 5000, 70_000}).Draw(rt, "length")
	return string(pseudo(rapid.Uint64Range(0, 3).Draw(rt, "seed"), n))
}

// change makes some changes in tx and in the model, checking what tx shows in between.
func (m *modelMachine) change(rt *rapid.T, tx *ledger.Tx, model map[string]string) {
	ctx := m.t.Context()
	for range rapid.IntRange(1, 8).Draw(rt, "changes") {
		k := drawKey(rt)
		switch rapid.SampledFrom([]string{"put", "put", "put", "reader", "delete", "range", "clear", "putif", "scan"}).Draw(rt, "change") {
		case "put":
			v := drawValue(rt)
			must(m.t, tx.Put(ctx, []byte(k), []byte(v)))
			model[k] = v
		case "reader":
			v := drawValue(rt)
			must(m.t, tx.PutReader(ctx, []byte(k), strings.NewReader(v), -1, ledger.Lazy))
			model[k] = v
		case "delete":
			must(m.t, tx.Delete(ctx, []byte(k)))
			delete(model, k)
		case "range":
			to := drawKey(rt)
			must(m.t, tx.DeleteRange(ctx, []byte(k), []byte(to)))
			maps.DeleteFunc(model, func(x, _ string) bool { return k <= x && x < to })
		case "clear":
			must(m.t, tx.DeleteRange(ctx, nil, nil))
			clear(model)
		case "putif":
			_, has := model[k]
			_, err := tx.Stat(ctx, []byte(k))
			if has != (err == nil) {
				rt.Fatalf("look at %q before a put: %v", k, err)
			}
			if !has {
				must(m.t, tx.Put(ctx, []byte(k), []byte("if")))
				model[k] = "if"
			}
		case "scan":
			m.compareScan(rt, tx.Reader, model)
		}
	}
	if diff := cmp.Diff(model, content(m.t, tx.Reader, ledger.ScanOptions{})); diff != "" {
		rt.Fatalf("transaction (-model +got):\n%s", diff)
	}
}

// compareScan compares a scan with drawn options, and a look-up, with the model.
func (m *modelMachine) compareScan(rt *rapid.T, r ledger.Reader, model map[string]string) {
	o := ledger.ScanOptions{Reverse: rapid.Bool().Draw(rt, "reverse"), KeysOnly: rapid.Bool().Draw(rt, "keysOnly"), Limit: rapid.IntRange(0, 5).Draw(rt, "limit")}
	if rapid.Bool().Draw(rt, "bounded") {
		o.Start, o.End, o.Prefix = []byte(drawKey(rt)), []byte(drawKey(rt)), []byte(rapid.StringMatching(`[a-d]?`).Draw(rt, "prefix"))
	}
	var want []string
	for _, k := range sortedKeys(model) {
		if o.End != nil && (k < string(o.Start) || k >= string(o.End) || !strings.HasPrefix(k, string(o.Prefix))) {
			continue
		}
		want = append(want, k)
	}
	if o.Reverse {
		slices.Reverse(want)
	}
	if o.Limit > 0 && len(want) > o.Limit {
		want = want[:o.Limit]
	}
	if diff := cmp.Diff(want, keysIn(m.t, r, o)); diff != "" {
		rt.Fatalf("scan %+v (-model +got):\n%s", o, diff)
	}
	k := drawKey(rt)
	next := sortedKeys(model)
	first, _ := slices.BinarySearch(next, k)
	next = next[first:]
	if found, err := r.Seek(m.t.Context(), []byte(k)); (len(next) > 0) != (err == nil) || err == nil && string(found) != next[0] || err != nil && !errors.Is(err, ledger.ErrNotFound) {
		rt.Fatalf("seek %q: %q, %v, the model has %q", k, found, err, next)
	}
	v, err := r.Get(m.t.Context(), []byte(k))
	want1, has := model[k]
	if has != (err == nil) || string(v) != want1 {
		rt.Fatalf("get %q: %d bytes, %v; the model has it: %t", k, len(v), err, has)
	}
}

func (m *modelMachine) actions() map[string]func(*rapid.T) {
	which := func(rt *rapid.T) int { return rapid.IntRange(0, 1).Draw(rt, "page") }
	remember := func(i int, id ledger.CommitID) { m.history[i][id] = maps.Clone(m.models[i]) }
	return map[string]func(*rapid.T){
		"update": func(rt *rapid.T) {
			i := which(rt)
			model := maps.Clone(m.models[i])
			remember(i, update(m.t, m.pages[i], func(tx *ledger.Tx) error {
				m.change(rt, tx, model)
				m.models[i] = model
				return nil
			}))
		},
		"begin": func(rt *rapid.T) {
			i := which(rt)
			model := maps.Clone(m.models[i])
			tx, err := m.pages[i].Begin(m.t.Context(), &ledger.TxOptions{FailOnConflict: true})
			must(m.t, err)
			m.change(rt, tx, model)
			if rapid.Bool().Draw(rt, "rollback") {
				must(m.t, tx.Rollback())
				return
			}
			id, err := tx.Commit(m.t.Context())
			must(m.t, err)
			m.models[i] = model
			remember(i, id)
		},
		"snapshot": func(rt *rapid.T) {
			i := which(rt)
			s, err := m.pages[i].Snapshot(m.t.Context())
			must(m.t, err)
			m.frozen = append(m.frozen, frozen{s, maps.Clone(m.models[i])})
		},
		"scan": func(rt *rapid.T) {
			i := which(rt)
			must(m.t, m.pages[i].View(m.t.Context(), func(s *ledger.Snapshot) error {
				m.compareScan(rt, s.Reader, m.models[i])
				return nil
			}))
		},
		"at": func(rt *rapid.T) {
			i := which(rt)
			ids := slices.SortedFunc(maps.Keys(m.history[i]), ledger.CommitID.Compare)
			if len(ids) == 0 {
				rt.Skip()
			}
			id := rapid.SampledFrom(ids).Draw(rt, "commit")
			s, err := m.pages[i].At(m.t.Context(), id)
			must(m.t, err)
			if diff := cmp.Diff(m.history[i][id], content(m.t, s.Reader, ledger.ScanOptions{})); diff != "" {
				rt.Fatalf("old commit (-model +got):\n%s", diff)
			}
			must(m.t, s.Close())
			m.compareDiff(rt, i, id)
			if rapid.Bool().Draw(rt, "restore") {
				m.restore(rt, i, id)
				heads, err := m.pages[i].Heads(m.t.Context())
				must(m.t, err)
				remember(i, heads[0].ID)
			}
		},
		"reopen": func(rt *rapid.T) {
			m.closeFrozen(rt)
			closeIt(m.t, m.repo)
			m.o.JournalBytes = rapid.SampledFrom([]int64{1, 1000, 0}).Draw(rt, "journalBytes")
			m.open()
		},
		"": func(rt *rapid.T) {
			for i, p := range m.pages {
				if diff := cmp.Diff(m.models[i], pageContent(m.t, p)); diff != "" {
					rt.Fatalf("page %d (-model +got):\n%s", i, diff)
				}
			}
		},
	}
}

// compareDiff compares the diff between a commit and the head with the model.
func (m *modelMachine) compareDiff(rt *rapid.T, i int, id ledger.CommitID) {
	old, cur := m.history[i][id], m.models[i]
	want := map[string]bool{}
	for k, v := range old {
		if w, ok := cur[k]; !ok || w != v {
			want[k] = true
		}
	}
	for k := range cur {
		if _, ok := old[k]; !ok {
			want[k] = true
		}
	}
	for c, err := range m.pages[i].Diff(m.t.Context(), id, ledger.CommitID{}, nil) {
		must(m.t, err)
		k := string(c.Key)
		if c.New != nil && c.Old != nil && old[k] == cur[k] && c.Old.Priority != c.New.Priority {
			continue // the model knows no priorities
		}
		if !want[k] {
			rt.Fatalf("diff has %q", k)
		}
		delete(want, k)
		for e, model := range map[*ledger.Entry]map[string]string{c.Old: old, c.New: cur} {
			if e == nil {
				continue
			}
			if v, err := e.Value(m.t.Context()); err != nil || string(v) != model[k] {
				rt.Fatalf("diff of %q: %d bytes, %v", k, len(v), err)
			}
		}
	}
	if len(want) > 0 {
		rt.Fatalf("diff lacks %q", sortedKeys(want))
	}
}

func (m *modelMachine) restore(rt *rapid.T, i int, id ledger.CommitID) {
	prefix := rapid.SampledFrom([]string{"", "a", "b", "\xff"}).Draw(rt, "prefix")
	_, err := m.pages[i].Restore(m.t.Context(), id, "", []byte(prefix))
	must(m.t, err)
	model := maps.Clone(m.models[i])
	maps.DeleteFunc(model, func(k, _ string) bool { return strings.HasPrefix(k, prefix) })
	for k, v := range m.history[i][id] {
		if strings.HasPrefix(k, prefix) {
			model[k] = v
		}
	}
	m.models[i] = model
}

func (m *modelMachine) closeFrozen(rt *rapid.T) {
	for _, f := range m.frozen {
		if diff := cmp.Diff(f.want, content(m.t, f.s.Reader, ledger.ScanOptions{})); diff != "" {
			rt.Fatalf("snapshot has changed (-want +got):\n%s", diff)
		}
		must(m.t, f.s.Close())
	}
	m.frozen = nil
}

func TestModel(t *testing.T) {
	root := t.TempDir()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		m := &modelMachine{t: t, dir: filepath.Join(root, string(rune('a'+n%26))+strings.Repeat("x", n/26))}
		for i := range m.models {
			m.models[i] = map[string]string{}
			m.history[i] = map[ledger.CommitID]map[string]string{}
		}
		m.o.JournalBytes = rapid.SampledFrom([]int64{1, 1000, 0}).Draw(rt, "journalBytes")
		m.open()
		rt.Repeat(m.actions())
		m.closeFrozen(rt)
		checkClean(t, m.repo)
		closeIt(t, m.repo)
		must(t, os.RemoveAll(m.dir))
		if t.Failed() {
			rt.Fatal("failed")
		}
	})
}

func TestLargeTransactionSpills(t *testing.T) {
	dir := t.TempDir()
	r := open(t, dir, &ledger.Options{JournalBytes: 64 << 10})
	p := page(t, r, "app", "page")
	const n = 20_000
	order := rand.New(rand.NewPCG(1, 2)).Perm(n)
	want := map[string]string{}
	before, spilled := pageFiles(t, pageDir(t, dir)), false
	update(t, p, func(tx *ledger.Tx) error {
		for _, i := range order {
			value := bytes.Repeat(key(i*7), 20)
			must(t, tx.Put(t.Context(), key(i), value))
			want[string(key(i))] = string(value)
		}
		for i := 0; i < n; i += 3 {
			must(t, tx.Delete(t.Context(), key(i)))
			delete(want, string(key(i)))
		}
		for i := 1; i < n; i += 30 {
			must(t, tx.Put(t.Context(), key(i), []byte("again")))
			want[string(key(i))] = "again"
		}
		spilled = pageFiles(t, pageDir(t, dir)) > before
		if !slices.Equal(keysIn(t, tx.Reader, ledger.ScanOptions{}), sortedKeys(want)) {
			t.Error("scan within the transaction differs")
		}
		down := keysIn(t, tx.Reader, ledger.ScanOptions{Reverse: true, Start: key(100), End: key(9000)})
		slices.Reverse(down)
		if !slices.Equal(down, keysIn(t, tx.Reader, ledger.ScanOptions{Start: key(100), End: key(9000)})) {
			t.Error("reverse scan within the transaction differs")
		}
		v, err := tx.Get(t.Context(), key(1))
		if err != nil || !bytes.Equal(v, []byte("again")) {
			t.Errorf("get: %q, %v", v, err)
		}
		return nil
	})
	if !spilled {
		t.Error("nothing was spilled")
	}
	if files, _ := filepath.Glob(filepath.Join(pageDir(t, dir), "tmp", "*")); len(files) != 0 {
		t.Errorf("left behind: %v", files)
	}
	wantContent(t, p, want)

	// The same content in one piece has the same root.
	other, err := memoryPage(t, ledger.Options{}).Repository().OpenPage(t.Context(), ledger.PageRef{Ledger: "app", ID: p.Ref().ID})
	must(t, err)
	update(t, other, func(tx *ledger.Tx) error {
		for k, v := range want {
			must(t, tx.Put(t.Context(), []byte(k), []byte(v)))
		}
		return nil
	})
	a, err := p.Heads(t.Context())
	must(t, err)
	b, err := other.Heads(t.Context())
	must(t, err)
	if a[0].Root != b[0].Root {
		t.Error("the roots differ")
	}
	checkClean(t, r)
}
