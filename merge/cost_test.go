package merge_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
)

func keyOf(i int) string { return fmt.Sprintf("key %06d", i) }

// large makes a page of n keys and two commits on it, each with the given number of changes all
// over the page. Of those of right every second one is to a key that left has changed too, if both
// is set.
func large(t tester, n, changes int, both bool) (p *testPage, left, right *commit.Commit) {
	t.Helper()
	p = newTestPage()
	all := edit{}
	for i := range n {
		all[keyOf(i)] = "value"
	}
	b := p.commit(t, 1, all)
	l, r := edit{}, edit{}
	step := n / changes
	for i := range changes {
		l[keyOf(i*step)] = "left"
		if both && i%2 == 0 {
			r[keyOf(i*step)] = "right"
		} else {
			r[keyOf(i*step+step/2)] = "right"
		}
	}
	return p, p.commit(t, 2, l, b), p.commit(t, 3, r, b)
}

func TestMergeReadsWhatChanged(t *testing.T) {
	const n, changes = 50_000, 10
	p, l, r := large(t, n, changes, false)
	p.resetCounts()
	m := heads(t, p, merge.Rules{}, l, r)[0]
	// Each change needs its path, of about log16(n) = 4 nodes, in the base twice, in its side, and
	// to apply it.
	if limit := 2 * changes * 4 * 6; p.nodeReads > limit {
		t.Errorf("I3: %d nodes read for %d changes of each side, want at most %d", p.nodeReads, changes, limit)
	}
	if p.commitReads > 8 {
		t.Errorf("%d commits read", p.commitReads)
	}
	t.Logf("%d nodes read, %d put", p.nodeReads, p.putNodes)
	if m.Conflicts != 0 {
		t.Errorf("%d conflicts", m.Conflicts)
	}
}

// Conflicts cost no second comparison (defect 21 of the original).
func TestConflictsAreFoundOnTheWay(t *testing.T) {
	const n, changes = 20_000, 50
	reads := map[bool]int{}
	for _, both := range []bool{false, true} {
		p, l, r := large(t, n, changes, both)
		p.resetCounts()
		a := &asked{}
		m := heads(t, p, rulesOf(a), l, r)[0]
		if want := map[bool]int{true: changes / 2}[both]; len(a.conflicts) != want || m.Conflicts != want {
			t.Errorf("asked about %d conflicts, %d recorded, want %d", len(a.conflicts), m.Conflicts, want)
		}
		reads[both] = p.nodeReads
	}
	if reads[true] > reads[false]+8 {
		t.Errorf("%d nodes read with conflicts, %d without", reads[true], reads[false])
	}
}

func TestSideWithoutChangesIsNotRead(t *testing.T) {
	p, l, _ := large(t, 5000, 10, false)
	b := p.commits[l.Parents[0]]
	// The side has an own commit that changes nothing in the end.
	same := p.commit(t, 5, edit{"x": gone}, p.commit(t, 4, edit{"x": "1"}, b))
	p.resetCounts()
	m := heads(t, p, merge.Rules{}, l, same)[0]
	if m.How != merge.ThreeWay || m.Commit.Root != l.Root || p.nodeReads != 0 {
		t.Errorf("how %d, %d nodes read", m.How, p.nodeReads)
	}
}

// stopping is a source that cancels a context at a read.
type stopping struct {
	*memory
	at     int
	cancel context.CancelFunc
}

func (s *stopping) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	if s.at--; s.at == 0 {
		s.cancel()
	}
	return s.memory.Node(ctx, d)
}

func TestCancelAtEveryRead(t *testing.T) {
	p, l, r := large(t, 2000, 12, true)
	ll, rr := crissCross(t, p, "b", []string{"x", "y"}, "1", "2")
	for name, hs := range map[string][]*commit.Commit{"one base": {l, r}, "two bases": {ll, rr}, "four heads": {l, r, ll, rr}} {
		for at := 1; ; at++ {
			ctx, cancel := context.WithCancel(t.Context())
			s := &stopping{newMemory(p.page, p.memory), at, cancel}
			env := p.env()
			env.Sink, env.Tree, env.Nodes, env.Pieces = s, p.trees(s), s, s
			_, err := merge.Heads(ctx, env, merge.Rules{Rules: []merge.Rule{{Prefix: []byte("key 0000"), All: true, Decider: &asked{}}}}, hs)
			cancel()
			if s.at > 0 {
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if at < 10 {
					t.Errorf("%s: only %d reads", name, at)
				}
				break
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("%s: canceled at read %d: %v", name, at, err)
			}
		}
	}
}

