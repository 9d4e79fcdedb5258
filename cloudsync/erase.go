package cloudsync

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ledgerd/ledger/cloudsync/bucket"
	"github.com/ledgerd/ledger/cloudsync/cloudlog"
	"github.com/ledgerd/ledger/cloudsync/format"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/split"
	"github.com/ledgerd/ledger/storage"
)

// erasure is what a call of Erase removes from the bucket beside entries and checkpoints.
type erasure struct {
	packs map[format.ID]bool // in which pieces of erased values stand
}

// packsIn returns the packs that are there and not condemned yet.
func (e *erasure) packsIn(names format.PageNames, have []bucket.Info, s *survey) (ids []format.ID) {
	for _, info := range have {
		kind, _, _, id, ok := names.ParseName(info.Name)
		if _, condemned := s.condemned[id]; ok && kind == format.KindPack && e.packs[id] && !condemned {
			ids = append(ids, id)
		}
	}
	return ids
}

// Erase gives commits up by name, for all devices, with what only they have: values are the roots
// of the values for whose sake that is done. It syncs, tells all devices in the log, prunes and
// collects here, and then condemns in the bucket all entries and checkpoints before a new one, and
// all packs with pieces of the values; what is still needed of these is moved before. The bucket is
// rid of it when CollectGarbage is called after the grace. Other devices prune the commits when
// they read the log. None of the commits may be a head, tagged or in use. After an error, or the
// death of the process, it is to be called again, with what is still to be given up, which may be
// nothing: in which packs the values are is remembered (see Erasing), until EndErasing. Errors: as
// Sync; base.ErrConflict for a commit that something needs; base.ErrTooLarge when more than 1024
// commits besides the heads are kept.
func (p *Page) Erase(ctx context.Context, commits []commit.ID, values []object.Digest) (*GCReport, error) {
	if err := p.Sync(ctx); err != nil {
		return nil, err
	}
	var report *GCReport
	err := p.withTurn(ctx, "erase from history", func(ctx context.Context) (err error) {
		report, err = p.erase(ctx, commits, values)
		return err
	})
	if err == nil {
		err = p.Sync(ctx) // what has lost its place and is needed is sent again
	}
	if err != nil {
		return nil, err
	}
	return report, nil
}

func (p *Page) erase(ctx context.Context, commits []commit.ID, values []object.Digest) (report *GCReport, err error) {
	e, _, err := erasing(ctx, p.store)
	if err != nil {
		return nil, err
	}
	seen := map[object.Digest]bool{}
	for _, d := range values {
		if err := p.packsOf(ctx, d, 0, seen, e.packs); err != nil {
			return nil, fmt.Errorf("look where value %s stands: %w", d.Short(), err)
		}
	}
	if err := e.keep(ctx, p.store); err != nil { // once the commits are pruned nothing else leads to the packs
		return nil, err
	}
	for ids := range slices.Chunk(slices.Clone(commits), format.MaxGivenUp) {
		o, err := p.out.Announce(ctx, &format.Body{GivenUp: slices.Clone(ids)})
		if err == nil {
			err = p.append(ctx, o)
		}
		if err != nil {
			return nil, err
		}
	}
	if err := p.in.NoteGivenUp(ctx, commits); err != nil {
		return nil, err
	}
	if kept, err := p.store.Prune(ctx, commits); err != nil {
		return nil, fmt.Errorf("%d of %d commits stay: %w", len(kept), len(commits), err)
	}
	if err := p.collect(ctx); err != nil {
		return nil, err
	}
	if err := p.in.LosePlaces(ctx, func(c storage.CloudPlace) bool { return e.packs[c.Pack] }); err != nil {
		return nil, err
	}
	p.ses.resend = true
	for range maxSweeps {
		if report, err = p.sweep(ctx, GCOptions{erase: e}); !errors.Is(err, errAnnounced) && !errors.Is(err, cloudlog.ErrRemake) {
			break
		}
		if err := p.begin(ctx); err != nil {
			return nil, err
		}
	}
	return report, err
}

