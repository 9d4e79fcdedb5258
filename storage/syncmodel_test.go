package storage_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// modelPiece is what a page knows of a piece of a value.
type modelPiece struct {
	held, placed bool
	place        storage.CloudPlace
}

// modelCommit is what a page knows of a commit beside what it says.
type modelCommit struct{ synced, treeless bool }

// modelTag is what a page knows of a tag: where it points to, zero: nowhere; and the unsynced
// change, if there is one.
type modelTag struct {
	id, changed commit.ID
	isNew       bool
}

// syncState is one thing that can be so.
type syncState interface {
	modelPiece | modelCommit | modelTag | string
}

// possible are the states in which things may be: more than one when it is not known whether a step
// was done.
type possible[K comparable, T syncState] map[K][]T

// apply returns what follows for each of some keys, or for all.
func (p possible[K, T]) apply(f func(k K, t T) T) possible[K, T] {
	out := make(possible[K, T], len(p))
	for k, states := range p {
		for _, t := range states {
			if n := f(k, t); !slices.Contains(out[k], n) {
				out[k] = append(out[k], n)
			}
		}
	}
	return out
}

// or returns what is so if p or q is.
func (p possible[K, T]) or(q possible[K, T]) possible[K, T] {
	out := maps.Clone(p)
	for k, states := range q {
		all := slices.Clone(out[k])
		if len(all) == 0 {
			var none T
			all = append(all, none)
		}
		for _, t := range states {
			if !slices.Contains(all, t) {
				all = append(all, t)
			}
		}
		out[k] = all
	}
	return out
}

// want returns an error when a state is none of the possible ones.
func (p possible[K, T]) want(k K, got T, same func(want T) bool) error {
	states, ok := p[k]
	if !ok {
		states = make([]T, 1)
	}
	if !slices.ContainsFunc(states, same) {
		return fmt.Errorf("%v is %+v, want one of %+v", k, got, states)
	}
	return nil
}

// syncModel says what a page knows for sync, in the plainest way.
type syncModel struct {
	mu       sync.Mutex
	pieces   possible[object.Digest, modelPiece] // guarded by mu
	commits  possible[commit.ID, modelCommit]    // guarded by mu
	tags     possible[string, modelTag]          // guarded by mu
	metadata possible[string, string]            // guarded by mu

	contents map[object.Digest][]byte
	digests  []object.Digest
	received []*commit.Commit
	treeless []treeless
	places   uint64
	open     [3]*openJournal
	lossy    bool // what only the bucket has may be lost
}

// treeless is a commit whose tree is not here, and how it is made.
type treeless struct {
	c      *commit.Commit
	parent *commit.Commit
	e      edit
}

type openJournal struct {
	j      *storage.Journal
	pieces []object.Digest
}

func newSyncModel() *syncModel {
	return &syncModel{
		pieces: possible[object.Digest, modelPiece]{}, commits: possible[commit.ID, modelCommit]{},
		tags: possible[string, modelTag]{}, metadata: possible[string, string]{}, contents: map[object.Digest][]byte{},
	}
}

// withSync lets a world have a model and a bucket.
func (w *world) withSync() *syncModel {
	w.model, w.cloud = newSyncModel(), &cloud{pieces: map[object.Digest][]byte{}}
	if w.s != nil {
		w.connect(w.s)
	}
	return w.model
}

func (w *world) connect(s *storage.Store) {
	if w.cloud != nil {
		s.SetFetcher(unsearchable{w.cloud})
	}
}

// unsearchable is a bucket whose log records no places.
type unsearchable struct{ *cloud }

func (u unsearchable) Fetch(ctx context.Context, d object.Digest, at storage.CloudPlace) ([]byte, error) {
	if at == (storage.CloudPlace{}) {
		return nil, base.ErrGone
	}
	return u.cloud.Fetch(ctx, d, at)
}

// change is what a step does to what is known.
type change struct {
	piece    func(d object.Digest, p modelPiece) modelPiece
	commit   func(id commit.ID, c modelCommit) modelCommit
	tag      func(name string, t modelTag) modelTag
	metadata func(typ, v string) string
}

// step does something. Until it has succeeded it may have been done or not.
func (m *syncModel) step(ch change, run func() error) error {
	m.mu.Lock()
	pieces, commits, tags, metadata := m.pieces, m.commits, m.tags, m.metadata
	if ch.piece != nil {
		pieces = pieces.apply(ch.piece)
	}
	if ch.commit != nil {
		commits = commits.apply(ch.commit)
	}
	if ch.tag != nil {
		tags = tags.apply(ch.tag)
	}
	if ch.metadata != nil {
		metadata = metadata.apply(ch.metadata)
	}
	m.pieces, m.commits, m.tags, m.metadata = m.pieces.or(pieces), m.commits.or(commits), m.tags.or(tags), m.metadata.or(metadata)
	m.mu.Unlock()
	err := run()
	if err == nil {
		m.mu.Lock()
		m.pieces, m.commits, m.tags, m.metadata = pieces, commits, tags, metadata
		m.mu.Unlock()
	}
	return err
}

