package ledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/rules"
)

// records is a toy record layer: rec/ID is the email of a record, and idx/EMAIL/ID, an empty row,
// finds it. The rows of the index are derived from the records, so a group is a record, and what
// becomes of its rows follows from what becomes of it.
type records struct {
	finished int
	groups   []string
}

func (*records) Name() string { return "records" }

func recordID(key []byte) []byte {
	if id, ok := bytes.CutPrefix(key, []byte("rec/")); ok {
		return id
	}
	_, id, _ := bytes.Cut(bytes.TrimPrefix(key, []byte("idx/")), []byte("/"))
	return id
}

func (*records) Group(key []byte) []byte { return recordID(key) }

func (r *records) MergeGroup(ctx context.Context, _ *rules.Merge, g *rules.Group) error {
	r.groups = append(r.groups, string(g.Name))
	left, right := false, false
	for c, err := range g.Changes(ctx) {
		if err != nil {
			return err
		}
		left = left || differs(c.Base, c.Left)
		right = right || differs(c.Base, c.Right)
	}
	switch {
	case !right:
		return g.Take(ctx, rules.SideLeft)
	case !left:
		return g.Take(ctx, rules.SideRight)
	}
	side, err := g.Newest(ctx)
	if err != nil {
		return err
	}
	return g.Take(ctx, side)
}

func (r *records) Finish(context.Context, *rules.Merge) error {
	r.finished++
	return nil
}

func differs(a, b *ledger.Entry) bool {
	if a == nil || b == nil {
		return a != b
	}
	x, _ := a.Value(context.Background())
	y, _ := b.Value(context.Background())
	return !bytes.Equal(x, y)
}

// setRecord writes a record with its row; "" deletes it.
func setRecord(ctx context.Context, tx *ledger.Tx, id, email string) error {
	old, err := tx.Get(ctx, []byte("rec/"+id))
	if err != nil && !errors.Is(err, ledger.ErrNotFound) {
		return err
	}
	if err == nil {
		if err := tx.Delete(ctx, []byte("idx/"+string(old)+"/"+id)); err != nil {
			return err
		}
	}
	if email == "" {
		return tx.Delete(ctx, []byte("rec/"+id))
	}
	return errors.Join(tx.Put(ctx, []byte("rec/"+id), []byte(email)), tx.Put(ctx, []byte("idx/"+email+"/"+id), nil))
}

// brokenRows returns the rows of the index that no record has, and those that are missing.
func brokenRows(content map[string]string) []string {
	want := map[string]string{}
	for k, v := range content {
		if id, ok := strings.CutPrefix(k, "rec/"); ok {
			want[k], want["idx/"+v+"/"+id] = v, ""
		}
	}
	maps.DeleteFunc(want, func(k, v string) bool { w, ok := content[k]; return ok && v == w })
	bad := sortedKeys(want)
	for k := range content {
		if id := recordID([]byte(k)); strings.HasPrefix(k, "idx/") && !strings.HasPrefix(k, "idx/"+content["rec/"+string(id)]+"/") {
			bad = append(bad, k)
		}
	}
	return bad
}

// Row by row, a merge gives a phantom hit in the index where two sides have given one record other
// emails; by groups it does not.
func TestGroupsKeepAnIndexRight(t *testing.T) {
	set := func(kv ...string) func(*ledger.Tx) error {
		return func(tx *ledger.Tx) error {
			for i := 0; i < len(kv); i += 2 {
				if err := setRecord(t.Context(), tx, kv[i], kv[i+1]); err != nil {
					return err
				}
			}
			return nil
		}
	}
	strategy := &records{}
	for _, choice := range [][]ledger.MergeRule{nil, {{Strategy: rules.Grouped(strategy)}}} {
		p, _ := diverged(t, ledger.Options{}, set("r", "a", "stays", "s", "gone", "g", "lr", "x"),
			set("r", "b", "left", "l", "lr", "y"), set("r", "c", "right", "r", "gone", ""))
		p.SetMergeRules(choice...)
		results, err := p.Merge(t.Context())
		must(t, err)
		got := pageContent(t, p)
		if choice == nil {
			if diff := cmp.Diff([]string{"idx/b/r"}, brokenRows(got)); diff != "" {
				t.Errorf("row by row is expected to leave one phantom row:\n%s", diff)
			}
			continue
		}
		want := map[string]string{
			"rec/r": "c", "idx/c/r": "", "rec/stays": "s", "idx/s/stays": "", "rec/left": "l", "idx/l/left": "",
			"rec/right": "r", "idx/r/right": "", "rec/lr": "y", "idx/y/lr": "",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("content (-want +got):\n%s", diff)
		}
		var said []string
		for _, d := range decisions(t, p, results[0].Commit.ID) {
			said = append(said, fmt.Sprintf("%s %s %s", d.Key, d.Outcome, d.Rule))
		}
		if diff := cmp.Diff([]string{"idx/b/r right records", "rec/r right records"}, said); diff != "" {
			t.Errorf("decisions (-want +got):\n%s", diff)
		}
		checkClean(t, p.Repository())
	}
	if diff := cmp.Diff([]string{"gone", "left", "lr", "r", "right"}, strategy.groups); diff != "" || strategy.finished != 1 {
		t.Errorf("groups (-want +got), %d times finished:\n%s", strategy.finished, diff)
	}
}

