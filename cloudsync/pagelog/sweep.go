package pagelog

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

// Audit lists the log from the number from up to the position. from is the first of the epoch, or
// later. It returns the missing numbers, at most a thousand. A device at a later position has lost
// nothing by them, but a new device would: a cut repairs that. An entry that is missing after the
// position, where later entries exist, is a *DamageError. So is another entry at the position than
// the applied one. Audit costs a list for each thousand entries, and a get.
func (l *Log) Audit(ctx context.Context, from uint64) (holes []uint64, err error) {
	e, n := l.at.Epoch, l.at.Number
	if n >= from {
		if err := l.prove(ctx); err != nil {
			return nil, err
		}
	}
	want := from
	miss := func(to uint64) {
		for ; want < to && len(holes) < bucket.MaxList; want++ {
			holes = append(holes, want)
		}
	}
	beyond := uint64(0)
	err = l.list(ctx, l.o.Names.Entry(e, max(from, 1)-1), l.o.Names.Log(e), func(name wire.Name) bool {
		if name.Number > n {
			beyond = name.Number
			return false
		}
		miss(name.Number)
		want = name.Number + 1
		return true
	})
	if err != nil {
		return nil, err
	}
	miss(n + 1)
	if beyond > n+1 {
		next := l.fetch(ctx, l.o.Names.Entry(e, n+1), wire.MaxEntryBytes)
		if next.err != nil && !errors.Is(next.err, base.ErrCorrupt) {
			return holes, next.err
		}
		if next.missing {
			return holes, &DamageError{l.o.Names.Entry(e, n+1), errMissing}
		}
	}
	return holes, nil
}

// prove proves that the entry at the position is the applied one, if it exists.
func (l *Log) prove(ctx context.Context) error {
	name := l.o.Names.Entry(l.at.Epoch, l.at.Number)
	f := l.fetch(ctx, name, wire.MaxEntryBytes)
	switch {
	case f.missing: // the entry is among the holes
		return nil
	case f.err != nil && !errors.Is(f.err, base.ErrCorrupt):
		return fmt.Errorf("read log entry %d: %w", l.at.Number, f.err)
	case f.err != nil || sha256.Sum256(f.stored) != l.at.Hash:
		return &DamageError{name, errOther}
	}
	return nil
}

// Swept counts the objects of past epochs that a sweep has found.
type Swept struct {
	// DeletedObjects were past for longer than the grace; DeletedBytes is their length.
	DeletedObjects int
	DeletedBytes   int64
	// WaitingObjects are past and not deleted yet; WaitingBytes is their length.
	WaitingObjects int
	WaitingBytes   int64
}

// Sweep deletes objects of past epochs that the present epoch does not name, epoch.Grace after the
// first epoch began that does not name them. named are the packs, runs and checkpoints of past
// epochs that the present one names, and namedBy returns those that an earlier epoch named. With
// dry it deletes nothing. The time is that of the last look, which the caller has just made. With
// nothing to delete, Sweep costs a list for each thousand objects outside the present epoch.
func (l *Log) Sweep(ctx context.Context, named []epoch.ID, namedBy func(context.Context, *epoch.Proposal) ([]epoch.ID, error), dry bool) (Swept, error) {
	s := &sweeper{l: l, d: epoch.Deletion{Named: named}, namedBy: namedBy, named: map[epoch.ID]bool{}, dry: dry}
	for _, id := range named {
		s.named[id] = true
	}
	n := l.o.Names
	of := map[wire.Kind]func(epoch.ID) string{wire.KindCheckpoint: n.Checkpoints, wire.KindEntry: n.Log, wire.KindPack: n.Packs}
	w := bucket.Walk{Prefix: n.Dir + "/"}
	dir, skip := "", ""
	for {
		infos, err := l.o.Bucket.List(ctx, max(w.After, skip), w.Prefix, bucket.MaxList)
		if err != nil {
			return s.swept, fmt.Errorf("list what the bucket has of the page: %w", err)
		}
		for _, info := range infos {
			if err := w.Next(info); err != nil {
				return s.swept, fmt.Errorf("list what the bucket has of the page: %w", err)
			}
			name, ok := n.Parse(info.Name)
			if !ok || info.Name < skip {
				continue
			}
			prefix := n.Epochs()
			if in := of[name.Kind]; in != nil {
				prefix = in(name.Epoch)
			}
			if name.Kind == wire.KindEpoch || name.Epoch == l.at.Epoch && !l.at.Deleted {
				skip = behind(prefix)
				continue
			}
			if prefix != dir { // a walk is bounded, and each directory may have as many objects
				dir, w = prefix, bucket.Walk{Prefix: w.Prefix, After: w.After}
			}
			if err := s.object(ctx, info, epoch.Object{Dir: name.Epoch, ID: name.ID, Created: timeOf(info.Created)}); err != nil {
				return s.swept, err
			}
		}
		if len(infos) < bucket.MaxList {
			return s.swept, nil
		}
	}
}

