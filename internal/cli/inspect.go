package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/ledgerd/ledger"
	"github.com/ledgerd/ledger/admin"
	"github.com/ledgerd/ledger/filetree"
	"github.com/spf13/cobra"
)

type inspectFlags struct {
	pageArg
	View  string   `arg:""`
	Of    []string `arg:"..."` // a key, or a family of rows
	At    string   `flag:"at" usage:"revision for key, tree and pieces (default HEAD)"`
	Limit int      `flag:"limit,n" usage:"show at most this many rows or commits (default: all rows, 20 commits)"`
}

// views are the views of inspect.
var views = []string{"key", "rows", "commits", "tree", "pieces", "refs"}

func familiesText() string { return strings.Join(admin.RowFamilies(), ", ") }

func (a *app) inspect(ctx context.Context, f inspectFlags) error {
	view, given := f.View, len(f.Of) == 1
	switch {
	case view != "" && !slices.Contains(views, view):
		return usagef("cannot inspect %q, want one of %s", view, strings.Join(views, ", "))
	case view == "key" && !given:
		return usagef("inspect key wants a KEY")
	case given && view != "rows" && view != "pieces" && view != "key":
		return usagef("inspect %s takes no further argument", view)
	}
	return a.page(ctx, f.Page, reads, func(page *ledger.Page) error {
		switch view {
		case "rows":
			return a.inspectRows(ctx, page, strings.Join(f.Of, ""), f.Limit)
		case "commits":
			return a.inspectCommits(ctx, page, f.Limit)
		case "refs":
			return a.inspectRefs(ctx, page)
		}
		return a.snapshot(ctx, page, f.At, func(snap *ledger.Snapshot) error {
			switch {
			case view == "tree":
				return a.inspectTree(ctx, page, snap.Commit().ID)
			case given:
				key, err := a.key(f.Of[0])
				if err != nil {
					return err
				}
				if view == "key" {
					return a.statKey(ctx, page, snap, key, f.At)
				}
				return a.inspectValue(ctx, page, snap, key, f.At)
			case view == "pieces":
				return a.inspectPieces(ctx, snap)
			}
			if err := a.statPage(ctx, page); err != nil {
				return err
			}
			return a.inspectTree(ctx, page, snap.Commit().ID)
		})
	})
}

func (a *app) statKey(ctx context.Context, page *ledger.Page, snap *ledger.Snapshot, key []byte, at string) error {
	item, err := filetree.Stat(ctx, snap, key)
	if err != nil {
		return a.noKey(ctx, page, key, at, err)
	}
	if item.Problem != nil {
		a.warn(fmt.Errorf("attributes of %s: %w", a.shortKey(key), item.Problem))
	}
	a.block("", entryObject(item))
	return nil
}

func (a *app) statPage(ctx context.Context, page *ledger.Page) error {
	stats, err := admin.Stats(page)
	if err != nil {
		return err
	}
	n, err := namesOf(ctx, page)
	if err != nil {
		return err
	}
	heads, newest := n.all, n.all[len(n.all)-1]
	a.block("", object{
		"page", pageText(page), "ledger!", jsonBytes(page.Ref().Ledger), "name!?", jsonBytes(page.Name()), "id", page.Ref().ID,
		"heads", objects(heads, func(c ledger.Commit) string { return c.ID.String() }), "newest", commitObject(newest, admin.Sender{}, n),
		"segments", stats.Segments, "segmentBytes", size(stats.SegmentBytes), "indexBytes", size(stats.IndexBytes),
	})
	a.printIf(!a.json, "\n")
	return nil
}

func (a *app) inspectRows(ctx context.Context, page *ledger.Page, family string, limit int) error {
	if family != "" && !slices.Contains(admin.RowFamilies(), family) {
		return usagef("there are no rows %q, want one of %s", family, familiesText())
	}
	n := 0
	for row, err := range admin.Rows(ctx, page, family) {
		if err != nil {
			return fmt.Errorf("read rows: %w", err)
		}
		a.print(object{"row", row.Key, "value", row.Value}, "%s\n", strings.TrimRight(printable(row.Key)+"  "+printable(row.Value), " "))
		if n++; n == limit {
			return nil
		}
	}
	return nil
}

// commitSums are the figures of a commit in inspect commits.
type commitSums struct {
	added, removed, updated, valueBytes, nodes, nodeBytes, newNodes, newBytes int64
}

// defaultCommits is the default number of commits to inspect, since each tree is read completely.
const defaultCommits = 20

func (a *app) inspectCommits(ctx context.Context, page *ledger.Page, limit int) error {
	if limit == 0 {
		limit = defaultCommits
	}
	var rows []object
	for c, err := range page.Log(ctx) {
		if err != nil {
			return fmt.Errorf("read history: %w", err)
		}
		if c.Generation == 0 || limit == 0 {
			break
		}
		s, err := commitStats(ctx, page, c)
		if errors.Is(err, ledger.ErrGone) {
			continue // what it has changed is unknown
		}
		limit--
		if err != nil {
			return fmt.Errorf("inspect commit %s: %w", c.ID.Short(), err)
		}
		rows = append(rows, object{
			"commit", c.ID, "generation", c.Generation, "time", c.Time, "added", s.added, "removed", s.removed, "updated", s.updated,
			"valueBytes", size(s.valueBytes), "nodes", s.nodes, "nodeBytes", size(s.nodeBytes), "newNodes", s.newNodes,
			"newNodeBytes", size(s.newBytes), "sharedNodeBytes!", s.nodeBytes - s.newBytes,
		})
	}
	a.table(rows)
	return nil
}