// metadataErasing is the type of the metadata row that says that an erasure has begun and not come
// to its end: the number 1, and the ids of the packs that it condemns, sorted.
const metadataErasing = storage.MetadataErasing

// maxErasing bounds the packs of one erasure, which are 16 MiB each: the row has to fit into a
// record.
const maxErasing = 65_000

// encode returns the row of an erasure that has begun.
func (e *erasure) encode() ([]byte, error) {
	if len(e.packs) > maxErasing {
		return nil, fmt.Errorf("condemn %d packs, of at most %d: %w", len(e.packs), maxErasing, base.ErrTooLarge)
	}
	row := []byte{1}
	for _, id := range slices.SortedFunc(maps.Keys(e.packs), func(a, b format.ID) int { return bytes.Compare(a[:], b[:]) }) {
		row = append(row, id[:]...)
	}
	return row, nil
}

// erasing returns what an erasure still has to condemn that has not come to its end, and whether
// there is one.
func erasing(ctx context.Context, store *storage.Store) (e *erasure, begun bool, err error) {
	e = &erasure{packs: map[format.ID]bool{}}
	row, err := store.Metadata(ctx, metadataErasing)
	if err != nil || row == nil {
		return e, false, err
	}
	if len(row)%len(format.ID{}) != 1 || row[0] != 1 {
		return nil, false, &base.CorruptError{Where: "page.db", Key: "sync_metadata/" + metadataErasing, Want: "1 and ids of packs", Got: fmt.Sprintf("%d bytes", len(row))}
	}
	for id := range slices.Chunk(row[1:], len(format.ID{})) {
		e.packs[format.ID(id)] = true
	}
	return e, true, nil
}

// Erasing reports whether the erasure of a value has begun in a page, by BeginErasing or Erase, and
// has not come to its end: what was begun is to be done again. Errors: those of the store and of
// ctx.
func Erasing(ctx context.Context, store *storage.Store) (bool, error) {
	_, begun, err := erasing(ctx, store)
	return begun, err
}

// BeginErasing notes that commits are about to be given up in a page so that a value goes. It
// returns when that is durable. Errors: those of the store and of ctx.
func BeginErasing(ctx context.Context, store *storage.Store) error {
	e, _, err := erasing(ctx, store)
	if err != nil {
		return err
	}
	return e.keep(ctx, store)
}

// EndErasing notes that nothing of what was to be erased is left. It returns when that is durable.
// Errors: those of the store and of ctx.
func EndErasing(ctx context.Context, store *storage.Store) error {
	return keepRows(ctx, store, storage.Metadata{Type: metadataErasing})
}

func (e *erasure) keep(ctx context.Context, store *storage.Store) error {
	row, err := e.encode()
	if err != nil {
		return err
	}
	return keepRows(ctx, store, storage.Metadata{Type: metadataErasing, Value: row})
}

// maxValueDepth bounds the levels of a value's pieces; split makes fewer.
const maxValueDepth = 32

// packsOf adds the packs in which the pieces of a value stand.
func (p *Page) packsOf(ctx context.Context, d object.Digest, depth int, seen map[object.Digest]bool, packs map[format.ID]bool) error {
	if seen[d] || depth > maxValueDepth {
		return nil
	}
	seen[d] = true
	st, err := p.store.PieceState(d)
	if err != nil {
		return err
	}
	if st.Synced && st.Place.Entry == 0 {
		packs[st.Place.Pack] = true
	}
	if !d.Kind().IsIndex() || !st.Held && !st.Synced {
		return nil
	}
	content, err := p.store.Piece(ctx, d)
	if errors.Is(err, base.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	children, err := split.Children(d, content)
	if err != nil {
		return err
	}
	for _, c := range children {
		if err := p.packsOf(ctx, c, depth+1, seen, packs); err != nil {
			return err
		}
	}
	return nil
}
