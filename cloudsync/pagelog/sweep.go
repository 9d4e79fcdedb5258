package pagelog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
)

// Audit lists the log from a number on, up to the position: the first of the epoch, or a later one.
// It returns the numbers that are missing, at most a thousand. A reader that was further on than
// what is missing has lost nothing by it, but a new device would: a cut repairs that. What is
// missing behind the position, where later entries are, is a *DamageError, and so is another entry
// at the position than the one that was applied. It costs a list for each thousand entries, and a
// get.
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

// prove proves that the entry at the position is the one that was applied, if there is one.
func (l *Log) prove(ctx context.Context) error {
	name := l.o.Names.Entry(l.at.Epoch, l.at.Number)
	o, err := l.o.Bucket.Get(ctx, name, 0, wire.HeadBytes)
	if errors.Is(err, base.ErrNotFound) {
		return nil // it is among the holes
	}
	if err != nil {
		return fmt.Errorf("read log entry %d: %w", l.at.Number, err)
	}
	defer o.Body.Close()
	b, err := io.ReadAll(io.LimitReader(o.Body, wire.HeadBytes))
	if err != nil {
		return fmt.Errorf("read log entry %d: %w", l.at.Number, err)
	}
	if hash, ok := wire.EntryHash(b); !ok || hash != l.at.Hash {
		return &DamageError{name, l.forked(b)}
	}
	return nil
}

// Swept says what a sweep has deleted, and what waits for its age.
type Swept struct {
	Objects, Waiting    int
	Bytes, WaitingBytes int64
}

// Sweep deletes what past epochs have left and the present one does not name, epoch.Grace after the
// first of them began that does not name it. named are the packs, runs and checkpoints of past
// epochs that the present one names, and dropped are those that one before it was the first not to
// name. With dry it deletes nothing. Time is that of the last look, which the caller has made just
// before. Where there is nothing to delete it costs a list for each thousand objects, but for those
// of the present epoch.
func (l *Log) Sweep(ctx context.Context, named []epoch.ID, dropped []epoch.Drop, dry bool) (Swept, error) {
	s := &sweeper{l: l, d: epoch.Deletion{Named: named, Dropped: dropped}, named: map[epoch.ID]bool{}, dry: dry}
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
			if prefix != dir { // each has as many objects as a walk may have
				dir, w = prefix, bucket.Walk{Prefix: w.Prefix, After: w.After}
			}
			if err := s.object(ctx, info, epoch.Object{Dir: name.Epoch, ID: name.ID}); err != nil {
				return s.swept, err
			}
		}
		if len(infos) < bucket.MaxList {
			return s.swept, nil
		}
	}
}

// behind returns what is greater than all names that begin with a prefix that ends with a slash,
// and not greater than any other name behind them.
func behind(prefix string) string { return prefix[:len(prefix)-1] + "0" }

// sweeper sweeps.
type sweeper struct {
	l     *Log
	d     epoch.Deletion // its lineage is read when there is something that is not named
	named map[epoch.ID]bool
	dry   bool
	swept Swept
}

// object deletes an object of a past epoch, if it may.
func (s *sweeper) object(ctx context.Context, info bucket.Info, o epoch.Object) error {
	if o.ID != (epoch.ID{}) && s.named[o.ID] {
		return nil
	}
	if s.d.Lineage == nil {
		own, err := s.l.epoch(ctx, s.l.at.K)
		if err != nil {
			return err
		}
		s.d.Kind = own.Kind
		if s.d.Lineage, err = s.l.lineage(ctx, own); err != nil {
			return err
		}
	}
	switch {
	case !s.d.May(o, math.MaxInt64):
		return nil
	case !s.d.May(o, s.l.at.Looked):
		s.swept.Waiting++
		s.swept.WaitingBytes += info.Size
		return nil
	case !s.dry:
		if err := s.l.o.Bucket.Delete(ctx, info.Name); err != nil {
			return fmt.Errorf("delete %s: %w", info.Name, err)
		}
	}
	s.swept.Objects++
	s.swept.Bytes += info.Size
	return nil
}

// lineage returns x and the epochs from which it descends, as far as the bucket shows them.
func (l *Log) lineage(ctx context.Context, x *Epoch) ([]epoch.Began, error) {
	line, parent := []epoch.Began{{Epoch: x.ID, At: x.Created}}, x.Parent
	err := l.eachEpoch(ctx, func(e *Epoch) bool {
		if e.ID == parent {
			line, parent = append(line, epoch.Began{Epoch: e.ID, At: e.Created}), e.Parent
		}
		return true
	})
	return line, err
}

// eachEpoch reads the epochs of the bucket from the newest down, past those that are bad, for as
// long as each returns true.
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
