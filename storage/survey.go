package storage

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage/index"
)

// surveyor finds what is missing from the page.
type surveyor struct {
	v      *salvage
	tx     index.Tx
	walk   treeWalk
	commit commit.ID // whose tree is examined
	lacks  bool
	broken map[commit.ID]bool // commits given up, since they will be received again
	heads  int                // number of heads afterwards
}

// survey finds what the repaired log refers to and lacks, and records what is to be written about
// that.
func (v *salvage) survey(ctx context.Context, b *rebuilder) error {
	y := &surveyor{v: v, broken: map[commit.ID]bool{}}
	err := b.db.View(func(tx index.Tx) error {
		y.tx = tx
		y.walk = treeWalk{s: v.s, ctx: ctx, from: b, tx: tx, away: y.away, bad: passDamage} // Check reports a wrong value
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
		if err := y.giveUp(all); err != nil {
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
		if err := y.trees(c); err != nil {
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
func (y *surveyor) giveUp(all []*commit.Commit) error {
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
		whole, err := y.whole(c.Root)
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
func (y *surveyor) trees(c *commit.Commit) error {
	y.commit = c.ID
	treeless, whole := hasKey(y.tx.Bucket(bucketTreeless), c.ID[:]), true
	row, _, err := readObjectRow(y.tx, &c.Root)
	if err == nil && (row.held || !treeless) { // else it was received treeless
		whole, err = y.whole(c.Root)
	}
	if err != nil {
		return err
	}
	if row := y.tx.Bucket(bucketConflicts).Get(c.ID[:]); row != nil {
		root, err := parseConflictRow(c.ID[:], row)
		if err != nil {
			return err
		}
		explained, err := y.whole(root)
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

// whole examines a tree, and reports whether the page has all its nodes.
func (y *surveyor) whole(root object.Digest) (bool, error) {
	err := y.walk.tree(root, true)
	return err == nil, passDamage(err)
}

// away records a piece of a value that is not held.
func (y *surveyor) away(d *object.Digest, key []byte, known, placed bool) error {
	if known {
		return nil
	}
	y.lacks = y.lacks || !placed
	if y.v.old == nil && !placed || y.v.old.had(d) {
		y.lose(d, key, placed)
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