// The laws of merging by groups, with random edits on three branches: the index follows from the
// records, both repositories that merge the same heads come to the same bytes, and no edit is lost
// that no other edit of its record competes with. A journal of 1 byte spills everything.
func TestLawsOfGroups(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		o := ledger.Options{InMemory: true, ManualMerge: true, JournalBytes: rapid.SampledFrom([]int64{0, 1}).Draw(rt, "journal")}
		r, err := ledger.Open(t.Context(), "", &o)
		must(t, err)
		defer closeIt(t, r)
		p, err := r.Page(t.Context(), "app", "page")
		must(t, err)
		edit := func(name string) map[string]string {
			return rapid.MapOfN(rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6"}), rapid.SampledFrom([]string{"", "a", "b", "c"}), 0, 4).Draw(rt, name)
		}
		apply := func(tx *ledger.Tx, edits map[string]string) {
			for _, id := range sortedKeys(edits) {
				must(t, setRecord(t.Context(), tx, id, edits[id]))
			}
		}
		base := update(t, p, func(tx *ledger.Tx) error { apply(tx, edit("base")); return nil })
		before := pageContent(t, p)
		changed := map[string][]string{} // by record
		for side := range 3 {
			tx, err := p.Begin(t.Context(), &ledger.TxOptions{Base: base})
			must(t, err)
			edits := edit(fmt.Sprint("side ", side))
			apply(tx, edits)
			for id, email := range edits {
				if before["rec/"+id] != email {
					changed[id] = append(changed[id], email)
				}
			}
			_, err = tx.Commit(t.Context())
			must(t, err)
		}
		p.SetMergeRules(ledger.MergeRule{Strategy: rules.Grouped(&records{})})
		_, err = p.Merge(t.Context())
		must(t, err)
		got := pageContent(t, p)
		if bad := brokenRows(got); len(bad) > 0 {
			rt.Fatalf("rows %q do not follow from the records: %v", bad, got)
		}
		for id, emails := range changed {
			if len(emails) == 1 && got["rec/"+id] != emails[0] {
				rt.Fatalf("record %s is %q, but its only edit made it %q", id, got["rec/"+id], emails[0])
			}
		}
		for k := range before {
			if id := string(recordID([]byte(k))); len(changed[id]) == 0 && got["rec/"+id] != before["rec/"+id] {
				rt.Fatalf("record %s is %q, though nobody changed it", id, got["rec/"+id])
			}
		}
	})
}

// strategyFunc is a GroupStrategy with one group for each key up to a '/'.
type strategyFunc struct {
	group  func(ctx context.Context, m *rules.Merge, g *rules.Group) error
	finish func(ctx context.Context, m *rules.Merge) error
}

func (strategyFunc) Name() string { return "test" }

func (strategyFunc) Group(key []byte) []byte {
	name, _, _ := bytes.Cut(key, []byte("/"))
	return bytes.ReplaceAll(name, []byte("0"), []byte{0})
}

func (s strategyFunc) MergeGroup(ctx context.Context, m *rules.Merge, g *rules.Group) error {
	return s.group(ctx, m, g)
}

func (s strategyFunc) Finish(ctx context.Context, m *rules.Merge) error {
	if s.finish == nil {
		return nil
	}
	return s.finish(ctx, m)
}

