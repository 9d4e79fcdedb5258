package checkup

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// salvage repairs the log of a page, or with dry reports what a repair would do.
func (c *check) salvage(ctx context.Context, dry bool) (found *storage.SalvageReport, err error) {
	_, err = c.alone(ctx, func() error {
		found, err = storage.Salvage(ctx, c.o.Store(), storage.SalvageOptions{DryRun: dry, Resync: []string{cloudsync.MetadataPosition}, Again: c.o.Cloud})
		return err
	})
	return found, err
}

// alone calls fn with exclusive access to the page, and returns false when the page is in use.
func (c *check) alone(ctx context.Context, fn func() error) (ok bool, err error) {
	ok, err = c.o.Alone(ctx, fn)
	if err == nil && !ok {
		c.o.Log.Warn("a page is not repaired while it is in use")
		c.report.InUse = true
	}
	return ok, err
}

// detail lists all damage of a log, of which the check has only found the first.
func (c *check) detail(ctx context.Context) error {
	found, err := c.salvage(ctx, true)
	if isDamage(err) { // the check has reported it
		return nil
	}
	if err != nil || found == nil || len(found.Damage) == 0 {
		return err
	}
	c.takeDamage(found)
	return nil
}

// takeDamage replaces the check's problems of a log by the complete list of its damage.
func (c *check) takeDamage(found *storage.SalvageReport) []loss {
	c.report.Problems = slices.DeleteFunc(c.report.Problems, func(p Problem) bool { return !p.ofIndex() })
	losses := c.losses(found)
	for i := range losses {
		c.report.Problems = append(c.report.Problems, losses[i].problem)
	}
	c.report.More = c.report.More || found.More
	return losses
}

// loss is damaged data, and a test whether it is here again.
type loss struct {
	problem Problem
	piece   *object.Digest                                      // nil for other things than pieces
	tree    *commit.ID                                          // nil for other things than trees
	here    func(context.Context, *storage.Store) (bool, error) // nil: repaired with the log
}

// losses lists the damaged data.
func (c *check) losses(found *storage.SalvageReport) (all []loss) {
	compared := func(context.Context, *storage.Store) (bool, error) { return c.compared, nil }
	for _, d := range found.Damage {
		all = append(all, loss{problem: Problem{Where: d.Where(), Message: d.Got}})
	}
	for _, p := range found.Pieces {
		what := Problem{
			Where: "piece", Key: p.Digest.String(), Fetchable: p.Placed && c.o.Cloud,
			Message: fmt.Sprintf("damaged, of the value of %s in commit %s", keyText(p.Key), p.Commit.Short()),
		}
		all = append(all, loss{problem: what, piece: &p.Digest, here: func(_ context.Context, s *storage.Store) (bool, error) {
			st, err := s.PieceState(p.Digest)
			return st.Held, err
		}})
	}
	for _, t := range found.Trees {
		fetchable := !t.Unsynced && c.o.Cloud
		what := Problem{Where: whereTree, Key: t.Commit.String(), Message: "a part of it is damaged", Fetchable: fetchable}
		all = append(all, loss{problem: what, tree: &t.Commit, here: func(ctx context.Context, s *storage.Store) (bool, error) {
			if fetchable && c.compared && !c.gone[t.Commit] { // it is here, or will be fetched when it is read
				return true, nil
			}
			h, err := known(ctx, s, t.Commit)
			if err != nil || h == nil {
				return false, err
			}
			return s.TreeHeld(ctx, h)
		}})
	}
	for _, id := range found.Commits {
		what := Problem{Where: "commit", Key: id.String(), Message: "damaged"}
		all = append(all, loss{problem: what, here: func(ctx context.Context, s *storage.Store) (bool, error) {
			h, err := known(ctx, s, id)
			return h != nil, err
		}})
	}
	for _, name := range found.Tags {
		what := Problem{Where: "tag", Key: keyText([]byte(name)), Message: "the commit to which it points is gone"}
		all = append(all, loss{problem: what, here: func(ctx context.Context, s *storage.Store) (bool, error) {
			tags, err := s.Tags(ctx)
			_, ok := tags[name]
			return ok, err
		}})
	}
	for _, id := range found.Explanations {
		what := Problem{Where: "explanation of merge", Key: id.String(), Message: "damaged: why it decided as it did is not known any more"}
		all = append(all, loss{problem: what, here: func(context.Context, *storage.Store) (bool, error) { return false, nil }})
	}
	if found.Again > 0 {
		what := Problem{Where: "history", Message: fmt.Sprintf("%d commits build on damaged ones", found.Again), Fetchable: true}
		all = append(all, loss{problem: what, here: compared})
	}
	if found.Unknown {
		what := Problem{Where: "log", Message: "it is not known all that the damaged batches had: commits and tags of the last moments may be gone without a trace"}
		all = append(all, loss{problem: what, here: compared})
	}
	return all
}

