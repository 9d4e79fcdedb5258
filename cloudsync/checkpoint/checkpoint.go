package checkpoint

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/epoch"
	"github.com/ledgerd/ledger/cloudsync/seal"
	"github.com/ledgerd/ledger/cloudsync/wire"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/spool"
)

// MaxHeaderRecords bounds the records of a header, and so a reader's memory. Most of them are tags.
const MaxHeaderRecords = 1 << 20

// spoolBytes is how much of an object is held in memory before it spills to a file.
const spoolBytes = 1 << 20

// Options configure a Store. All but Dir are needed.
type Options struct {
	Bucket bucket.Bucket // with retries
	Sealer *seal.Sealer
	Names  wire.Names
	// NewID returns random ids, never zero.
	NewID func() epoch.ID
	// Dir is where temporary files are made; empty: output stays in memory.
	Dir string
}

// Store has the checkpoints of a page.
type Store struct{ o Options }

// New returns the Store of a page. It makes no request.
func New(o Options) *Store { return &Store{o} }

// Header is a checkpoint without the records of its runs.
type Header struct {
	Base wire.Base
	// Runs are, for each kind, in order from the oldest to the newest.
	Runs      []wire.Run
	Snapshots []wire.Snapshot
	Tags      []wire.Tag // ascending by name
	Retention wire.Retention
}

// of returns the runs of a kind, from the oldest to the newest.
func (h *Header) of(kind wire.RunKind) (runs []wire.Run) {
	for _, r := range h.Runs {
		if r.Kind == kind {
			runs = append(runs, r)
		}
	}
	return runs
}

// replace sets the runs of a kind.
func (h *Header) replace(kind wire.RunKind, runs []wire.Run) {
	h.Runs = slices.DeleteFunc(slices.Clone(h.Runs), func(r wire.Run) bool { return r.Kind == kind })
	for i := range runs {
		runs[i].Age = uint32(len(runs) - 1 - i)
	}
	h.Runs = append(h.Runs, runs...)
	slices.SortFunc(h.Runs, func(a, b wire.Run) int { return wire.Compare(&a, &b) })
}

// Read reads the header of the checkpoint of an epoch. A missing or bad object, or one that does
// not match x, is a *base.CorruptError with its name. Other errors are those of the bucket, and
// *base.FormatError.
func (s *Store) Read(ctx context.Context, x *epoch.Proposal) (*Header, error) {
	h, records := &Header{}, 0
	name, l := s.o.Names.Checkpoint(x.ID, x.Checkpoint), s.o.Names.CheckpointLabel(x.ID, x.Checkpoint)
	for r, err := range s.records(ctx, name, l, x.CheckpointHash, wire.Checkpoint) {
		if err != nil {
			return nil, err
		}
		if records++; records > MaxHeaderRecords {
			return nil, &base.CorruptError{Where: "checkpoint", Err: fmt.Errorf("more than %d records", MaxHeaderRecords)}
		}
		switch r := r.(type) {
		case *wire.Base:
			h.Base = *r
		case *wire.Run:
			h.Runs = append(h.Runs, *r)
		case *wire.Snapshot:
			h.Snapshots = append(h.Snapshots, *r)
		case *wire.Tag:
			h.Tags = append(h.Tags, *r)
		case *wire.Retention:
			h.Retention = *r
		}
	}
	return h, nil
}

// Body yields the records in the body of an entry, from its object if the body is one. The caller
// reads all of them before it trusts any. Errors match base.ErrCorrupt if the body is bad or
// missing. Other errors are those of the bucket, and *base.FormatError.
func (s *Store) Body(ctx context.Context, e *wire.Entry) iter.Seq2[wire.Record, error] {
	if e.Long != (epoch.ID{}) {
		return s.records(ctx, s.o.Names.Pack(e.Epoch, e.Long), s.o.Names.LongBodyLabel(e.Epoch, e.Long), seal.Sum(e.LongHash), wire.Body)
	}
	return wire.NewReader(bytes.NewReader(e.Body), wire.Body).All()
}