// behind returns the least name after all names that begin with prefix, which ends with a slash.
func behind(prefix string) string { return prefix[:len(prefix)-1] + "0" }

// sweeper sweeps.
type sweeper struct {
	l       *Log
	d       epoch.Deletion // its lineage is read once there is an object that is not named
	named   map[epoch.ID]bool
	namedBy func(context.Context, *epoch.Proposal) ([]epoch.ID, error)
	dry     bool
	swept   Swept
}

// object deletes an object of a past epoch, if that is allowed.
func (s *sweeper) object(ctx context.Context, info bucket.Info, o epoch.Object) error {
	if o.ID != (epoch.ID{}) && s.named[o.ID] {
		return nil
	}
	if s.d.Lineage == nil {
		if err := s.lineage(ctx); err != nil {
			return err
		}
	}
	switch {
	case !s.d.Past(o):
		return nil
	case !s.d.May(o):
		s.swept.WaitingObjects++
		s.swept.WaitingBytes += info.Size
		return nil
	case !s.dry:
		if err := s.l.o.Bucket.Delete(ctx, info.Name); err != nil {
			return fmt.Errorf("delete %s: %w", info.Name, err)
		}
	}
	s.swept.DeletedObjects++
	s.swept.DeletedBytes += info.Size
	return nil
}

// lineage reads the epochs from which the own one descends, as far as the bucket shows them, and
// what the settled one names.
func (s *sweeper) lineage(ctx context.Context) error {
	own, err := s.l.epoch(ctx, s.l.at.K)
	if err != nil {
		return err
	}
	line := []*Epoch{own}
	err = s.l.eachEpoch(ctx, func(e *Epoch) bool {
		if e.ID == line[len(line)-1].Parent {
			line = append(line, e)
		}
		return true
	})
	if err != nil {
		return err
	}
	for _, e := range line {
		s.d.Lineage = append(s.d.Lineage, epoch.Began{Epoch: e.ID, At: e.Created})
	}
	s.d.Kind, s.d.Settled = own.Kind, epoch.Settled(s.d.Lineage, s.l.at.Looked)
	if s.d.Settled == 0 || s.d.Settled == len(line) {
		return nil
	}
	s.d.Named, err = s.namedBy(ctx, line[s.d.Settled].Proposal)
	if errors.Is(err, base.ErrCorrupt) { // nothing is deleted until a later epoch is old enough
		s.d.Settled, err = len(line), nil
	}
	return err
}

// eachEpoch reads the epochs of the bucket from the newest down, as long as each returns true. It
// skips bad ones.
func (l *Log) eachEpoch(ctx context.Context, each func(*Epoch) bool) error {
	var numbers []uint64
	err := l.list(ctx, "", l.o.Names.Epochs(), func(name wire.Name) bool {
		numbers = append(numbers, name.Number)
		return true
	})
	if err != nil {
		return err
	}
	for _, k := range slices.Backward(numbers) {
		e, err := l.epoch(ctx, k)
		if errors.Is(err, base.ErrCorrupt) {
			continue
		}
		if err != nil {
			return err
		}
		if !each(e) {
			break
		}
	}
	return nil
}
