package permazen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/ledgerd/ledger/ordered"
	"github.com/ledgerd/ledger/permazen/encoding"
	"github.com/ledgerd/ledger/permazen/layout"
)

// IDs iterates over distinct object ids in ascending order. It begins before the first id. The
// caller closes it.
type IDs interface {
	// Next moves to the next id. It returns false at the end or after an error; see Err.
	Next(ctx context.Context) bool
	// Seek moves forward to the first id that is at least id. It does not move when the present id
	// is already at least id.
	Seek(ctx context.Context, id ObjID) bool
	// ID returns the present id.
	ID() ObjID
	// Err returns the error that ended the iteration, or nil at the regular end.
	Err() error
	// Close ends the iteration. It is idempotent.
	Close() error
}

// Each yields the ids of an iteration and closes it. An error is in the last pair.
func Each(ctx context.Context, ids IDs) iter.Seq2[ObjID, error] {
	return func(yield func(ObjID, error) bool) {
		defer ids.Close()
		for ids.Next(ctx) {
			if !yield(ids.ID(), nil) {
				return
			}
		}
		if err := errors.Join(ids.Err(), ids.Close()); err != nil {
			yield(ObjID{}, err)
		}
	}
}

// farSteps is how many rows Seek reads in sequence before it opens a new iterator.
const farSteps = 8

// seekRows moves ids to the first id that is at least id, in single steps or else by calling jump,
// which opens a new iterator.
func seekRows(ctx context.Context, ids IDs, started bool, id ObjID, jump func()) bool {
	below := func() bool { at := ids.ID(); return bytes.Compare(at[:], id[:]) < 0 }
	if started {
		for range farSteps {
			if !below() {
				return true
			}
			if !ids.Next(ctx) {
				return false
			}
		}
		if !below() {
			return true
		}
	}
	jump()
	return ids.Next(ctx)
}

// rowIDs iterates over index rows with the same values, in which ids follow one prefix.
type rowIDs struct {
	r       ordered.Reader
	prefix  []byte
	end     []byte
	it      ordered.Iter
	id      ObjID
	started bool
	err     error
}

// newRowIDs returns the ids after prefix that begin with typ, which may be nil.
func newRowIDs(r ordered.Reader, prefix, typ []byte) *rowIDs {
	from := append(bytes.Clone(prefix), typ...)
	ids := &rowIDs{r: r, prefix: prefix, end: ordered.PrefixEnd(from)}
	ids.open(from)
	return ids
}

func (s *rowIDs) open(from []byte) {
	s.it = s.r.Iter(ordered.Range{Start: from, End: s.end, KeysOnly: true})
}

func (s *rowIDs) Next(ctx context.Context) bool {
	for s.err == nil && s.it.Next(ctx) {
		key := s.it.Key()
		id, err := encoding.ReadObjID(key[min(len(s.prefix), len(key)):])
		if err != nil {
			s.err = fmt.Errorf("read index row %x: %w", key, err)
			return false
		}
		if s.started && id == s.id {
			continue // another element of the same object
		}
		s.id, s.started = id, true
		return true
	}
	return false
}

func (s *rowIDs) Seek(ctx context.Context, id ObjID) bool {
	return seekRows(ctx, s, s.started, id, func() {
		s.err = errors.Join(s.err, s.it.Close())
		s.open(append(bytes.Clone(s.prefix), id[:]...))
	})
}

func (s *rowIDs) ID() ObjID    { return s.id }
func (s *rowIDs) Err() error   { return errors.Join(s.err, s.it.Err()) }
func (s *rowIDs) Close() error { return s.it.Close() }

// objects iterates over the first rows of objects.
type objects struct {
	r       ordered.Reader
	prefix  []byte // the storage id of the type
	it      ordered.Iter
	id      ObjID
	started bool
	err     error
}

// maxObjectRows is how many rows of an object Next reads before it seeks to the next object.
const maxObjectRows = 32

func (s *objects) open(from []byte) {
	s.err = errors.Join(s.err, s.Close())
	s.it = s.r.Iter(ordered.Range{Start: from, End: ordered.PrefixEnd(s.prefix), KeysOnly: true})
}

