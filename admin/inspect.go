package admin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/btree"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/bridge"
	"github.com/ledgerd/ledger/internal/session"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// Row is one row of a page's index; Key and Value are formatted for printing.
type Row = storage.Row

// RowFamilies lists the families that Rows accepts.
func RowFamilies() []string { return slices.Clone(storage.RowFamilies) }

// Rows returns the rows of one family of the page's index, for tools; "" means all. It first folds
// pending rows into the index, unless the repository is read-only. Errors, as the last element:
// ErrNotFound (no such family), ErrClosed, ErrCorrupt.
func Rows(ctx context.Context, page *ledger.Page, family string) iter.Seq2[Row, error] {
	p := bridge.OfPage(page)
	return session.Sequence("read rows", func(yield func(Row) bool) error {
		for r, err := range p.Store.Rows(ctx, family) {
			if err == nil {
				err = p.Session.Enter()
			}
			if err != nil {
				p.Note(err)
				return err
			}
			p.Session.Leave() // before the loop body of the caller
			if !yield(r) {
				return nil
			}
		}
		return nil
	})
}

// PageStats are counters of an open page, and sizes on disk.
type PageStats struct {
	// Syncs, Batches, Commits, Folds (of the index) and WrittenBytes are totals since the page was
	// opened.
	Syncs, Batches, Commits, Folds, WrittenBytes uint64
	// Segments is the number of segment files, SegmentBytes their size and IndexBytes the size of
	// page.db.
	Segments     int
	SegmentBytes int64
	IndexBytes   int64
	// PendingRows is the number of rows in the log that are not in the index yet.
	PendingRows int
	// CacheMisses counts tree nodes that were read into the cache, for all pages of the repository.
	CacheMisses uint64
	// OpenSnapshots and OpenTransactions are totals over all handles.
	OpenSnapshots, OpenTransactions int
}

// Stats returns the counters of the page. Errors: ErrClosed.
func Stats(page *ledger.Page) (PageStats, error) {
	p := bridge.OfPage(page)
	if err := p.Session.Enter(); err != nil {
		return PageStats{}, err
	}
	defer p.Session.Leave()
	st := p.Store.Stats()
	out := PageStats{
		Syncs: st.Syncs, Batches: st.Groups + st.BulkBatches, Commits: st.Commits, Folds: st.Folds, WrittenBytes: st.BytesWritten,
		Segments: st.Segments, SegmentBytes: st.SegmentBytes, IndexBytes: st.IndexBytes, PendingRows: st.PendingRows, CacheMisses: st.CacheMisses,
	}
	for _, h := range p.Handles() {
		open := h.Open()
		out.OpenSnapshots += open.Snapshots
		out.OpenTransactions += open.Transactions
	}
	return out, nil
}

// LevelStats describes the nodes of one level of a tree.
type LevelStats struct {
	Level                           int
	Nodes, Entries, Children, Bytes int64
	// MaxBytes is the size of the largest node.
	MaxBytes int64
}

// TreeStats describes the tree of one commit.
type TreeStats struct {
	Root string
	// Depth is the number of nodes on the longest path.
	Depth int
	// Levels is ordered from the root's level downwards and has no empty levels.
	Levels                    []LevelStats
	Nodes, Entries, NodeBytes int64
	// InlineEntries have their values in the tree, with InlineBytes in total; the values of the
	// others have ValueBytes in total, counted once per entry. LazyEntries have priority Lazy.
	InlineEntries, InlineBytes, ValueBytes, LazyEntries int64
	KeyBytes                                            int64
}

// Tree reads and verifies the whole tree of a commit, and describes it. The zero id means the
// newest durable head. Errors: ErrNotFound, ErrClosed, ErrCorrupt, those of ctx.
func Tree(ctx context.Context, page *ledger.Page, id ledger.CommitID) (TreeStats, error) {
	p := bridge.OfPage(page)
	c, release, err := p.Session.Pin(ctx, id)
	if err != nil {
		return TreeStats{}, fmt.Errorf("describe tree: %w", err)
	}
	defer release()
	d := treeDescriber{levels: map[int]*LevelStats{}}
	d.stats.Root = c.Root.String()
	if err := btree.Verify(ctx, p.Session.Tree(c), d.visit); err != nil {
		return TreeStats{}, fmt.Errorf("describe tree: %w", err)
	}
	return d.result(), nil
}

