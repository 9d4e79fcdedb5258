package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/ledgerd/ledger/cloudsync"
	"github.com/ledgerd/ledger/commit"
	"github.com/ledgerd/ledger/internal/layout"
	"github.com/ledgerd/ledger/object"
	"github.com/ledgerd/ledger/storage"
)

// departure says how a page leaves.
type departure struct {
	kind       layout.AbsenceKind
	sizeBytes  int64
	name       string
	unproved   error // why the bucket could not be asked
	dry        bool
	discard    bool // what only this device has
	blank      bool // also a page that has nothing
	usageStays bool // for who removes the usage of many pages together
}

// departed says what came of it.
type departed struct {
	bar       EvictBar
	reason    string
	discarded bool
	inCloud   bool // the bucket with which it was synced has it
}

// errLeaving is what stands in for the store of a page while it is looked at for eviction. It
// reaches no caller.
var errLeaving = errors.New("page is leaving")

// depart removes the local copy of a page (A2), unless something bars it. While it looks at the
// page it holds the page's place among the open ones, and gives it up to whoever wants to open the
// page; from the moment when it is decided that the page goes, openers wait until it is gone. Who
// only keeps it (see keepPage) gives way, and waits till then.
func (r *Repository) depart(ctx context.Context, k pageKey, d departure) (departed, error) {
	l, err := r.prepareToLeave(ctx, k, d)
	if err != nil {
		return departed{}, err
	}
	r.leaveTogether(ctx, []*leaver{l})
	return l.done, l.err
}

// prepareToLeave looks whether a page may leave. When it may, the leaver has its place among the
// open ones, until leaveTogether or somebody who wants to open it takes that; when it may not, or
// only that was asked, leaveTogether does nothing with it.
func (r *Repository) prepareToLeave(ctx context.Context, k pageKey, d departure) (l *leaver, err error) {
	decided, err := r.beginLeaving(ctx, k)
	if err != nil {
		return nil, err
	}
	l = &leaver{key: k, d: d}
	defer func() {
		if l.s == nil {
			decided()
		}
	}()
	var s *pageStore
	for s == nil {
		done, over, err := r.askKept(ctx, k, d)
		if over || err != nil {
			l.done = done
			return l, err
		}
		if s, err = r.reserveToLeave(ctx, k); err != nil {
			return l, err
		}
		if s == nil && !r.isKept(k) {
			l.done = departed{bar: EvictOpen, reason: "it is open"}
			return l, nil
		}
	}
	r.stage("looking", k)
	if l.st, err = r.standing(ctx, k); err == nil {
		l.done = d.judge(l.st)
		err = ctx.Err()
	}
	if err == nil && l.done.bar == EvictFree && !d.dry {
		l.s, l.decided = s, decided
		r.offer(l)
	} else {
		r.freePlace(s)
	}
	return l, err
}

// beginLeaving has one at a time look whether a page leaves. decided must be called.
func (r *Repository) beginLeaving(ctx context.Context, k pageKey) (decided func(), err error) {
	return r.takePageTurn(ctx, r.leaving, k)
}

// isBusy reports whether prepareToLeave might have to wait for others.
func (r *Repository) isBusy(k pageKey) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaving[k] != nil || r.pages[k] != nil
}

// departing returns a channel that is closed when it is decided whether a page leaves, nil when
// nobody looks at that.
func (r *Repository) departing(k pageKey) <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.leaving[k]
}

// reserveToLeave takes the place of a page among the open ones, nil when the page is open.
func (r *Repository) reserveToLeave(ctx context.Context, k pageKey) (*pageStore, error) {
	for {
		r.mu.Lock()
		s := r.pages[k]
		if s == nil {
			s = r.newPageStore(k, "")
			s.leaving = true
			r.pages[k] = s
			r.mu.Unlock()
			return s, nil
		}
		closing := s.closing
		r.mu.Unlock()
		wait := s.ready
		if closing {
			wait = s.gone
		}
		select {
		case <-wait:
			if !closing {
				return nil, nil
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
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

// standing opens the store of a page whose place the caller has. A page that cannot be opened has a
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
	if errors.Is(err, ErrNotFound) {
		if here, err := r.disk.HasPage(k); err != nil || !here {
			st.bars(EvictAway, "it is not here any more")
			return st, err
		}
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
func (r *Repository) judge(st *standing) error {
	if err := r.judgeBucket(st); err != nil || st.bar != EvictFree {
		return err
	}
	if st.unsynced+st.tags > 0 || st.local || st.at.At.Number == 0 {
		st.bars(EvictUnsynced, "%s", st.missing())
		return nil
	}
	return nil
}

// judgeBucket finds out whether the page was synced with the present bucket, if at all.
func (r *Repository) judgeBucket(st *standing) error {
	file, _ := r.cloud.get()
	if file == nil {
		if err := r.cloud.broken(); err != nil {
			return fmt.Errorf("look which bucket has it: %w", err)
		}
		st.bars(EvictNoCloud, "no cloud is set, so what it has is here only")
		return nil
	}
	w, err := file.ring()
	if err == nil && st.at.At.Number > 0 && st.at.Bucket != w.BucketID {
		st.bars(EvictOtherCloud, "it was synced with bucket %s, and the present one is %s", hexOf(st.at.Bucket), hexOf(w.BucketID))
	}
	return err
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