// known returns a commit, nil when it is gone.
func known(ctx context.Context, s *storage.Store, id commit.ID) (*commit.Commit, error) {
	h, err := s.Commit(ctx, id)
	if errors.Is(err, base.ErrGone) || errors.Is(err, base.ErrNotFound) {
		return nil, nil
	}
	return h, err
}

// keyText formats a key for users, shortened.
func keyText(key []byte) string {
	const most = 32
	if len(key) > most {
		return fmt.Sprintf("%q...", key[:most])
	}
	return fmt.Sprintf("%q", key)
}

// repair repairs a page with problems.
func (c *check) repair(ctx context.Context) error {
	found := c.report
	var losses []loss
	if len(found.Problems) > 0 {
		damage, err := c.salvage(ctx, false)
		if isDamage(err) { // the problem is reported
			return nil
		}
		if err != nil || damage == nil {
			return err
		}
		if len(damage.Damage) > 0 {
			losses = c.takeDamage(damage)
			found = c.report
			c.observeRepair(damage)
		}
	}
	if len(losses) == 0 && len(found.Problems) > 0 {
		if ok, err := c.rebuildIndex(ctx); err != nil || !ok {
			return err
		}
	}
	if len(losses) > 0 || len(found.Check.Holes) > 0 || found.Check.Missing > 0 || c.adrift {
		err := c.fetch(ctx, losses)
		if err == nil {
			err = c.rescueHeads(ctx)
		}
		if err == nil && c.again {
			err = c.noteCloud(ctx, c.o.Visit(ctx, func(ctx context.Context, p *Page) error { return p.Sync(ctx) }))
		}
		if err != nil {
			return err
		}
	}
	again, err := c.once(ctx)
	if err != nil {
		return err
	}
	again.CloudErr, again.InUse, again.Rescued = c.report.CloudErr, c.report.InUse, c.rescued
	c.report = again
	return errors.Join(c.settle(ctx, found.Problems, losses), c.forgetVanished())
}

// observeRepair logs what was damaged.
func (c *check) observeRepair(damage *storage.SalvageReport) {
	c.o.Log.Warn("a damaged log was repaired", "places", len(damage.Damage),
		"restored", damage.Restored, "pieces", len(damage.Pieces), "trees", len(damage.Trees), "commits", len(damage.Commits))
}

// settle adds the earlier problems to the last check: those repaired, and those that are
// irreparable.
func (c *check) settle(ctx context.Context, before []Problem, losses []loss) error {
	remaining := map[Problem]bool{}
	for _, p := range c.report.Problems {
		remaining[p] = true
	}
	for _, p := range before {
		if remaining[p] {
			continue
		}
		n := slices.IndexFunc(losses, func(l loss) bool { return l.problem == p })
		p.Repaired = true
		if n >= 0 && losses[n].here != nil {
			err := c.o.Visit(ctx, func(ctx context.Context, page *Page) (err error) {
				p.Repaired, err = losses[n].here(ctx, page.Store)
				return err
			})
			if err != nil && !isDamage(err) {
				return err
			}
		}
		c.report.Problems = append(c.report.Problems, p)
	}
	return nil
}