// NodeInfo describes one node of a tree.
type NodeInfo struct {
	Digest string
	Level  int
	// Entries and Children are their numbers; Bytes is the size of the node.
	Entries, Children, Bytes int
	// First and Last are the node's own smallest and greatest key; nil in the empty root.
	First, Last []byte
}

// errStopped ends a walk when the caller stops.
var errStopped = errors.New("stopped")

func newNodeInfo(n *fb.Node, d object.Digest) NodeInfo {
	i := NodeInfo{Digest: d.String(), Level: n.Level(), Entries: n.Len(), Children: n.NumChildren(), Bytes: len(n.Bytes())}
	if n.Len() > 0 {
		i.First, i.Last = bytes.Clone(n.Key(0)), bytes.Clone(n.Key(n.Len()-1))
	}
	return i
}

// treeDescriber sums up the nodes of a tree.
type treeDescriber struct {
	stats  TreeStats
	levels map[int]*LevelStats
	depth  int // number of nodes above the present one
}

func (t *treeDescriber) visit(n *fb.Node, _ object.Digest, children func() error) error {
	t.depth++
	defer func() { t.depth-- }()
	t.stats.Depth = max(t.stats.Depth, t.depth)
	l := t.levels[n.Level()]
	if l == nil {
		l = &LevelStats{Level: n.Level()}
		t.levels[n.Level()] = l
	}
	size := int64(len(n.Bytes()))
	l.Nodes++
	l.Entries += int64(n.Len())
	l.Children += int64(n.NumChildren())
	l.Bytes += size
	l.MaxBytes = max(l.MaxBytes, size)
	s := &t.stats
	s.Nodes++
	s.Entries += int64(n.Len())
	s.NodeBytes += size
	for i := range n.Len() {
		e := n.Entry(i)
		s.KeyBytes += int64(len(e.Key))
		if e.Inline {
			s.InlineEntries++
			s.InlineBytes += int64(len(e.Value))
		} else if s.ValueBytes <= math.MaxInt64-int64(e.Size) {
			s.ValueBytes += int64(e.Size)
		}
		if e.Priority == ledger.Lazy {
			s.LazyEntries++
		}
	}
	return children()
}

func (t *treeDescriber) result() TreeStats {
	for _, l := range t.levels {
		t.stats.Levels = append(t.stats.Levels, *l)
	}
	slices.SortFunc(t.stats.Levels, func(a, b LevelStats) int { return b.Level - a.Level })
	return t.stats
}

// Nodes returns the nodes of a commit's tree: parents before children, children in key order. The
// zero id means the newest durable head. Errors, as the last element: ErrNotFound, ErrClosed,
// ErrCorrupt, those of ctx.
func Nodes(ctx context.Context, page *ledger.Page, id ledger.CommitID) iter.Seq2[NodeInfo, error] {
	p := bridge.OfPage(page)
	return session.Sequence("list nodes", func(yield func(NodeInfo) bool) error {
		c, release, err := p.Session.Pin(ctx, id)
		if err != nil {
			return err
		}
		defer release()
		if c.Root == btree.EmptyRoot {
			yield(NodeInfo{Digest: c.Root.String()})
			return nil
		}
		return btree.Verify(ctx, p.Session.Tree(c), func(n *fb.Node, d object.Digest, children func() error) error {
			if !yield(newNodeInfo(n, d)) {
				return errStopped
			}
			return children()
		})
	})
}

// PieceInfo describes one piece of a value.
type PieceInfo struct {
	Digest string
	// Kind is "chunk" or "index".
	Kind string
	// Size is the number of bytes of the value that the piece covers.
	Size int64
}

// Pieces returns the pieces of the value under key, an index before its pieces; none for an inline
// value. Errors, as the last element: ErrNotFound, ErrNeedsFetch, ErrClosed, ErrCorrupt, those of
// ctx.
func Pieces(ctx context.Context, snapshot *ledger.Snapshot, key []byte) iter.Seq2[PieceInfo, error] {
	return session.Sequence("list pieces", func(yield func(PieceInfo) bool) error {
		s := bridge.OfSnapshot(snapshot)
		e, err := s.Lookup(ctx, key)
		if err != nil || e.Inline {
			return err
		}
		return split.Walk(ctx, session.PiecesOf(s.Origin()), e.Digest, func(d object.Digest, size uint64) error {
			if d == e.Digest {
				size = e.Size
			}
			if !yield(PieceInfo{Digest: d.String(), Kind: d.Kind().String(), Size: int64(min(size, math.MaxInt64))}) {
				return errStopped
			}
			return nil
		})
	})
}