// sequence yields records of an object or of the page. It ends with its first error.
type sequence = iter.Seq2[wire.Record, error]

// records yields the records of an object. The last one proves its end and its hash.
func (s *Store) records(ctx context.Context, name string, l seal.Label, sum seal.Sum, kind wire.Stream) sequence {
	return func(yield func(wire.Record, error) bool) {
		o, err := s.o.Bucket.Get(ctx, name, 0, -1)
		if errors.Is(err, base.ErrNotFound) {
			yield(nil, &base.CorruptError{Where: name, Err: err})
			return
		}
		if err != nil {
			yield(nil, fmt.Errorf("read %s: %w", name, err))
			return
		}
		defer o.Body.Close()
		stream, err := s.o.Sealer.NewStream(o.Body, o.Size, l, &sum)
		if err != nil {
			yield(nil, fmt.Errorf("open %s: %w", name, err))
			return
		}
		for r, err := range wire.NewReader(stream, kind).All() {
			if err != nil {
				err = fmt.Errorf("read %s: %w", name, err)
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

// Each calls fn, which may keep the records, with the records of the runs of a kind: ordered by
// key, each key once, as the newest run has it. A record of a commit counts only if no run lists
// the commit as given up. A missing or bad run is a
// *base.CorruptError with its name; fn may have received some of its records. Other errors are
// those of fn, of the bucket, and *base.FormatError.
func (s *Store) Each(ctx context.Context, h *Header, kind wire.RunKind, fn func(wire.Record) error) error {
	for r, err := range wire.Merged(s.sources(ctx, h.of(kind)), wire.Compare) {
		if err == nil {
			err = fn(r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sources returns the records of runs, the newest run first.
func (s *Store) sources(ctx context.Context, runs []wire.Run) (out []sequence) {
	for _, r := range slices.Backward(runs) {
		name, l := s.o.Names.Checkpoint(r.Epoch, r.ID), s.o.Names.RunLabel(r.Epoch, r.ID)
		out = append(out, s.records(ctx, name, l, r.Hash, wire.RunOf(r.Kind)))
	}
	return out
}

// Gone returns the commits that the checkpoint lists as given up, 8 bytes each. Errors: as Each.
func (s *Store) Gone(ctx context.Context, h *Header) (all epoch.Set, err error) {
	err = s.Each(ctx, h, wire.GivenUp, func(r wire.Record) error {
		all = append(all, r.(*wire.Gone).Commit)
		return nil
	})
	return all, err
}

// Add writes a run of the records fresh, ordered by key, into the directory of epoch e, and adds it
// to h. It may merge some older runs into it; with whole it merges all. stays selects which of
// their records and the fresh ones are written; nil: all. A dropped pack is written as long as an
// older run may name it. Add returns the bytes of the object, 0 if there was nothing to write.
// After an error h is unchanged, and an object may be left that no checkpoint names. Errors: as
// Each; those of fresh and of the disk; base.ErrInvalid for records out of order.
func (s *Store) Add(ctx context.Context, e epoch.ID, h *Header, kind wire.RunKind, fresh iter.Seq2[wire.Record, error], whole bool, stays func(wire.Record) bool) (int64, error) {
	first := spool.New(s.o.Dir, "run-*", spoolBytes)
	defer first.Close()
	w, records := wire.NewWriter(first, wire.RunOf(kind)), uint64(0)
	for r, err := range fresh {
		if err == nil {
			err = w.Write(r)
		}
		if err != nil {
			return 0, fmt.Errorf("collect the records of a run: %w", err)
		}
		records++
	}
	runs := h.of(kind)
	if records == 0 && !(whole && len(runs) > 0) {
		return 0, nil
	}
	var sizes []uint64 // in records: sealing adds bytes to a run
	for _, r := range slices.Backward(runs) {
		sizes = append(sizes, r.Records)
	}
	rest := len(runs) - wire.MergeRuns(sizes, records)
	if whole || rest == wire.MaxRuns {
		rest = 0
	}
	in, err := first.Reader()
	if err != nil {
		return 0, err
	}
	sources := s.sources(ctx, runs[rest:])
	if records > 0 {
		sources = slices.Insert(sources, 0, wire.NewReader(in, wire.RunOf(kind)).All())
	}
	run, err := s.write(ctx, e, kind, sources, func(r wire.Record) bool {
		p, ok := r.(*wire.Pack)
		dead := ok && p.Dropped && rest == 0 // no older run names it
		return !dead && (stays == nil || stays(r))
	})
	if err != nil {
		return 0, fmt.Errorf("write a run: %w", err)
	}
	runs = runs[:rest:rest]
	if run.Records > 0 {
		runs = append(runs, run)
	}
	h.replace(kind, runs)
	return int64(run.Bytes), nil
}

// write writes the records of sources that stay as a run. Without such records it writes no object.
func (s *Store) write(ctx context.Context, e epoch.ID, kind wire.RunKind, sources []sequence, stays func(wire.Record) bool) (run wire.Run, err error) {
	run = wire.Run{Kind: kind, Epoch: e, ID: s.o.NewID()}
	run.Bytes, run.Hash, err = s.PutObject(ctx, s.o.Names.Checkpoint(e, run.ID), s.o.Names.RunLabel(e, run.ID), func(out io.Writer) error {
		w := wire.NewWriter(out, wire.RunOf(kind))
		for r, err := range wire.Merged(sources, wire.Compare) {
			if err == nil && stays(r) {
				run.Records++
				err = w.Write(r)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return run, err
}

// Put writes a header as the checkpoint of x, and sets Checkpoint and CheckpointHash of x. Errors:
// base.ErrInvalid; those of the bucket and of the disk.
func (s *Store) Put(ctx context.Context, x *epoch.Proposal, h *Header) error {
	records := []wire.Record{&h.Base}
	for i := range h.Runs {
		records = append(records, &h.Runs[i])
	}
	for i := range h.Snapshots {
		records = append(records, &h.Snapshots[i])
	}
	for i := range h.Tags {
		records = append(records, &h.Tags[i])
	}
	id := s.o.NewID()
	_, hash, err := s.PutObject(ctx, s.o.Names.Checkpoint(x.ID, id), s.o.Names.CheckpointLabel(x.ID, id), func(out io.Writer) error {
		w := wire.NewWriter(out, wire.Checkpoint)
		for _, r := range append(records, &h.Retention) {
			if err := w.Write(r); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("write a checkpoint: %w", err)
	}
	x.Checkpoint, x.CheckpointHash = id, hash
	return nil
}

// PutObject seals what fill writes, and stores it under a new name. If fill writes nothing, it
// stores nothing and returns zero. The object is not compressed, as it has data of different
// commits. Errors: those of fill, of the bucket and of the disk.
func (s *Store) PutObject(ctx context.Context, name string, l seal.Label, fill func(io.Writer) error) (bytes uint64, hash epoch.Hash, err error) {
	out := spool.New(s.o.Dir, "upload-*", spoolBytes)
	defer out.Close()
	sum := sha256.New()
	sealed := s.o.Sealer.NewWriter(io.MultiWriter(out, sum), l, false, nil)
	if err := fill(sealed); err != nil {
		return 0, hash, err
	}
	if at, err := sealed.Flush(); err != nil || at == 0 {
		return 0, hash, err
	}
	if err := sealed.Close(); err != nil {
		return 0, hash, fmt.Errorf("seal %s: %w", name, err)
	}
	r, err := out.Reader()
	if err != nil {
		return 0, hash, err
	}
	return uint64(out.Size()), epoch.Hash(sum.Sum(nil)), bucket.PutNew(ctx, s.o.Bucket, name, out.Size(), r)
}
