package pagelog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"

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
	err = l.list(ctx, l.o.Names.Entry(e, max(from, 1)-1), l.o.Names.Log(e), func(info bucket.Info) bool {
		name, ok := l.o.Names.Parse(info.Name)
		if !ok {
			return true
		}
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
		return &DamageError{name, errors.New("it is another entry than the one that was there")}
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
// name. With dry it deletes nothing. It looks first. A bucket without past epochs costs a few
// requests, whatever its log has.
func (l *Log) Sweep(ctx context.Context, named []epoch.ID, dropped []epoch.Drop, dry bool) (s Swept, err error) {
	if err := l.Look(ctx); err != nil && !errors.Is(err, ErrDeleted) {
		return s, err
	}
	own, err := l.epoch(ctx, l.at.K)
	if err != nil {
		return s, err
	}
	past, err := l.past(ctx)
	if err != nil || len(past) == 0 {
		return s, err
	}
	lineage, err := l.lineage(ctx, own)
	if err != nil {
		return s, err
	}
	d := &epoch.Deletion{Lineage: lineage, Kind: own.Kind, Named: named, Dropped: dropped}
	for _, dir := range past {
		if err := l.sweepDir(ctx, d, dir, dry, &s); err != nil {
			return s, err
		}
	}
	return s, nil
}

// directory is one of an epoch: its prefix, and the epoch.
type directory struct {
	prefix string
	of     epoch.ID
}

// past returns the directories in the bucket of other epochs than the present one.
func (l *Log) past(ctx context.Context) (dirs []directory, err error) {
	n, own := l.o.Names, l.at.Epoch
	of := map[wire.Kind]func(epoch.ID) string{wire.KindCheckpoint: n.Checkpoints, wire.KindEntry: n.Log, wire.KindPack: n.Packs}
	w := bucket.Walk{Prefix: n.Dir + "/"}
	for {
		infos, err := l.o.Bucket.List(ctx, w.After, w.Prefix, 1)
		if err != nil {
			return nil, fmt.Errorf("list what the bucket has of the page: %w", err)
		}
		if len(infos) == 0 {
			return dirs, nil
		}
		if err := w.Next(infos[0]); err != nil {
			return nil, fmt.Errorf("list what the bucket has of the page: %w", err)
		}
		name, ok := n.Parse(infos[0].Name)
		switch prefix := of[name.Kind]; {
		case !ok:
		case name.Kind == wire.KindEpoch:
			w.After = behind(n.Epochs())
		default:
			if name.Epoch != own || l.at.Deleted {
				dirs = append(dirs, directory{prefix(name.Epoch), name.Epoch})
			}
			w.After = behind(prefix(name.Epoch))
		}
	}
}

// behind returns what is greater than all names that begin with a prefix that ends with a slash,
// and not greater than any other name behind them.
func behind(prefix string) string { return prefix[:len(prefix)-1] + "0" }

// lineage returns x and the epochs from which it descends, as far as the bucket shows them.
func (l *Log) lineage(ctx context.Context, x *Epoch) ([]epoch.Began, error) {
	all := map[epoch.ID]*Epoch{}
	err := l.eachEpoch(ctx, func(e *Epoch) { all[e.ID] = e })
	if err != nil {
		return nil, err
	}
	line := []epoch.Began{{Epoch: x.ID, At: x.Created}}
	for e := all[x.Parent]; e != nil && len(line) <= len(all); e = all[e.Parent] {
		line = append(line, epoch.Began{Epoch: e.ID, At: e.Created})
	}
	return line, nil
}

// eachEpoch reads the epochs of the bucket, past those that are bad.
func (l *Log) eachEpoch(ctx context.Context, each func(*Epoch)) error {
	var numbers []uint64
	err := l.list(ctx, "", l.o.Names.Epochs(), func(info bucket.Info) bool {
		if name, ok := l.o.Names.Parse(info.Name); ok {
			numbers = append(numbers, name.Number)
		}
		return true
	})
	if err != nil {
		return err
	}
	for _, k := range numbers {
		e, err := l.epoch(ctx, k)
		if errors.Is(err, base.ErrCorrupt) {
			continue
		}
		if err != nil {
			return err
		}
		each(e)
	}
	return nil
}

// sweepDir deletes what may be deleted of one directory.
func (l *Log) sweepDir(ctx context.Context, d *epoch.Deletion, dir directory, dry bool, s *Swept) error {
	var infos []bucket.Info
	now := l.at.Looked
	err := l.list(ctx, "", dir.prefix, func(info bucket.Info) bool {
		infos = append(infos, info)
		return true
	})
	if err != nil {
		return err
	}
	for _, info := range infos {
		name, ok := l.o.Names.Parse(info.Name)
		o := epoch.Object{Dir: dir.of, ID: name.ID}
		switch {
		case !ok || !d.May(o, math.MaxInt64):
			continue
		case !d.May(o, now):
			s.Waiting++
			s.WaitingBytes += info.Size
			continue
		case !dry:
			if err := l.o.Bucket.Delete(ctx, info.Name); err != nil {
				return fmt.Errorf("delete %s: %w", info.Name, err)
			}
		}
		s.Objects++
		s.Bytes += info.Size
	}
	return nil
}