// rebuildIndex rebuilds page.db from the log. It returns false when that was done before, since the
// page was opened.
func (c *check) rebuildIndex(ctx context.Context) (done bool, err error) {
	err = c.o.Visit(ctx, func(_ context.Context, p *Page) error {
		done = p.Store.RebuildIndex("a check has found differences")
		return nil
	})
	if isDamage(err) {
		return true, nil // the next check reports it
	}
	return done, err
}

// fetchedAtOnce bounds the pieces requested by one call, and maxOldTrees the trees of older
// versions that are built; other trees are fetched when they are read.
const (
	fetchedAtOnce = 1024
	maxOldTrees   = 64
)

// fetch fetches damaged data from the cloud, as far as the cloud has it. It records an unreachable
// cloud in the report.
func (c *check) fetch(ctx context.Context, losses []loss) error {
	if !c.o.Cloud {
		return nil
	}
	err := c.o.Visit(ctx, func(ctx context.Context, p *Page) error {
		err := p.Sync(ctx) // commits, places, and recent entries of other devices
		if c.again = errors.Is(err, base.ErrNeedsFetch); err != nil && !c.again {
			return err
		}
		c.compared = true // downloads are complete; commits without their trees are uploaded once a tree exists
		if err := c.fetchPieces(ctx, p, losses); err != nil {
			return err
		}
		return c.fetchTrees(ctx, p, losses)
	})
	return c.noteCloud(ctx, err)
}

// noteCloud records that the cloud could not be reached.
func (c *check) noteCloud(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if err != nil {
		c.o.Log.Warn("what was damaged could not be fetched", "error", err)
		c.report.CloudErr = err
	}
	return nil
}

// fetchPieces fetches the damaged pieces that the cloud has.
func (c *check) fetchPieces(ctx context.Context, p *Page, losses []loss) error {
	var wanted []object.Digest
	for i := range losses {
		if losses[i].piece != nil {
			wanted = append(wanted, *losses[i].piece)
		}
	}
	for part := range slices.Chunk(wanted, fetchedAtOnce) {
		if err := p.Fetch(ctx, part); err != nil && !errors.Is(err, base.ErrGone) { // then it stays a problem
			return err
		}
	}
	return nil
}

// fetchTrees rebuilds incomplete trees: those of heads and tags, and then those of other versions,
// up to maxOldTrees. A tree built for one version often repairs others.
func (c *check) fetchTrees(ctx context.Context, p *Page, losses []loss) error {
	first, others, err := c.brokenTrees(ctx, p, losses)
	if err != nil {
		return err
	}
	c.gone = map[commit.ID]bool{}
	for _, h := range append(first, others[:min(len(others), maxOldTrees)]...) {
		err := p.Complete(ctx, h)
		if errors.Is(err, base.ErrGone) || errors.Is(err, base.ErrNotFound) {
			c.gone[h.ID] = true // the cloud does not have it
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// brokenTrees returns the commits whose trees need building: heads and tagged commits, and others,
// newest first.
func (c *check) brokenTrees(ctx context.Context, p *Page, losses []loss) (first, others []*commit.Commit, err error) {
	ids, err := p.Store.Holes(ctx)
	if err != nil {
		return nil, nil, err
	}
	tags, err := p.Store.Tags(ctx)
	if err != nil {
		return nil, nil, err
	}
	seen := map[commit.ID]bool{}
	take := func(to *[]*commit.Commit, id commit.ID) error {
		if seen[id] {
			return nil
		}
		seen[id] = true
		h, err := known(ctx, p.Store, id)
		if err == nil && h != nil {
			*to = append(*to, h)
		}
		return err
	}
	for _, h := range p.Store.Heads() {
		err = errors.Join(err, take(&first, h.ID))
	}
	for _, id := range tags {
		err = errors.Join(err, take(&first, id))
	}
	for _, id := range ids {
		err = errors.Join(err, take(&others, id))
	}
	for i := range losses {
		if losses[i].tree != nil {
			err = errors.Join(err, take(&others, *losses[i].tree))
		}
	}
	slices.SortFunc(others, func(a, b *commit.Commit) int { return commit.Compare(b, a) })
	return first, others, err
}