// failing is a sink that does not take the n-th node.
type failing struct {
	*memory
	at int
}

var errSink = errors.New("sink is full")

func (s *failing) PutNode(ctx context.Context, n btree.NewNode) error {
	if s.at--; s.at == 0 {
		return errSink
	}
	return s.memory.PutNode(ctx, n)
}

func TestSinkFails(t *testing.T) {
	p, l, r := large(t, 2000, 12, true)
	for at := 1; ; at++ {
		s := &failing{newMemory(p.page, p.memory), at}
		env := p.env()
		env.Sink, env.Tree, env.Nodes, env.Pieces = s, p.trees(s), s, s
		_, err := merge.Heads(t.Context(), env, merge.Rules{}, []*commit.Commit{l, r})
		if s.at > 0 {
			break
		}
		if !errors.Is(err, errSink) {
			t.Fatalf("put number %d: %v", at, err)
		}
	}
}

// batches checks what a decider gets, and takes the left side.
type batches struct {
	t     *testing.T
	last  []byte
	sizes []int
}

func (b *batches) Decide(_ context.Context, _ *merge.Pair, cs []merge.Conflict) error {
	for i := range cs {
		c := &cs[i]
		if b.last != nil && bytes.Compare(b.last, c.Key) >= 0 {
			b.t.Fatalf("key %q after %q", c.Key, b.last)
		}
		b.last = c.Key
		c.Outcome, c.Rule = merge.TakeLeft, "batch"
	}
	b.sizes = append(b.sizes, len(cs))
	return nil
}

func TestConflictsComeInBatches(t *testing.T) {
	const n = 20_000
	p := newTestPage()
	l, r, want := edit{}, edit{}, map[string]string{}
	for i := range n {
		l[keyOf(i)], r[keyOf(i)], want[keyOf(i)] = "left", "right", "left"
	}
	left, right := p.commit(t, 1, l), p.commit(t, 2, r)
	b := &batches{t: t}
	env, sink := p.sealed()
	merged, err := merge.Heads(t.Context(), env, rulesOf(b), []*commit.Commit{left, right})
	if err != nil {
		t.Fatal(err)
	}
	p.wantOnlyReachable(t, sink, merged)
	if fmt.Sprint(b.sizes) != "[8192 8192 3616]" {
		t.Errorf("batches of %d conflicts", b.sizes)
	}
	wantContent(t, p, merged[0].Commit, want)
	if merged[0].Conflicts != n {
		t.Errorf("%d conflicts", merged[0].Conflicts)
	}
	i := 0
	for d, err := range merge.Decisions(t.Context(), p.view(), merged[0].Explanation, nil) {
		if err != nil || string(d.Key) != keyOf(i) || d.Outcome != merge.TakeLeft || d.Rule != "batch" {
			t.Fatalf("decision %d: %v, %v", i, d, err)
		}
		i++
	}
	if i != n {
		t.Errorf("%d decisions", i)
	}
}

// cut stores a value with a table and returns its entry.
func (p *testPage) cut(t tester, table *split.Table, key string, value []byte) fb.Entry {
	t.Helper()
	d, err := split.SplitBytes(t.Context(), table, value, func(ctx context.Context, s split.Piece) error {
		return p.PutPiece(ctx, s.Digest, s.Content)
	})
	if err != nil {
		t.Fatalf("cut value: %v", err)
	}
	return fb.Entry{Key: []byte(key), Digest: d, Size: uint64(len(value))}
}

// varied returns n bytes that do not repeat.
func varied(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * i >> 7)
	}
	return b
}