// seesAndMay checks what a strategy reads in a merge of the namespace n/, and what it may not
// write.
func seesAndMay(t *testing.T, m *rules.Merge, ids [3]ledger.CommitID, long string) {
	t.Helper()
	for _, c := range []struct {
		s    *ledger.Snapshot
		id   ledger.CommitID
		want string
	}{{m.Base, ids[0], "0"}, {m.Left, ids[1], "1"}, {m.Right, ids[2], "2"}} {
		v, err := c.s.Get(t.Context(), []byte("out"))
		if err != nil || string(v) != c.want || c.s.Commit().ID != c.id {
			t.Errorf("out is %s, %v in commit %s", v, err, c.s.Commit().ID)
		}
	}
	if string(m.Prefix) != "n/" {
		t.Errorf("merge %+v", m)
	}
	v, err := m.Left.Get(t.Context(), []byte("n/b/1"))
	if string(v) != long || err != nil {
		t.Errorf("value of %d bytes, %v", len(v), err)
	}
	for _, k := range []string{"out", "n", "n/x/more"} { // outside, and where another rule counts
		wantErr(t, m.Result.Put(t.Context(), []byte(k), nil), ledger.ErrInvalid)
		wantErr(t, m.Result.Delete(t.Context(), []byte(k)), ledger.ErrInvalid)
		wantErr(t, m.Report(t.Context(), []byte(k), "mine", rules.SideLeft), ledger.ErrInvalid)
	}
	wantErr(t, m.Report(t.Context(), []byte("n/a"), "", rules.SideLeft), ledger.ErrInvalid)
	wantErr(t, m.Report(t.Context(), []byte("n/a"), "mine", 7), ledger.ErrInvalid)
	wantErr(t, m.Result.SetMessage("mine"), ledger.ErrInvalid)
	wantErr(t, m.Result.Rollback(), ledger.ErrInvalid)
	_, err = m.Result.Commit(t.Context())
	wantErr(t, err, ledger.ErrInvalid)
}

func TestWhatAGroupStrategySees(t *testing.T) {
	long := strings.Repeat("long", 5000)
	p, ids := diverged(t, ledger.Options{},
		pairs(t, "n/a/1", "0", "n/a/2", "0", "n/same/1", "0", "out", "0", "n/x/rule", "0"),
		pairs(t, "n/a/1", "1", "n/same/1", "1", "n/b/1", long, "out", "1", "n/x/rule", "1", "n/x0/1", "", "n/x0y/1", ""),
		pairs(t, "n/a/1", "2", "n/a/2", "-", "n/same/1", "1", "out", "2", "n/x/rule", "2"))
	var log []string
	say := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	var kept *rules.Merge
	var keptGroup *rules.Group
	s := strategyFunc{}
	s.group = func(ctx context.Context, m *rules.Merge, g *rules.Group) error {
		say("group %q", g.Name)
		keptGroup = g
		for c, err := range g.Changes(ctx) {
			if err != nil {
				return err
			}
			left, right := valueOf(t, c.Left), valueOf(t, c.Right)
			say("%s: %s, %s, %s", c.Key, valueOf(t, c.Base), left[:min(len(left), 6)], right)
			if c.LeftCommit.ID != ids[1] || c.RightCommit.ID != ids[2] || len(c.BaseCommits) != 1 {
				t.Errorf("conflict %+v", c)
			}
			now, err := m.Result.Get(ctx, c.Key)
			if was := valueOf(t, c.Base); err == nil && was != string(now) || err != nil && was != "absent" {
				t.Errorf("%s is %q, %v in the result, and %q in the base", c.Key, now, err, was)
			}
		}
		if string(g.Name) != "b" {
			return g.Take(ctx, rules.SideLeft)
		}
		return errors.Join(g.Take(ctx, rules.SideBase), m.Result.Put(ctx, []byte("n/b/new"), []byte(long)),
			m.Report(ctx, []byte("n/b/new"), "mine", rules.SideBase))
	}
	s.finish = func(ctx context.Context, m *rules.Merge) error {
		say("finish")
		kept = m
		seesAndMay(t, m, ids, long)
		return m.Result.DeleteRange(ctx, []byte("n/x0"), nil)
	}
	p.SetMergeRules(ledger.MergeRule{Prefix: []byte("n/"), Strategy: rules.Grouped(cutting{s, []byte("n/")})},
		ledger.MergeRule{Prefix: []byte("n/x/"), Strategy: rules.LastOneWins()})
	results, err := p.Merge(t.Context())
	must(t, err)
	want := []string{
		`group "a"`, "n/a/1: 0, 1, 2", "n/a/2: 0, 0, absent",
		`group "b"`, "n/b/1: absent, longlo, absent",
		`group "same"`, "n/same/1: 0, 1, 1",
		`group "x\x00"`, "n/x0/1: absent, , absent",
		`group "x\x00y"`, "n/x0y/1: absent, , absent",
		"finish",
	}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
	wantContent(t, p, map[string]string{"n/a/1": "1", "n/a/2": "0", "n/b/new": long, "n/same/1": "1", "out": "2", "n/x/rule": "2"})
	var said []string
	for _, d := range decisions(t, p, results[0].Commit.ID) {
		said = append(said, fmt.Sprintf("%s %s %s", d.Key, d.Outcome, d.Rule))
	}
	wantSaid := []string{"n/a/1 left test", "n/a/2 left test", "n/b/1 deleted test", "n/b/new new mine"}
	if diff := cmp.Diff(wantSaid, said[:min(len(said), 4)]); diff != "" || len(said) != 6 {
		t.Errorf("decisions (-want +got): %q\n%s", said, diff)
	}

	// What was handed out has ended.
	_, err = kept.Left.Get(t.Context(), []byte("out"))
	wantErr(t, err, ledger.ErrClosed)
	wantErr(t, kept.Result.Put(t.Context(), []byte("n/a"), nil), ledger.ErrTxDone)
	wantErr(t, keptGroup.Take(t.Context(), rules.SideLeft), ledger.ErrTxDone)
	_, err = keptGroup.Newest(t.Context())
	wantErr(t, err, ledger.ErrTxDone)
	for _, err := range keptGroup.Changes(t.Context()) {
		wantErr(t, err, ledger.ErrTxDone)
	}
	checkClean(t, p.Repository())
}

