package storage

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ledgerd/ledger/btree"
	"github.com/ledgerd/ledger/commit"
	fb "github.com/ledgerd/ledger/flatbuffers"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// surveyor finds what is missing from the page.
type surveyor struct {
	v          *salvage
	b          *rebuilder
	tx         index.Tx
	known, bad bitset // numbers of nodes and pieces examined, and of nodes with holes below
	commit     commit.ID
	lacks      bool
	broken     map[commit.ID]bool // commits given up, since they will be received again
	heads      int                // number of heads afterwards
}

// survey finds what the repaired log refers to and lacks, and records what is to be written about
// that.
func (v *salvage) survey(ctx context.Context, b *rebuilder) error {
	y := &surveyor{v: v, b: b, broken: map[commit.ID]bool{}}
	err := b.db.View(func(tx index.Tx) error {
		y.tx = tx
		return y.run(ctx)
	})
	if err != nil {
		return err
	}
	if y.lacks {
		v.final = append(v.final, metadataOp(MetadataLacks, []byte{1}))
	}
	ids := make([]commit.ID, len(v.report.Trees))
	for i, t := range v.report.Trees {
		ids[i] = t.Commit
	}
	v.final = statusOps(v.final, statusHoles, ids)
	v.final = statusOps(v.final, statusUnexplained, slices.Clone(v.report.Explanations))
	if len(v.report.Explanations) > maxProblems {
		v.report.Explanations, v.report.More = v.report.Explanations[:maxProblems], true
	}
	if len(v.report.Trees) > maxProblems {
		v.report.Trees, v.report.More = v.report.Trees[:maxProblems], true
	}
	return nil
}

func (y *surveyor) run(ctx context.Context) error {
	all, err := y.commits()
	if err != nil {
		return err
	}
	if y.v.report.Unknown && y.v.so.Again {
		if err := y.giveUp(ctx, all); err != nil {
			return err
		}
	}
	gone := map[commit.ID][]commit.ID{}
	for _, c := range all {
		if err := ctx.Err(); err != nil {
			return err
		}
		if y.broken[c.ID] {
			continue
		}
		for _, p := range c.Parents {
			if p != commit.First().ID && y.tx.Bucket(bucketCommits).Get(p[:]) == nil && !hasKey(y.tx.Bucket(bucketShallow), shallowKey(p, c.ID)) {
				gone[p] = append(gone[p], c.ID)
			}
		}
		if err := y.trees(ctx, c); err != nil {
			return err
		}
	}
	if err := y.tags(); err != nil {
		return err
	}
	y.prune(gone)
	if err := y.keepHead(all); err != nil {
		return err
	}
	if y.v.report.Unknown {
		for _, typ := range y.v.so.Resync {
			if y.tx.Bucket(bucketMetadata).Get([]byte(typ)) != nil {
				y.v.final = append(y.v.final, metadataOp(typ, nil))
			}
		}
	}
	return nil
}

// gone reports whether a commit will be absent.
func (y *surveyor) gone(id commit.ID) bool {
	return y.broken[id] || id != commit.First().ID && y.tx.Bucket(bucketCommits).Get(id[:]) == nil
}

