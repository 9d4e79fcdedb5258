package merge_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/merge"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
)

// tester is what a *testing.T and a *rapid.T have.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

var _ tester = (*testing.T)(nil)

// memory is a merge.Sink on maps. What it lacks it asks parent for. It verifies what it gets.
type memory struct {
	page   [16]byte
	parent *memory
	nodes  map[object.Digest]*fb.Node
	pieces map[object.Digest][]byte
	// missing are pieces and nodes that are not held here.
	missing map[object.Digest]bool
	// lost are pieces that nobody has any more.
	lost map[object.Digest]bool
	// nodeReads and pieceReads count what was asked for, putNodes and putPieces what came in.
	nodeReads, pieceReads, putNodes, putPieces int
}

func newMemory(page [16]byte, parent *memory) *memory {
	return &memory{
		page: page, parent: parent,
		nodes: map[object.Digest]*fb.Node{}, pieces: map[object.Digest][]byte{}, missing: map[object.Digest]bool{}, lost: map[object.Digest]bool{},
	}
}

func (m *memory) Node(ctx context.Context, d object.Digest) (*fb.Node, error) {
	m.nodeReads++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n, ok := m.nodes[d]
	switch {
	case d == btree.EmptyRoot:
		return nil, fmt.Errorf("the empty root was asked for")
	case m.missing[d]:
		return nil, fmt.Errorf("node %s: %w", d, base.ErrNeedsFetch)
	case ok:
		return n, nil
	case m.parent != nil:
		return m.parent.Node(ctx, d)
	}
	return nil, fmt.Errorf("node %s: %w", d, base.ErrNotFound)
}

func (m *memory) Piece(ctx context.Context, d object.Digest) ([]byte, error) {
	m.pieceReads++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p, ok := m.pieces[d]
	switch {
	case m.lost[d]:
		return nil, fmt.Errorf("piece %s: %w", d, base.ErrGone)
	case m.missing[d]:
		return nil, fmt.Errorf("piece %s: %w", d, base.ErrNeedsFetch)
	case ok:
		return p, nil
	case m.parent != nil:
		return m.parent.Piece(ctx, d)
	}
	return nil, fmt.Errorf("piece %s: %w", d, base.ErrNotFound)
}

func (m *memory) PutPiece(_ context.Context, d object.Digest, content []byte) error {
	m.putPieces++
	if err := d.Verify(content); err != nil {
		return err
	}
	m.pieces[d] = bytes.Clone(content)
	return nil
}

func (m *memory) PutNode(_ context.Context, n btree.NewNode) error {
	m.putNodes++
	if err := n.Digest.Verify(n.Content); err != nil {
		return err
	}
	view, err := fb.ParseNode(bytes.Clone(n.Content))
	if err != nil {
		return err
	}
	if err := btree.VerifyNode(m.page, view); err != nil {
		return err
	}
	m.nodes[n.Digest] = view
	return nil
}

// testPage is a page in memory. It belongs to one goroutine.
type testPage struct {
	*memory
	commits map[commit.ID]*commit.Commit
	// explained has the explanations of merge commits that store has received.
	explained map[commit.ID]object.Digest
	// commitReads counts the commits that were asked for; read has which.
	commitReads int
	read        map[commit.ID]int
}

func newTestPage() *testPage {
	id := [16]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16}
	return &testPage{
		memory: newMemory(id, nil), commits: map[commit.ID]*commit.Commit{}, explained: map[commit.ID]object.Digest{},
		read: map[commit.ID]int{},
	}
}

// Commit implements commit.Getter.
func (p *testPage) Commit(ctx context.Context, id commit.ID) (*commit.Commit, error) {
	p.commitReads++
	p.read[id]++
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c, ok := p.commits[id]
	if !ok {
		return nil, fmt.Errorf("commit %s: %w", id, base.ErrNotFound)
	}
	return c, nil
}

// resetCounts sets all counters to zero.
func (p *testPage) resetCounts() {
	p.nodeReads, p.pieceReads, p.putNodes, p.putPieces, p.commitReads = 0, 0, 0, 0, 0
	p.read = map[commit.ID]int{}
}

// view returns the page as merge reads it.
func (p *testPage) view() *merge.View {
	return &merge.View{
		Page: p.page, Commits: p, Nodes: p, Tree: p.trees(p),
		Explanation: func(_ context.Context, m commit.ID) (object.Digest, bool, error) {
			root, ok := p.explained[m]
			return root, ok, nil
		},
	}
}

// env returns the page as a place for merges, which put straight into the page.
func (p *testPage) env() *merge.Env {
	return &merge.Env{View: *p.view(), Sink: p.memory, Pieces: p, Table: split.DefaultTable()}
}

// store keeps the merges that merge.Heads returned, and their explanations.
func (p *testPage) store(merged ...merge.Merged) {
	for _, m := range merged {
		p.commits[m.Commit.ID] = m.Commit
		if m.Conflicts > 0 {
			p.explained[m.Commit.ID] = m.Explanation
		}
	}
}