// know makes things known that steps are about.
func (m *syncModel) know(pieces []object.Digest, commits []commit.ID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pieces, m.commits = maps.Clone(m.pieces), maps.Clone(m.commits)
	for _, d := range pieces {
		if m.pieces[d] == nil {
			m.pieces[d] = []modelPiece{{}}
			m.digests = append(m.digests, d)
		}
	}
	for _, id := range commits {
		if m.commits[id] == nil {
			m.commits[id] = []modelCommit{{}}
		}
	}
}

func (p modelPiece) put() modelPiece {
	p.held = true
	return p
}

func (p modelPiece) unplace() modelPiece {
	p.placed, p.place = false, storage.CloudPlace{}
	return p
}

// verifySync compares what a page knows with the model. present are the commits that are there.
func (w *world) verifySync(s *storage.Store, present map[commit.ID]*commit.Commit) error {
	m := w.model
	if m == nil {
		return nil
	}
	ctx := context.Background()
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.verifyPieces(ctx, s); err != nil {
		return err
	}
	ids, err := s.Unsynced(ctx)
	if err != nil {
		return err
	}
	for id, c := range present {
		if c.IsFirst() {
			continue
		}
		held, err := s.TreeHeld(ctx, c)
		if err != nil {
			return err
		}
		got := modelCommit{synced: !slices.Contains(ids, id), treeless: !held}
		if err := m.commits.want(id, got, func(c modelCommit) bool { return c == got }); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	for _, id := range ids {
		if present[id] == nil {
			return fmt.Errorf("unsynced commit %s is not there", id)
		}
	}
	return m.verifyNames(ctx, s)
}

func (m *syncModel) verifyPieces(ctx context.Context, s *storage.Store) error {
	for d := range m.pieces {
		got, err := s.PieceState(d)
		if err != nil {
			return err
		}
		seen := modelPiece{held: got.Held, placed: got.Synced, place: got.Place}
		err = m.pieces.want(d, seen, func(p modelPiece) bool { return p.held == got.Held && p.placed == got.Synced && p.place == got.Place })
		if err != nil {
			return fmt.Errorf("piece %w", err)
		}
		content, err := s.Piece(ctx, d)
		switch readable := got.Held || got.Synced; {
		case readable && (err != nil || !bytes.Equal(content, m.contents[d])):
			return fmt.Errorf("read piece %s: %d bytes, %w", d, len(content), err)
		case !readable && m.lossy && !errors.Is(err, base.ErrCorrupt) && !errors.Is(err, base.ErrGone):
			return fmt.Errorf("read a piece that is nowhere: %w", err)
		}
	}
	return nil
}

func (m *syncModel) verifyNames(ctx context.Context, s *storage.Store) error {
	tags, err := s.Tags(ctx)
	if err != nil {
		return err
	}
	changes, err := s.UnsyncedTags(ctx)
	if err != nil {
		return err
	}
	for name := range m.tags {
		got := modelTag{id: tags[name]}
		for _, c := range changes {
			if c.Name == name {
				got.isNew, got.changed = true, c.Commit
			}
		}
		if err := m.tags.want(name, got, func(t modelTag) bool { return t == got }); err != nil {
			return fmt.Errorf("tag %w", err)
		}
	}
	for typ := range m.metadata {
		v, err := s.Metadata(ctx, typ)
		if err != nil {
			return err
		}
		got := string(v)
		if err := m.metadata.want(typ, got, func(v string) bool { return v == got }); err != nil {
			return fmt.Errorf("metadata %w", err)
		}
	}
	return nil
}

// verifyLocal compares the rows of local pieces.
func (w *world) verifyLocal(s *storage.Store) error {
	local := map[object.Digest]bool{}
	err := s.LocalPieces(context.Background(), func(d object.Digest) error {
		local[d] = true
		return nil
	})
	if err != nil {
		return err
	}
	placed := map[object.Digest]storage.CloudPlace{}
	all, err := s.PlacedIn(context.Background(), func(storage.CloudPlace) bool { return true })
	if err != nil {
		return err
	}
	for _, p := range all {
		placed[p.Digest] = p.Place
	}
	referred, treeless := map[string]bool{}, false
	for row, err := range s.Rows(context.Background(), "refcounts") {
		if err != nil {
			return err
		}
		referred[strings.Split(row.Key, "/")[1]] = true
	}
	for _, err := range s.Rows(context.Background(), "treeless/commits") {
		treeless = err == nil // what these need is not known
	}
	m := w.model
	m.mu.Lock()
	defer m.mu.Unlock()
	for d := range m.pieces {
		place, ok := placed[d]
		err := m.pieces.want(d, modelPiece{placed: ok, place: place}, func(p modelPiece) bool {
			return (p.held && !p.placed && (treeless || referred[d.String()])) == local[d] && p.placed == ok && p.place == place
		})
		if err != nil {
			return fmt.Errorf("local (%v) piece %w", local[d], err)
		}
	}
	return nil
}