// giveUp gives up the commits that build on what is gone. The content of such a head that only this
// device has becomes a commit on the newest commit that stays.
func (y *surveyor) giveUp(ctx context.Context, all []*commit.Commit) error {
	up := slices.Clone(all)
	slices.SortFunc(up, func(a, b *commit.Commit) int { return cmp.Compare(a.Generation, b.Generation) })
	var ids []commit.ID
	stays := commit.First()
	for _, c := range up {
		if slices.ContainsFunc(c.Parents, y.gone) {
			y.broken[c.ID] = true
			ids = append(ids, c.ID)
		} else {
			stays = c
		}
	}
	y.v.report.Again = len(ids)
	for _, c := range all {
		if !y.broken[c.ID] || !hasKey(y.tx.Bucket(bucketHeads), c.ID[:]) || !hasKey(y.tx.Bucket(bucketUnsynced), c.ID[:]) {
			continue
		}
		y.commit = c.ID
		whole, err := y.node(ctx, c.Root, 0)
		if err != nil {
			return err
		}
		if !whole {
			y.v.report.Trees = append(y.v.report.Trees, LostTree{c.ID, true})
			continue
		}
		next, err := commit.New(commit.Params{Now: clockOf(c), Root: c.Root, Parents: []*commit.Commit{stays}, Message: "repaired: the content of " + c.ID.Short()})
		if err != nil {
			return err
		}
		y.v.final = append(y.v.final, op{kind: recCommit, commit: next})
		y.heads++
	}
	y.v.prune = idOps(y.v.prune, recPruned, ids)
	return nil
}

// clockOf returns the time of a commit for the making of another one.
func clockOf(c *commit.Commit) time.Time {
	return time.Unix(0, min(c.Timestamp, limits.MaxTimestamp-limits.MaxAhead))
}

// commits returns all commits, the greatest generation first.
func (y *surveyor) commits() ([]*commit.Commit, error) {
	var all []*commit.Commit
	for k, v := range rowsOf(y.tx, bucketCommits) {
		c, err := parseCommitRow(k, v)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *commit.Commit) int { return commit.CompareGeneration(b, a) })
	return all, nil
}

// trees examines the tree of a commit and that of its explanation.
func (y *surveyor) trees(ctx context.Context, c *commit.Commit) error {
	y.commit = c.ID
	treeless, whole := hasKey(y.tx.Bucket(bucketTreeless), c.ID[:]), true
	row, _, err := readObjectRow(y.tx, &c.Root)
	if err == nil && (row.held || !treeless) { // else it was received treeless
		whole, err = y.node(ctx, c.Root, 0)
	}
	if err != nil {
		return err
	}
	if row := y.tx.Bucket(bucketConflicts).Get(c.ID[:]); row != nil {
		root, err := parseConflictRow(c.ID[:], row)
		if err != nil {
			return err
		}
		explained, err := y.node(ctx, root, 0)
		if err != nil {
			return err
		}
		if !explained {
			y.v.report.Explanations = append(y.v.report.Explanations, c.ID)
		}
	}
	if !whole && !treeless {
		y.v.report.Trees = append(y.v.report.Trees, LostTree{c.ID, hasKey(y.tx.Bucket(bucketUnsynced), c.ID[:])})
	}
	return nil
}

// node reports whether the page has all nodes of a tree.
func (y *surveyor) node(ctx context.Context, d object.Digest, depth int) (whole bool, err error) {
	if d == btree.EmptyRoot {
		return true, nil
	}
	row, ok, err := readObjectRow(y.tx, &d)
	if err != nil || !ok || depth > maxTreeDepth {
		return false, err
	}
	if y.known.set(row.number) {
		return !y.bad.has(row.number), nil
	}
	n, err := y.load(ctx, d)
	if err != nil || n == nil {
		y.bad.set(row.number)
		return false, err
	}
	whole = true
	for i := range n.NumChildren() {
		w, err := y.node(ctx, n.Child(i).Digest, depth+1)
		if err != nil {
			return false, err
		}
		whole = whole && w
	}
	for i := range n.Len() {
		if e := n.Entry(i); !n.Inline(i) {
			if err := y.piece(&e.Digest, e.Key, 0); err != nil {
				return false, err
			}
		}
	}
	if !whole {
		y.bad.set(row.number)
	}
	return whole, nil
}

// maxTreeDepth bounds the depth of a tree: levels decrease from a node to its children.
const maxTreeDepth = 256

func (y *surveyor) load(ctx context.Context, d object.Digest) (*fb.Node, error) {
	n, _, err := y.v.s.loadLocated(ctx, d, y.b, 0, nil)
	return n, passDamage(err)
}

