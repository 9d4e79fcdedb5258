package cloudsync

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/cloudsync/pack"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// damage is what Check has found in the bucket.
type damage struct {
	packs map[[16]byte]bool // packs and diffs that are damaged, or not there
	spare []string          // other objects that are damaged, and can go
	log   bool              // something else is damaged, or one of packs may be a diff
	// floors are the damaged ones, and floor is the newest that is known.
	floors []uint64
	floor  format.Floor
	at     uint64 // where the page stood: others may stand there too
	why    error  // about the first
}

// renews reports whether the log is to begin anew because of it.
func (d *damage) renews() bool { return d != nil && (len(d.packs) > 0 || d.log) }

// above lets the log begin anew above where devices may stand, so that none of them meets another
// entry there than it has read.
func (d *damage) above(s *logSurvey) {
	if d.renews() && s.top < d.at {
		s.gaps = append(s.gaps, s.top+1)
		s.top = d.at
	}
}

// dropSpare deletes what is damaged and of no use, so that it can be written again.
func (p *Page) dropSpare(ctx context.Context, d *damage) error {
	if d == nil || p.isBare() {
		return nil
	}
	for _, name := range d.spare {
		if err := p.drop(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// drop deletes a damaged object.
func (p *Page) drop(ctx context.Context, name string) error {
	if err := p.b.Delete(ctx, name); err != nil && !errors.Is(err, base.ErrNotFound) {
		return fmt.Errorf("delete damaged object %s: %w", name, err)
	}
	return nil
}

// unsyncTogether is how many commits become unsynced in one batch.
const unsyncTogether = 4096

// rememberedFloor returns the newest floor that this device has seen, zero when it has seen none.
func (p *Page) rememberedFloor(ctx context.Context) (format.Floor, error) {
	row, err := p.store.Metadata(ctx, format.MetadataFloor)
	if err != nil {
		return format.Floor{}, fmt.Errorf("read the floor: %w", err)
	}
	return parseFloor(row).floor, nil
}

// restoreFloors puts floors back that are damaged: without them nobody who does not remember a
// later one could tell where the log begins. One that is older than the newest that is known gets
// what that says. Which is the newest is known before all is forgotten. Errors: d.why when nobody
// here knows a damaged one, nor a later one.
func (p *Page) restoreFloors(ctx context.Context, d *damage) error {
	if d == nil {
		return nil
	}
	for _, k := range d.floors {
		if k > d.floor.K {
			return d.why
		}
		p.s.o.Logger.Warn("a floor is damaged, and is put back", "ledger", p.o.Ledger, "page", p.pageID(), "floor", k)
		if err := p.drop(ctx, p.names.Floor(k)); err != nil {
			return err
		}
		if err := p.putFloor(ctx, format.Floor{K: k, Low: d.floor.Low, Checkpoint: d.floor.Checkpoint}); err != nil {
			return err
		}
	}
	return nil
}

// leaveDamaged makes the page one of which nothing stands in what is damaged, before the log begins
// anew. What can still be read of damaged packs, and is not here, is fetched; then those packs are
// deleted of which nothing more can be read: so the other devices learn that what stood there is to
// be sent again, by those who hold it. Where more is damaged, all commits are to be sent again.
func (p *Page) leaveDamaged(ctx context.Context, d *damage) error {
	if !d.renews() {
		return nil
	}
	in := func(c storage.CloudPlace) bool { return c.Entry == 0 && d.packs[c.Pack] }
	if err := p.salvage(ctx, in); err != nil {
		return err
	}
	if err := p.in.ForgetPlaces(ctx, in); err != nil {
		return fmt.Errorf("take the places in damaged packs: %w", err)
	}
	for id := range d.packs {
		of, err := p.ofNoUse(ctx, id)
		if err == nil && of {
			err = p.drop(ctx, p.names.Pack(id))
		}
		if err != nil {
			return err
		}
	}
	if !d.log {
		return nil
	}
	all, err := p.store.FindCommits(ctx, nil, false, math.MaxInt)
	if err != nil {
		return fmt.Errorf("list commits: %w", err)
	}
	for some := range slices.Chunk(all, unsyncTogether) {
		var b storage.SyncBatch
		for _, id := range some {
			if id != commit.First().ID {
				b.Unsynced = append(b.Unsynced, id)
			}
		}
		pending, err := p.store.SubmitSync(ctx, nil, &b)
		if err == nil {
			err = pending.Wait()
		}
		if err != nil {
			return fmt.Errorf("send all commits again: %w", err)
		}
	}
	return nil
}

// ofNoUse reports whether all that can be read of a damaged pack is here. Of one whose table cannot
// be read, other devices may know where its pieces stand.
func (p *Page) ofNoUse(ctx context.Context, id format.ID) (bool, error) {
	var lost []object.Digest
	r, err := pack.OpenWhole(ctx, p.b, p.s.sealer, p.names, format.PackRef{ID: id})
	if err == nil {
		defer r.Close()
		err = r.Readable(ctx, func(d object.Digest) error {
			st, err := p.store.PieceState(d)
			if err == nil && !st.Held {
				lost = append(lost, d)
			}
			return err
		})
	}
	switch {
	case errors.Is(err, base.ErrNotFound):
		return true, nil
	case err != nil && !isDamage(err):
		return false, fmt.Errorf("look what can be read of damaged pack %s: %w", p.names.Pack(id), err)
	}
	return err == nil && len(lost) == 0, nil
}

// salvage fetches the pieces that are not here from damaged packs, block by block, as far as these
// can be read.
func (p *Page) salvage(ctx context.Context, in func(storage.CloudPlace) bool) error {
	placed, err := p.store.PlacedIn(ctx, in)
	if err != nil {
		return fmt.Errorf("look what stands in damaged packs: %w", err)
	}
	type block struct {
		pack   [16]byte
		number uint32
	}
	blocks := map[block][]object.Digest{}
	for _, q := range placed {
		st, err := p.store.PieceState(q.Digest)
		if err != nil {
			return fmt.Errorf("look for piece %s: %w", q.Digest.Short(), err)
		}
		if !st.Held {
			b := block{q.Place.Pack, q.Place.Block}
			blocks[b] = append(blocks[b], q.Digest)
		}
	}
	p.mu.Lock()
	fetcher := p.fetchers[len(p.fetchers)-1]
	p.mu.Unlock()
	for _, ds := range blocks {
		_, err := fetcher.FetchAll(ctx, ds)
		if err != nil && !pack.Damaged(err) && !errors.Is(err, base.ErrGone) && bucket.ClassOf(err) != bucket.ClassCorrupt {
			return fmt.Errorf("fetch what can be read of damaged packs: %w", err)
		}
	}
	return nil
}
