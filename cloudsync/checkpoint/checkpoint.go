package checkpoint

import (
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

// MaxHeaderRecords bounds the records of a header that a reader takes, so that its memory is
// bounded. Most of them are tags.
const MaxHeaderRecords = 1 << 20

// spoolBytes is how much of a run is held in memory while it is written.
const spoolBytes = 1 << 20

// Options say where checkpoints are. All of them are needed but Dir.
type Options struct {
	Bucket bucket.Bucket // with retries
	Sealer *seal.Sealer
	Names  wire.Names
	// NewID returns random ids, never zero.
	NewID func() epoch.ID
	// Dir is where temporary files are made; empty: what is written stays in memory.
	Dir string
}

// Store has the checkpoints of a page.
type Store struct{ o Options }

// New returns the Store of a page. It makes no request.
func New(o Options) *Store { return &Store{o} }

// Header is a checkpoint without the records of its runs.
type Header struct {
	Base wire.Base
	// Runs stand for each kind from the oldest to the newest.
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

// Read reads the header of the checkpoint of an epoch. A missing or bad object, or another one than
// x says, is a *base.CorruptError with its name. Other errors are those of the bucket, and
// *base.FormatError.
func (s *Store) Read(ctx context.Context, x *epoch.Proposal) (*Header, error) {
	h, records := &Header{}, 0
	name, l := s.o.Names.Checkpoint(x.ID, x.Checkpoint), s.o.Names.CheckpointLabel(x.ID, x.Checkpoint)
	err := s.read(ctx, name, l, x.CheckpointHash, wire.Checkpoint, func(r wire.Record) error {
		if records++; records > MaxHeaderRecords {
			return &base.CorruptError{Where: "checkpoint", Err: fmt.Errorf("more than %d records", MaxHeaderRecords)}
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
		return nil
	})
	if err != nil {
		return nil, err
	}
	return h, nil
}

// read gives the records of an object to each, and proves its end and its hash.
func (s *Store) read(ctx context.Context, name string, l seal.Label, sum seal.Sum, kind wire.Stream, each func(wire.Record) error) error {
	in, err := s.open(ctx, name, l, sum, kind)
	if err != nil {
		return err
	}
	defer in.close()
	for {
		r, err := in.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := each(r); err != nil {
			return err
		}
	}
}

// source is a sequence of records: of an object, or of what is new.
type source struct {
	name   string
	r      *wire.Reader
	closer io.Closer
	head   wire.Record // the next one, nil behind the last
}

func (s *Store) open(ctx context.Context, name string, l seal.Label, sum seal.Sum, kind wire.Stream) (*source, error) {
	o, err := s.o.Bucket.Get(ctx, name, 0, -1)
	if errors.Is(err, base.ErrNotFound) {
		return nil, &base.CorruptError{Where: name, Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	stream, err := s.o.Sealer.NewStream(o.Body, o.Size, l, &sum)
	if err != nil {
		o.Body.Close()
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return &source{name: name, r: wire.NewReader(stream, kind), closer: o.Body}, nil
}

func (s *source) next() (wire.Record, error) {
	r, err := s.r.Next()
	if err != nil && !errors.Is(err, io.EOF) && s.name != "" {
		err = fmt.Errorf("read %s: %w", s.name, err)
	}
	return r, err
}

// advance reads the next record into head.
func (s *source) advance() (err error) {
	if s.head, err = s.next(); errors.Is(err, io.EOF) {
		s.head, err = nil, nil
	}
	return err
}

func (s *source) close() {
	if s.closer != nil {
		s.closer.Close()
	}
}

// openRun opens a run.
func (s *Store) openRun(ctx context.Context, r wire.Run) (*source, error) {
	return s.open(ctx, s.o.Names.Checkpoint(r.Epoch, r.ID), s.o.Names.RunLabel(r.Epoch, r.ID), r.Hash, wire.RunOf(r.Kind))
}

// merged gives the records of sources, from the newest to the oldest, as those of one: each key
// once, as the first source has it. It closes the sources.
func merged(sources []*source, each func(wire.Record) error) error {
	defer func() {
		for _, s := range sources {
			s.close()
		}
	}()
	for _, s := range sources {
		if err := s.advance(); err != nil {
			return err
		}
	}
	for {
		var least *source
		for _, s := range sources {
			if s.head != nil && (least == nil || wire.Compare(s.head, least.head) < 0) {
				least = s
			}
		}
		if least == nil {
			return nil
		}
		r := least.head
		for _, s := range sources {
			for s.head != nil && wire.Compare(s.head, r) == 0 {
				if g, ok := r.(*wire.Gone); ok && s != least {
					r = &wire.Gone{Commits: g.Commits.Union(s.head.(*wire.Gone).Commits)}
				}
				if err := s.advance(); err != nil {
					return err
				}
			}
		}
		if err := each(r); err != nil {
			return err
		}
	}
}

// Each gives the records of the runs of a kind to fn, which may keep them: ordered by key, each key
// once, as the newest run has it. Records of type Gone may overlap; see Gone. A record of a commit
// counts only where no run lists the commit as given up. A missing or bad run is a
// *base.CorruptError with its name; then fn may have got some of its records. Other errors are
// those of fn, of the bucket, and *base.FormatError.
func (s *Store) Each(ctx context.Context, h *Header, kind wire.RunKind, fn func(wire.Record) error) error {
	sources, err := s.sources(ctx, h.of(kind))
	if err != nil {
		return err
	}
	return merged(sources, fn)
}

// sources opens runs, of which the newest comes first then.
func (s *Store) sources(ctx context.Context, runs []wire.Run) (out []*source, err error) {
	for _, r := range slices.Backward(runs) {
		in, err := s.openRun(ctx, r)
		if err != nil {
			for _, o := range out {
				o.close()
			}
			return nil, err
		}
		out = append(out, in)
	}
	return out, nil
}

// Gone returns the commits that the checkpoint lists as given up, of 8 bytes each. Errors: as Each.
func (s *Store) Gone(ctx context.Context, h *Header) (all epoch.Set, err error) {
	err = s.Each(ctx, h, wire.GivenUp, func(r wire.Record) error {
		all = append(all, r.(*wire.Gone).Commits...)
		return nil
	})
	return epoch.SetOf(all...), err
}

// Add writes a run with the records that are fresh, ordered by key, into the directory of epoch e,
// and puts it into h. Some older runs may become part of it, with whole all of them: of their
// records, and the fresh ones, stays says which are written; nil: all. It returns the bytes of the
// object, 0 when there was nothing to write. When it fails, h is as it was, and an object may be
// left that nobody names. Errors: as Each; those of fresh and of the disk; base.ErrInvalid for
// records out of order.
func (s *Store) Add(ctx context.Context, e epoch.ID, h *Header, kind wire.RunKind, fresh iter.Seq2[wire.Record, error], whole bool, stays func(wire.Record) bool) (int64, error) {
	first := spool.New(s.o.Dir, "run-*", spoolBytes)
	defer first.Close()
	w := wire.NewWriter(first, wire.RunOf(kind))
	for r, err := range fresh {
		if err == nil {
			err = w.Write(r)
		}
		if err != nil {
			return 0, fmt.Errorf("collect the records of a run: %w", err)
		}
	}
	runs := h.of(kind)
	if w.Bytes() == 0 && !(whole && len(runs) > 0) {
		return 0, nil
	}
	var sizes []uint64
	for _, r := range slices.Backward(runs) {
		sizes = append(sizes, r.Bytes)
	}
	rest := len(runs) - wire.MergeRuns(sizes, w.Bytes())
	if whole {
		rest = 0
	}
	in, err := first.Reader()
	if err != nil {
		return 0, err
	}
	older, err := s.sources(ctx, runs[rest:])
	if err != nil {
		return 0, err
	}
	sources := older
	if w.Bytes() > 0 {
		sources = append([]*source{{r: wire.NewReader(in, wire.RunOf(kind))}}, older...)
	}
	run, err := s.write(ctx, e, kind, sources, stays)
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

// write writes what stays of sources as a run, which has no records when nothing does.
func (s *Store) write(ctx context.Context, e epoch.ID, kind wire.RunKind, sources []*source, stays func(wire.Record) bool) (wire.Run, error) {
	run := wire.Run{Kind: kind, Epoch: e, ID: s.o.NewID()}
	object, err := s.put(ctx, s.o.Names.Checkpoint(e, run.ID), s.o.Names.RunLabel(e, run.ID), wire.RunOf(kind), func(w *wire.Writer) (bool, error) {
		out := func(r wire.Record) error {
			if stays != nil && !stays(r) {
				return nil
			}
			run.Records++
			return w.Write(r)
		}
		if kind == wire.GivenUp {
			out = blocks(out)
		}
		err := merged(sources, out)
		if err == nil && kind == wire.GivenUp {
			err = out(nil)
		}
		return run.Records > 0, err
	})
	run.Bytes, run.Hash = object.bytes, object.hash
	return run, err
}

// blocks returns a function that passes on what it gets as records of the greatest length, which do
// not overlap; nil is the end.
func blocks(out func(wire.Record) error) func(wire.Record) error {
	var held epoch.Set
	emit := func(least int) error {
		for len(held) > least {
			n := min(len(held)-least, wire.MaxGone)
			if err := out(&wire.Gone{Commits: held[:n]}); err != nil {
				return err
			}
			held = held[n:]
		}
		return nil
	}
	return func(r wire.Record) error {
		if r == nil {
			return emit(0)
		}
		held = held.Union(r.(*wire.Gone).Commits)
		// What comes later is greater than the first commit of r.
		i, _ := slices.BinarySearch(held, r.(*wire.Gone).Commits[0])
		if i < wire.MaxGone {
			return nil
		}
		return emit(len(held) - i/wire.MaxGone*wire.MaxGone)
	}
}

// Put writes a header as the checkpoint of x, of which it sets Checkpoint and CheckpointHash.
// Errors: base.ErrInvalid; those of the bucket and of the disk.
func (s *Store) Put(ctx context.Context, x *epoch.Proposal, h *Header) error {
	id := s.o.NewID()
	object, err := s.put(ctx, s.o.Names.Checkpoint(x.ID, id), s.o.Names.CheckpointLabel(x.ID, id), wire.Checkpoint, func(w *wire.Writer) (bool, error) {
		if err := w.Write(&h.Base); err != nil {
			return false, err
		}
		for i := range h.Runs {
			if err := w.Write(&h.Runs[i]); err != nil {
				return false, err
			}
		}
		for i := range h.Snapshots {
			if err := w.Write(&h.Snapshots[i]); err != nil {
				return false, err
			}
		}
		for i := range h.Tags {
			if err := w.Write(&h.Tags[i]); err != nil {
				return false, err
			}
		}
		return true, w.Write(&h.Retention)
	})
	if err != nil {
		return fmt.Errorf("write a checkpoint: %w", err)
	}
	x.Checkpoint, x.CheckpointHash = id, object.hash
	return nil
}

// stored is what is known of an object that was written.
type stored struct {
	bytes uint64
	hash  epoch.Hash
}

// put seals what fill writes and stores it, unless fill reports false: then it returns zero. It is
// not compressed, as it has what is from different commits.
func (s *Store) put(ctx context.Context, name string, l seal.Label, kind wire.Stream, fill func(*wire.Writer) (bool, error)) (stored, error) {
	out := spool.New(s.o.Dir, "checkpoint-*", spoolBytes)
	defer out.Close()
	sum := sha256.New()
	sealed, err := s.o.Sealer.NewWriter(io.MultiWriter(out, sum), l, false)
	if err != nil {
		return stored{}, fmt.Errorf("seal %s: %w", name, err)
	}
	some, err := fill(wire.NewWriter(sealed, kind))
	if err != nil || !some {
		return stored{}, err
	}
	if err := sealed.Close(); err != nil {
		return stored{}, fmt.Errorf("seal %s: %w", name, err)
	}
	r, err := out.Reader()
	if err != nil {
		return stored{}, err
	}
	err = s.o.Bucket.PutIfAbsent(ctx, name, out.Size(), r)
	if errors.Is(err, bucket.ErrExists) && bucket.Ambiguous(err) {
		err = nil // nobody else knows the random name: an earlier try has stored it
	}
	if err != nil {
		return stored{}, fmt.Errorf("upload %s: %w", name, err)
	}
	return stored{uint64(out.Size()), epoch.Hash(sum.Sum(nil))}, nil
}