func TestValuesCutByOtherTables(t *testing.T) {
	value := varied(300_000)
	other := bytes.Clone(value)
	other[len(other)-1]++
	tables := []*split.Table{split.NewTable([]byte("one")), split.NewTable([]byte("two"))}
	for _, c := range []struct {
		name     string
		right    []byte
		priority object.Priority
		conflict int
	}{
		{"equal", value, object.Eager, 0},
		{"last byte differs", other, object.Eager, 1},
		{"other priority", value, object.Lazy, 1},
	} {
		for _, swap := range []bool{false, true} {
			p := newTestPage()
			a, b := p.cut(t, tables[0], "k", value), p.cut(t, tables[1], "k", c.right)
			if swap {
				a, b = b, a
			}
			if a.Digest == b.Digest {
				t.Fatal("the tables cut alike")
			}
			b.Priority = c.priority
			l := p.commitChanges(t, 1, []btree.Change{{Entry: a}})
			r := p.commitChanges(t, 2, []btree.Change{{Entry: b}})
			m := heads(t, p, merge.Rules{}, l, r)[0]
			if m.Conflicts != c.conflict {
				t.Errorf("%s: %d conflicts, want %d", c.name, m.Conflicts, c.conflict)
			}
			got, ok, err := p.tree(m.Commit.Root).Get(t.Context(), []byte("k"))
			want := b
			if c.conflict == 0 && a.Digest.Compare(b.Digest) < 0 {
				want = a
			}
			if err != nil || !ok || got.Digest != want.Digest {
				t.Errorf("%s: digest %s, want %s: %v", c.name, got.Digest.Short(), want.Digest.Short(), err)
			}
		}
	}
}

func TestComparingValuesFails(t *testing.T) {
	value := varied(300_000)
	p := newTestPage()
	a, b := p.cut(t, split.NewTable([]byte("one")), "k", value), p.cut(t, split.NewTable([]byte("two")), "k", value[1000:])
	b.Size = a.Size
	c := p.cut(t, split.NewTable([]byte("three")), "k", value)
	if a.Digest == c.Digest {
		t.Fatal("the tables cut alike")
	}
	p.missing[c.Digest] = true
	l := p.commitChanges(t, 1, []btree.Change{{Entry: a}})
	for name, e := range map[string]struct {
		entry fb.Entry
		want  error
	}{"another size than the pieces have": {b, base.ErrCorrupt}, "not held here": {c, base.ErrNeedsFetch}} {
		r := p.commitChanges(t, 2, []btree.Change{{Entry: e.entry}})
		if _, err := merge.Heads(t.Context(), p.env(), merge.Rules{}, []*commit.Commit{l, r}); !errors.Is(err, e.want) {
			t.Errorf("%s: %v, want %v", name, err, e.want)
		}
	}
}

// A window ends when it has many bytes, too.
func TestWindowsAreBoundedByBytes(t *testing.T) {
	const n = 2500
	p := newTestPage()
	l, r := edit{}, edit{}
	long := strings.Repeat("k", 4000)
	for i := range n {
		l[keyOf(i)+long], r[keyOf(i)+long] = "left", "right"
	}
	b := &batches{t: t}
	heads(t, p, rulesOf(b), p.commit(t, 1, l), p.commit(t, 2, r))
	if len(b.sizes) != 2 || b.sizes[0]*4000 > 9<<20 {
		t.Errorf("batches of %d conflicts of 4 KB", b.sizes)
	}
}

// Rules whose ranges lie between each other share windows.
func TestRulesShareWindows(t *testing.T) {
	const n = 20_000
	p := newTestPage()
	l, r, want := edit{}, edit{}, map[string]string{}
	for i := range n {
		k := keyOf(i)
		l[k], r[k] = "left", "right"
		switch {
		case strings.HasPrefix(k, "key 0150"):
		case strings.HasPrefix(k, "key 01"):
			want[k] = "left"
		default:
			want[k] = "right"
		}
		if i%3 == 0 {
			delete(r, k) // one side's change, wherever
			want[k] = "left"
		}
	}
	remove := decider(func(_ context.Context, _ *merge.Pair, cs []merge.Conflict) error {
		for i := range cs {
			cs[i].Outcome, cs[i].Rule = merge.TakeNone, "remove"
		}
		return nil
	})
	rules := merge.Rules{Rules: []merge.Rule{
		{Decider: &asked{}}, {Prefix: []byte("key 01"), Decider: &batches{t: t}}, {Prefix: []byte("key 0150"), Decider: remove},
	}}
	m := heads(t, p, rules, p.commit(t, 1, l), p.commit(t, 2, r))[0]
	wantContent(t, p, m.Commit, want)
	counts := map[string]int{}
	for d, err := range merge.Decisions(t.Context(), p.view(), m.Explanation, nil) {
		if err != nil {
			t.Fatal(err)
		}
		counts[d.Rule]++
	}
	if counts["remove"] != 66 || counts["asked"]+counts["batch"]+counts["remove"] != m.Conflicts {
		t.Errorf("decisions %v, %d in all", counts, m.Conflicts)
	}
}
