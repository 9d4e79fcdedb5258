package reclaim

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/base"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// Departed is the result of a departure.
type Departed struct {
	// Bar and Reason are why the page stays.
	Bar       Bar
	Reason    string
	Discarded bool
	InCloud   bool // the page's bucket has it
}

// unproved is the result when the bucket cannot be reached.
func unproved(err error) Departed {
	return Departed{Bar: Unproved, Reason: "the bucket cannot be asked: " + err.Error()}
}

// leave removes the local copy of a page, unless barred. A caller that opens the page during the
// examination gets it, and the page stays; a later caller waits until it is gone. A page that is
// only held for sync is closed for this, unless it is clear before that it stays.
func (e *evictor) leave(ctx context.Context, c *Evicted) (out Departed, err error) {
	if e.host.UseOf(c.Page) == presence.ForSync {
		out, err = e.lookAtOpen(ctx, c.Page)
		if err != nil || out.Bar != Free || e.o.DryRun {
			return out, err
		}
	}
	err = e.host.Alone(ctx, c.Page, func(leave presence.Leave) error {
		st, err := e.host.standing(ctx, c.Page)
		if err != nil {
			return err
		}
		if out = e.judge(st); out.Bar != Free || e.o.DryRun {
			return ctx.Err()
		}
		return leave(ctx, e.absence(c, st))
	})
	switch {
	case errors.Is(err, presence.ErrInUse):
		return Departed{Bar: InUse, Reason: "it is open"}, nil
	case errors.Is(err, base.ErrNotFound):
		return Departed{Bar: Away, Reason: "it is not here any more"}, nil
	}
	return out, err
}

// lookAtOpen examines whether an open page may leave.
func (e *evictor) lookAtOpen(ctx context.Context, k base.Page) (Departed, error) {
	st := &Standing{}
	err := e.host.Visit(ctx, k, func(ctx context.Context, c *Collector) (err error) {
		st, err = e.host.Look(ctx, c.page.Store)
		return err
	})
	switch {
	case ctx.Err() != nil:
		return Departed{}, ctx.Err()
	case errors.Is(err, base.ErrNotFound), errors.Is(err, base.ErrClosed):
		return Departed{}, nil // it has left, or was closed meanwhile
	case err != nil:
		st.damaged(err)
	}
	return e.judge(st), nil
}

// absence returns the record to keep of a page that leaves. An evicted page without a copy
// elsewhere leaves none. A deleted page always leaves one: a bucket may have an older page of this
// id, or get one from another device, which must not be downloaded.
func (e *evictor) absence(c *Evicted, st *Standing) *layout.Absence {
	a := &layout.Absence{
		Kind: layout.Evicted, Bucket: [16]byte(st.At.Bucket), Number: st.At.At.Number, Since: max(e.host.Clock.Now().UnixNano(), 0),
		SizeBytes: c.Bytes, Name: c.Name,
	}
	switch {
	case e.o.Delete:
		a.Kind = layout.Deleted
	case a.Number == 0:
		return nil
	}
	return a
}

// judge decides about a page by its standing.
func (e *evictor) judge(st *Standing) Departed {
	done := st.Departed
	if done.Bar == Blank && (e.o.Blank || e.o.DiscardUnsynced || e.o.Delete) {
		done = Departed{}
	}
	if done.Bar == Free && !st.blank && e.unproved != nil {
		done = unproved(e.unproved)
	}
	if e.o.DiscardUnsynced && (done.Bar.Discardable() || e.o.Delete && done.Bar == Damaged) {
		done = Departed{Discarded: true}
	}
	done.InCloud = st.At.At.Number > 0
	return done
}

// Standing is the state of a page in relation to the cloud.
type Standing struct {
	// Departed is the expected result of a departure, as far as known without a request.
	Departed
	// At is the position in the page's log in the bucket; its number is 0 when the page was never
	// synced or the position is unreadable.
	At cloudsync.Standing
	// Unsynced and Tags count commits and tags that the bucket does not have. Local reports pieces
	// of values that it does not have.
	Unsynced, Tags int
	Local          bool

	blank bool // it was never written
}

// damaged records that the page cannot be read.
func (st *Standing) damaged(err error) {
	st.Bar, st.Reason = Damaged, fmt.Sprintf("it cannot be read: %v", err)
}

// standing opens the store of a page that the caller has exclusively. A page that cannot be opened
// gets a bar, not an error.
func (h *Host) standing(ctx context.Context, k base.Page) (*Standing, error) {
	st := &Standing{}
	store, err := storage.Open(ctx, h.Store(k))
	if err == nil {
		st, err = h.Look(ctx, store)
		err = errors.Join(err, store.Close())
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		st.damaged(err)
	}
	return st, nil
}

// errSome ends a walk that has found an element.
var errSome = errors.New("there is one")

// Look returns the standing of a store's page, with an error as far as known. Errors: those of the
// store, and why the file with the cloud cannot be used.
func (h *Host) Look(ctx context.Context, store *storage.Store) (*Standing, error) {
	st := &Standing{}
	at, err := cloudsync.StandingOf(ctx, store)
	if err != nil {
		return st, err
	}
	st.At = *at
	unsynced, err := store.Unsynced(ctx)
	if err != nil {
		return st, err
	}
	tags, err := store.UnsyncedTags(ctx)
	if err != nil {
		return st, err
	}
	err = store.LocalPieces(ctx, func(object.Digest) error { return errSome })
	if err != nil && !errors.Is(err, errSome) {
		return st, err
	}
	st.Unsynced, st.Tags, st.Local = len(unsynced), len(tags), err != nil
	heads := store.Heads()
	if st.blank = len(heads) == 1 && heads[0].ID == commit.First().ID && st.Tags == 0 && at.At.Number == 0; st.blank {
		st.Bar, st.Reason = Blank, "nothing was ever put into it, so the cloud has nothing from which it could come back"
		return st, nil
	}
	st.Departed, err = h.barOfBucket(at)
	if err == nil && st.Bar == Free && (st.Unsynced+st.Tags > 0 || st.Local || at.At.Number == 0) {
		st.Bar, st.Reason = Unsynced, st.missing()
	}
	return st, err
}

// barOfBucket returns why the present bucket cannot have a synced page's data, if so.
func (h *Host) barOfBucket(at *cloudsync.Standing) (Departed, error) {
	id, ok, err := h.Bucket()
	switch {
	case err != nil:
		return Departed{}, fmt.Errorf("look which bucket has it: %w", err)
	case !ok:
		return Departed{Bar: NoCloud, Reason: "no cloud is set, so what it has is here only"}, nil
	case at.At.Number > 0 && at.Bucket != id:
		return Departed{Bar: OtherCloud, Reason: fmt.Sprintf("it was synced with bucket %x, and the present one is %x", at.Bucket, id)}, nil
	}
	return Departed{}, nil
}

// missing describes what the bucket does not have.
func (st *Standing) missing() string {
	what := func(n int, one string) string {
		if n == 1 {
			return "1 " + one + " is"
		}
		return fmt.Sprintf("%d %ss are", n, one)
	}
	switch {
	case st.Unsynced > 0:
		return what(st.Unsynced, "commit") + " not in the cloud"
	case st.Tags > 0:
		return what(st.Tags, "tag") + " not in the cloud"
	case st.Local:
		return "pieces of values are not in the cloud"
	}
	return "it was never synced"
}