// piece examines a piece of a value and those below it.
func (y *surveyor) piece(d *object.Digest, key []byte, depth int) error {
	row, ok, err := readObjectRow(y.tx, d)
	if err != nil || !ok || depth > maxIndexDepth || y.known.set(row.number) {
		return err
	}
	if placed := isPlaced(y.tx, d, row.number); !row.held {
		y.lacks = y.lacks || !placed
		if y.v.old == nil && !placed || y.v.old.had(d) {
			y.lose(d, key, placed)
		}
		return nil
	}
	if !d.Kind().IsIndex() {
		return nil
	}
	l, err := locatedRow(y.tx, &row)
	if err != nil {
		return err
	}
	content, err := y.v.s.content(d, &l)
	if err != nil {
		return err
	}
	ix, err := fb.ParseIndex(content)
	if err != nil {
		return nil // the piece that lists it is wrong, as Check reports
	}
	for i := range ix.Len() {
		child := ix.Child(i)
		if err := y.piece(&child.Digest, key, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (y *surveyor) lose(d *object.Digest, key []byte, placed bool) {
	r := y.v.report
	if len(r.Pieces) == maxProblems {
		r.More = true
		return
	}
	r.Pieces = append(r.Pieces, LostPiece{Digest: *d, Placed: placed, Commit: y.commit, Key: slices.Clone(key)})
}

// tags removes tags whose commits are gone, on this device only.
func (y *surveyor) tags() error {
	for k, v := range rowsOf(y.tx, bucketTags) {
		id, err := parseTagRow(string(k), v)
		if err != nil {
			return err
		}
		if !y.gone(id) {
			continue
		}
		t := &TagChange{Name: string(k), Removed: true}
		y.v.final = append(y.v.final, op{kind: recTag, tag: t}, op{kind: recTagSynced, tag: t})
		y.v.report.Tags = append(y.v.report.Tags, t.Name)
		if !slices.Contains(y.v.report.Commits, id) {
			y.v.report.Commits = append(y.v.report.Commits, id)
		}
	}
	return nil
}

// prune marks lost commits as pruned: their children stay.
func (y *surveyor) prune(gone map[commit.ID][]commit.ID) {
	v := y.v
	var o *op
	for id, children := range gone {
		if !slices.Contains(v.report.Commits, id) {
			v.report.Commits = append(v.report.Commits, id)
		}
		for len(children) > 0 {
			some := children[:min(len(children), maxPrunedChildren)]
			children = children[len(some):]
			if o == nil || len(o.sync.ids) == maxRecordEntries || len(o.sync.children)+len(some) > maxPrunedChildren {
				v.prune = append(v.prune, op{kind: recPruned, sync: &syncOp{}})
				o = &v.prune[len(v.prune)-1]
			}
			o.sync.ids = append(o.sync.ids, id)
			o.sync.children = append(o.sync.children, some...)
		}
	}
	slices.SortFunc(v.report.Commits, commit.ID.Compare)
	if len(v.report.Commits) > maxProblems {
		v.report.Commits, v.report.More = v.report.Commits[:maxProblems], true
	}
}

// keepHead ensures that there is a head: all earlier ones may be gone.
func (y *surveyor) keepHead(all []*commit.Commit) error {
	for k := range rowsOf(y.tx, bucketHeads) {
		if !y.broken[commit.ID(k)] {
			y.heads++
		}
	}
	if y.heads > 0 {
		return nil
	}
	parent := commit.First()
	for _, c := range all {
		if !y.broken[c.ID] {
			parent = c
			break
		}
	}
	c, err := commit.New(commit.Params{Now: clockOf(parent), Root: parent.Root, Parents: []*commit.Commit{parent}, Message: "repaired"})
	if err != nil {
		return err
	}
	y.v.final = append(y.v.final, op{kind: recCommit, commit: c})
	return nil
}