// commitStats compares a commit with its first parent.
func commitStats(ctx context.Context, page *ledger.Page, c ledger.Commit) (s commitSums, err error) {
	parent, err := page.Resolve(ctx, c.ID.String()+"~1")
	if err != nil {
		return s, err
	}
	err = each(page.Diff(ctx, parent, c.ID, nil), func(change ledger.Change) {
		switch {
		case change.Old == nil:
			s.added++
		case change.New == nil:
			s.removed++
		default:
			s.updated++
		}
		if change.New != nil {
			s.valueBytes += change.New.Size
		}
	})
	old := map[string]bool{}
	if err == nil {
		err = each(admin.Nodes(ctx, page, parent), func(n admin.NodeInfo) { old[n.Digest] = true })
	}
	if err != nil {
		return s, err
	}
	err = each(admin.Nodes(ctx, page, c.ID), func(n admin.NodeInfo) {
		s.nodes++
		s.nodeBytes += int64(n.Bytes)
		if !old[n.Digest] {
			s.newNodes++
			s.newBytes += int64(n.Bytes)
		}
	})
	return s, err
}

func (a *app) inspectTree(ctx context.Context, page *ledger.Page, id ledger.CommitID) error {
	t, err := admin.Tree(ctx, page, id)
	if err != nil {
		return fmt.Errorf("read tree: %w", err)
	}
	a.block("", object{
		"root", t.Root, "depth", t.Depth, "nodes", t.Nodes, "nodeBytes", size(t.NodeBytes), "entries", t.Entries, "keyBytes", size(t.KeyBytes),
		"inlineEntries", t.InlineEntries, "inlineBytes", size(t.InlineBytes), "valueBytes", size(t.ValueBytes), "lazyEntries", t.LazyEntries,
		"levels", objects(t.Levels, func(l admin.LevelStats) object {
			return object{
				"level", l.Level, "nodes", l.Nodes, "entries", l.Entries, "children", l.Children, "bytes", size(l.Bytes), "maxBytes", size(l.MaxBytes),
			}
		}),
	})
	return nil
}

func (a *app) inspectValue(ctx context.Context, page *ledger.Page, snap *ledger.Snapshot, key []byte, at string) error {
	entry, err := snap.Stat(ctx, key)
	if err != nil {
		return a.noKey(ctx, page, key, at, err)
	}
	a.printIf(entry.Inline && !a.json, "inline in the tree, %s\n", sizeText(entry.Size))
	var rows []object
	err = each(admin.Pieces(ctx, snap, key), func(p admin.PieceInfo) {
		rows = append(rows, object{"piece", p.Digest, "kind", p.Kind, "size", size(p.Size)})
	})
	a.table(rows)
	if err != nil {
		return fmt.Errorf("read pieces of %s: %w", a.shortKey(key), err)
	}
	return nil
}

// storedSums are the sums over the values with one kind of storage.
type storedSums struct {
	stored                string
	values, bytes, pieces int64
}

// inspectPieces prints sums of the values of a commit by their kind of storage.
func (a *app) inspectPieces(ctx context.Context, snap *ledger.Snapshot) error {
	sums := []storedSums{{stored: "inline"}, {stored: "one piece"}, {stored: "several pieces"}}
	for entry, err := range snap.Scan(ctx, ledger.ScanOptions{KeysOnly: true}) {
		if err != nil {
			return fmt.Errorf("list values: %w", err)
		}
		var pieces int64
		if err := each(admin.Pieces(ctx, snap, entry.Key), func(admin.PieceInfo) { pieces++ }); err != nil {
			return fmt.Errorf("read pieces of %s: %w", a.shortKey(entry.Key), err)
		}
		s := &sums[min(pieces, 2)]
		s.values++
		s.bytes += entry.Size
		s.pieces += pieces
	}
	a.table(objects(sums, func(s storedSums) object {
		return object{"stored", s.stored, "values", s.values, "bytes", size(s.bytes), "pieces", s.pieces}
	}))
	return nil
}

// refSums are sums over the references to one kind of destinations.
type refSums struct {
	destinations, references int64
	most                     int64 // references to one destination
}

// inspectRefs prints sums of the reference rows refcounts/{destination}/{kind}/{source}, which come
// in this order.
func (a *app) inspectRefs(ctx context.Context, page *ledger.Page) error {
	kinds := map[string]*refSums{}
	last, n := "", int64(0)
	for row, err := range admin.Rows(ctx, page, "refcounts") {
		if err != nil {
			return fmt.Errorf("read references: %w", err)
		}
		destination := path.Dir(row.Key) // and the kind
		if n++; destination != last {
			last, n = destination, 1
		}
		_, kind, _ := strings.Cut(strings.TrimPrefix(destination, "refcounts/"), "/")
		if kinds[kind] == nil {
			kinds[kind] = &refSums{}
		}
		s := kinds[kind]
		s.destinations += choose[int64](n == 1, 1, 0)
		s.references, s.most = s.references+1, max(s.most, n)
	}
	a.table(objects(slices.Sorted(maps.Keys(kinds)), func(kind string) object {
		s := kinds[kind]
		return object{"kind", kind, "destinations", s.destinations, "references", s.references, "most", s.most}
	}))
	return nil
}

// completeViews completes the arguments of inspect.
func (a *app) completeViews(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	switch {
	case len(args) == 0:
		return a.pageNames(cmd, toComplete), cobra.ShellCompDirectiveNoFileComp
	case len(args) == 1:
		return views, cobra.ShellCompDirectiveNoFileComp
	case args[1] == "rows":
		return admin.RowFamilies(), cobra.ShellCompDirectiveNoFileComp
	case args[1] == "pieces", args[1] == "key":
		return a.keyNames(cmd, args[0], toComplete), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
