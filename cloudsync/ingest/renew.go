package ingest

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/storage"
)

// beginsAnew prepares the page for an entry that begins the log anew: it takes what the checkpoint
// of that number has, and returns what that is, nil when there is no checkpoint that is good. It is
// a step of its own, true by itself.
func (p *Page) beginsAnew(ctx context.Context, number uint64) (*knownHistory, Result, error) {
	c, res, err := p.takeHistory(ctx, number, nil)
	if noUse(err) && !errors.Is(err, base.ErrNotFound) { // values may be looked for where they were before the log lost that
		if err := p.loseAbsent(ctx); err != nil {
			return nil, Result{}, err
		}
		c, res, err = p.takeHistory(ctx, number, nil)
	}
	if noUse(err) {
		return nil, Result{}, nil
	}
	return c, res, err
}

// loseAbsent makes durable that pieces which are not held have no place in what is not in the
// bucket.
func (p *Page) loseAbsent(ctx context.Context) error {
	s := p.begin(rows{})
	defer s.end()
	if err := s.loseAbsent(ctx, false); err != nil {
		return err
	}
	return s.submit(ctx, nil)
}

// noUse reports whether err says that an object is not there, or not what it should be.
func noUse(err error) bool {
	return isFault(err) || errors.Is(err, base.ErrNotFound) || errors.Is(err, base.ErrGone) || errors.Is(err, base.ErrCorrupt)
}

// isPruned reports whether a commit was not found since it is not here, or history gave it up.
func isPruned(err error) bool {
	return errors.Is(err, base.ErrNotFound) || errors.Is(err, base.ErrGone)
}

// renew takes an entry that begins the log anew. The bucket has of the log before it what the
// checkpoint of its number has: commits that were read there and are not in it are unsynced again,
// and places in what is not in the bucket any more are none. Nor is a place in an entry before of a
// piece that is held: another entry may stand there by now. k is nil when the checkpoint is not
// there: then nothing is known to be in the bucket.
func (s *step) renew(ctx context.Context, k *knownHistory) error {
	if err := s.unsync(ctx, k); err != nil {
		return err
	}
	s.res.Condemned = true
	return s.loseAbsent(ctx, true)
}

// unsync makes the commits unsynced again that the bucket had, and that are neither in k nor
// ancestors of what is. Where the bucket's retention gives commits up, the older ones than the
// checkpoint has are none of these.
func (s *step) unsync(ctx context.Context, k *knownHistory) error {
	covered := map[commit.ID]bool{commit.First().ID: true}
	oldest := int64(math.MinInt64)
	if k == nil {
		k = &knownHistory{h: &format.History{}}
	}
	if k.retention != (format.Retention{}) {
		oldest = k.h.Oldest()
	}
	var outside []*commit.Commit
	for id := range k.outside {
		c, _, err := s.find(ctx, id)
		if err != nil && !isPruned(err) {
			return err
		}
		if c != nil {
			outside = append(outside, c)
		}
	}
	if err := s.walk(ctx, covered, k.h, outside, func(*commit.Commit) {}); err != nil {
		return err
	}
	ids, err := s.p.o.Store.Unsynced(ctx)
	if err != nil {
		return fmt.Errorf("look for what is not synced: %w", err)
	}
	unsynced := make(map[commit.ID]bool, len(ids))
	for _, id := range ids {
		unsynced[id] = true
	}
	return s.walk(ctx, covered, k.h, s.p.o.Store.Heads(), func(c *commit.Commit) {
		if !unsynced[c.ID] && c.Timestamp >= oldest {
			s.b.Unsynced = append(s.b.Unsynced, c.ID)
		}
	})
}

// walk calls fn with commits and their ancestors, as far as they are here, that are neither in h
// nor in seen yet, and notes them there.
func (s *step) walk(ctx context.Context, seen map[commit.ID]bool, h *format.History, from []*commit.Commit, fn func(*commit.Commit)) error {
	in := func(id commit.ID) bool {
		_, ok := h.Find(id)
		return ok || seen[id]
	}
	var next []*commit.Commit
	for _, c := range from {
		if !in(c.ID) {
			seen[c.ID] = true
			next = append(next, c)
		}
	}
	for len(next) > 0 {
		c := next[len(next)-1]
		next = next[:len(next)-1]
		fn(c)
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		for _, id := range c.Parents {
			if in(id) {
				continue
			}
			seen[id] = true
			parent, _, err := s.find(ctx, id)
			if err != nil && !isPruned(err) {
				return err
			}
			if parent != nil {
				next = append(next, parent)
			}
		}
	}
	return nil
}