func (s *objects) Next(ctx context.Context) bool {
	if s.it == nil {
		s.open(s.prefix)
	}
	for n := 0; s.err == nil && s.it.Next(ctx); n++ {
		if key := s.it.Key(); len(key) == layout.IDBytes {
			s.id, s.started = ObjID(key), true
			return true
		}
		if n == maxObjectRows && s.started {
			n = 0
			if end := ordered.PrefixEnd(s.id[:]); end != nil {
				s.open(end)
			}
		}
	}
	return false
}

func (s *objects) Seek(ctx context.Context, id ObjID) bool {
	return seekRows(ctx, s, s.started, id, func() { s.open(id[:]) })
}

func (s *objects) ID() ObjID { return s.id }

func (s *objects) Err() error {
	if s.it == nil {
		return s.err
	}
	return errors.Join(s.err, s.it.Err())
}

func (s *objects) Close() error {
	if s.it == nil {
		return nil
	}
	return s.it.Close()
}

// sliceIDs iterates over ids in memory.
type sliceIDs struct {
	ids []ObjID
	at  int
}

func (s *sliceIDs) Next(context.Context) bool {
	s.at = min(s.at+1, len(s.ids))
	return s.at < len(s.ids)
}

func (s *sliceIDs) Seek(_ context.Context, id ObjID) bool {
	from := max(s.at, 0)
	n, _ := slices.BinarySearchFunc(s.ids[from:], id, func(a, b ObjID) int { return bytes.Compare(a[:], b[:]) })
	s.at = from + n
	return s.at < len(s.ids)
}

func (s *sliceIDs) ID() ObjID    { return s.ids[s.at] }
func (s *sliceIDs) Err() error   { return nil }
func (s *sliceIDs) Close() error { return nil }

// several combines iterations into one.
type several struct{ all []IDs }

func (s several) Err() error {
	var err error
	for _, ids := range s.all {
		err = errors.Join(err, ids.Err())
	}
	return err
}

func (s several) Close() error {
	var err error
	for _, ids := range s.all {
		err = errors.Join(err, ids.Close())
	}
	return err
}

// Intersect returns the ids that occur in all iterations, or none when there are no iterations.
// Closing the result closes them.
func Intersect(all ...IDs) IDs { return &intersection{several: several{all}} }

type intersection struct {
	several
	id ObjID
}

func (s *intersection) Next(ctx context.Context) bool {
	return len(s.all) > 0 && s.all[0].Next(ctx) && s.settle(ctx)
}

func (s *intersection) Seek(ctx context.Context, id ObjID) bool {
	return len(s.all) > 0 && s.all[0].Seek(ctx, id) && s.settle(ctx)
}

// settle moves all iterations forward until they agree on an id.
func (s *intersection) settle(ctx context.Context) bool {
	want := s.all[0].ID()
	for agreed, i := 1, 0; agreed < len(s.all); {
		i = (i + 1) % len(s.all)
		if !s.all[i].Seek(ctx, want) {
			return false
		}
		if at := s.all[i].ID(); at != want {
			want, agreed = at, 1
		} else {
			agreed++
		}
	}
	s.id = want
	return true
}

func (s *intersection) ID() ObjID { return s.id }

// Union returns the ids that occur in any iteration. Closing the result closes the iterations.
func Union(all ...IDs) IDs { return &union{several: several{all}} }

type union struct {
	several
	live    []IDs // iterations that are not at their end
	id      ObjID
	started bool
}

func (s *union) Next(ctx context.Context) bool {
	move := func(ids IDs) bool {
		if s.started && ids.ID() != s.id {
			return true
		}
		return ids.Next(ctx)
	}
	return s.move(move)
}

func (s *union) Seek(ctx context.Context, id ObjID) bool {
	return s.move(func(ids IDs) bool { return ids.Seek(ctx, id) })
}

func (s *union) move(move func(IDs) bool) bool {
	if !s.started {
		s.live = slices.Clone(s.all)
	}
	s.live = slices.DeleteFunc(s.live, func(ids IDs) bool { return !move(ids) })
	s.started = true
	if len(s.live) == 0 || s.Err() != nil {
		return false
	}
	s.id = s.live[0].ID()
	for _, ids := range s.live[1:] {
		if at := ids.ID(); bytes.Compare(at[:], s.id[:]) < 0 {
			s.id = at
		}
	}
	return true
}

func (s *union) ID() ObjID { return s.id }