// merge merges heads, stores the result, and returns the last merge commit; for one head that head.
func (p *testPage) merge(t tester, rules merge.Rules, heads ...*commit.Commit) *commit.Commit {
	t.Helper()
	merged, err := merge.Heads(t.Context(), p.env(), rules, heads)
	if err != nil {
		t.Fatalf("merge heads: %v", err)
	}
	p.store(merged...)
	if len(merged) == 0 {
		return heads[0]
	}
	return merged[len(merged)-1].Commit
}

// gone is the value in an edit that deletes its key.
const gone = "\x00gone"

// edit is what a commit changes: keys and values, or gone.
type edit map[string]string

// changes returns an edit as sorted changes; values that are no entries of their own are stored,
// with priority Eager.
func (p *testPage) changes(t tester, ed edit) []btree.Change {
	t.Helper()
	var cs []btree.Change
	for _, k := range slices.Sorted(maps.Keys(ed)) {
		if ed[k] == gone {
			cs = append(cs, btree.Change{Delete: true, Entry: fb.Entry{Key: []byte(k)}})
		} else {
			cs = append(cs, btree.Change{Entry: p.entry(t, k, ed[k], object.Eager)})
		}
	}
	return cs
}

// entry stores a value and returns its entry. A value of at most btree.InlineLimit bytes is inline
// and eager.
func (p *testPage) entry(t tester, key, value string, priority object.Priority) fb.Entry {
	t.Helper()
	e := fb.Entry{Key: []byte(key), Size: uint64(len(value))}
	if len(value) <= btree.InlineLimit {
		e.Inline, e.Value = true, []byte(value)
		return e
	}
	d, err := split.SplitBytes(t.Context(), split.DefaultTable(), []byte(value), func(ctx context.Context, s split.Piece) error {
		return p.PutPiece(ctx, s.Digest, s.Content)
	})
	if err != nil {
		t.Fatalf("store value of %q: %v", key, err)
	}
	e.Digest, e.Priority = d, priority
	return e
}

// commit makes a commit with a timestamp of at least at, on parents[0] changed by ed; a second
// parent makes it a merge with that content, with the timestamp that merges have. Without parents
// it stands on the first commit.
func (p *testPage) commit(t tester, at int64, ed edit, parents ...*commit.Commit) *commit.Commit {
	t.Helper()
	return p.commitChanges(t, at, p.changes(t, ed), parents...)
}

// commitChanges is commit for changes in ascending order of keys.
func (p *testPage) commitChanges(t tester, at int64, cs []btree.Change, parents ...*commit.Commit) *commit.Commit {
	t.Helper()
	if len(parents) == 0 {
		parents = []*commit.Commit{commit.First()}
	}
	root, err := p.tree(parents[0].Root).Apply(t.Context(), p, func(yield func(btree.Change, error) bool) {
		for _, c := range cs {
			if !yield(c, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatalf("apply changes: %v", err)
	}
	var c *commit.Commit
	if len(parents) == 2 {
		c, err = commit.NewMerge(root, parents[0], parents[1])
	} else {
		c, err = commit.New(commit.Params{Now: time.Unix(0, at), Root: root, Parents: parents})
	}
	if err != nil {
		t.Fatalf("make commit: %v", err)
	}
	p.commits[c.ID] = c
	return c
}

func (p *testPage) tree(root object.Digest) btree.Tree {
	return btree.Tree{Page: p.page, Source: p, Root: root}
}

// trees gives the trees of commits, with nodes of src.
func (p *testPage) trees(src btree.Source) func(*commit.Commit) btree.Tree {
	return func(c *commit.Commit) btree.Tree { return btree.Tree{Page: p.page, Source: src, Root: c.Root} }
}

// entries yields what a tree holds, in order.
func (p *testPage) entries(t tester, root object.Digest) iter.Seq[fb.Entry] {
	return func(yield func(fb.Entry) bool) {
		c := p.tree(root).Cursor()
		for {
			ok, err := c.Next(t.Context())
			if err != nil {
				t.Fatalf("read tree %s: %v", root, err)
			}
			if !ok || !yield(c.Entry()) {
				return
			}
		}
	}
}

// content returns what a tree holds, keys and values.
func (p *testPage) content(t tester, root object.Digest) map[string]string {
	t.Helper()
	m := map[string]string{}
	for e := range p.entries(t, root) {
		m[string(e.Key)] = p.value(t, &e)
	}
	return m
}

// value returns the value of an entry.
func (p *testPage) value(t tester, e *fb.Entry) string {
	t.Helper()
	if e.Inline {
		return string(e.Value)
	}
	b, err := io.ReadAll(split.NewReader(t.Context(), p, e.Digest, e.Size))
	if err != nil {
		t.Fatalf("read value of %q: %v", e.Key, err)
	}
	return string(b)
}

// reachable returns the nodes of trees.
func (p *testPage) reachable(t tester, roots ...object.Digest) map[object.Digest]bool {
	t.Helper()
	set := map[object.Digest]bool{}
	for _, root := range roots {
		err := btree.Verify(t.Context(), p.tree(root), func(_ *fb.Node, d object.Digest, children func() error) error {
			if set[d] {
				return nil
			}
			set[d] = true
			return children()
		})
		if err != nil {
			t.Fatalf("verify tree %s: %v", root, err)
		}
	}
	return set
}