// loseAbsent takes the place of pieces whose pack or entry is not in the bucket. It lists both.
// With held, it also takes places in entries of pieces that are held.
func (s *step) loseAbsent(ctx context.Context, held bool) error {
	var packs map[[16]byte]bool
	var entries map[uint64]bool
	note := func(c storage.CloudPlace) bool {
		if c.Entry != 0 {
			entries[c.Entry] = true
		} else {
			packs[c.Pack] = true
		}
		return false
	}
	packs, entries = map[[16]byte]bool{}, map[uint64]bool{}
	if _, err := s.p.o.Store.PlacedIn(ctx, note); err != nil {
		return fmt.Errorf("look where pieces are: %w", err)
	}
	names := s.p.o.Names
	if len(packs) > 0 {
		err := s.list(ctx, names.PacksPrefix(), func(_ string, _, _ uint64, id format.ID) { delete(packs, id) })
		if err != nil {
			return err
		}
	}
	if len(entries) > 0 {
		err := s.list(ctx, names.LogPrefix(), func(_ string, from, to uint64, _ format.ID) {
			for n := from; n <= to; n++ {
				delete(entries, n)
			}
		})
		if err != nil {
			return err
		}
	}
	absent := func(c storage.CloudPlace) bool {
		if c.Entry != 0 {
			return entries[c.Entry]
		}
		return packs[c.Pack]
	}
	if !held && len(packs) == 0 && len(entries) == 0 {
		return nil
	}
	return s.losePlaces(ctx, func(c storage.CloudPlace) bool { return absent(c) || held && c.Entry != 0 }, func(placed []storage.PlacedPiece) ([]storage.PlacedPiece, error) {
		var lost []storage.PlacedPiece
		for _, p := range placed {
			if !absent(p.Place) {
				st, err := s.p.o.Store.PieceState(p.Digest)
				if err != nil {
					return nil, fmt.Errorf("look for piece %s: %w", p.Digest, err)
				}
				if !st.Held {
					continue
				}
			}
			lost = append(lost, p)
		}
		return lost, nil
	})
}

// list calls fn for each object below a prefix that is not empty and has a name that devices give.
func (s *step) list(ctx context.Context, prefix string, fn func(kind string, from, to uint64, id format.ID)) error {
	for after := ""; ; {
		infos, err := s.p.o.Bucket.List(ctx, after, prefix, bucket.MaxList)
		if err != nil {
			return fmt.Errorf("list %s: %w", prefix, err)
		}
		for _, info := range infos {
			if info.Name <= after {
				return &base.CorruptError{Where: "list", Key: prefix, Want: "names in order", Got: info.Name}
			}
			after = info.Name
			if kind, from, to, id, ok := s.p.o.Names.ParseName(info.Name); ok && info.Size > 0 {
				fn(kind, from, to, id)
			}
		}
		if len(infos) < bucket.MaxList {
			return nil
		}
	}
}

// StandAt makes durable that the page stands at an entry that begins the log anew, which it has put
// itself, with the checkpoint of that number: synced are commits that only the checkpoint has of
// what was not in the bucket. Places in what is not in the bucket any more are none from then on.
//
// Errors: those of the bucket, of the disk and of ctx.
func (p *Page) StandAt(ctx context.Context, at format.Position, synced []commit.ID) error {
	r, err := p.readRows(ctx)
	if err != nil {
		return err
	}
	s := p.begin(r)
	defer s.end()
	s.rows.position, s.rows.since = at, 0
	s.b.Synced = synced
	if err := s.loseAbsent(ctx, false); err != nil {
		return err
	}
	if err := s.submit(ctx, append(s.rows.metadata(), storage.Metadata{Type: MetadataAdopted, Value: []byte{1}})); err != nil {
		return fmt.Errorf("stand at entry %d: %w", at.Number, err)
	}
	return nil
}
