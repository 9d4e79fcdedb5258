package storage

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/limits"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage/index"
)

// SetFetcher sets the source of pieces that are not held; nil: no source, and reading such a piece
// returns base.ErrNeedsFetch. Reads in progress may still use the previous one.
func (s *Store) SetFetcher(f Fetcher) {
	if f == nil {
		s.fetcher.Store(nil)
		return
	}
	s.fetcher.Store(&f)
}

// fetch returns a piece from the bucket, verified against its digest. An error in the bucket says
// nothing about this page: the index is not rebuilt for it.
func (s *Store) fetch(ctx context.Context, d *object.Digest, place CloudPlace) ([]byte, error) {
	f := s.fetcher.Load()
	if f == nil {
		return nil, needsFetch(d)
	}
	content, err := (*f).Fetch(ctx, *d, place)
	if err != nil {
		return nil, fmt.Errorf("fetch piece %s: %w", d.Short(), err)
	}
	if len(content) > limits.MaxPieceBytes || d.Verify(content) != nil {
		return nil, fmt.Errorf("fetch piece: %w", &base.CorruptError{Where: "bucket", Key: d.String(), Got: "content with another digest"})
	}
	return content, nil
}

// Bring implements split.Far: the Fetcher fetches the pieces that are not held and have a place,
// all at once. Piece handles those that cannot be stored, or that the bucket no longer has at their
// place. Errors are as for Piece.
func (s *Store) Bring(ctx context.Context, ds []object.Digest) error {
	f := s.fetcher.Load()
	if f == nil {
		return nil
	}
	states, err := s.statesOf(ds)
	if err != nil {
		return fmt.Errorf("look up %d pieces: %w", len(ds), err)
	}
	var lacking []object.Digest
	for i := range states {
		if states[i].placed && !states[i].held {
			lacking = append(lacking, ds[i])
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	_, err = (*f).FetchAll(ctx, lacking)
	if errors.Is(err, base.ErrGone) || errors.Is(err, base.ErrReadOnly) || errors.Is(err, base.ErrNoSpace) {
		return nil
	}
	return err
}

// fetchUnplaced is fetch for a piece without a place while the bucket's log may record one. gone is
// the error for such a piece.
func (s *Store) fetchUnplaced(ctx context.Context, d *object.Digest, gone error) ([]byte, error) {
	if s.fetcher.Load() == nil {
		return nil, gone
	}
	if v, err := s.Metadata(ctx, MetadataAdopted); err != nil || v == nil {
		return nil, cmp.Or(err, gone)
	}
	content, err := s.fetch(ctx, d, CloudPlace{})
	if errors.Is(err, base.ErrGone) {
		return nil, gone
	}
	return content, err
}

// needsTree returns an error that matches base.ErrNeedsFetch when a node that is not held is the
// root of a treeless commit.
func (s *Store) needsTree(d *object.Digest) error {
	var ids []commit.ID
	pending, _ := s.pendingSync(true, func(o *op) bool { return o.kind == recCommit && o.commit.Root == *d })
	for _, o := range pending {
		ids = append(ids, o.commit.ID)
	}
	err := s.view(func(tx index.Tx) error {
		row, ok, err := readObjectRow(tx, d)
		if err != nil || !ok {
			return err
		}
		for _, id := range commitSources(tx, row.number) {
			if len(id) != len(commit.ID{}) {
				return badRow(bucketRefs, hex.EncodeToString(id), "bad key")
			}
			ids = append(ids, commit.ID(id))
		}
		return nil
	})
	if err != nil || len(ids) == 0 {
		return err
	}
	st, err := s.statuses(ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if st[id].treeless {
			return fmt.Errorf("read node %s: the tree of commit %s is not here: %w", d.Short(), id, base.ErrNeedsFetch)
		}
	}
	return nil
}

// AddFetched stores synced pieces that were not held, in one batch, and returns when they are
// durable. Pieces that are held or have no place in the bucket are skipped. The contents are not
// retained; there are at most MaxSyncPieces, of MaxSyncBytes together. Errors match base.ErrInvalid
// for a node, base.ErrCorrupt for content with another digest, base.ErrTooLarge,
// base.ErrClosed or base.ErrReadOnly, or are those of the disk or of ctx.
func (s *Store) AddFetched(ctx context.Context, pieces []FetchedPiece) error {
	if len(pieces) > MaxSyncPieces {
		return fmt.Errorf("add %d fetched pieces, limit %d: %w", len(pieces), MaxSyncPieces, base.ErrTooLarge)
	}
	wanted, bytes, err := s.wantedOf(pieces)
	if err != nil {
		return err
	}
	if len(wanted) == 0 {
		return s.writable()
	}
	if err := s.ready(ctx, nil, nil); err != nil {
		return err
	}
	p, err := s.submit(submission{
		add: func(g *group, _ []op) []op {
			g.batch.Grow(bytes + len(wanted)*recordRoom + endsRoom)
			ops := make([]op, len(wanted))
			for i, p := range wanted {
				ops[i] = op{kind: recPiece, digest: p.Digest}
				g.header.add(g.batch, &ops[i], p.Content)
			}
			return ops
		},
		late: true,
	})
	if err != nil {
		return err
	}
	return p.Wait()
}

const (
	// recordRoom exceeds the overhead of a piece record over its content.
	recordRoom = object.DigestSize + 16
	// endsRoom is about the length of what follows the records of a batch.
	endsRoom = 4 << 10
)

// wantedOf checks fetched pieces, and returns those that are synced and not held, each once, and
// their total length.
func (s *Store) wantedOf(pieces []FetchedPiece) (wanted []FetchedPiece, bytes int, err error) {
	ds := make([]object.Digest, len(pieces))
	for i := range pieces {
		p := &pieces[i]
		if err := checkValueDigest(&p.Digest); err != nil {
			return nil, 0, fmt.Errorf("add fetched piece: %w", err)
		}
		if len(p.Content) > limits.MaxPieceBytes {
			return nil, 0, otherContent(&p.Digest)
		}
		if bytes += len(p.Content); bytes > MaxSyncBytes {
			return nil, 0, fmt.Errorf("add %d fetched pieces of more than %d bytes: %w", len(pieces), MaxSyncBytes, base.ErrTooLarge)
		}
		ds[i] = p.Digest
	}
	for i := range pieces {
		p := &pieces[i]
		if object.Sum(p.Digest.Kind(), p.Content) != p.Digest {
			return nil, 0, otherContent(&p.Digest)
		}
		if _, err := split.Children(p.Digest, p.Content); err != nil { // a fold reads the children of an index piece
			return nil, 0, fmt.Errorf("add fetched piece: %w", err)
		}
	}
	states, err := s.statesOf(ds)
	if err != nil {
		return nil, 0, fmt.Errorf("add %d fetched pieces: %w", len(pieces), err)
	}
	given := make(map[object.Digest]bool, len(pieces))
	bytes = 0
	for i := range pieces {
		if st, p := &states[i], &pieces[i]; st.placed && !st.held && !given[p.Digest] {
			given[p.Digest] = true
			wanted, bytes = append(wanted, *p), bytes+len(p.Content)
		}
	}
	return wanted, bytes, nil
}

func otherContent(d *object.Digest) error {
	return fmt.Errorf("add fetched piece: %w", &base.CorruptError{Where: "bucket", Key: d.String(), Got: "content with another digest"})
}
