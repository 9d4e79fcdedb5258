package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/internal/presence"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// departure says how a page leaves.
type departure struct {
	kind      layout.AbsenceKind
	sizeBytes int64
	name      string
	unproved  error // why the bucket could not be asked
	dry       bool
	discard   bool // what only this device has
	blank     bool // also a page that has nothing
}

// departed says what came of it.
type departed struct {
	bar       EvictBar
	reason    string
	discarded bool
	inCloud   bool // the bucket with which it was synced has it
}

// depart removes the local copy of a page, unless something bars it. Who opens the page while it is
// looked at gets it, and it stays; who opens it later waits until it is gone. A page that is only
// kept (see keepPage) is given up for it, unless it is known before that it stays.
func (r *Repository) depart(ctx context.Context, k pageKey, d departure) (out departed, err error) {
	if r.pages.UseOf(k) == presence.Syncs {
		out, err = r.lookAtOpen(ctx, k, d)
		if err != nil || out.bar != EvictFree || d.dry {
			return out, err
		}
	}
	err = r.pages.Take(ctx, k, func(a *presence.Alone[*pageStore, *Page]) error {
		st, err := r.standing(ctx, k)
		if err != nil {
			return err
		}
		if out = d.judge(st); out.bar != EvictFree || d.dry {
			return ctx.Err()
		}
		return a.Leave(ctx, d.absence(st, r.clock.Now()))
	})
	switch {
	case errors.Is(err, presence.ErrInUse):
		return departed{bar: EvictOpen, reason: "it is open"}, nil
	case errors.Is(err, ErrNotFound):
		return departed{bar: EvictAway, reason: "it is not here any more"}, nil
	}
	return out, err
}

// lookAtOpen looks whether an open page may leave.
func (r *Repository) lookAtOpen(ctx context.Context, k pageKey, d departure) (departed, error) {
	st := &standing{}
	err := r.visit(ctx, k, func(ctx context.Context, p *Page) error { return r.look(ctx, p.store, st) })
	switch {
	case ctx.Err() != nil:
		return departed{}, ctx.Err()
	case errors.Is(err, ErrNotFound), errors.Is(err, ErrClosed):
		return departed{}, nil // it has left, or was closed meanwhile
	case err != nil:
		st.bars(EvictDamaged, "it cannot be read: %v", err)
	}
	return d.judge(st), nil
}

// absence is what stays of a page that leaves. One that is evicted and that nobody has leaves
// nothing. One that is deleted always leaves something: a bucket may have an older page of this id,
// or get one from another device, and that is not wanted here.
func (d *departure) absence(st *standing, now time.Time) *layout.Absence {
	if st.at.At.Number == 0 && d.kind != layout.Deleted {
		return nil
	}
	return &layout.Absence{
		Kind: d.kind, Bucket: [16]byte(st.at.Bucket), Number: st.at.At.Number, Since: max(now.UnixNano(), 0),
		SizeBytes: d.sizeBytes, Name: d.name,
	}
}

// judge says what becomes of a page that stands as st says.
func (d *departure) judge(st *standing) departed {
	done := departed{bar: st.bar, reason: st.reason}
	if done.bar == EvictBlank && (d.blank || d.discard || d.kind == layout.Deleted) {
		done = departed{}
	}
	if done.bar == EvictFree && !st.blank && d.unproved != nil {
		done.bar, done.reason = EvictUnproved, "the bucket cannot be asked: "+d.unproved.Error()
	}
	if d.discard && done.bar.Discardable() || d.discard && d.kind == layout.Deleted && done.bar == EvictDamaged {
		done = departed{discarded: true}
	}
	done.inCloud = st.at.At.Number > 0
	return done
}

// standing is how a page stands to the cloud.
type standing struct {
	bar    EvictBar // of what is known without asking the bucket
	reason string
	at     cloudsync.Standing // of its log in the bucket, of which the number is 0 when it was never synced or that cannot be read
	blank  bool               // nothing was ever in it

	unsynced, tags int
	local          bool // there are pieces of values that the bucket does not have
}

func (st *standing) bars(bar EvictBar, format string, args ...any) {
	st.bar, st.reason = bar, fmt.Sprintf(format, args...)
}

// standing opens the store of a page that the caller has alone. A page that cannot be opened has a
// bar and no error.
func (r *Repository) standing(ctx context.Context, k pageKey) (*standing, error) {
	st := &standing{}
	store, err := storage.Open(ctx, r.storageOptions(k))
	if err == nil {
		err = errors.Join(r.look(ctx, store, st), store.Close())
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		st.bars(EvictDamaged, "it cannot be read: %v", err)
	}
	return st, nil
}

// errSome ends a walk that has found what it looked for.
var errSome = errors.New("there is one")

// look fills in how the page of a store stands to the cloud.
func (r *Repository) look(ctx context.Context, store *storage.Store, st *standing) error {
	at, err := cloudsync.StandingOf(ctx, store)
	if err != nil {
		return err
	}
	st.at = *at
	unsynced, err := store.Unsynced(ctx)
	if err != nil {
		return err
	}
	tags, err := store.UnsyncedTags(ctx)
	if err != nil {
		return err
	}
	err = store.LocalPieces(ctx, func(object.Digest) error { return errSome })
	if err != nil && !errors.Is(err, errSome) {
		return err
	}
	st.unsynced, st.tags, st.local = len(unsynced), len(tags), err != nil
	heads := store.Heads()
	st.blank = len(heads) == 1 && heads[0].ID == commit.First().ID && st.tags == 0 && st.at.At.Number == 0
	if st.blank {
		st.bars(EvictBlank, "nothing was ever put into it, so the cloud has nothing from which it could come back")
		return nil
	}
	return r.judge(st)
}

// judge finds what bars the eviction of a page that is not blank.
func (r *Repository) judge(st *standing) (err error) {
	st.bar, st.reason, err = r.barOfBucket(&st.at)
	if err == nil && st.bar == EvictFree && (st.unsynced+st.tags > 0 || st.local || st.at.At.Number == 0) {
		st.bars(EvictUnsynced, "%s", st.missing())
	}
	return err
}

// barOfBucket says why the present bucket cannot have what a page was synced with, if at all.
func (r *Repository) barOfBucket(at *cloudsync.Standing) (EvictBar, string, error) {
	id, ok, err := r.cloud.Bucket()
	switch {
	case err != nil:
		return EvictFree, "", fmt.Errorf("look which bucket has it: %w", err)
	case !ok:
		return EvictNoCloud, "no cloud is set, so what it has is here only", nil
	case at.At.Number > 0 && at.Bucket != id:
		return EvictOtherCloud, fmt.Sprintf("it was synced with bucket %s, and the present one is %s", at.Bucket, id), nil
	}
	return EvictFree, "", nil
}

// missing says what the bucket does not have.
func (st *standing) missing() string {
	what := func(n int, one string) string {
		if n == 1 {
			return "1 " + one + " is"
		}
		return fmt.Sprintf("%d %ss are", n, one)
	}
	switch {
	case st.unsynced > 0:
		return what(st.unsynced, "commit") + " not in the cloud"
	case st.tags > 0:
		return what(st.tags, "tag") + " not in the cloud"
	case st.local:
		return "pieces of values are not in the cloud"
	}
	return "it was never synced"
}