// cutting gives keys to a strategy without their prefix.
type cutting struct {
	rules.GroupStrategy
	prefix []byte
}

func (c cutting) Group(key []byte) []byte {
	return c.GroupStrategy.Group(bytes.TrimPrefix(key, c.prefix))
}

func TestClearInAMerge(t *testing.T) {
	p, _ := diverged(t, ledger.Options{}, pairs(t, "a", "0", "n/1", "0", "n/2", "0", "z", "0"), pairs(t, "n/1", "1"), pairs(t, "n/1", "2", "a", "2"))
	p.SetMergeRules(ledger.MergeRule{Prefix: []byte("n/"), Strategy: rules.Grouped(strategyFunc{
		group: func(ctx context.Context, m *rules.Merge, _ *rules.Group) error {
			return errors.Join(m.Result.DeleteRange(ctx, nil, nil), m.Result.Put(ctx, []byte("n/only"), []byte("1")))
		},
	})})
	_, err := p.Merge(t.Context())
	must(t, err)
	wantContent(t, p, map[string]string{"a": "2", "n/only": "1", "z": "0"})
}

func TestGroupStrategiesThatFail(t *testing.T) {
	mine := errors.New("my own error")
	ok := func(context.Context, *rules.Merge, *rules.Group) error { return nil }
	for name, s := range map[string]rules.GroupStrategy{
		"error":           strategyFunc{group: func(context.Context, *rules.Merge, *rules.Group) error { return mine }},
		"panic":           strategyFunc{group: func(context.Context, *rules.Merge, *rules.Group) error { panic("my own error") }},
		"panic in a loop": strategyFunc{group: func(ctx context.Context, _ *rules.Merge, g *rules.Group) error { panicIn(ctx, g); return nil }},
		"finish":          strategyFunc{group: ok, finish: func(context.Context, *rules.Merge) error { return mine }},
		"panic in Group":  panickingGroup{strategyFunc{group: ok}},
	} {
		t.Run(name, func(t *testing.T) {
			p, _ := diverged(t, ledger.Options{JournalBytes: 1}, pairs(t, "a/1", "0", "b", "0"), pairs(t, "a/1", "1", "b", "1"), pairs(t, "a/1", "2"))
			p.SetMergeRules(ledger.MergeRule{Strategy: rules.Grouped(s)})
			_, err := p.Merge(t.Context())
			var merr *ledger.MergeError
			if !errors.As(err, &merr) || !strings.Contains(err.Error(), mine.Error()) {
				t.Errorf("got %v", err)
			}
			p.SetMergeRules()
			_, err = p.Merge(t.Context())
			must(t, err)
			checkClean(t, p.Repository())
		})
	}
}

func panicIn(ctx context.Context, g *rules.Group) {
	for range g.Changes(ctx) {
		panic("my own error")
	}
}

type panickingGroup struct{ strategyFunc }

func (panickingGroup) Group([]byte) []byte { panic("my own error") }
